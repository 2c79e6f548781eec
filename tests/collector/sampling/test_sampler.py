"""The sampler and its memory: late spans, crashes, compaction, and what is on the disk."""

import errno
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolverdict.collector.errors import LakeError
from toolverdict.collector.lake import Lake
from toolverdict.collector.lake.compaction import Compaction, CompactionSettings, compact
from toolverdict.collector.lake.store import LocalStore
from toolverdict.collector.parts import write_part
from toolverdict.collector.sampling.memory import DECISIONS, TOOLS, Memory
from toolverdict.collector.sampling.policy import SamplingPolicy
from toolverdict.collector.sampling.sampler import Sampler, decided
from toolverdict.collector.sampling.testing import SECOND_NS, START_NS, span_table
from toolverdict.collector.sampling.thresholds import read_sampled
from toolverdict.collector.schema import LOGS
from toolverdict.collector.segment import SegmentId
from toolverdict.collector.signals import Signal

HOUR = 3600 * SECOND_NS
DAY = 24 * HOUR
LATER = START_NS + HOUR
KEPT, DROPPED, FAILED = "c" * 32, "1" * 32, "2" * 32
POLICY = SamplingPolicy.parse("""
version: 1
otherwise: {keep: 0.5}
rules:
  - {id: failed, keep: 1, failed: true}
  - {id: new, keep: 1, new_tool: true}
""")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path)


def spans_of(*trace_ids: str, received: int = START_NS, status: int = 0) -> pa.Table:
    return span_table(
        trace_ids,
        span_id=[f"{received % DAY:016x}"] * len(trace_ids),
        received_time_unix_nano=[received] * len(trace_ids),
        status_code=[2 if trace == FAILED else status for trace in trace_ids],
    )


def sampler_of(lake: Lake, until: int = LATER, policy: SamplingPolicy = POLICY) -> Sampler:
    return Sampler(lake, policy, until_unix_nano=until)


def sample(lake: Lake, spans: pa.Table, until: int = LATER) -> pa.Table:
    sampler = sampler_of(lake, until)
    sampler.decide_tables([spans])
    return sampler.thin(Signal.TRACES, spans)


def files(lake: Lake) -> dict[str, bytes]:
    found = (path for path in (lake.path / "sampling").rglob("*") if path.is_file())
    return {str(path.relative_to(lake.path)): path.read_bytes() for path in found}


def traces(table: pa.Table) -> list[str]:
    return [str(trace) for trace in table.column("trace_id").to_pylist()]


def test_late_spans_follow_their_trace(lake: Lake) -> None:
    """Also one that would have been kept, had its failure been known: never again, never upward."""
    spans = spans_of(KEPT, DROPPED, FAILED)
    first = sampler_of(lake)
    first.decide_tables([spans])
    assert traces(first.thin(Signal.TRACES, spans)) == [KEPT, FAILED]
    counts = first.counts
    assert (counts.traces_kept, counts.traces_dropped, counts.spans_dropped) == (2, 1, 1)
    assert counts.late_spans_dropped == 0

    late = spans_of(KEPT, DROPPED, FAILED, received=LATER, status=2)
    second = sampler_of(lake, LATER + HOUR)
    second.decide_tables([late])
    kept = second.thin(Signal.TRACES, late)
    assert traces(kept) == [KEPT, FAILED]
    assert kept.column("trace_state").to_pylist() == ["ot=th:8", "ot=th:0"]
    counts = second.counts
    assert (counts.spans_dropped, counts.late_spans_dropped, counts.traces_dropped) == (1, 1, 0)


def test_what_is_not_quiet_waits_for_the_next_time(lake: Lake) -> None:
    spans = spans_of(DROPPED, received=LATER)
    first = sampler_of(lake, LATER + SECOND_NS)
    first.decide_tables([spans])
    assert first.thin(Signal.TRACES, spans).equals(spans)
    assert (first.counts.traces_waiting, first.counts.spans_undecided) == (1, 1)
    assert sample(lake, spans, LATER + HOUR).num_rows == 0


def test_decided_over_all_tables_and_applied_to_each(lake: Lake) -> None:
    """Caps hold over all buckets, and log records follow."""
    policy = SamplingPolicy.parse("{version: 1, otherwise: {keep: 1, cap: {traces: 1}}}")
    sampler = sampler_of(lake, policy=policy)
    tables = [spans_of(KEPT), spans_of(DROPPED), spans_of(FAILED)]
    sampler.decide_tables(iter(tables))
    assert [sampler.thin(Signal.TRACES, table).num_rows for table in tables] == [1, 0, 0]
    record = {"attributes": "{}", "received_time_unix_nano": 1}
    record |= {"time_unix_nano": 1, "observed_time_unix_nano": 1}
    logs = [{"trace_id": trace, **record} for trace in (KEPT, DROPPED, None)]
    left = sampler.thin(Signal.LOGS, pa.Table.from_pylist(logs, schema=LOGS))
    assert left.column("trace_id").to_pylist() == [KEPT, None]
    assert sampler.counts.log_records_dropped == 1


def test_twice_is_the_same(lake: Lake) -> None:
    """A compaction that was interrupted after deciding is done again with the same result."""
    spans = span_table([KEPT, DROPPED], gen_ai_tool_name=["refund", None])
    once = sample(lake, spans)
    written = files(lake)
    assert sample(lake, spans, LATER + HOUR).equals(once)
    assert files(lake) == written
    assert sample(lake, once, LATER + HOUR).equals(once)


def test_the_same_from_the_start_is_the_same_on_the_disk(tmp_path: Path) -> None:
    lakes = [tmp_path / "one", tmp_path / "two"]
    for folder in lakes:
        folder.mkdir()
        sample(Lake.create(folder), spans_of(KEPT, DROPPED))
    first, second = (files(Lake.open(folder)) for folder in lakes)
    assert first == second


@pytest.mark.parametrize("refused", [DECISIONS, TOOLS])
def test_what_cannot_be_remembered_is_not_decided(
    lake: Lake, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full: nothing is dropped, and the next time all is as if nothing had been."""
    write = LocalStore.write

    def full(self: LocalStore, name: str, fill: Callable[[pa.NativeFile], object]) -> None:
        if name.startswith(refused):
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, name, fill)

    spans = span_table([KEPT, DROPPED], gen_ai_tool_name=["refund", None])
    sampler = sampler_of(lake)
    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "write", full)
        with pytest.raises(OSError, match="No space"):
            sampler.decide_tables([spans])
    assert sampler.thin(Signal.TRACES, spans) is spans
    assert sample(lake, spans).column("trace_state").to_pylist() == ["ot=th:0"]


# --- with the lake and its compaction ------------------------------------------------------------


def store(lake: Lake, spans: pa.Table, at: int, bucket: int = 0) -> None:
    segment = SegmentId(f"{at:016x}-00000000", at)
    write_part(lake, segment, Signal.TRACES, bucket, spans, number=spans.num_rows)


def upkeep(lake: Lake, now: int, policy: SamplingPolicy = POLICY) -> tuple[Sampler, Compaction]:
    """As the command and the daemon do it."""
    time, grace = datetime.fromtimestamp(now / 1e9, UTC), timedelta(minutes=30)
    with lake.store.upkeep():
        sampler = decided(policy, lake, time - grace)
        done = compact(lake, CompactionSettings(grace, sampler), time)
    assert done.faults == []
    return sampler, done


def in_the_lake(lake: Lake) -> dict[str, list[str]]:
    """The states of the spans of each trace."""
    found: dict[str, list[str]] = {}
    for bucket in range(lake.buckets):
        spans = lake.read_spans(bucket, ["trace_id", "trace_state"])
        for row in spans.to_pylist():
            found.setdefault(row["trace_id"], []).append(row["trace_state"])
    return found


def test_compaction_thins_what_is_quiet(tmp_path: Path) -> None:
    """Over two hours and two buckets: a trace is decided with all its spans, wherever they are."""
    lake = Lake.create(tmp_path, buckets=2)
    begin = START_NS - START_NS % HOUR
    quiet, later, odd = "e" * 32, "4" * 32, "d" * 32
    store(lake, spans_of(quiet, DROPPED[:-1] + "0", received=begin), begin)
    store(lake, spans_of(odd, received=begin), begin, bucket=1)
    store(lake, spans_of(later, received=begin + HOUR - SECOND_NS), begin)
    store(lake, spans_of(later, received=begin + HOUR + SECOND_NS, status=2), begin + HOUR)

    first, _ = upkeep(lake, begin + HOUR + HOUR // 2 + SECOND_NS)
    assert (first.counts.traces_waiting, first.counts.traces_dropped) == (1, 1)
    assert in_the_lake(lake) == {quiet: ["ot=th:8"], odd: ["ot=th:8"], later: ["", ""]}

    second, _ = upkeep(lake, begin + 2 * HOUR + HOUR // 2)
    assert (second.counts.traces_waiting, second.counts.traces_kept) == (0, 1)
    thinned = {quiet: ["ot=th:8"], odd: ["ot=th:8"], later: ["ot=th:0", "ot=th:0"]}
    assert in_the_lake(lake) == thinned

    store(lake, spans_of(quiet, DROPPED[:-1] + "0", received=begin + 3 * HOUR), begin + 3 * HOUR)
    third, _ = upkeep(lake, begin + 5 * HOUR)
    assert third.counts.late_spans_dropped == 1
    assert in_the_lake(lake) == thinned | {quiet: ["ot=th:8"] * 2}


def test_only_hours_with_something_undecided_are_read(lake: Lake) -> None:
    """Rows of an hour in which everything is decided may be damaged: nobody looks."""
    begin = START_NS - START_NS % HOUR
    store(lake, spans_of(KEPT, received=begin), begin)
    upkeep(lake, begin + 10 * HOUR)
    (part,) = lake.parts(Signal.TRACES, 0)
    content = bytearray(part.read_bytes())
    content[60] ^= 1
    part.write_bytes(content)
    with pytest.raises(LakeError, match="cannot be read"):
        lake.read_spans(0)
    store(lake, spans_of(DROPPED, received=begin + 10 * HOUR), begin + 10 * HOUR)
    sampler = sampler_of(lake, begin + 12 * HOUR)
    sampler.decide()
    assert sampler.counts.traces_dropped == 1


def test_what_is_stored_long_after_it_was_received_is_decided_too(lake: Lake) -> None:
    """A collector that could not reach the lake for a day, or was not started again for so long."""
    begin = START_NS - START_NS % HOUR
    late = DROPPED[:-1] + "0"
    store(lake, spans_of(KEPT, received=begin), begin)
    upkeep(lake, begin + 30 * HOUR)
    store(lake, spans_of(KEPT, late, received=begin + SECOND_NS), begin + SECOND_NS)
    sampler, _ = upkeep(lake, begin + 31 * HOUR)
    assert sampler.counts.traces_dropped == 1
    assert in_the_lake(lake) == {KEPT: ["ot=th:8"] * 2}


def test_what_is_open_is_looked_at_again_and_rewritten_only_when_it_is_decided(lake: Lake) -> None:
    """One trace goes on for hours, over three of them; one is decided after the first."""
    begin = START_NS - START_NS % HOUR
    end = begin + HOUR - SECOND_NS
    store(lake, spans_of(FAILED, DROPPED, received=end), begin)
    for hour in (1, 2):
        store(lake, spans_of(FAILED, received=end + hour * HOUR), begin + hour * HOUR)
    closed = begin + 3 * HOUR // 2

    for hour, folders in ((0, 1), (1, 2), (2, 1)):
        sampler, done = upkeep(lake, closed + hour * HOUR)
        assert (sampler.counts.traces_waiting, done.folders) == (2 if hour == 0 else 1, folders)
        assert in_the_lake(lake)[FAILED] == ["", "", ""]
        assert (DROPPED in in_the_lake(lake)) is (hour == 0)
        written = all_files(lake)
        assert upkeep(lake, closed + hour * HOUR)[1].folders == 0
        assert all_files(lake) == written

    sampler, done = upkeep(lake, closed + 3 * HOUR)
    assert (sampler.counts.traces_waiting, done.folders) == (0, 3)
    assert in_the_lake(lake) == {FAILED: ["ot=th:0"] * 3}
    written = all_files(lake)
    assert upkeep(lake, closed + 9 * HOUR)[1].folders == 0
    assert all_files(lake) == written


def test_a_trace_may_go_on_for_as_long_as_the_policy_waits(lake: Lake) -> None:
    """However long that is beside the grace of an hour."""
    policy = SamplingPolicy.parse("{version: 1, otherwise: {keep: 0.5}, quiet_s: 90000.0}")
    begin = START_NS - START_NS % HOUR
    open_ended = span_table(
        [DROPPED],
        end_time_unix_nano=np.zeros(1, np.int64),
        received_time_unix_nano=np.full(1, begin),
    )
    store(lake, open_ended, begin)
    sampler, done = upkeep(lake, begin + 20 * HOUR, policy)
    assert (sampler.counts.traces_waiting, done.folders) == (1, 1)
    assert upkeep(lake, begin + 24 * HOUR, policy)[1].folders == 0
    assert upkeep(lake, begin + 26 * HOUR, policy)[1].folders == 1
    assert in_the_lake(lake) == {}


def test_log_records_of_a_trace_that_waits_go_with_it(lake: Lake) -> None:
    begin = START_NS - START_NS % HOUR
    end = begin + HOUR - SECOND_NS
    store(lake, spans_of(DROPPED, received=end), begin)
    record = {"attributes": "{}", "received_time_unix_nano": end}
    record |= {"time_unix_nano": 1, "observed_time_unix_nano": 1}
    logs = [{"trace_id": trace, **record} for trace in (DROPPED, KEPT, None)]
    table = pa.Table.from_pylist(logs, schema=LOGS)
    write_part(lake, SegmentId(f"{begin:016x}-00000001", begin), Signal.LOGS, 0, table)

    for later, left in ((0, [DROPPED, KEPT, None]), (HOUR, [KEPT, None])):
        upkeep(lake, begin + 3 * HOUR // 2 + later)
        assert traces_of_logs(lake) == sorted(left, key=str)
    # The trace of one has no span: nobody will ever decide it, and it stays.
    assert upkeep(lake, begin + 9 * HOUR)[1].folders == 0


def traces_of_logs(lake: Lake) -> list[str | None]:
    return sorted(lake.read_logs(0, ["trace_id"]).column("trace_id").to_pylist(), key=str)


def all_files(lake: Lake) -> dict[str, bytes]:
    found = (path for path in lake.path.rglob("*") if path.is_file())
    return {str(path.relative_to(lake.path)): path.read_bytes() for path in found}


KILLED = """
import os, sys
from datetime import datetime, timedelta
from pathlib import Path
from toolverdict.collector.lake import Lake
from toolverdict.collector.lake.compaction import CompactionSettings
from toolverdict.collector.lake.maintenance import MaintenanceSettings, maintain
from toolverdict.collector.sampling.policy import SamplingPolicy
from toolverdict.collector.sampling.sampler import decided

left = int(sys.argv[2])
policy = SamplingPolicy.load(sys.argv[4])

def decide_then_die(lake, until):
    sampler = decided(policy, lake, until)
    sys.addaudithook(hook)
    return sampler

def hook(event, _):
    global left
    if event in ("os.rename", "os.remove"):
        if left == 0:
            os.kill(os.getpid(), 9)
        left -= 1

maintain(
    Lake.open(sys.argv[1]),
    MaintenanceSettings(thinning=decide_then_die),
    datetime.fromisoformat(sys.argv[3]),
)
"""


def test_killed_between_deciding_and_the_last_step_of_compaction(tmp_path: Path) -> None:
    """Before each rename and deletion in turn: whatever was done, the next run ends at the same."""
    begin = START_NS - START_NS % HOUR
    (tmp_path / "policy.yaml").write_text("{version: 1, otherwise: {keep: 0.5}}")
    policy = SamplingPolicy.load(tmp_path / "policy.yaml")
    first = tmp_path / "first"
    first.mkdir()
    lake = Lake.create(first)
    for hour in (0, 1):
        at = begin + hour * HOUR
        store(lake, spans_of(KEPT, DROPPED, received=at), at)
    now = datetime.fromtimestamp((begin + 6 * HOUR) / 1e9, UTC)
    killed, point = -9, 0
    while killed:
        copy = tmp_path / str(point)
        shutil.copytree(first, copy)
        words = [str(copy), str(point), now.isoformat(), str(tmp_path / "policy.yaml")]
        killed = subprocess.run([sys.executable, "-c", KILLED, *words]).returncode
        assert killed in (0, -9)
        if killed:
            # The policy has changed meanwhile: what was decided stays decided.
            other = SamplingPolicy.parse("{version: 1, otherwise: {keep: 1}}")
            upkeep(Lake.open(copy), begin + 7 * HOUR, other)
        assert in_the_lake(Lake.open(copy)) == {KEPT: ["ot=th:8"] * 2}
        assert upkeep(Lake.open(copy), begin + 8 * HOUR, policy)[1].folders == 0
        point += 1
    assert point > 4


CRASH = """
import os, sys
from pathlib import Path
from toolverdict.collector.lake import Lake, store
from toolverdict.collector.sampling.policy import SamplingPolicy
from toolverdict.collector.sampling.sampler import Sampler, decided
from toolverdict.collector.sampling.testing import START_NS, SECOND_NS, span_table
from toolverdict.collector.signals import Signal

POLICY = SamplingPolicy.parse('''
version: 1
otherwise: {keep: 0.5}
rules: [{id: new, keep: 1, new_tool: true}]
''')
steps, last = 0, 0

def dying(function):
    def wrapped(*arguments):
        step()
        result = function(*arguments)
        step()
        return result
    return wrapped

def step():
    global steps
    steps += 1
    if steps == last:
        os._exit(9)

def run(folder):
    spans = span_table(["c" * 32, "1" * 32, "2" * 32], gen_ai_tool_name=["refund", None, "refund"])
    sampler = Sampler(Lake.open(folder), POLICY, until_unix_nano=START_NS + 3600 * SECOND_NS)
    sampler.decide_tables([spans])
    assert sampler.thin(Signal.TRACES, spans).column("trace_state").to_pylist() == ["ot=th:0"] * 2

def in_a_child(folder, crash_at):
    # A fork for each, as Python and Arrow take a second to start.
    global steps, last
    child = os.fork()
    if child == 0:
        steps, last = 0, crash_at
        run(folder)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

store.replace_durably = dying(store.replace_durably)
store.make_folder = dying(store.make_folder)
for crash_at in range(1, 10):
    folder = Path(sys.argv[1]) / str(crash_at)
    folder.mkdir()
    Lake.create(folder)
    print(crash_at, in_a_child(folder, crash_at), in_a_child(folder, 0), flush=True)
"""


def test_killed_anywhere_it_comes_to_the_same_end(tmp_path: Path) -> None:
    """Real processes, dead before and after each step that reaches the disk: two files, each with
    its folder and its name, are eight places."""
    done = subprocess.run(
        [sys.executable, "-c", CRASH, str(tmp_path)], capture_output=True, text=True
    )
    expected = [f"{place} {9 if place <= 8 else 0} 0" for place in range(1, 10)]
    assert done.stdout.split("\n")[:-1] == expected, done.stderr
    ends = [files(Lake.open(folder)) for folder in tmp_path.iterdir()]
    assert len(ends[0]) == 2
    assert all(end == ends[0] for end in ends)


def test_the_record_says_why(lake: Lake) -> None:
    sample(lake, spans_of(KEPT, DROPPED, FAILED))
    (entry,) = lake.store.list(DECISIONS)
    rows = pq.read_table(lake.path / entry.name, partitioning=None).to_pylist()
    assert [(row["trace_id"], row["kept"], row["rule"]) for row in rows] == [
        (DROPPED, False, "otherwise"),
        (FAILED, True, "failed"),
        (KEPT, True, "otherwise"),
    ]


def test_decisions_are_forgotten_in_time(lake: Lake) -> None:
    def remembered() -> str:
        return Memory(lake.store).recall().decisions.ids.tobytes().hex()

    sample(lake, spans_of(DROPPED))
    sample(lake, spans_of(KEPT, received=LATER), LATER + 7 * DAY)
    assert remembered() == DROPPED + KEPT
    sample(lake, spans_of(FAILED, received=LATER), LATER + 8 * DAY)
    assert remembered() == FAILED + KEPT


def test_randomness_of_a_conversation_is_remembered_for_late_spans(lake: Lake) -> None:
    policy = SamplingPolicy.parse("{version: 1, otherwise: {keep: 1}, randomness: conversation}")
    spans = span_table([KEPT], gen_ai_conversation_id=["conv"])
    sampler = sampler_of(lake, policy=policy)
    sampler.decide_tables([spans])
    states = sampler.thin(Signal.TRACES, spans).column("trace_state").to_pylist()
    late = sampler_of(lake, LATER + HOUR, policy).thin(Signal.TRACES, spans_of(KEPT))
    assert late.column("trace_state").to_pylist() == states
    assert read_sampled(str(states[0])).randomness is not None


@pytest.mark.parametrize("damage", [b"", b"PAR1 and nothing else", b"{"])
def test_a_damaged_memory_is_named(lake: Lake, damage: bytes) -> None:
    sample(lake, span_table([KEPT], gen_ai_tool_name=["refund"]))
    (entry,) = lake.store.list(DECISIONS)
    decisions, tools = lake.path / entry.name, lake.path / TOOLS
    sound = decisions.read_bytes()
    for file in (decisions, tools):
        file.write_bytes(damage)
        with pytest.raises(LakeError, match=f"{file.name} cannot be read .*restore it"):
            sampler_of(lake)
        decisions.write_bytes(sound)


@pytest.mark.parametrize(
    "content", ["[]", '{"version": 1}', '{"version": 1, "first_seen_unix_nano": {"a": 1.5}}']
)
def test_tools_that_are_none_are_damage(lake: Lake, content: str) -> None:
    (lake.path / TOOLS).parent.mkdir()
    (lake.path / TOOLS).write_text(content)
    with pytest.raises(LakeError, match="cannot be read"):
        Memory(lake.store).tools()


def test_a_newer_memory_is_refused(lake: Lake) -> None:
    sample(lake, spans_of(KEPT))
    (entry,) = lake.store.list(DECISIONS)
    file = lake.path / entry.name
    table = pq.read_table(file, partitioning=None)
    pq.write_table(table.replace_schema_metadata({"toolverdict.sampling_version": "2"}), file)
    with pytest.raises(LakeError, match="newer toolverdict"):
        Memory(lake.store).recall()
    tools = {"version": 2, "first_seen_unix_nano": {}}
    (lake.path / TOOLS).write_text(json.dumps(tools))
    with pytest.raises(LakeError, match="newer toolverdict"):
        Memory(lake.store).tools()
