"""``toolverdict audit verify``: 0 whole, 1 not, 2 could not say."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from toolverdict.audit_cli import app
from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.stores import audit
from toolverdict.instrument.stores.audit import AuditLog, CheckpointFile

KEY, CHECKPOINT_KEY = "6b" * 32, "61" * 32


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    monkeypatch.setenv("TOOLVERDICT_HASH_KEY", KEY)
    monkeypatch.setenv("TOOLVERDICT_CHECKPOINT_KEY", CHECKPOINT_KEY)
    db, checkpoints = tmp_path / "audit.db", tmp_path / "checkpoints"
    with AuditLog(
        db,
        key=HashKey.of(KEY),
        checkpoint_key=HashKey.of(CHECKPOINT_KEY),
        emit=CheckpointFile(checkpoints),
    ) as log:
        for _ in range(3):
            audit.end(audit.begin(log, labelled=False, body={"tool": "t"}), "ok")
    return str(db), str(checkpoints)


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["verify", *arguments])
    return result.exit_code, result.stdout, result.stderr


def test_a_whole_log_exits_0(files: tuple[str, str]) -> None:
    db, checkpoints = files
    code, shown, _ = run("--db", db, "--checkpoints", checkpoints)
    assert (code, shown) == (0, "6 records, anchored up to record 6\nwhole\n")
    assert run("--db", db)[0] == 0
    code, shown, _ = run("--db", db, "--checkpoints", checkpoints, "--json")
    assert (code, json.loads(shown)["sound"]) == (0, True)


def test_a_cut_log_exits_1(files: tuple[str, str]) -> None:
    db, checkpoints = files
    connection = sqlite3.connect(db)
    with connection:
        connection.execute("DROP TRIGGER audit_keeps")
        connection.execute("DELETE FROM audit WHERE seq > 4")
    connection.close()
    code, shown, _ = run("--db", db, "--checkpoints", checkpoints)
    assert code == 1
    assert "problem: record 6 had a checkpoint and is missing" in shown
    assert shown.endswith("NOT whole\n")


def test_what_cannot_be_checked_exits_2(
    files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db, checkpoints = files
    assert run("--db", str(tmp_path))[2].endswith(": it is no file\n")
    for arguments in (("--db", str(tmp_path / "none")), ("--db", db, "--checkpoints", "/none")):
        code, shown, error = run(*arguments)
        assert (code, shown, error.count("\n")) == (2, "", 1)
        assert "Errno" not in error
    monkeypatch.delenv("TOOLVERDICT_CHECKPOINT_KEY")
    assert run("--db", db, "--checkpoints", checkpoints)[0] == 2
    monkeypatch.delenv("TOOLVERDICT_HASH_KEY")
    assert run("--db", db)[0] == 2


def test_it_is_a_command(files: tuple[str, str]) -> None:
    command = [sys.executable, "-m", "toolverdict", "audit", "verify", "--db", files[0]]
    assert subprocess.run(command, capture_output=True).returncode == 0
