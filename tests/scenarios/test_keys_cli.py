"""``toolverdict keys``: a call whose end nobody knows is resolved by who found out, and by no mistake."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.stores.idempotency import (
    Conflict,
    IdempotencyStore,
    Replay,
    Started,
    Unknown,
)
from toolverdict.keys_cli import app

KEY = "hmac-sha256:aa"
SECRET = "6b" * 32


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLVERDICT_HASH_KEY", SECRET)
    return tmp_path / "keys.db"


@pytest.fixture
def store(db: Path) -> Iterator[IdempotencyStore]:
    with IdempotencyStore(db, key=HashKey.of(SECRET)) as store:
        yield store


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


def lose(store: IdempotencyStore, tool: str = "pay", tenant: str = "") -> None:
    started = store.begin(tool=tool, key_hash=KEY, fingerprint="f", tenant=tenant)
    assert isinstance(started, Started)
    store.finish(started, "unknown")


def begin(store: IdempotencyStore, fingerprint: str = "f") -> object:
    return store.begin(tool="pay", key_hash=KEY, fingerprint=fingerprint)


def test_a_lost_call_is_listed_and_resolved(db: Path, store: IdempotencyStore) -> None:
    lose(store)
    assert isinstance(begin(store), Unknown)
    code, shown, _ = run("list", "--db", db, "--state", "unknown")
    assert code == 0
    assert KEY in shown
    code, shown, _ = run("resolve", KEY, "--db", db, "--found", "succeeded")
    assert (code, shown.split()[0]) == (0, "succeeded")
    replay = begin(store)
    assert isinstance(replay, Replay)
    assert not replay.has_result
    assert isinstance(begin(store, "other"), Conflict)


def test_what_did_not_happen_may_run(db: Path, store: IdempotencyStore) -> None:
    lose(store)
    assert run("resolve", KEY, "--db", db, "--found", "did-not-happen")[0] == 0
    assert isinstance(begin(store), Started)


@pytest.mark.parametrize("end", [None, "succeeded"])
def test_only_an_unknown_end_is_resolved(
    db: Path, store: IdempotencyStore, end: str | None
) -> None:
    started = begin(store)
    assert isinstance(started, Started)
    if end == "succeeded":
        store.finish(started, "succeeded", 1)
    code, _, said = run("resolve", KEY, "--db", db, "--found", "did-not-happen")
    assert code == 2
    assert "only an unknown one" in said
    assert not isinstance(begin(store), Started)


def test_a_run_whose_lease_is_over_counts_as_lost(db: Path) -> None:
    with IdempotencyStore(db, key=HashKey.of(SECRET), lease_s=0.001) as store:
        begin(store)
        while store.keys()[0].state == "in_progress":
            pass
        code, shown, _ = run("list", "--db", db, "--state", "unknown", "--json")
        assert code == 0
        assert [key["tool"] for key in json.loads(shown)] == ["pay"]
        assert run("resolve", KEY, "--db", db, "--found", "failed", "--json")[0] == 0
        assert isinstance(begin(store), Replay)


def test_a_key_of_two_tools_needs_its_tool(db: Path, store: IdempotencyStore) -> None:
    lose(store)
    lose(store, tool="refund")
    lose(store, tool="refund", tenant="t\u202e1")
    code, _, said = run("resolve", KEY, "--db", db, "--found", "succeeded")
    assert code == 2
    assert "--tool" in said
    assert run("resolve", KEY, "--db", db, "--found", "succeeded", "--tool", "pay")[0] == 0
    code, _, _ = run(
        *("resolve", KEY, "--db", db, "--found", "succeeded", "--tool", "refund", "--tenant", "")
    )
    assert code == 0
    assert "\u202e" not in run("list", "--db", db)[1]
    assert [key.state for key in store.keys(tool="refund")] == ["unknown", "succeeded"]


def test_mistakes_are_one_line(db: Path, tmp_path: Path) -> None:
    code, shown, said = run("list", "--db", tmp_path / "none.db")
    assert (code, shown, said.count("\n")) == (2, "", 1)
    IdempotencyStore(db, key=HashKey.of(SECRET)).close()
    code, _, said = run("resolve", "nope", "--db", db, "--found", "failed")
    assert (code, said.count("\n")) == (2, 1)


def test_a_row_of_somebody_else_is_said_to_be_one_and_can_be_resolved(
    db: Path, store: IdempotencyStore
) -> None:
    lose(store)
    lose(store, tool="refund")
    connection = sqlite3.connect(db)
    with connection:
        connection.execute(
            "UPDATE idempotency SET touched_at = 99999999999999999 WHERE tool = 'pay'"
        )
    connection.close()
    code, shown, _ = run("list", "--db", db)
    assert code == 0
    assert "unknown (damaged)" in shown
    resolve = ("resolve", KEY, "--tool", "pay", "--db", db, "--found", "succeeded")
    assert run(*resolve)[0] == 0
    assert "damaged" not in run("list", "--db", db)[1]


def test_it_needs_the_key_of_the_agents_side(
    db: Path, store: IdempotencyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOOLVERDICT_HASH_KEY")
    code, _, said = run("list", "--db", db)
    assert code == 2
    assert "TOOLVERDICT_HASH_KEY" in said


def test_with_another_hash_key_nothing_is_intact_and_it_says_so(
    db: Path, store: IdempotencyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("list", "--db", db) == (0, "", "")
    lose(store)
    monkeypatch.setenv("TOOLVERDICT_HASH_KEY", "6c" * 32)
    for options in ([], ["--json"], ["--state", "succeeded"]):
        code, _, said = run("list", "--db", db, *options)
        assert (code, said.count("\n")) == (2, 1)
        assert "written with another hash key? is TOOLVERDICT_HASH_KEY the agent's?" in said
