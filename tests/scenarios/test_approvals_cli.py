"""``toolverdict approvals``: what a person sees is what they approve, and hidden text is named."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from toolverdict.approvals_cli import app
from toolverdict.instrument import ApprovalRequest
from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.stores.approvals import ApprovalStore

KEY = "6b" * 32
REQUEST = ApprovalRequest(
    id="appr_x",
    tool="refund",
    arguments={"order_id": "o-1", "to": "p\u0430ypal\u202e"},
    args_hash="hmac-sha256:aa",
    labels=("payment",),
    agent="bot",
    conversation_id="run-a",
    call_id="call_1",
    policy_id="p",
    policy_digest="sha256:p1",
    rule_ids=("q",),
    reason="big",
)


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOOLVERDICT_HASH_KEY", KEY)
    return tmp_path / "approvals.db"


@pytest.fixture
def store(db: Path) -> Iterator[ApprovalStore]:
    with ApprovalStore(db, key=HashKey.of(KEY)) as store:
        yield store


def run(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


def test_a_person_lists_shows_and_approves(db: Path, store: ApprovalStore) -> None:
    record = store.request(REQUEST)
    code, shown, _ = run("list", "--db", db)
    assert code == 0
    assert record.id in shown
    code, shown, _ = run("show", record.id, "--db", db)
    assert code == 0
    assert "arguments: not stored" in shown
    assert "o-1" not in shown
    code, shown, _ = run(
        "approve", record.id, "--db", db, "--by", "ann", "--note", "ok", "--seen",
        record.presented_hash,
    )  # fmt: skip
    assert code == 0
    assert "decided: by ann (human)" in shown
    assert [found.status for found in store.list()] == ["approved"]
    assert run("list", "--db", db, "--status", "requested") == (0, "", "")


def test_stored_arguments_are_shown_whole_and_their_tricks_named(
    db: Path, store: ApprovalStore
) -> None:
    long = replace(REQUEST, arguments={**REQUEST.arguments, "text": "x" * 9000, "c": "a\x1b[2K"})
    record = store.request(long, store_arguments=True)
    _, shown, _ = run("show", record.id, "--db", db)
    assert "o-1" in shown
    assert "x" * 9000 in shown
    assert "\u202e" not in shown
    assert "\x1b" not in shown
    assert "warning: characters that change the direction of text: U+202E" in shown
    assert "warning: characters that cannot be seen: U+001B" in shown
    assert "warning: words of letters from several alphabets" in shown
    _, listed, _ = run("list", "--db", db)
    assert "hidden characters" in listed
    _, document, _ = run("show", record.id, "--db", db, "--json")
    assert "\u202e" not in document
    assert len(json.loads(document)["warnings"]) == 3
    assert json.loads(document)["content"]["arguments"].startswith("{")
    assert json.loads(run("list", "--db", db, "--json")[1])[0]["id"] == record.id


def test_a_line_cannot_be_forged(db: Path, store: ApprovalStore) -> None:
    record = store.request(replace(REQUEST, reason="big\nstatus: approved"))
    _, shown, _ = run("show", record.id, "--db", db)
    assert "\nstatus: approved" not in shown
    assert "reason: big\\nstatus: approved" in shown


def test_an_adviser_decides_nothing(db: Path, store: ApprovalStore) -> None:
    record = store.request(REQUEST)
    code, shown, _ = run(
        "approve", record.id, "--db", db, "--by", "judge", "--kind", "llm_advisory", "--yes"
    )
    assert code == 0
    assert "status: requested" in shown
    assert "advice of judge: approved" in shown


def test_what_cannot_be_done_is_one_line_and_exit_2(
    db: Path, store: ApprovalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = store.request(REQUEST)
    refused = [
        ("show", "appr_none", "--db", db),
        ("approve", record.id, "--db", db, "--by", "bot", "--yes"),
        ("approve", record.id, "--db", db, "--by", "ann", "--seen", "other"),
        ("approve", record.id, "--db", db, "--by", "", "--yes"),
        ("approve", record.id, "--db", db, "--by", "a\udcff", "--yes"),
        ("approve", record.id, "--db", db, "--by", "b\u043et", "--yes"),
        ("approve", record.id, "--db", db, "--by", "ann\u200b", "--yes"),
        ("approve", record.id, "--db", db, "--by", "ann", "--note", "\udcff", "--yes"),
        ("approve", record.id, "--db", db, "--by", "ann", "--seen", "\u00e9"),
        ("list", "--db", tmp_path / "none"),
        ("list", "--db", tmp_path),
    ]
    for arguments in refused:
        code, shown, error = run(*arguments)
        assert (code, shown) == (2, "")
        assert error.startswith("toolverdict approvals: ")
        assert error.count("\n") == 1
    assert run("approve", record.id, "--db", db)[0] == 2
    assert run("list", "--db", db, "--status", "lost")[0] == 2
    assert run("reject", record.id, "--db", db, "--by", "ann")[0] == 0
    assert run("approve", record.id, "--db", db, "--by", "ann", "--yes")[0] == 2
    assert not (tmp_path / "none").exists()
    monkeypatch.delenv("TOOLVERDICT_HASH_KEY")
    assert run("list", "--db", db)[0] == 2


def test_with_another_key_every_record_is_damaged(
    db: Path, store: ApprovalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = store.request(REQUEST)
    environment = {**os.environ, "TOOLVERDICT_HASH_KEY": "6c" * 32}
    command = [sys.executable, "-m", "toolverdict", "approvals"]
    done = subprocess.run(
        [*command, "show", record.id, "--db", str(db)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "status: requested (damaged)" in done.stdout
    done = subprocess.run(
        [*command, "approve", record.id, "--db", str(db), "--by", "ann", "--yes"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_nothing_is_approved_that_nobody_says_to_have_seen(db: Path, store: ApprovalStore) -> None:
    record = store.request(REQUEST)
    code, shown, said = run("approve", record.id, "--db", db, "--by", "ann")
    assert code == 2
    assert "tool: refund" in shown
    assert f"--seen {record.presented_hash}" in said
    assert [found.status for found in store.list()] == ["requested"]


def damage(db: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(db)
    with connection:
        connection.execute("DROP TRIGGER approval_way")
        connection.execute("DROP TRIGGER approval_bound")
        connection.execute("PRAGMA ignore_check_constraints = 1")
        connection.execute(statement, values)
    connection.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *[("mac", "\u00e9"), ("created_at", 2**63 - 1), ("expires_at", 99999999999999999)],
        *[("expires_at", -9000000000000000), ("content", "[" * 100_000), ("content", "7")],
        *[("content", '{"arguments": "{"}'), ("advice", "[1]"), ("advice", "{"), ("status", "?")],
        *[("note", "\x1b[2J"), ("decided_by", "x"), ("content", '{"approvers": 5}')],
    ],
)
def test_a_damaged_row_is_shown_and_hides_no_other(
    db: Path, store: ApprovalStore, column: str, value: object
) -> None:
    record = store.request(REQUEST)
    fine = store.request(replace(REQUEST, args_hash="hmac-sha256:bb"))
    damage(db, f"UPDATE approval SET {column} = ? WHERE id = ?", value, record.id)
    code, shown, _ = run("list", "--db", db)
    assert code == 0
    assert fine.id in shown
    assert "(damaged)" in next(line for line in shown.splitlines() if record.id in line)
    for options in ([], ["--json"]):
        code, shown, _ = run("show", record.id, "--db", db, *options)
        assert (code, "\x1b" in shown) == (0, False)
    code, _, said = run("approve", record.id, "--db", db, "--by", "ann", "--yes")
    assert (code, len(said.splitlines())) == (2, 1)


def test_a_row_that_is_no_text_is_shown_and_hides_no_other(db: Path, store: ApprovalStore) -> None:
    record = store.request(REQUEST)
    fine = store.request(replace(REQUEST, args_hash="hmac-sha256:bb"))
    damage(db, "UPDATE approval SET content = CAST(x'ff' AS TEXT) WHERE id = ?", record.id)
    _, shown, _ = run("list", "--db", db)
    assert fine.id in shown
    assert run("show", record.id, "--db", db, "--json")[0] == 0


def test_with_another_hash_key_nothing_is_intact_and_it_says_so(
    db: Path, store: ApprovalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = HashKey.of(KEY), HashKey.of("6c" * 32)
    plain = replace(REQUEST, arguments={}, args_hash_key_id=ours.id)
    record = store.request(plain)
    monkeypatch.setenv("TOOLVERDICT_HASH_KEY", "6c" * 32)
    code, shown, said = run("list", "--db", db)
    assert (code, said.count("\n")) == (2, 1)
    assert f"written with another hash key (id {ours.id}, not {theirs.id})" in shown
    assert "hidden characters" not in shown
    assert "no approval in it is intact; is TOOLVERDICT_HASH_KEY the agent's?" in said
    assert f"(id {ours.id}, not {theirs.id})" in run("show", record.id, "--db", db)[1]


def test_a_list_has_a_header_and_a_record_the_hash_to_be_seen(
    db: Path, store: ApprovalStore
) -> None:
    record = store.request(REQUEST)
    header, line = run("list", "--db", db)[1].splitlines()
    for column, value in (("ID", record.id), ("STATUS", "requested"), ("TOOL", "refund")):
        assert header.index(column) == line.index(value)
    assert line[header.index("EXPIRES") :].split()[0].endswith("Z")
    assert f"presented_hash: {record.presented_hash}" in run("show", record.id, "--db", db)[1]
