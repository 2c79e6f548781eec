"""The body runs once per key, and never when nobody knows whether it has run."""

import asyncio
import decimal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from toolverdict.instrument import (
    InvalidArguments,
    Outcome,
    Refused,
    ToolTimeout,
    configure,
    guard,
)
from toolverdict.instrument.errors import (
    AlreadyDone,
    CallInProgress,
    ConfigurationError,
    IdempotencyConflict,
    OutcomeUnknown,
    StoreError,
)
from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.stores import idempotency as module
from toolverdict.instrument.stores.clocks import Clock
from toolverdict.instrument.stores.idempotency import (
    NO_RESULT,
    Conflict,
    IdempotencyStore,
    InProgress,
    Reconciled,
    Replay,
    Started,
    Unknown,
    admit,
    admit_async,
)

SECRET = HashKey.of(b"k" * 32)
KEY: dict[str, Any] = {"tool": "refund", "key_hash": "k", "fingerprint": "args"}


@dataclass
class FakeClock:
    wall: int = 1_800_000_000_000
    steady: int = 5_000_000

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.wall, lambda: self.steady, lambda: "boot")

    def pass_(self, seconds: float) -> None:
        self.wall += int(seconds * 1000)
        self.steady += int(seconds * 1000)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[IdempotencyStore]:
    with IdempotencyStore(tmp_path / "db", key=SECRET, clock=clock.clock) as store:
        yield store


def started(store: IdempotencyStore, **change: Any) -> Started:
    found = store.begin(**{**KEY, **change})
    assert isinstance(found, Started), found
    return found


@dataclass
class Pipeline:
    """What the pipeline does around a body, in the lines that the module documents."""

    store: IdempotencyStore
    options: dict[str, Any] = field(default_factory=dict)
    ran: int = 0

    def call(self, body: Callable[[], Any], **change: Any) -> Any:
        run = admit(self.store, **{**KEY, **self.options, **change})
        if run.replay is not None:
            return run.replay.result
        with run:
            self.ran += 1
            result = body()
            run.returned(result)
        return result


@pytest.fixture
def pipeline(store: IdempotencyStore) -> Pipeline:
    return Pipeline(store)


def raising(error: BaseException) -> Callable[[], Any]:
    def body() -> Any:
        raise error

    return body


def test_the_second_call_gets_what_the_first_one_gave(pipeline: Pipeline) -> None:
    result = {"paid": (decimal.Decimal("1.10"), {1, 2})}
    assert pipeline.call(lambda: result) is result
    again = pipeline.call(raising(AssertionError()))
    assert again == result
    assert type(again["paid"]) is tuple
    again["paid"] = None
    assert pipeline.call(raising(AssertionError())) == result
    assert pipeline.call(lambda: None, key_hash="other") is None
    assert pipeline.ran == 2


def test_the_same_key_with_other_arguments_is_a_conflict(pipeline: Pipeline) -> None:
    pipeline.call(lambda: "10")
    with pytest.raises(IdempotencyConflict):
        pipeline.call(lambda: "9999", fingerprint="other")
    assert pipeline.ran == 1


@pytest.mark.parametrize("change", [{"tenant": "b"}, {"tool": "pay"}, {"key_hash": "k2"}])
def test_a_key_is_one_tenants_and_one_tools(pipeline: Pipeline, change: dict[str, str]) -> None:
    pipeline.call(lambda: 1)
    assert pipeline.call(lambda: 2, **change) == 2


@pytest.mark.parametrize("error", [InvalidArguments("x"), Refused("x")])
def test_a_call_without_an_effect_may_be_made_again_corrected(
    pipeline: Pipeline, error: Exception
) -> None:
    with pytest.raises(type(error)):
        pipeline.call(raising(error))
    assert pipeline.call(lambda: "ok", fingerprint="corrected") == "ok"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("x"),
        ToolTimeout("x"),
        PermissionError("x"),
        KeyboardInterrupt(),
        SystemExit(),
        asyncio.CancelledError(),
        GeneratorExit(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_after_any_other_end_nobody_knows(pipeline: Pipeline, error: BaseException) -> None:
    with pytest.raises(type(error)):
        pipeline.call(raising(error))
    with pytest.raises(OutcomeUnknown):
        pipeline.call(lambda: "twice")
    with pytest.raises(IdempotencyConflict):
        pipeline.call(lambda: "twice", fingerprint="other")
    assert pipeline.ran == 1
    assert pipeline.call(lambda: "again", repeatable=True) == "again"


async def test_a_cancelled_call_is_unknown(store: IdempotencyStore) -> None:
    async def call() -> None:
        with await admit_async(store, **KEY):
            await asyncio.sleep(60)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call(), 0.01)
    with pytest.raises(OutcomeUnknown):
        await admit_async(store, **KEY)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_what_a_returned_outcome_means(store: IdempotencyStore, outcome: Outcome) -> None:
    admit(store, **KEY).returned({"isError": True}, outcome)
    found = store.look(**KEY)
    if outcome.succeeded or outcome in (Outcome.ERROR, Outcome.UPSTREAM_ERROR, Outcome.TIMEOUT):
        assert isinstance(found, Replay)
        assert found.state == ("succeeded" if outcome.succeeded else "failed_final")
        assert found.result == {"isError": True}
    elif outcome.failed:
        assert found is None
    else:
        assert isinstance(found, Unknown)


@pytest.mark.parametrize("result", [object(), "x" * 10_000_000, iter(())], ids=["o", "10MB", "it"])
def test_a_result_that_cannot_be_kept_has_succeeded(pipeline: Pipeline, result: Any) -> None:
    assert pipeline.call(lambda: result) is result
    with pytest.raises(AlreadyDone):
        pipeline.call(lambda: "twice")
    assert pipeline.ran == 1


def test_a_generator_that_was_read_to_its_end_has_succeeded(store: IdempotencyStore) -> None:
    def items(stop: bool) -> Iterator[int]:
        with admit(store, **{**KEY, "key_hash": str(stop)}) as run:
            yield 1
            yield 2
            run.returned(NO_RESULT)

    assert list(items(False)) == [1, 2]
    with pytest.raises(AlreadyDone):
        list(items(False))
    half = items(True)
    next(half)
    half.close()  # type: ignore[attr-defined]
    with pytest.raises(OutcomeUnknown):
        list(items(True))


# --- lease and fencing ---------------------------------------------------------------------------
def test_a_lease_that_is_over_leaves_the_unknown(store: IdempotencyStore, clock: FakeClock) -> None:
    first = started(store)
    assert isinstance(store.begin(**KEY), InProgress)
    clock.pass_(299)
    assert store.renew(first)
    clock.pass_(299)
    assert isinstance(store.begin(**KEY), InProgress)
    clock.pass_(1)
    assert isinstance(store.look(**KEY), Unknown)
    assert isinstance(store.begin(**KEY), Unknown)
    assert not store.renew(first)
    assert store.finish(first, "succeeded", 7)  # slow, and nobody has replaced it
    assert store.begin(**KEY) == Replay("succeeded", 7)
    assert not store.finish(first, "succeeded", 8)


def test_a_replaced_run_cannot_write_its_end(store: IdempotencyStore, clock: FakeClock) -> None:
    slow = admit(store, **KEY)
    clock.pass_(300)
    second = started(store, repeatable=True)
    assert second.token == 2
    slow.returned("stale")
    assert guard.counts()["idempotency"] == 1
    assert isinstance(store.look(**KEY), InProgress)
    assert store.finish(second, "succeeded", "fresh")
    assert store.begin(**KEY) == Replay("succeeded", "fresh")


def test_a_key_that_will_not_be_used_is_left_free(store: IdempotencyStore) -> None:
    admit(store, **KEY).not_run()
    assert store.look(**KEY) is None
    assert started(store).token == 2


# --- reconcile -----------------------------------------------------------------------------------
def unknown(store: IdempotencyStore) -> None:
    store.finish(started(store), "unknown")


def test_the_system_behind_the_tool_is_asked(pipeline: Pipeline) -> None:
    asked: list[Unknown] = []

    def happened(what: Unknown) -> Reconciled:
        asked.append(what)
        return Reconciled("succeeded", "paid")

    unknown(pipeline.store)
    assert pipeline.call(lambda: "twice", reconcile=happened) == "paid"
    assert pipeline.call(lambda: "twice") == "paid"
    assert (pipeline.ran, len(asked), asked[0].key_hash) == (0, 1, "k")


def test_what_did_not_happen_runs(pipeline: Pipeline) -> None:
    unknown(pipeline.store)
    answer = Reconciled("failed_no_effect")
    assert pipeline.call(lambda: "now", reconcile=lambda what: answer) == "now"


def broken(what: Unknown) -> Reconciled:
    raise RuntimeError("no connection")


@pytest.mark.parametrize("reconcile", [lambda what: None, lambda what: True, broken])
async def test_who_does_not_know_says_nothing(store: IdempotencyStore, reconcile: Any) -> None:
    unknown(store)
    with pytest.raises(OutcomeUnknown):
        admit(store, **KEY, reconcile=reconcile)
    with pytest.raises(OutcomeUnknown):
        await admit_async(store, **KEY, reconcile=reconcile)


async def test_an_async_answer(store: IdempotencyStore) -> None:
    async def happened(what: Unknown) -> Reconciled:
        return Reconciled("succeeded", 1)

    unknown(store)
    with pytest.raises(OutcomeUnknown):
        admit(store, **KEY, reconcile=happened)
    run = await admit_async(store, **KEY, reconcile=happened)
    assert run.replay == Replay("succeeded", 1)


# --- many at once --------------------------------------------------------------------------------
def test_threads_run_the_body_once(pipeline: Pipeline) -> None:
    gate = threading.Event()

    def body() -> str:
        gate.wait(5)
        return "once"

    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(pipeline.call, body, wait_s=20) for _ in range(8)]
        gate.set()
        assert {call.result(30) for call in calls} == {"once"}
    assert pipeline.ran == 1


async def test_tasks_run_the_body_once(store: IdempotencyStore) -> None:
    ran = 0

    async def call(wait_s: float) -> Any:
        nonlocal ran
        run = await admit_async(store, **KEY, wait_s=wait_s)
        if run.replay is not None:
            return run.replay.result
        with run:
            ran += 1
            await asyncio.sleep(0.05)
            run.returned("once")
        return "once"

    results = await asyncio.gather(call(5), call(5), call(0), return_exceptions=True)
    assert list(results[:2]) == ["once", "once"]
    assert isinstance(results[2], CallInProgress)
    assert ran == 1


PROCESS = """
import sys, os
from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.stores.idempotency import IdempotencyStore, admit
store = IdempotencyStore(sys.argv[1], key=HashKey.of(b"k" * 32))
print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    run = admit(store, tool="t", key_hash=f"k{number}", fingerprint="f", wait_s=20)
    if run.replay is None:
        with run:
            print(f"ran-{number}")
            run.returned(os.getpid())
"""


def test_processes_run_each_body_once(tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(tmp_path / "db")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    ran = [line for process in processes for line in process.communicate(timeout=60)[0].split()]
    assert sorted(ran) == sorted(f"ran-{number}" for number in range(20))


@pytest.mark.parametrize("effect", ["before", "after"])
def test_a_crash_is_unknown_when_the_lease_is_over(tmp_path: Path, effect: str) -> None:
    code = (
        "import os, sys\n"
        "from toolverdict.instrument.hashing import HashKey\n"
        "from toolverdict.instrument.stores.idempotency import IdempotencyStore, admit\n"
        "store = IdempotencyStore(sys.argv[1], key=HashKey.of(b'k' * 32), lease_s=0.3)\n"
        "admit(store, tool='refund', key_hash='k', fingerprint='args')\n"
        "if sys.argv[2] == 'after':\n    open(sys.argv[1] + '.effect', 'w').close()\n"
        "os._exit(9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "db"), effect])
    assert done.returncode == 9
    with IdempotencyStore(tmp_path / "db", key=SECRET) as store, pytest.raises(OutcomeUnknown):
        admit(store, **KEY, wait_s=5)


# --- who wrote the rows, and whose keys they are ----------------------------------------------------
def changed(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(statement, values)
    connection.close()


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *[("state", "failed_no_effect"), ("result", '"FORGED"'), ("fingerprint", "other")],
        *[("token", 9), ("expires_at", 0), ("expires_at", 2**62), ("mac", ""), ("mac", "\u00e9")],
        *[("ends_steady", -1), ("boot", None), ("touched_at", 1), ("began_steady", 1)],
    ],
)
def test_a_row_that_somebody_else_wrote_stops_the_call(
    pipeline: Pipeline, tmp_path: Path, column: str, value: object
) -> None:
    assert pipeline.call(lambda: "paid") == "paid"
    changed(tmp_path / "db", f"UPDATE idempotency SET {column} = ?", value)
    for required in (True, False):
        with pytest.raises(OutcomeUnknown, match="changed by somebody else"):
            pipeline.call(lambda: "again", required=required)
    with pytest.raises(OutcomeUnknown):
        pipeline.store.look(**KEY)
    assert pipeline.ran == 1
    (record,) = pipeline.store.keys()
    assert not record.intact


def test_who_found_out_says_so_of_a_row_that_was_changed(
    store: IdempotencyStore, tmp_path: Path
) -> None:
    store.finish(started(store), "unknown")
    changed(tmp_path / "db", "UPDATE idempotency SET mac = 'x'")
    (record,) = store.keys()
    lost = Unknown(record.tenant, record.tool, record.key_hash, record.token)
    assert store.resolve(lost, Reconciled("succeeded"))
    assert isinstance(store.begin(**KEY), Replay)


def test_another_hash_key_cannot_say_what_happened(store: IdempotencyStore, tmp_path: Path) -> None:
    store.finish(started(store), "succeeded", 1)
    with (
        IdempotencyStore(tmp_path / "db", key=HashKey.of(b"z" * 32)) as other,
        pytest.raises(OutcomeUnknown),
    ):
        other.begin(**KEY)


def test_a_row_of_before_they_were_authenticated_stops_the_call(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "old", isolation_level=None)
    connection.execute(
        "CREATE TABLE toolverdict_schema (part TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT"
    )
    connection.execute("INSERT INTO toolverdict_schema VALUES ('idempotency', 1)")
    connection.execute(module._SCHEMA[0][0])
    connection.execute(
        "INSERT INTO idempotency VALUES ('', 'refund', 'k', 'args', 'failed_no_effect', 1,"
        " 1, 1, NULL, 1, 1, NULL)"
    )
    connection.close()
    with (
        IdempotencyStore(tmp_path / "old", key=SECRET, create=False) as store,
        pytest.raises(OutcomeUnknown),
    ):
        store.begin(**KEY)


def test_a_key_of_this_process_only_is_refused(tmp_path: Path) -> None:
    with IdempotencyStore(tmp_path / "db") as store:
        for use in (store.begin, store.look):
            if use == store.look:
                with IdempotencyStore(tmp_path / "db", key=SECRET) as keyed:
                    keyed.begin(**KEY)
            with pytest.raises(ConfigurationError, match="TOOLVERDICT_HASH_KEY"):
                use(**KEY)


def test_configure_refuses_keys_that_no_other_process_can_tell(tmp_path: Path) -> None:
    with IdempotencyStore(tmp_path / "db", key=SECRET) as store:
        with pytest.raises(ConfigurationError, match="TOOLVERDICT_HASH_KEY"):
            configure(idempotency=store)
        configure(idempotency=store, hash_key=b"k" * 32)


def test_results_need_not_be_kept(tmp_path: Path) -> None:
    with IdempotencyStore(tmp_path / "db", key=SECRET, keep_results=False) as store:
        store.finish(started(store), "succeeded", {"card": "tok_SECRET"})
        with pytest.raises(AlreadyDone):
            admit(store, **KEY)
        files = [p.read_bytes() for p in tmp_path.iterdir()]
    assert b"tok_SECRET" not in b"".join(files)


def test_a_key_belongs_to_whom_the_session_is_of(tmp_path: Path) -> None:
    with IdempotencyStore(tmp_path / "db", key=SECRET, scope="customer") as store:
        alice = store.tenant_of({"customer": "alice", "other": 1})
        assert alice == store.tenant_of({"customer": "alice"})
        assert alice != store.tenant_of({"customer": "bob"})
        assert "alice" not in alice
        store.finish(started(store, tenant=alice), "succeeded", "for alice")
        bob = store.begin(**KEY, tenant=store.tenant_of({"customer": "bob"}))
        assert isinstance(bob, Started)
        for session in (None, {}, {"customer": None}, {"customer": ""}, {"customer": object()}):
            with pytest.raises(StoreError):
                store.tenant_of(session)
        for use in (store.begin, store.look):
            with pytest.raises(StoreError, match="scope"):
                use(**KEY)
    with IdempotencyStore(tmp_path / "db", key=SECRET) as unscoped:
        assert unscoped.tenant_of(None) == ""


async def test_the_event_loop_goes_on_while_somebody_else_writes(
    store: IdempotencyStore, tmp_path: Path
) -> None:
    other = sqlite3.connect(tmp_path / "db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    beats = 0

    async def release() -> None:
        nonlocal beats
        while beats < 5:
            beats += 1
            await asyncio.sleep(0.01)
        other.execute("ROLLBACK")

    run, _ = await asyncio.gather(admit_async(store, **KEY), release())
    assert (run.replay, beats) == (None, 5)
    other.execute("BEGIN IMMEDIATE")
    run.returned("paid")  # written by a thread, when it can be
    other.execute("ROLLBACK")
    other.close()
    for thread in threading.enumerate():
        if thread.name == "toolverdict-store":
            await asyncio.to_thread(thread.join)
    assert isinstance(store.begin(**KEY), Replay)


# --- time, and the file --------------------------------------------------------------------------
def test_a_key_is_forgotten_after_a_day(store: IdempotencyStore, clock: FakeClock) -> None:
    store.finish(started(store), "succeeded", 1)
    store.finish(started(store, key_hash="lost"), "unknown")
    clock.pass_(86_399)
    assert store.prune() == 0
    assert isinstance(store.look(**KEY), Replay)
    clock.pass_(1)
    assert store.look(**KEY) is None
    assert store.prune() == 1
    assert isinstance(store.look(**{**KEY, "key_hash": "lost"}), Unknown)
    assert started(store).token == 1


def test_a_clock_set_forward_forgets_nothing(store: IdempotencyStore, clock: FakeClock) -> None:
    store.finish(started(store), "succeeded", 1)
    clock.wall += 10 * 86_400_000
    assert store.prune() == 0
    assert isinstance(store.begin(**KEY), Replay)


def test_a_store_that_cannot_be_used_stops_the_call_that_needs_it(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.store.close()
    with pytest.raises(StoreError):
        pipeline.call(lambda: 1)
    assert pipeline.ran == 0
    assert pipeline.call(lambda: 1, required=False) == 1


def test_a_body_is_not_harmed_by_a_store_that_fails_after_it(pipeline: Pipeline) -> None:
    def body() -> str:
        pipeline.store.close()
        return "paid"

    assert pipeline.call(body) == "paid"
    assert guard.counts()["idempotency"] == 1


@pytest.mark.parametrize("change", [{"key_hash": ""}, {"fingerprint": ""}])
def test_what_has_no_hash_is_not_taken(store: IdempotencyStore, change: dict[str, str]) -> None:
    with pytest.raises(StoreError):
        store.begin(**{**KEY, **change})


def test_it_shares_the_file_of_the_approvals_and_refuses_a_newer_table(
    store: IdempotencyStore, tmp_path: Path
) -> None:
    from toolverdict.instrument.stores.approvals import ApprovalStore

    ApprovalStore(tmp_path / "db").close()
    connection = sqlite3.connect(tmp_path / "db")
    with connection:
        connection.execute("UPDATE toolverdict_schema SET version = 9 WHERE part = 'idempotency'")
    connection.close()
    ApprovalStore(tmp_path / "db").close()
    with pytest.raises(StoreError, match="newer"):
        IdempotencyStore(tmp_path / "db", key=SECRET)


def test_nothing_but_hashes_and_results_is_kept(store: IdempotencyStore) -> None:
    assert isinstance(Conflict(), Conflict)
    assert "secret" not in repr(Replay("succeeded", "secret"))
    assert "secret" not in repr(Reconciled("succeeded", "secret"))
    assert module.__doc__ is not None
