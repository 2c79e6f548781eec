"""A lake in an object store, against a real S3 server in a process of its own."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from pyarrow import fs

from toolverdict.collector.errors import LakeError
from toolverdict.collector.flush import flush_segment
from toolverdict.collector.lake import Lake, object_store
from toolverdict.collector.lake.compaction import CompactionSettings, compact
from toolverdict.collector.lake.export import Selection, export
from toolverdict.collector.lake.inventory import take_inventory
from toolverdict.collector.lake.maintenance import MaintenanceSettings, maintain
from toolverdict.collector.lake.object_store import ObjectStore
from toolverdict.collector.lake.retention import retain
from toolverdict.collector.lake.verification import verify
from toolverdict.collector.segment import new_segment_id, pack_frame, pack_header
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_request, make_span

Fill = Any


@pytest.fixture
def fill(s3_url: str, filler: Callable[[Lake], Fill]) -> Fill:
    return filler(Lake.create(s3_url, buckets=2))


def test_what_is_written_is_read(fill: Fill, s3_url: str) -> None:
    """A part is there when writing returned; writing it again replaces it."""
    for number in range(3):
        fill.spans(make_span(number), make_span(number + 10))
    fill.logs(LogRecord(time_unix_nano=1))
    lake = Lake.open(s3_url)
    assert lake.buckets == 2
    assert Lake.create(s3_url, buckets=8).buckets == 2
    assert sum(lake.read_spans(bucket).num_rows for bucket in (0, 1)) == 6
    assert lake.read_logs(0).num_rows == 1
    assert lake.read_trace(f"{11:032x}", ["span_id"]).to_pylist() == [{"span_id": f"{11:016x}"}]
    assert take_inventory(lake)[Signal.TRACES].rows == 6
    with pytest.raises(LakeError, match="not a folder"):
        lake.parts(Signal.TRACES, 0)


def test_upkeep_works_as_in_a_folder(fill: Fill, s3_url: str) -> None:
    for number in range(4):
        fill.spans(make_span(number), make_span(0))
        fill.spans(make_span(9), hours=-30)
    lake = Lake.open(s3_url)
    before = [lake.read_spans(bucket).to_pylist() for bucket in (0, 1)]
    with lake.store.upkeep():
        done = compact(lake, CompactionSettings(), fill.closed)
    assert (done.folders, done.parts_after, done.faults) == (3, 3, [])
    assert [lake.read_spans(bucket).to_pylist() for bucket in (0, 1)] == before
    assert verify(lake).faults == []
    found: list[Any] = []
    assert export(lake, Selection(), lambda _, request: found.append(request)).total() == 5
    with lake.store.upkeep():
        assert len(retain(lake, max_bytes=0, now=fill.closed).hours) == 2
    assert take_inventory(lake)[Signal.TRACES].parts == 0
    assert maintain(lake, MaintenanceSettings(), fill.closed).compaction.folders == 0


def test_two_compactions_exclude_each_other(fill: Fill, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fill.lake.store
    with store.upkeep(), pytest.raises(LakeError, match="at work"), store.upkeep():
        pass
    with store.upkeep():
        pass
    store.write(".upkeep/dead", lambda sink: sink.write(b"left by a crash"))
    with pytest.raises(LakeError, match="at work"), store.upkeep():
        pass
    monkeypatch.setattr(object_store, "CLAIM_S", -3600.0)
    with store.upkeep():
        pass
    assert store.list(".upkeep") == []


def test_a_reader_survives_a_compaction_in_the_middle(
    fill: Fill, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects that are deleted while they are read make the reader list again."""
    for number in range(4):
        fill.spans(make_span(number * 2))
    lake = Lake.open(s3_url)
    opened: list[str] = []
    really_open = ObjectStore.open

    def compact_at_the_second(store: ObjectStore, name: str) -> Any:
        file = really_open(store, name)
        if "part-" in name:
            opened.append(name)
            if len(opened) == 2:
                with lake.store.upkeep():
                    compact(lake, CompactionSettings(), fill.closed)
        return file

    monkeypatch.setattr(ObjectStore, "open", compact_at_the_second)
    assert lake.read_spans(1).num_rows == 4
    assert any("compacted" in name for name in opened)


def test_a_segment_stays_in_the_log_until_the_store_has_its_parts(
    fill: Fill, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was acknowledged is on the disk here, or there; a try that failed leaves it here."""
    segment = new_segment_id(0)
    body = make_request(make_span(1), make_span(2)).SerializeToString()
    frame = b"".join(pack_frame(segment, Signal.TRACES, segment.created_unix_nano, body))
    log = tmp_path / f"{segment.text}.log"
    log.write_bytes(pack_header(segment.created_unix_nano) + frame)
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        unreachable = Lake(ObjectStore(s3_url), buckets=2)
        with pytest.raises(OSError, match="connect"):
            flush_segment(unreachable, log)
    assert log.exists()
    assert flush_segment(fill.lake, log).counts[Signal.TRACES] == 2
    assert not log.exists()
    assert sum(fill.lake.read_spans(bucket).num_rows for bucket in (0, 1)) == 2


def test_a_place_that_is_no_lake_is_told_in_one_line(s3_url: str) -> None:
    with pytest.raises(LakeError, match="is not a lake"):
        Lake.open(s3_url)
    for wrong in ("s3://", "az://container/lake"):
        with pytest.raises(LakeError, match="cannot be opened") as caught:
            Lake.open(wrong)
        assert "\n" not in str(caught.value)


def test_the_other_stores_are_found_by_their_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    stores = [ObjectStore(f"{scheme}://container/lake") for scheme in ("gs", "az")]
    assert [type(store._files) for store in stores] == [fs.GcsFileSystem, fs.AzureFileSystem]
    assert [store._path("lake.json") for store in stores] == ["container/lake/lake.json"] * 2


def test_the_command_line_takes_a_url(fill: Fill, s3_url: str, tmp_path: Path) -> None:
    fill.spans(make_span(1))
    for words in (["info"], ["verify"], ["export", "--file", str(tmp_path / "out.jsonl")]):
        done = subprocess.run(
            [sys.executable, "-m", "toolverdict", "lake", words[0], s3_url, *words[1:]],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.jsonl").read_text().count("execute_tool refund") == 1
