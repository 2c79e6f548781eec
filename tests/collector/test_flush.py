"""Segments to Parquet: idempotent, nothing deleted too early, damage set aside."""

import errno
import logging
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from toolverdict.collector import decoders, flush
from toolverdict.collector.flush import Flushed, Flusher, flush_segment
from toolverdict.collector.lake import Lake
from toolverdict.collector.parts import write_part
from toolverdict.collector.segment import SegmentId, new_segment_id, pack_frame, pack_header
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_request, make_span

pytestmark = pytest.mark.usefixtures("each_decoder")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    (tmp_path / "wal").mkdir()
    return Lake.create(tmp_path, buckets=2)


def _segment(lake: Lake, *bodies: bytes) -> Path:
    segment = new_segment_id(0)
    frames = [
        b"".join(pack_frame(segment, Signal.TRACES, segment.created_unix_nano, body))
        for body in bodies
    ]
    path = lake.path / "wal" / f"{segment.text}.log"
    path.write_bytes(pack_header(segment.created_unix_nano) + b"".join(frames))
    return path


def _body(*numbers: int) -> bytes:
    return make_request(*map(make_span, numbers)).SerializeToString()


def _stored(lake: Lake) -> int:
    return sum(lake.read_spans(bucket).num_rows for bucket in range(lake.buckets))


def _quarantined(lake: Lake) -> list[str]:
    return [path.name for path in (lake.path / "wal" / "quarantine").glob("*")]


def test_a_segment_becomes_one_part_for_each_bucket(lake: Lake) -> None:
    path = _segment(lake, _body(1, 2), _body(3))
    assert flush_segment(lake, path).counts[Signal.TRACES] == 3
    assert not path.exists()
    assert [lake.read_spans(bucket).num_rows for bucket in (0, 1)] == [2, 1]


def test_flushing_twice_gives_the_same_bytes(lake: Lake) -> None:
    """B88, B103: a crash between the rename and the deletion costs and adds nothing."""
    path = _segment(lake, _body(1, 2))
    content = path.read_bytes()
    flush_segment(lake, path)
    before = {part: part.read_bytes() for part in lake.path.rglob("part-*.parquet")}
    next(iter(before)).write_bytes(b"cut short")
    path.write_bytes(content)
    flush_segment(lake, path)
    after = {part: part.read_bytes() for part in lake.path.rglob("part-*.parquet")}
    assert after == before


def test_a_large_segment_becomes_several_parts(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row limit bounds memory, also within one frame; again the same bytes the second time."""
    monkeypatch.setattr(flush, "MAX_PART_ROWS", 3)
    path = _segment(lake, _body(1, 3), _body(*range(5, 21, 2)), _body(2))
    content = path.read_bytes()
    assert flush_segment(lake, path).counts[Signal.TRACES] == 11
    before = {part: part.read_bytes() for part in lake.path.rglob("part-*.parquet")}
    assert sorted(part.stem[-2:] for part in before) == ["-0", "-1", "-2", "-3", "-3"]
    path.write_bytes(content)
    flush_segment(lake, path)
    assert {part: part.read_bytes() for part in lake.path.rglob("part-*.parquet")} == before
    assert _stored(lake) == 11


def test_a_part_ends_where_its_rows_weigh_enough(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two bytes on the wire may be a hundred in a column: rows alone bound nothing."""
    monkeypatch.setattr(flush, "MAX_PART_WEIGHT", 5_000)
    heavy = [make_span(n, events=[Span.Event()] * 30) for n in (1, 3, 5)]
    light = [make_span(n) for n in range(7, 21, 2)]
    path = _segment(lake, make_request(*heavy, *light).SerializeToString())
    assert flush_segment(lake, path).counts[Signal.TRACES] == 10
    rows = [pq.read_metadata(part).num_rows for part in sorted(lake.path.rglob("part-*.parquet"))]
    assert rows == [2, 2, 6]
    assert _stored(lake) == 10


def test_both_decoders_write_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Part by part, bucket by bucket: a crash and a change of the decoder in between add nothing.

    Words of one bucket, or of one part, are not in the file of another.
    """
    pytest.importorskip("toolverdict.collector.native")
    monkeypatch.setattr(flush, "MAX_PART_ROWS", 7)
    (tmp_path / "wal").mkdir()
    lake = Lake.create(tmp_path, buckets=4)
    bodies = [
        make_request(*(make_span(n, name=f"name {n}") for n in range(start, start + 5)))
        for start in range(0, 40, 5)
    ]
    path = _segment(lake, *(body.SerializeToString() for body in bodies))
    content = path.read_bytes()
    written = []
    for name in ("python", "native"):
        monkeypatch.setenv(decoders.VARIABLE, name)
        path.write_bytes(content)
        assert flush_segment(lake, path).counts[Signal.TRACES] == 40
        written.append({part: part.read_bytes() for part in lake.path.rglob("part-*.parquet")})
    assert written[0] == written[1]
    assert len(written[0]) == 4 * 6
    for part, data in written[0].items():
        assert len(set(re.findall(rb"name \d+", data))) == pq.read_metadata(part).num_rows
    for bucket in range(4):
        rows = lake.read_spans(bucket, ["trace_id"])
        assert rows.num_rows == 10
        assert {lake.bucket_of(row["trace_id"]) for row in rows.to_pylist()} == {bucket}


def test_log_records_without_a_trace_are_in_the_first_bucket(lake: Lake) -> None:
    records = [LogRecord(trace_id=b"t" * 15 + bytes([n]), time_unix_nano=n) for n in range(6)]
    records.insert(3, LogRecord(severity_text="no trace"))
    request = ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(scope_logs=[ScopeLogs(log_records=records)])]
    )
    segment = new_segment_id(0)
    frame = pack_frame(segment, Signal.LOGS, 1, request.SerializeToString())
    path = lake.path / "wal" / f"{segment.text}.log"
    path.write_bytes(pack_header(segment.created_unix_nano) + b"".join(frame))
    assert flush_segment(lake, path).counts[Signal.LOGS] == 7
    assert lake.read_logs(0)["severity_text"].to_pylist() == ["", "", "", "no trace"]
    assert lake.read_logs(1).num_rows == 3


def test_the_segment_stays_until_all_parts_are_there(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B103"""
    path = _segment(lake, _body(1, 2))
    real_write_part = write_part
    written: list[int] = []

    def fail_on_second(
        lake: Lake, segment: SegmentId, signal: Signal, bucket: int, table: object, number: int
    ) -> None:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(bucket)
        real_write_part(lake, segment, signal, bucket, table, number)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(flush, "write_part", fail_on_second)
        with pytest.raises(OSError, match="No space"):
            flush_segment(lake, path)
    assert path.exists()
    flush_segment(lake, path)
    assert _stored(lake) == 2
    assert not path.exists()


def test_damage_is_set_aside_once_and_the_rest_is_stored(
    lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    """B85: the damaged file never comes back, is never deleted, and is reported with counts."""
    path = _segment(lake, _body(1), _body(2), _body(3))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with caplog.at_level(logging.ERROR):
        flush_segment(lake, path)
    assert _stored(lake) == 2
    assert _quarantined(lake) == [path.name]
    assert list((lake.path / "wal").glob("*.log")) == []
    assert "kept 2 spans" in caplog.text


@pytest.mark.parametrize("data", [b"", b"garbage" * 50])
def test_empty_and_garbage_segments_are_set_aside(lake: Lake, data: bytes) -> None:
    """B86"""
    path = _segment(lake)
    path.write_bytes(data)
    flush_segment(lake, path)
    assert _quarantined(lake) == [path.name]


def test_a_segment_without_frames_just_goes(lake: Lake) -> None:
    path = _segment(lake)
    flush_segment(lake, path)
    assert (path.exists(), _quarantined(lake)) == (False, [])


def test_a_torn_end_is_no_damage(lake: Lake) -> None:
    path = _segment(lake, _body(1), _body(2))
    path.write_bytes(path.read_bytes()[:-3])
    flush_segment(lake, path)
    assert (_stored(lake), _quarantined(lake)) == (1, [])


def test_a_frame_that_cannot_be_decoded_does_not_stop_the_others(lake: Lake) -> None:
    path = _segment(lake, _body(1), b"\xff not protobuf", _body(2))
    flush_segment(lake, path)
    assert (_stored(lake), _quarantined(lake)) == (2, [path.name])


@pytest.fixture
def flusher(lake: Lake) -> Iterator[Flusher]:
    flusher = Flusher(lake)
    yield flusher
    flusher.close()


def test_the_flusher_tries_again_when_the_disk_is_full(
    lake: Lake, flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B74, B85: the log waits, others pass it, and nothing is lost."""
    monkeypatch.setattr(flush, "RETRY_S", 0.01)
    full, sound = _segment(lake, _body(1)), _segment(lake, _body(2))
    real_flush, failures = flush_segment, threading.Semaphore(3)

    def sometimes(lake: Lake, path: Path) -> object:
        if path == full and failures.acquire(blocking=False):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_flush(lake, path)

    monkeypatch.setattr(flush, "flush_segment", sometimes)
    for path in (full, sound):
        flusher.submit(path, 100)
    assert flusher.backlog_bytes > 0
    for _ in range(500):
        if not flusher.backlog_bytes:
            break
        threading.Event().wait(0.01)
    assert flusher.close() == []
    assert _stored(lake) == 2


def test_what_failed_once_is_tried_again_before_the_end(
    lake: Lake, flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop within the pause after a failure must not leave a segment to a disk that is well."""
    path = _segment(lake, _body(1))
    real_flush, failed = flush_segment, threading.Event()

    def once(lake: Lake, path: Path) -> object:
        if not failed.is_set():
            failed.set()
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_flush(lake, path)

    monkeypatch.setattr(flush, "RETRY_S", 3600.0)
    monkeypatch.setattr(flush, "flush_segment", once)
    flusher.submit(path, 1)
    assert failed.wait(10)
    assert flusher.close() == []
    assert _stored(lake) == 1


def test_a_frame_that_was_never_judged_does_not_stop_the_others_either(lake: Lake) -> None:
    """Its outside is sound, so it is found out only when its rows are taken."""
    pair = KeyValue(key="key", value=AnyValue(string_value="value"))
    body = make_request(make_span(7, attributes=[pair])).SerializeToString()
    broken = body.replace(b"\x0a\x03key", b"\x0a\x7fkey")
    assert broken != body
    path = _segment(lake, _body(1), broken, _body(2))
    flush_segment(lake, path)
    assert (_stored(lake), _quarantined(lake)) == (2, [path.name])


def test_the_flusher_reports_what_the_disk_did_not_take(
    lake: Lake, flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _segment(lake, _body(1))

    def never(lake: Lake, path: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(flush, "flush_segment", never)
    flusher.submit(path, 1)
    assert flusher.close() == [path]
    assert path.exists()


def test_a_fault_of_ours_sets_the_segment_aside_and_goes_on(
    lake: Lake, flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = _segment(lake, _body(1)), _segment(lake, _body(2))
    real_flush = flush_segment

    def fault(lake: Lake, path: Path) -> object:
        if path == bad:
            raise ZeroDivisionError
        return real_flush(lake, path)

    monkeypatch.setattr(flush, "flush_segment", fault)
    for path in (bad, good):
        flusher.submit(path, 1)
    assert flusher.close() == []
    assert (_stored(lake), _quarantined(lake)) == (1, [bad.name])
    assert flusher.set_aside == 1


def _wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never came to that")


def test_a_segment_that_memory_does_not_suffice_for_is_set_aside(
    lake: Lake,
    flusher: Flusher,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Not at once, as the shortage may be of others; not deleted; and those behind it go on."""
    monkeypatch.setattr(flush, "RETRY_S", 0.01)
    large, sound = _segment(lake, _body(1)), _segment(lake, _body(2))
    real_flush, tries = flush_segment, []

    def short(lake: Lake, path: Path) -> object:
        if path == large:
            tries.append(path)
            raise MemoryError
        return real_flush(lake, path)

    monkeypatch.setattr(flush, "flush_segment", short)
    for path in (large, sound):
        flusher.submit(path, 100)
    _wait_for(lambda: flusher.backlog_bytes == 0)
    assert flusher.close() == []
    assert (len(tries), flusher.set_aside) == (flush.MAX_SHORTAGES, 1)
    assert (_stored(lake), _quarantined(lake)) == (1, [large.name])
    assert "not enough memory to turn it into Parquet" in caplog.text


DIES = """
import os, sys
from pathlib import Path
from toolverdict.collector import flush
from toolverdict.collector.lake import Lake
flush.flush_segment = lambda lake, path: os._exit(9)  # as the kernel ends one that takes too much
flusher = flush.Flusher(Lake.open(Path(sys.argv[1])))
flusher.submit(Path(sys.argv[2]), 1)
flusher.close()
"""


def test_a_segment_that_kills_its_readers_is_set_aside(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each start of the collector would die of it again, and take nothing in."""
    path = _segment(lake, _body(1))
    command = [sys.executable, "-c", DIES, str(lake.path), str(path)]
    monkeypatch.setattr(flush, "MAX_DEATHS", 2)
    for _ in range(2):
        assert path.exists()
        assert subprocess.run(command, check=False).returncode == 9
    flusher = Flusher(lake)
    flusher.submit(path, 1)
    assert flusher.close() == []
    assert (flusher.set_aside, _quarantined(lake)) == (1, [path.name])
    assert [file.name for file in path.parent.iterdir()] == ["quarantine"]


def test_who_survives_a_segment_forgets_earlier_deaths(
    lake: Lake, flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flush, "RETRY_S", 0.01)
    path = _segment(lake, _body(1))
    path.with_suffix(".deaths").write_bytes(b"." * (flush.MAX_DEATHS - 1))
    real_flush, full = flush_segment, threading.Semaphore(3)

    def sometimes(lake: Lake, path: Path) -> object:
        if full.acquire(blocking=False):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real_flush(lake, path)

    monkeypatch.setattr(flush, "flush_segment", sometimes)
    flusher.submit(path, 1)
    _wait_for(lambda: flusher.backlog_bytes == 0)
    assert (_stored(lake), _quarantined(lake)) == (1, [])
    assert list(path.parent.iterdir()) == []


def test_a_segment_that_cannot_even_be_moved_stays(
    lake: Lake, flusher: Flusher, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _segment(lake, _body(1))

    def fault(*args: object) -> None:
        raise ZeroDivisionError

    def read_only(*args: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(flush, "flush_segment", fault)
    monkeypatch.setattr(flush, "quarantine", read_only)
    flusher.submit(path, 1)
    assert flusher.close() == [path]
    assert path.exists()


def test_a_segment_that_someone_took_away_is_forgotten(lake: Lake, flusher: Flusher) -> None:
    flusher.submit(lake.path / "wal" / "gone.log", 1)
    assert flusher.close() == []
    assert flusher.taken_away == 1


def test_the_lakes_of_a_process_are_written_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments grow when they are read: with a lake for each tenant, memory would grow, too."""
    inside: list[int] = []
    most: list[int] = []

    def watched(lake: Lake, path: Path) -> Flushed:
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.01)
        inside.pop()
        return Flushed(Counter(), None)

    monkeypatch.setattr(flush, "flush_segment", watched)
    folders = [tmp_path / str(number) for number in range(4)]
    for folder in folders:
        folder.mkdir()
    flushers = [Flusher(Lake.create(folder)) for folder in folders]
    for flusher in flushers:
        for number in range(3):
            flusher.submit(tmp_path / f"{number}.log", 1)
    for flusher in flushers:
        assert flusher.close() == []
    assert most == [1] * 12
