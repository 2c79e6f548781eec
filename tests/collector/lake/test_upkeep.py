"""Verification, retention and the upkeep of a lake as a whole."""

import fcntl
import os
import shutil
import signal
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from toolverdict.collector import upkeep
from toolverdict.collector.claim import claim
from toolverdict.collector.errors import LakeError
from toolverdict.collector.lake import Lake, part_file
from toolverdict.collector.lake.inventory import take_inventory
from toolverdict.collector.lake.maintenance import Maintenance, MaintenanceSettings, maintain
from toolverdict.collector.lake.part_file import PartWriter
from toolverdict.collector.lake.retention import Retention, retain
from toolverdict.collector.lake.verification import verify
from toolverdict.collector.schema import SPANS
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_span

Fill = Any


def test_a_sound_lake_has_no_faults(fill: Fill) -> None:
    fill.spans(make_span(1), make_span(2))
    fill.spans(make_span(1))
    fill.logs(LogRecord(time_unix_nano=1), LogRecord(time_unix_nano=2, trace_id=b"a" * 16))
    found = verify(fill.lake)
    assert (found.faults, found.parts, found.rows, found.duplicates) == ([], 3, 5, 1)


def rewrite(part: Path, table: pa.Table, signal: Signal = Signal.TRACES) -> None:
    with pa.OSFile(str(part), "wb") as sink:
        writer = PartWriter(sink, signal, table.schema)
        writer.write(table)
        writer.close()


def test_rows_that_are_not_where_they_belong_are_faults(tmp_path: Path, filler: Any) -> None:
    fill = filler(Lake.create(tmp_path, buckets=2))
    unsorted, parted, misplaced = (fill.spans(make_span(1), make_span(3)) for _ in range(3))
    table = pq.read_table(unsorted, partitioning=None)
    rewrite(unsorted, table.take([1, 0]))
    pq.write_table(pa.concat_tables([table.slice(0, 1)] * 2), parted, row_group_size=1)
    elsewhere = misplaced.parent.with_name("bucket=01")
    elsewhere.mkdir()
    misplaced.rename(elsewhere / misplaced.name)
    faults = "\n".join(verify(fill.lake).faults)
    assert f"{unsorted.name} is not sorted" in faults
    assert f"{parted.name} has a trace in two row groups" in faults
    assert f"bucket=01/{misplaced.name} has rows of another bucket" in faults
    assert len(faults.splitlines()) == 3


def test_a_trace_id_that_no_collector_wrote_is_a_fault(fill: Fill) -> None:
    part = fill.spans(make_span(1))
    table = pq.read_table(part, partitioning=None)
    rewrite(part, table.set_column(0, SPANS.field(0), pa.array(["../../etc"])))
    (fault,) = verify(fill.lake).faults
    assert f"{part.name} has a trace id that is none" in fault


def test_a_bucket_that_the_lake_does_not_have_is_a_fault(fill: Fill) -> None:
    part = fill.spans(make_span(1))
    folder = part.parent.with_name("bucket=07")
    part.parent.rename(folder)
    (fault,) = verify(fill.lake).faults
    assert "bucket 7 of a lake with 1" in fault


@pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
def test_a_damaged_part_is_a_fault_that_names_it(fill: Fill, damage: str) -> None:
    part = fill.spans(*(make_span(number) for number in range(200)))
    content = bytearray(part.read_bytes())
    if damage == "flip":
        content[60] ^= 1
    part.write_bytes({"cut": content[:100], "empty": b""}.get(damage, content))
    (fault,) = verify(fill.lake).faults
    assert part.name in fault
    assert "\n" not in fault


def test_what_nobody_reads_is_a_fault(fill: Fill) -> None:
    part = fill.spans(make_span(1))
    part.with_name("notes.txt").write_text("x")
    part.with_name(f".{part.name}.tmp").write_bytes(b"half")
    impossible = part.parents[2].with_name("date=2026-02-31") / "hour=25" / "bucket=00"
    impossible.mkdir(parents=True)
    (impossible / part.name).write_bytes(part.read_bytes())
    log = fill.lake.path / "wal"
    (log / "quarantine").mkdir(parents=True)
    (log / "quarantine" / "bad.log").touch()
    (log / "waiting.log").touch()
    faults = verify(fill.lake).faults
    assert len(faults) == 5
    for words in (
        "notes.txt is not a part",
        "not finished",
        "date=2026-02-31",
        "1 damaged segments",
        "1 segments that are not Parquet",
    ):
        assert any(words in fault for fault in faults), words


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="the system does not list its locks")
def test_what_a_running_collector_works_on_is_no_fault(fill: Fill) -> None:
    part = fill.spans(make_span(1))
    part.with_name(f".{part.name}.tmp").write_bytes(b"half")
    (fill.lake.path / "wal").mkdir()
    (fill.lake.path / "wal" / "open.log").touch()
    tenant = fill.lake.path / "tenants" / "acme"
    (tenant / "wal").mkdir(parents=True)
    (tenant / "wal" / "open.log").touch()
    of_tenant = Lake.create(tenant)
    with claim(fill.lake.path) as claimed:
        assert verify(fill.lake).faults == verify(of_tenant).faults == []
        claimed.share()
        with claim(fill.lake.path, worker=0):
            assert verify(fill.lake).faults == verify(of_tenant).faults == []
    assert len(verify(fill.lake).faults) == 3
    assert len(verify(of_tenant).faults) == 1


def test_looking_for_a_collector_takes_no_lock(fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that starts in that moment would take us for another collector."""
    part = fill.spans(make_span(1))
    part.with_name(f".{part.name}.tmp").write_bytes(b"half")
    taken: list[int] = []
    monkeypatch.setattr(fcntl, "flock", lambda descriptor, _: taken.append(descriptor))
    monkeypatch.setattr(fcntl, "lockf", lambda descriptor, *_: taken.append(descriptor))
    assert len(verify(fill.lake).faults) == 1
    assert taken == []


def test_what_workers_and_tenants_left_in_their_logs_is_told(fill: Fill) -> None:
    logs = [
        fill.lake.path / place
        for place in ("wal/worker-0", "wal/worker-11", "tenants/a/wal", "tenants/a/wal/worker-0")
    ]
    for log in logs:
        (log / "quarantine").mkdir(parents=True)
        (log / "quarantine" / "bad.log").touch()
        (log / "waiting.log").touch()
    faults = verify(fill.lake).faults
    assert len(faults) == 8
    for log in logs:
        assert any(fault.startswith(f"{log / 'quarantine'} has 1 damaged") for fault in faults)
        assert any(fault.startswith(f"{log} has 1 segments that are not") for fault in faults)


def test_links_and_folders_that_no_reader_follows_are_told(fill: Fill, tmp_path: Path) -> None:
    part = fill.spans(make_span(1))
    moved = fill.spans(make_span(2), hours=1).parents[1]
    moved.rename(tmp_path / "elsewhere")
    moved.symlink_to(tmp_path / "elsewhere")
    part.with_name("part-x.parquet").symlink_to("/nowhere/at/all")
    part.with_name("part-y.parquet").mkdir()
    faults = verify(fill.lake).faults
    assert len(faults) == 3
    for words in (
        f"{moved} is a link to a folder",
        "part-x.parquet is a link that leads nowhere",
        "part-y.parquet is a folder that is not of this lake",
    ):
        assert any(words in fault for fault in faults), words


def hours(found: Retention, fill: Fill) -> list[int]:
    return [int((hour - fill.hour) / timedelta(hours=1)) for hour in found.hours]


@pytest.fixture
def days(fill: Fill) -> Fill:
    """Ten hours in a row, with spans and log records of about the same size."""
    for hour in range(10):
        fill.spans(make_span(hour), hours=hour)
        fill.logs(LogRecord(time_unix_nano=1), hours=hour)
    fill.now = fill.hour + timedelta(hours=10)
    return fill


def test_old_hours_go_whole(days: Fill) -> None:
    for dry_run in (True, False):
        done = retain(days.lake, max_age=timedelta(hours=7), dry_run=dry_run, now=days.now)
        assert hours(done, days) == [0, 1]
    assert days.lake.read_spans(0).num_rows == 8
    assert days.lake.read_logs(0).num_rows == 8
    assert not list(days.lake.path.glob(f"*/date=*/*hour={days.hour:%H}"))
    assert hours(retain(days.lake, max_age=timedelta(hours=7), now=days.now), days) == []


def test_the_oldest_hours_go_until_the_rest_is_small_enough(days: Fill) -> None:
    inventory = take_inventory(days.lake)
    total = sum(found.bytes for found in inventory.values())
    done = retain(days.lake, max_bytes=total // 2, now=days.now)
    assert hours(done, days) == [0, 1, 2, 3, 4]
    assert done.bytes_after <= total // 2 < done.bytes_before == total
    assert sum(found.bytes for found in take_inventory(days.lake).values()) == done.bytes_after


def test_an_hour_with_a_file_of_somebody_else_stays(days: Fill) -> None:
    """Whole folders go, and what is not ours is nobody's to delete; the other hours go."""
    hour = days.spans(make_span(99), hours=1).parents[1]
    notes = hour / "notes.txt"
    notes.write_text("precious")
    for dry_run in (True, False):
        done = retain(days.lake, max_bytes=0, dry_run=dry_run, now=days.now)
        assert hours(done, days) == [0, *range(2, 9)]
        (fault,) = done.faults
        assert fault.startswith(
            f"{notes} is not a part of this lake; the hour 2026-11-30T15Z stays"
        )
    assert notes.read_text() == "precious"
    assert days.lake.read_spans(0).num_rows == 3
    notes.unlink()
    assert hours(retain(days.lake, max_bytes=0, now=days.now), days) == [1]


def test_an_hour_that_is_a_link_is_left_to_whoever_made_it(days: Fill, tmp_path: Path) -> None:
    hour = next(days.lake.path.glob("spans/date=*/hour=15"))
    hour.rename(tmp_path / "elsewhere")
    hour.symlink_to(tmp_path / "elsewhere")
    done = retain(days.lake, max_bytes=0, now=days.now)
    assert (hours(done, days), len(done.faults)) == ([0, *range(2, 9)], 1)
    assert hour.is_symlink()
    assert list((tmp_path / "elsewhere").rglob("*.parquet"))


def test_the_hour_that_is_written_stays(days: Fill) -> None:
    assert hours(retain(days.lake, max_bytes=0, now=days.now), days) == list(range(9))
    assert days.lake.read_spans(0).num_rows == 1


def test_a_kill_while_an_hour_is_deleted_leaves_nothing_of_it(
    days: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", lambda path, **_: _stop_at(path))
        with pytest.raises(KeyboardInterrupt):
            retain(days.lake, max_bytes=0, now=days.now)
    assert days.lake.read_spans(0).num_rows == 9
    assert list(days.lake.path.glob("spans/date=*/.deleted-*"))
    with days.lake.store.upkeep():
        pass
    assert not list(days.lake.path.glob("*/date=*/.deleted-*"))
    assert verify(days.lake).faults == []


def _stop_at(path: Path) -> None:
    if path.exists():
        raise KeyboardInterrupt


def test_upkeep_deletes_and_compacts_in_one_call(days: Fill) -> None:
    days.spans(make_span(99), hours=5)
    settings = MaintenanceSettings(max_age=timedelta(hours=7))
    done = maintain(days.lake, settings, days.now)
    assert hours(done.retention, days) == [0, 1]
    assert done.compaction.folders == 14
    assert take_inventory(days.lake)[Signal.TRACES].compacted_parts == 7
    with days.lake.store.upkeep(), pytest.raises(LakeError, match="at work"):
        maintain(days.lake, settings, days.now)


def test_a_lake_that_needs_too_much_memory_does_not_end_the_upkeep_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    done = []

    def scarce(lake: Lake, settings: MaintenanceSettings) -> Maintenance:
        if lake.path == tmp_path:
            raise MemoryError
        done.append(lake.path.name)
        return maintain(lake, settings)

    Lake.create(tmp_path)
    for tenant in ("acme", "other"):
        (tmp_path / "tenants" / tenant).mkdir(parents=True)
        Lake.create(tmp_path / "tenants" / tenant)
    monkeypatch.setattr(upkeep, "maintain", scarce)
    # Those are for a process of its own, which the tests are not.
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(os, "nice", lambda _: None)
    upkeep.run_upkeep(CollectorSettings(data_dir=tmp_path))
    assert done == ["acme", "other"]
    (record,) = caplog.records
    assert record.getMessage() == (
        f"the upkeep of {tmp_path} failed: it needs more memory than there is"
    )


class _OfWhatIsLeft:
    """Drops all log records; decides while nobody else is at work, after what is old has gone."""

    def __init__(self, lake: Lake, until: datetime) -> None:
        with pytest.raises(LakeError, match="at work"):
            maintain(lake, MaintenanceSettings())
        self.rows = lake.read_spans(0).num_rows
        self.until = until

    def thin(self, signal: Signal, table: pa.Table) -> pa.Table:
        return table.slice(0, 0) if signal is Signal.LOGS else table

    def undecided(self, table: pa.Table) -> int:
        return 0


def test_what_thins_a_lake_decides_while_nobody_else_is_at_work(days: Fill) -> None:
    made: list[_OfWhatIsLeft] = []

    def decide(lake: Lake, until: datetime) -> _OfWhatIsLeft:
        made.append(_OfWhatIsLeft(lake, until))
        return made[0]

    settings = MaintenanceSettings(thinning=decide, max_age=timedelta(hours=7))
    maintain(days.lake, settings, days.now)
    assert [(one.rows, one.until) for one in made] == [(8, days.now - timedelta(minutes=30))]
    assert days.lake.read_logs(0).num_rows == 1  # the hour that is not closed
    assert days.lake.read_spans(0).num_rows == 8


def test_a_row_group_of_a_single_trace_may_be_large(
    fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_file, "ROW_GROUP_ROWS", 2)
    part = fill.spans(*(make_span(number, trace_id=b"a" * 16) for number in range(9)))
    fill.logs(*(LogRecord(time_unix_nano=number + 1) for number in range(9)))
    with pq.ParquetFile(part) as file:
        assert file.num_row_groups == 1
    with pq.ParquetFile(fill.lake.parts(Signal.LOGS, 0)[0]) as file:
        assert file.num_row_groups == 5
    assert verify(fill.lake).faults == []


def test_an_empty_part_is_sound(fill: Fill) -> None:
    part = fill.spans(make_span(1))
    rewrite(part, SPANS.empty_table())
    assert verify(fill.lake).faults == []
    assert take_inventory(fill.lake)[Signal.TRACES].first is None
    assert fill.lake.read_spans(0).num_rows == 0
