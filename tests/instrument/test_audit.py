"""Whatever is done to a log, whoever has its keys and checkpoints finds out."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolverdict.instrument import ConfigurationError, Outcome, configure, guard
from toolverdict.instrument.errors import AuditFailed, StoreError
from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.stores import audit
from toolverdict.instrument.stores.audit import (
    AuditLog,
    Checkpoint,
    CheckpointFile,
    Verification,
    read_checkpoints,
    verify,
)
from toolverdict.instrument.stores.clocks import SYSTEM, Clock

KEY = HashKey.of(b"k" * 32)
ANCHOR_KEY = HashKey.of(b"a" * 32)
LATER = Clock(lambda: SYSTEM.wall_ms() + 301_000, SYSTEM.steady_ms, SYSTEM.boot)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.db"


@pytest.fixture
def anchors() -> list[Checkpoint]:
    return []


@pytest.fixture
def log(path: Path, anchors: list[Checkpoint]) -> Iterator[AuditLog]:
    with opened(path, anchors) as log:
        yield log


def opened(path: Path, anchors: list[Checkpoint], **change: Any) -> AuditLog:
    options = {"key": KEY, "checkpoint_key": ANCHOR_KEY, "emit": anchors.append}
    return AuditLog(path, **{**options, "every_records": 4, **change})


def checked(path: Path, anchors: list[Checkpoint] | None, **change: Any) -> Verification:
    options = {"key": KEY, "checkpoint_key": ANCHOR_KEY, "checkpoints": anchors}
    return verify(path, **{**options, **change})


def calls(log: AuditLog, count: int, name: str = "refund") -> None:
    for number in range(count):
        entry = audit.begin(log, labelled=False, body={"tool": name, "args_hash": f"h{number}"})
        audit.end(entry, Outcome.OK)


def tampered(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("DROP TRIGGER IF EXISTS audit_stays")
        connection.execute("DROP TRIGGER IF EXISTS audit_keeps")
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_a_log_that_nobody_touched_is_whole(
    log: AuditLog, path: Path, anchors: list[Checkpoint]
) -> None:
    calls(log, 5)
    log.append("decision", {"policy.decision": "deny", "rules": ("a",), "n": 1})
    assert [anchor.seq for anchor in anchors] == [4, 8]
    found = checked(path, anchors)
    assert found == Verification(11, 1, 11, 8, (), (), (), ())
    assert found.sound
    log.close()
    assert checked(path, anchors).anchored == 11
    assert "without checkpoints" in checked(path, None).warnings[0]


# Twenty records, checkpoints at 4, 8, ... 20.
COPY = "INSERT INTO audit SELECT 21, time, type, body, {prev}, mac FROM audit WHERE seq = 20"
REMADE = (
    "CREATE TABLE b AS SELECT * FROM audit",
    "DROP TABLE audit",
    "ALTER TABLE b RENAME TO audit",
)
ATTACKS: dict[str, tuple[tuple[str, ...], str]] = {
    "edited body": (("UPDATE audit SET body = '{}' WHERE seq = 7",), "record 7 was changed"),
    "edited time": (("UPDATE audit SET time = time + 1 WHERE seq = 7",), "record 7 was changed"),
    "edited type": (
        ("UPDATE audit SET type = 'decision' WHERE seq = 7",),
        "record 7 was changed",
    ),
    "deleted": (("DELETE FROM audit WHERE seq = 7",), "records 7 to 7 are missing"),
    "closed up": (
        ("DELETE FROM audit WHERE seq = 7", "UPDATE audit SET seq = seq - 1 WHERE seq > 7"),
        "record 7 does not follow",
    ),
    "first cut": (("DELETE FROM audit WHERE seq < 3",), "records 1 to 2 are missing"),
    "cut up to a checkpoint": (("DELETE FROM audit WHERE seq < 5",), "what came before record 5"),
    "end cut": (("DELETE FROM audit WHERE seq > 13",), "record 16 had a checkpoint"),
    "all cut": (("DELETE FROM audit",), "record 4 had a checkpoint and is missing"),
    "copied": ((COPY.format(prev="mac"),), "record 21 was changed"),
    "swapped": (
        (
            "UPDATE audit SET seq = 100 WHERE seq = 7",
            "UPDATE audit SET seq = 7 WHERE seq = 8",
            "UPDATE audit SET seq = 8 WHERE seq = 100",
        ),
        "record 7 was changed",
    ),
    "duplicate": (
        (*REMADE, "INSERT INTO audit SELECT * FROM audit WHERE seq = 7"),
        "record 7 is there twice",
    ),
    "not text": (
        (*REMADE, "UPDATE audit SET body = x'ff', mac = 7 WHERE seq = 7"),
        "record 7 was changed",
    ),
}


@pytest.mark.parametrize(("statements", "problem"), ATTACKS.values(), ids=ATTACKS)
def test_an_attack_is_found(
    path: Path, anchors: list[Checkpoint], statements: tuple[str, ...], problem: str
) -> None:
    with opened(path, anchors) as log:
        calls(log, 10)
    tampered(path, *statements)
    found = checked(path, anchors)
    assert not found.sound
    assert any(text.startswith(problem) for text in found.problems), found.problems


def test_a_log_written_anew_without_the_key_is_found(path: Path) -> None:
    with AuditLog(path, key=HashKey.of(b"o" * 32)) as log:
        calls(log, 3)
    assert "record 1 was changed" in checked(path, None).problems[0]


def test_a_log_written_anew_with_the_key_is_found_by_its_checkpoints(
    path: Path, tmp_path: Path, anchors: list[Checkpoint]
) -> None:
    with opened(path, anchors) as log:
        calls(log, 4)
    with AuditLog(tmp_path / "other", key=KEY) as log:
        calls(log, 4, name="read")
    assert checked(tmp_path / "other", None).problems == ()
    problems = checked(tmp_path / "other", anchors).problems
    assert "record 4 is not the one that a checkpoint was made of" in problems


def test_a_cut_end_is_only_found_by_checkpoints(path: Path, anchors: list[Checkpoint]) -> None:
    with opened(path, anchors) as log:
        calls(log, 4)
    tampered(path, "DELETE FROM audit WHERE seq > 6")
    assert checked(path, None).sound
    assert not checked(path, anchors).sound


def test_a_fork_is_found(path: Path, tmp_path: Path, anchors: list[Checkpoint]) -> None:
    with opened(path, anchors) as log:
        calls(log, 2)
    shutil.copy(path, tmp_path / "fork")
    for branch, tool in ((path, "a"), (tmp_path / "fork", "b")):
        with opened(branch, anchors) as log:
            calls(log, 2, tool)
    for branch in (path, tmp_path / "fork"):
        assert any("forked" in text for text in checked(branch, anchors).problems)


def test_a_forged_checkpoint_is_found(path: Path, anchors: list[Checkpoint]) -> None:
    with opened(path, anchors) as log:
        calls(log, 2)
    forged = Checkpoint.signed(KEY, 4, anchors[0].head, 1)
    found = checked(path, [forged])
    assert found.anchored is None
    assert "forged" in found.problems[0]
    assert found.warnings == ("there is no genuine checkpoint",)
    assert checked(path, []).warnings == ("there is no genuine checkpoint",)


def test_an_intent_without_an_outcome_is_reported(log: AuditLog, path: Path) -> None:
    calls(log, 1)
    entry = audit.begin(log, labelled=True, body={"tool": "pay"})
    assert entry is not None
    assert checked(path, None).in_flight == (3,)
    assert checked(path, None).sound
    found = checked(path, None, clock=LATER)
    assert (found.unfinished, found.sound) == ((3,), False)
    audit.end(entry, Outcome.UNKNOWN)
    assert checked(path, None, clock=LATER).sound
    audit.end(entry, Outcome.OK)
    assert checked(path, None).problems == ("record 5 is a second outcome of record 3",)
    log.append("outcome", {"intent": 999})
    assert "without an intent" in checked(path, None).problems[1]


def test_the_table_takes_no_change(log: AuditLog, path: Path) -> None:
    calls(log, 1)
    connection = sqlite3.connect(path)
    for statement in ("UPDATE audit SET body = '{}'", "DELETE FROM audit"):
        with pytest.raises(sqlite3.IntegrityError):
            connection.execute(statement)
    connection.close()


# --- a log that cannot be written ----------------------------------------------------------------
def full(log: AuditLog) -> None:
    """The disk is full."""
    connection = log._file._mine.connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StoreError, match="full"):
        consume_all(log)


def consume_all(log: AuditLog) -> None:
    for _ in range(1000):
        log.append("decision", {"x": "y" * 1000})


FAULTS: dict[str, Callable[[AuditLog], None]] = {"full": full, "closed": lambda log: log.close()}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_labelled_tool_does_not_run_without_a_record(
    log: AuditLog, fault: Callable[[AuditLog], None]
) -> None:
    fault(log)
    body = {"tool": "t", "args_hash": "h" * 4000}
    with pytest.raises(AuditFailed, match="StoreError"):
        audit.begin(log, labelled=True, body=body)
    entry = audit.begin(log, labelled=False, body=body)
    assert entry is None
    audit.end(entry, Outcome.OK)
    assert guard.counts()["audit"] == 2


def test_an_outcome_that_cannot_be_written_harms_nothing(path: Path) -> None:
    log = AuditLog(path, key=KEY)
    entry = audit.begin(log, labelled=True, body={"tool": "t"})
    log.close()
    audit.end(entry, Outcome.OK)
    assert guard.counts()["audit"] == 1
    assert checked(path, None, clock=LATER).unfinished == (1,)


@pytest.mark.parametrize("body", [{"x": object()}, {"x": float("nan")}, {"x": "y" * 70_000}])
def test_a_body_that_is_no_record_is_refused(log: AuditLog, body: dict[str, Any]) -> None:
    with pytest.raises(StoreError):
        log.append("intent", body)
    with pytest.raises(AuditFailed):
        audit.begin(log, labelled=True, body=body)


def test_checkpoints_that_cannot_be_sent_stop_nothing(
    path: Path, anchors: list[Checkpoint]
) -> None:
    working: list[bool] = []

    def emit(checkpoint: Checkpoint) -> None:
        if not working:
            raise OSError("no connection")
        anchors.append(checkpoint)

    with opened(path, anchors, emit=emit) as log:
        calls(log, 3)
        assert guard.counts()["audit"] == 3
        working.append(True)
        calls(log, 1)
        assert [anchor.seq for anchor in anchors] == [7]


def test_a_checkpoint_is_due_after_a_while(path: Path, anchors: list[Checkpoint]) -> None:
    with opened(path, anchors, every_s=0.0, every_records=1000) as log:
        calls(log, 1)
        assert [anchor.seq for anchor in anchors] == [1, 2]


# --- keys, files, processes ----------------------------------------------------------------------
def test_keys_must_be_two_and_last(path: Path, anchors: list[Checkpoint]) -> None:
    with pytest.raises(ConfigurationError, match="own"):
        AuditLog(path, key=KEY, emit=anchors.append)
    with AuditLog(path, key=KEY, checkpoint_key=KEY, emit=anchors.append) as log:
        with pytest.raises(ConfigurationError, match="another"):
            log.append("intent", {})
        with pytest.raises(AuditFailed):
            audit.begin(log, labelled=True, body={})
    with AuditLog(path) as log, pytest.raises(ConfigurationError, match="HASH_KEY"):
        log.append("intent", {})
    with pytest.raises(ConfigurationError, match="CHECKPOINT_KEY"):
        verify(path, key=KEY, checkpoints=[])


def test_what_is_no_log_is_not_verified(tmp_path: Path) -> None:
    from toolverdict.instrument.stores.approvals import ApprovalStore

    ApprovalStore(tmp_path / "db", key=KEY).close()
    for name in ("none", "db"):
        with pytest.raises(StoreError):
            checked(tmp_path / name, None)
    with AuditLog(tmp_path / "db", key=KEY) as log:
        calls(log, 1)
    assert checked(tmp_path / "db", None).sound


def test_a_file_of_checkpoints_survives_a_torn_line(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "checkpoints"
    with opened(path, [], emit=CheckpointFile(file)) as log:
        calls(log, 2)
    with file.open("a") as torn:
        torn.write('{"v":1,"se')
    with opened(path, [], emit=CheckpointFile(file)) as log:
        calls(log, 2)
    found, warnings = read_checkpoints(file.read_text().split("\n"))
    assert {checkpoint.seq for checkpoint in found} == {4, 5, 8}
    assert warnings == ["checkpoints: line 3 is no checkpoint"]
    assert checked(path, found).sound
    with pytest.raises(StoreError, match="newer"):
        read_checkpoints(['{"v":2}'])
    for line in ("[]", "{}", '{"v":1,"seq":true,"head":"","time":1,"mac":""}', "[" * 100_000):
        assert len(read_checkpoints([line])[1]) == 1


def test_a_log_goes_on_in_another_file(
    path: Path, tmp_path: Path, anchors: list[Checkpoint]
) -> None:
    with opened(path, anchors) as log:
        calls(log, 2)
        open_call = audit.begin(log, labelled=False, body={"tool": "t"})
    assert open_call is not None
    with opened(tmp_path / "next", anchors, after=anchors[-1]) as log:
        log.append("outcome", {"intent": open_call.seq})
        calls(log, 2)
    found = checked(tmp_path / "next", anchors)
    assert (found.sound, found.first, found.last) == (True, 6, 10)
    assert "earlier file of 5 records" in found.warnings[0]
    tampered(tmp_path / "next", "DELETE FROM audit WHERE seq = 6")
    assert not checked(tmp_path / "next", anchors).sound
    with opened(tmp_path / "wrong", anchors, after=Checkpoint(5, "0" * 64, 1, "")) as log:
        calls(log, 1)
    assert not checked(tmp_path / "wrong", anchors[:2]).sound


def test_two_writers_and_a_fork_make_one_chain(path: Path, anchors: list[Checkpoint]) -> None:
    code = """
import os, sys
from toolverdict.instrument.stores import audit
from toolverdict.instrument.hashing import HashKey
log = audit.AuditLog(sys.argv[1], key=HashKey.of(b"k" * 32))
child = os.fork()
for number in range(25):
    audit.end(audit.begin(log, labelled=False, body={"tool": "t", "pid": os.getpid()}), "ok")
if child == 0:
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    command = [sys.executable, "-c", code, str(path)]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(60) for process in processes] == [0, 0]
    found = checked(path, None)
    assert (found.records, found.sound) == (200, True)


@pytest.mark.parametrize(
    "line",
    [
        '{"v": 1, "seq": 99999999999999999999, "head": "x", "time": 1, "mac": "y"}',
        '{"v": 1, "seq": 1, "head": "x", "time": 99999999999999999999, "mac": "y"}',
        '{"v": 1, "seq": 5, "head": "\\ud800", "time": 1, "mac": "aa"}',
        '{"v": 1, "seq": -1, "head": "x", "time": 1, "mac": "y"}',
        '{"v": 1, "seq": 1' + "0" * 5000 + ', "head": "x", "time": 1, "mac": "y"}',
    ],
    ids=range(5),
)
def test_a_hostile_checkpoint_is_no_more_than_forged(
    log: AuditLog, path: Path, anchors: list[Checkpoint], line: str
) -> None:
    calls(log, 2)
    hostile, _ = read_checkpoints([line])
    found = checked(path, [*anchors, *hostile])
    assert len(found.problems) == len(hostile)
    assert all("forged" in problem for problem in found.problems)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit SET body = CAST(x'ff' AS TEXT) WHERE seq = 2",
        "UPDATE audit SET mac = 'e\u0301' WHERE seq = 2",
        "UPDATE audit SET body = '{' WHERE seq = 2",
        "INSERT INTO audit SELECT 9223372036854775807, time, type, body, 'z', mac FROM audit"
        " WHERE seq = 2",
    ],
)
def test_one_hostile_record_does_not_hide_the_others(
    log: AuditLog, path: Path, anchors: list[Checkpoint], statement: str
) -> None:
    calls(log, 4)
    tampered(path, statement)
    found = checked(path, anchors)
    assert found.problems
    assert found.records >= 8
    assert found.last is not None
    if found.last > 2**60:
        with pytest.raises(StoreError):
            log.append("intent", {})


def test_the_end_of_a_call_in_the_middle_of_a_record_is_recorded_after_it(
    path: Path, anchors: list[Checkpoint]
) -> None:
    """As when garbage collection ends a stream that nobody reads any more."""
    ending: list[audit.Entry | None] = []

    def wall_ms() -> int:
        while ending:
            audit.end(ending.pop(), "cancelled")
        return SYSTEM.wall_ms()

    clock = Clock(wall_ms, SYSTEM.steady_ms, SYSTEM.boot)
    with opened(path, anchors, clock=clock, every_records=1) as log:
        ending.append(audit.begin(log, labelled=False, body={}))
        calls(log, 1)
    assert guard.counts() == {}
    found = checked(path, anchors, clock=LATER)
    assert (found.records, found.unfinished, found.problems) == (4, (), ())


def test_an_end_while_a_checkpoint_is_sent_is_recorded_after_it(path: Path) -> None:
    ending: list[audit.Entry | None] = []

    def send(checkpoint: Checkpoint) -> None:
        while ending:
            audit.end(ending.pop(), "cancelled")

    with opened(path, [], emit=send, every_records=1) as log:
        first = audit.begin(log, labelled=False, body={})
        ending.append(first)
        calls(log, 1)
    assert checked(path, None).records == 4


async def test_the_event_loop_goes_on_while_somebody_else_writes(log: AuditLog, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(audit.begin_async(log, labelled=True, body={}))
    for _ in range(3):
        await asyncio.sleep(0.01)
    assert not waiting.done()
    other.close()
    audit.end(await waiting, "ok")
    log.close()
    with pytest.raises(AuditFailed):
        await audit.begin_async(log, labelled=True, body={})
    assert await audit.begin_async(log, labelled=False, body={}) is None


def test_a_short_process_leaves_a_checkpoint_of_its_last_record(path: Path, tmp_path: Path) -> None:
    """Nobody closes the log, and far fewer records than ``every_records`` were written."""
    sent = tmp_path / "checkpoints"
    code = f"""
from toolverdict.instrument import configure, tool
from toolverdict.instrument.stores.audit import AuditLog, CheckpointFile
key, other = "6b" * 32, "61" * 32
log = AuditLog({str(path)!r}, key=key, checkpoint_key=other, emit=CheckpointFile({str(sent)!r}))
configure(hash_key=key, audit=log)
tool(lambda: None)()
"""
    environment = {**os.environ, "OTEL_TRACES_EXPORTER": "none"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    last = read_checkpoints(sent.read_text().splitlines())[0][-1]
    assert last.seq == 2
    assert last.is_genuine(HashKey.of("61" * 32))


def test_shutting_telemetry_down_emits_the_last_checkpoint_once(
    log: AuditLog, anchors: list[Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    telemetry = configure(hash_key="6b" * 32, audit=log)
    telemetry.shutdown()
    assert anchors == []
    calls(log, 1)
    telemetry.shutdown()
    telemetry.shutdown()
    assert [anchor.seq for anchor in anchors] == [2]


@pytest.mark.parametrize("name", [".", "none/checkpoints"])
def test_checkpoints_that_cannot_be_written_are_refused_at_once(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigurationError, match="checkpoints cannot be written there"):
        CheckpointFile(tmp_path / name)
