"""Compaction: fewer and smaller parts, the same rows, whatever happens meanwhile."""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from toolverdict.collector.errors import LakeError
from toolverdict.collector.lake import Lake, compaction, part_file, regroup
from toolverdict.collector.lake.compaction import (
    Compaction,
    CompactionSettings,
    compact,
)
from toolverdict.collector.lake.inventory import take_inventory
from toolverdict.collector.lake.part_file import OPEN_ROWS_KEY, REPLACES_KEY, read_info
from toolverdict.collector.lake.retries import without_retries
from toolverdict.collector.lake.store import Entry, LocalStore
from toolverdict.collector.lake.verification import verify
from toolverdict.collector.parts import remove_unfinished
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_request, make_span, post, running_collector

Fill = Any
"""The class ``Filler`` of conftest.py."""


def run(fill: Fill, **settings: Any) -> Compaction:
    with fill.lake.store.upkeep():
        return compact(fill.lake, CompactionSettings(**settings), fill.closed)


def rows(lake: Lake) -> list[dict[str, Any]]:
    found = []
    for bucket in range(lake.buckets):
        found += lake.read_spans(bucket).to_pylist() + lake.read_logs(bucket).to_pylist()
    return found


def trace(number: int) -> bytes:
    return number.to_bytes(16)


@pytest.mark.parametrize("buckets", [1, 4])
def test_an_hour_becomes_one_part_with_the_same_rows(
    tmp_path: Path, filler: Callable[[Lake], Fill], buckets: int
) -> None:
    """B106: however often the collector flushed."""
    fill = filler(Lake.create(tmp_path, buckets))
    for number in range(12):
        fill.spans(
            *(make_span(number * 10 + n, trace_id=trace(1 + number // 3)) for n in range(10))
        )
        fill.logs(LogRecord(time_unix_nano=1 + number, trace_id=trace(1 + number)))
        fill.logs(LogRecord(time_unix_nano=1 + number))
    before = rows(fill.lake)
    done = run(fill)
    assert rows(fill.lake) == before
    assert done.rows_before == done.rows_after == 12 * 12
    assert done.parts_after == done.folders == 2 * buckets
    assert done.bytes_after < done.bytes_before
    assert not verify(fill.lake).faults
    for bucket in range(buckets):
        (part,) = fill.lake.parts(Signal.TRACES, bucket)
        with pq.ParquetFile(part) as file:
            codecs = {
                file.metadata.row_group(0).column(n).compression
                for n in range(file.metadata.num_columns)
            }
        assert codecs == {"ZSTD"}
    assert run(fill).folders == 0


def test_hours_that_are_not_closed_stay_as_they_are(fill: Fill) -> None:
    fill.spans(make_span(1))
    fill.spans(make_span(2), hours=2)
    fill.spans(make_span(3), hours=200)
    assert run(fill).folders == 1
    assert run(fill, grace=timedelta(hours=-1)).folders == 1
    assert len(rows(fill.lake)) == 3


def test_retries_go_and_what_differs_stays(fill: Fill) -> None:
    """B91, B94: a copy is dropped, the record of a span's start is not."""
    begun = make_span(1, end_time_unix_nano=0)
    fill.spans(make_span(1), make_span(1), received=10)
    fill.spans(begun, make_span(2), received=20)
    fill.spans(make_span(1), begun, received=30)
    log = LogRecord(time_unix_nano=5, trace_id=trace(1))
    fill.logs(log, log, LogRecord(event_name="x"), received=10)
    fill.logs(log, log, LogRecord(event_name="x"), received=20)
    before = rows(fill.lake)
    done = run(fill)
    assert rows(fill.lake) == before
    assert done.retries == 3 + 2
    (part,) = fill.lake.parts(Signal.TRACES, 0)
    stored = pq.read_table(part, partitioning=None)
    keys = ["name", "span_id", "end_time_unix_nano", "received_time_unix_nano"]
    found = [tuple(row.values())[1:] for row in stored.select(keys).to_pylist()]
    assert [(span[-1], bool(end), received) for span, end, received in found] == [
        ("2", True, 30),
        ("2", False, 30),
        ("3", True, 20),
    ]


def test_log_records_of_one_request_or_without_a_time_are_never_retries(fill: Fill) -> None:
    record = LogRecord(time_unix_nano=5)
    fill.logs(record, record, LogRecord(), received=10)
    fill.logs(record, LogRecord(), received=20)
    read = fill.lake.read_logs(0, ["received_time_unix_nano", "time_unix_nano"]).to_pylist()
    assert [tuple(row.values()) for row in read] == [(10, 0), (20, 0), (20, 5)]


def test_a_part_that_comes_late_joins_the_compacted_one(fill: Fill) -> None:
    fill.spans(make_span(1))
    run(fill)
    fill.spans(make_span(2))
    fill.spans(make_span(0))
    before = rows(fill.lake)
    done = run(fill)
    assert (done.parts_before, done.parts_after) == (3, 1)
    assert rows(fill.lake) == before
    assert run(fill).folders == 0


def test_a_part_that_is_written_again_after_it_was_compacted_counts_once(fill: Fill) -> None:
    """B88, B92: a collector that died before it deleted its segment repeats the parts."""
    first = fill.spans(make_span(1))
    log = fill.logs(LogRecord(event_name="no time"))
    copies = {path: path.read_bytes() for path in (first, log)}
    before = rows(fill.lake)
    run(fill)
    fill.spans(make_span(7))
    run(fill)
    for path, content in copies.items():
        path.write_bytes(content)
    assert len(rows(fill.lake)) == len(before) + 1
    assert any("was replaced" in fault for fault in verify(fill.lake).faults)
    done = run(fill)
    assert (done.folders, done.removed) == (0, 2)
    assert len(rows(fill.lake)) == len(before) + 1


def test_columns_of_a_newer_version_are_kept(fill: Fill) -> None:
    newer = fill.spans(make_span(1))
    table = pq.read_table(newer, partitioning=None)
    table = table.append_column("weight", pa.array([2.5])).append_column("tags", pa.array([["a"]]))
    pq.write_table(table, newer)
    fill.spans(make_span(2))
    run(fill)
    (part,) = fill.lake.parts(Signal.TRACES, 0)
    stored = pq.read_table(part, partitioning=None)
    assert stored["weight"].to_pylist() == [2.5, None]
    assert stored["tags"].to_pylist() == [["a"], None]
    assert len(rows(fill.lake)) == 2


def test_a_newer_schema_is_left_alone(fill: Fill) -> None:
    part = fill.spans(make_span(1))
    table = pq.read_table(part, partitioning=None)
    pq.write_table(table.replace_schema_metadata({b"toolverdict.schema_version": b"9"}), part)
    fill.spans(make_span(2))
    fill.spans(make_span(3))
    content = part.read_bytes()
    done = run(fill)
    assert "upgrade" in done.faults[0]
    assert part.read_bytes() == content


@pytest.mark.parametrize("keep", [0, 100])
def test_a_damaged_part_is_left_and_the_others_are_compacted(fill: Fill, keep: int) -> None:
    """B103: half a file is neither trusted nor deleted; its segment may write it anew."""
    broken, sound = fill.spans(make_span(1)), fill.spans(make_span(2))
    content = broken.read_bytes()
    broken.write_bytes(content[:keep])
    done = run(fill)
    assert done.folders == 1
    assert broken.name in done.faults[0]
    assert broken.exists()
    assert not sound.exists()
    broken.write_bytes(content)
    assert len(rows(fill.lake)) == 2
    run(fill)
    assert len(rows(fill.lake)) == 2


def test_a_damaged_result_is_written_anew_from_its_parts(fill: Fill) -> None:
    """B103: that the output exists does not mean that it is whole."""
    paths = [fill.spans(make_span(number)) for number in range(2)]
    contents = {path: path.read_bytes() for path in paths}
    run(fill)
    (result,) = fill.lake.parts(Signal.TRACES, 0)
    result.write_bytes(result.read_bytes()[:50])
    for path, content in contents.items():
        path.write_bytes(content)
    run(fill)
    assert fill.lake.parts(Signal.TRACES, 0) == [result]
    assert len(rows(fill.lake)) == 2


def test_a_damaged_compacted_part_stops_its_folder_alone(fill: Fill) -> None:
    fill.spans(make_span(1))
    fill.spans(make_span(1), hours=1)
    run(fill)
    result = fill.lake.parts(Signal.TRACES, 0)[0]
    result.write_bytes(result.read_bytes()[:50])
    late = (
        fill.spans(make_span(2))
        if f"hour={fill.hour:%H}" in str(result)
        else fill.spans(make_span(2), hours=1)
    )
    done = run(fill)
    assert late.exists()
    assert any("restore it from a copy" in fault for fault in done.faults)


def test_what_does_not_fit_in_memory_is_compacted_in_ranges(
    fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        fill.spans(*(make_span(n * 6 + number, trace_id=trace(1 + n)) for n in range(200)))
        fill.logs(
            *(
                LogRecord(time_unix_nano=n, trace_id=trace(1 + n % 3) if n % 2 else b"")
                for n in range(50)
            )
        )
    before = rows(fill.lake)
    monkeypatch.setattr(regroup, "CHUNK_BYTES", 10_000)
    monkeypatch.setattr(part_file, "ROW_GROUP_ROWS", 50)
    run(fill)
    assert not (fill.lake.path / ".scratch").exists()
    assert rows(fill.lake) == before
    assert not verify(fill.lake).faults
    (part,) = fill.lake.parts(Signal.TRACES, 0)
    assert read_info(fill.lake.store, str(part.relative_to(fill.lake.path))).row_groups > 5


def footer(part: Path, key: bytes, text: bytes) -> Path:
    """A compacted part beside this one with an entry in its footer that nobody of us wrote."""
    table = pq.read_table(part, partitioning=None)
    other = part.with_name(f"part-compacted-{'0' * 32}.parquet")
    with pq.ParquetWriter(other, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({key: text})  # type: ignore[dict-item]
    return other


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (REPLACES_KEY, b"{oops"),
        (REPLACES_KEY, b"7"),
        (REPLACES_KEY, b"null"),
        (REPLACES_KEY, b'[["a"],{"b":1}]'),
        (REPLACES_KEY, b"\xff"),
        (OPEN_ROWS_KEY, b"x"),
    ],
)
def test_a_footer_that_says_nonsense_is_told_with_its_part(
    fill: Fill, key: bytes, text: bytes
) -> None:
    other = footer(fill.spans(make_span(1)), key, text)
    with pytest.raises(LakeError, match=other.name):
        fill.lake.read_spans(0)
    with pytest.raises(LakeError, match=other.name):
        take_inventory(fill.lake)
    assert any(other.name in fault for fault in verify(fill.lake).faults)
    assert any(other.name in fault for fault in run(fill).faults)
    assert other.exists()


def test_a_folder_that_needs_too_much_memory_is_left_and_the_others_are_compacted(
    fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hour in (0, 0, 1, 1):
        fill.spans(make_span(hour), hours=hour)
    calls = iter((MemoryError(), None))

    def scarce(signal: Signal, table: pa.Table) -> pa.Table:
        if (error := next(calls)) is not None:
            raise error
        return without_retries(signal, table)

    monkeypatch.setattr(compaction, "without_retries", scarce)
    done = run(fill)
    assert (done.folders, done.parts_before) == (1, 2)
    (fault,) = done.faults
    assert "hour=14/bucket=00 stays as it is: it needs more memory" in fault
    assert fill.lake.read_spans(0).num_rows == 2
    assert verify(fill.lake).faults == []


def test_two_compactions_exclude_each_other(fill: Fill) -> None:
    fill.spans(make_span(1))
    other = Lake.open(fill.lake.path)
    with (
        fill.lake.store.upkeep(),
        pytest.raises(LakeError, match="at work"),
        other.store.upkeep(),
    ):
        pass
    run(fill)


def test_a_collector_that_starts_leaves_a_running_compaction_its_file(fill: Fill) -> None:
    part = fill.spans(make_span(1))
    mine = part.with_name(".part-compacted-0a.parquet.tmp")
    mine.write_bytes(b"half")
    assert remove_unfinished(fill.lake) == 0
    assert mine.exists()
    assert run(fill).removed == 1
    assert not mine.exists()


_KILLED_AT = """
import os, sys
from datetime import datetime
from toolverdict.collector.lake import Lake
from toolverdict.collector.lake.compaction import CompactionSettings, compact

left = int(sys.argv[2])
def hook(event, _):
    global left
    if event in ("os.rename", "os.remove"):
        if left == 0:
            os.kill(os.getpid(), 9)
        left -= 1

lake = Lake.open(sys.argv[1])
with lake.store.upkeep():
    sys.addaudithook(hook)
    compact(lake, CompactionSettings(), datetime.fromisoformat(sys.argv[3]))
"""


def test_a_kill_at_any_point_loses_nothing_and_the_next_run_finishes(fill: Fill) -> None:
    """Before each rename and each deletion in turn."""
    for number in range(3):
        fill.spans(make_span(number), make_span(0))
    fill.logs(LogRecord(event_name="a"))
    fill.logs(LogRecord(event_name="a"))
    before = rows(fill.lake)
    original = fill.lake.path
    killed = 0
    for point in range(100):
        copy = original.with_name(f"copy-{point}")
        shutil.copytree(original, copy)
        process = subprocess.run(
            [sys.executable, "-c", _KILLED_AT, str(copy), str(point), fill.closed.isoformat()]
        )
        lake = Lake.open(copy)
        assert rows(lake) == before
        with lake.store.upkeep():
            compact(lake, CompactionSettings(), fill.closed)
        assert rows(lake) == before
        assert not verify(lake).faults
        assert len(lake.parts(Signal.TRACES, 0)) == len(lake.parts(Signal.LOGS, 0)) == 1
        if process.returncode == 0:
            break
        killed += 1
    assert killed == 2 + 5


def test_readers_see_every_row_once_while_parts_are_swapped(fill: Fill) -> None:
    """Real readers beside a real compaction."""
    for number in range(30):
        fill.spans(make_span(number), hours=number // 3 - 30)
        fill.logs(LogRecord(event_name="same"), hours=number // 3 - 30)
    before = rows(fill.lake)
    stop = threading.Event()
    faults: list[object] = []

    def read() -> None:
        lake = Lake.open(fill.lake.path)
        while not stop.is_set():
            try:
                seen = rows(lake)
            except Exception as error:  # noqa: BLE001
                faults.append(error)
                return
            if seen != before:
                faults.append((len(seen), len(before)))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    done = run(fill)
    stop.set()
    for reader in readers:
        reader.join()
    assert done.folders == 20
    assert faults == []


def test_a_collector_under_load_loses_nothing_to_compactions(tmp_path: Path) -> None:
    """B83: a real one, whose own hour is compacted again and again while it writes to it."""
    later = datetime.now(UTC) + timedelta(hours=3)
    folders = read = 0
    with running_collector(tmp_path / "lake", flush_interval=0.05) as collector:
        lake = Lake.open(tmp_path / "lake")
        for number in range(120):
            body = make_request(*(make_span(number * 10 + n) for n in range(10)))
            assert post(f"{collector.http}/v1/traces", body.SerializeToString()).status == 200
            if number % 10 == 9:
                with lake.store.upkeep():
                    folders += compact(lake, CompactionSettings(), later).folders
                seen = lake.read_spans(0, ["trace_id"]).num_rows
                assert read <= seen <= (number + 1) * 10
                read = seen
        assert collector.terminate() == 0
    with lake.store.upkeep():
        folders += compact(lake, CompactionSettings(), later).folders
    assert folders > 1
    assert lake.read_spans(0, ["trace_id"]).num_rows == 1200
    assert verify(lake).faults == []


class _Interrupted(LocalStore):
    """A folder in which something happens between a listing and its use."""

    def __init__(
        self, root: Path, listings: Iterator[Callable[[list[Entry]], list[Entry]]]
    ) -> None:
        super().__init__(root)
        self._listings = listings

    def list(self, folder: str, bucket: str | None = None) -> list[Entry]:
        change = next(self._listings, None)
        found = super().list(folder, bucket)
        return found if change is None else change(found)


def test_a_reader_whose_listing_is_outdated_lists_again(fill: Fill) -> None:
    """Also one that saw neither an old part nor the new one: a listing is no snapshot."""
    parts = [fill.spans(make_span(number)) for number in range(3)]

    def compacted_meanwhile(found: list[Entry]) -> list[Entry]:
        run(fill)
        return found

    def saw_half_of_it(found: list[Entry]) -> list[Entry]:
        run(fill)
        return [entry for entry in found if entry.name.endswith(parts[2].name)]

    contents = {part: part.read_bytes() for part in parts}
    for change in (compacted_meanwhile, saw_half_of_it):
        for path in fill.lake.path.rglob("part-*.parquet"):
            path.unlink()
        for part, content in contents.items():
            part.write_bytes(content)
        lake = Lake(_Interrupted(fill.lake.path, iter([change])), 1)
        assert lake.read_spans(0).num_rows == 3


def test_parts_that_keep_vanishing_are_an_error(fill: Fill) -> None:
    fill.spans(make_span(1))
    ghost = Entry("spans/date=2026-11-30/hour=14/bucket=00/part-ghost.parquet", 1)

    def haunted() -> Iterator[Callable[[list[Entry]], list[Entry]]]:
        while True:
            yield lambda found: [*found, ghost]

    lake = Lake(_Interrupted(fill.lake.path, haunted()), 1)
    with pytest.raises(LakeError, match="keep vanishing"):
        lake.read_spans(0)


def test_a_full_disk_leaves_the_parts_as_they_are(
    fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [fill.spans(make_span(number)) for number in range(2)]
    before = rows(fill.lake)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            run(fill)
    assert fill.lake.parts(Signal.TRACES, 0) == parts
    assert not verify(fill.lake).faults
    run(fill)
    assert rows(fill.lake) == before


class _Decided:
    """Traces that stay or go, by number; what is kept is marked."""

    def __init__(self, kept: Iterable[int] = (), dropped: Iterable[int] = ()) -> None:
        self.kept = [trace(number).hex() for number in kept]
        self.dropped = [trace(number).hex() for number in dropped]
        self.asked = 0

    def thin(self, signal: Signal, table: pa.Table) -> pa.Table:
        stays = table.filter(pc.invert(_of(table, self.dropped)))
        if signal is Signal.LOGS:
            return stays
        marked = _of(stays, self.kept).to_pylist()
        states = pa.array(["ot=th:0" if mark else "" for mark in marked]).dictionary_encode()
        place = stays.column_names.index("trace_state")
        return stays.set_column(place, stays.schema.field(place), states)

    def undecided(self, table: pa.Table) -> int:
        self.asked += 1
        open_rows = pc.invert(_of(table, [*self.kept, *self.dropped]))
        return int(pc.sum(pc.and_(open_rows, pc.is_valid(table["trace_id"]))).as_py() or 0)


def _of(table: pa.Table, traces: list[str]) -> Any:
    return pc.is_in(table["trace_id"], value_set=pa.array(traces, pa.string()))


def spans_of(lake: Lake) -> dict[str, int]:
    ids = [row["trace_id"] for row in lake.read_spans(0, ["trace_id"]).to_pylist()]
    return {found[-1]: ids.count(found) for found in ids}


def test_what_is_decided_is_thinned_in_every_hour_that_it_is_in(fill: Fill) -> None:
    """Trace 1 stays, trace 2 goes, trace 3 is not decided before the second time."""
    for hours in (0, 1):
        fill.spans(*(make_span(n, trace_id=trace(1 + n % 2)) for n in range(hours, 4)), hours=hours)
        fill.spans(make_span(8 + hours, trace_id=trace(3)), hours=hours)
    assert run(fill, thinning=_Decided([1], [2])).folders == 2
    assert spans_of(fill.lake) == {"1": 2, "3": 2}
    read = fill.lake.read_spans(0, ["trace_id", "trace_state"]).to_pylist()
    assert {row["trace_state"] for row in read if row["trace_id"][-1] == "1"} == {"ot=th:0"}
    assert not verify(fill.lake).faults

    assert run(fill, thinning=_Decided([1], [2])).folders == 0
    assert run(fill).folders == 0
    assert run(fill, thinning=_Decided([1], [2, 3])).folders == 2
    assert spans_of(fill.lake) == {"1": 2}
    everything_decided = _Decided([1], [2, 3])
    assert run(fill, thinning=everything_decided).folders == 0
    assert everything_decided.asked == 0


def test_a_folder_compacted_before_there_was_a_thinning_is_thinned(fill: Fill) -> None:
    fill.spans(make_span(1, trace_id=trace(1)), make_span(2, trace_id=trace(2)))
    run(fill)
    run(fill, thinning=_Decided([2], [1]))
    assert spans_of(fill.lake) == {"2": 1}
    assert not verify(fill.lake).faults


def test_log_records_go_with_their_trace(fill: Fill) -> None:
    for number in (1, 2):
        fill.logs(LogRecord(time_unix_nano=number, trace_id=trace(number)))
    fill.logs(LogRecord(time_unix_nano=3))
    for dropped, left in (([1], [2, 3]), ([1, 2], [3])):
        assert run(fill, thinning=_Decided(dropped=dropped)).folders == 1
        times = fill.lake.read_logs(0, ["time_unix_nano"])["time_unix_nano"].to_pylist()
        assert sorted(times) == left
    assert run(fill, thinning=_Decided(dropped=[1, 2, 3])).folders == 0


def test_the_clock_may_be_wrong(fill: Fill) -> None:
    """A clock far behind compacts nothing, one far ahead compacts what is there."""
    fill.spans(make_span(1))
    fill.closed = datetime(1971, 1, 1, tzinfo=fill.hour.tzinfo)
    assert run(fill).folders == 0
    fill.closed = datetime(2200, 1, 1, tzinfo=fill.hour.tzinfo)
    assert run(fill).folders == 1
    assert len(rows(fill.lake)) == 1


SPAN = st.tuples(
    st.integers(1, 3),  # trace
    st.integers(1, 3),  # span
    st.booleans(),  # finished
    st.sampled_from(["a", "b"]),  # name
)
SEGMENT = st.tuples(st.lists(SPAN, min_size=1, max_size=4), st.integers(0, 1), st.booleans())


@settings(deadline=None, max_examples=25)
@given(st.lists(SEGMENT, max_size=8))
def test_whenever_it_is_compacted_the_same_is_read(
    filler: Callable[[Lake], Fill], segments: list[Any]
) -> None:
    """Retries, records of unfinished spans and late parts, in any order, with compactions between."""
    with TemporaryDirectory() as place, TemporaryDirectory() as other_place:
        never, often = filler(Lake.create(place)), filler(Lake.create(other_place))
        for spans, hours, then_compact in segments:
            sent = [
                make_span(
                    span,
                    trace_id=trace(number),
                    name=name,
                    **({} if finished else {"end_time_unix_nano": 0}),
                )
                for number, span, finished, name in spans
            ]
            for fill in (never, often):
                fill.spans(*sent, hours=hours)
            if then_compact:
                run(often)
                assert rows(often.lake) == rows(never.lake)
        run(often)
        assert rows(often.lake) == rows(never.lake)
        assert verify(often.lake).faults == []
        assert len(often.lake.parts(Signal.TRACES, 0)) <= 2
