"""The upkeep that the collector does itself, in a process beside it."""

import asyncio
import errno
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from toolverdict.collector.decoders import decoder
from toolverdict.collector.lake import Lake
from toolverdict.collector.parts import write_part
from toolverdict.collector.segment import SegmentId
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import (
    CollectorProcess,
    make_request,
    make_span,
    post,
    running_collector,
)
from toolverdict.collector.upkeep import keep_up

HOUR_NS = 3600 * 10**9
WAIT_S = 60.0


def _old_parts(folder: Path, hours_ago: int, numbers: range) -> None:
    """A part for each span, as a collector wrote them so long ago."""
    folder.mkdir(parents=True, exist_ok=True)
    lake = Lake.create(folder)
    created = time.time_ns() - hours_ago * HOUR_NS
    for number in numbers:
        builder = decoder().rows(Signal.TRACES)
        builder.feed(make_request(make_span(number)).SerializeToString(), created)
        segment = SegmentId(f"{created + number:016x}-{number:08x}", created + number)
        write_part(lake, segment, Signal.TRACES, 0, builder.take())


def _parts(folder: Path) -> int:
    while True:
        try:
            return len(list((folder / "spans").rglob("*.parquet")))
        except FileNotFoundError:  # an hour was deleted while we looked
            continue


def test_the_lake_is_compacted_while_requests_come(tmp_path: Path) -> None:
    """B83, B106: ingest only appends to the log; nothing is lost and the files become few."""
    data_dir = tmp_path / "lake"
    tenant = data_dir / "tenants" / "acme"
    for folder in (data_dir, tenant):
        _old_parts(folder, 5, range(20))
        _old_parts(folder, 300, range(100, 103))
    assert (_parts(data_dir), _parts(tenant)) == (23, 23)
    flags = {"compact_every": "0.5s", "retain_age": "200h"}
    sent = 0
    with running_collector(data_dir, flush_interval=3600, **flags) as collector:
        deadline_s = time.monotonic() + WAIT_S
        while _parts(data_dir) > 1 or _parts(tenant) > 1:
            body = make_request(make_span(1000 + sent)).SerializeToString()
            assert post(f"{collector.http}/v1/traces", body).status == 200
            sent += 1
            assert time.monotonic() < deadline_s
        assert collector.terminate() == 0
        log = collector.log_file.read_text()
    assert "compacted 20 parts to 1, deleted 1 hours" in log
    assert "Traceback" not in log
    assert sent > 10
    assert Lake.open(data_dir).read_spans(0, ["name"]).num_rows == 20 + sent
    assert Lake.open(tenant).read_spans(0, ["name"]).num_rows == 20


def test_the_collector_ends_at_once_though_upkeep_is_at_work(tmp_path: Path) -> None:
    """A kill at any point loses nothing, so nobody waits for it."""
    data_dir = tmp_path / "lake"
    _old_parts(data_dir, 5, range(10))
    with running_collector(data_dir, compact_every="0.05s") as collector:
        time.sleep(0.3)
        assert collector.terminate() == 0
        assert "Traceback" not in collector.log_file.read_text()
    assert Lake.open(data_dir).read_spans(0, ["name"]).num_rows == 10


def test_quiet_traces_are_sampled_by_a_policy_that_may_change(tmp_path: Path) -> None:
    data_dir, policy = tmp_path / "lake", tmp_path / "sampling.yaml"
    _old_parts(data_dir, 5, range(8))
    policy.write_text("{version: 1, otherwise: {keep: 1}}")
    with running_collector(data_dir, compact_every="0.3s", sample=str(policy)) as collector:
        _wait_for(collector, "sampling keeps 8 traces, drops 0, and waits for 0")
        policy.write_text("{version: 1, otherwise: {keep: 0}}")
        _wait_for(collector, "the lake is not kept up: ")
        # Traces made of small numbers have the least randomness there is.
        policy.write_text("{version: 1, otherwise: {keep: 0.5}}")
        _old_parts(data_dir, 4, range(100, 103))
        _wait_for(collector, "sampling keeps 0 traces, drops 3, and waits for 0")
        deadline_s = time.monotonic() + WAIT_S
        while _parts(data_dir) > 2:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        assert collector.terminate() == 0
    states = Lake.open(data_dir).read_spans(0, ["trace_state"])["trace_state"].to_pylist()
    assert states == ["ot=th:0"] * 8


def _wait_for(collector: CollectorProcess, words: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while words not in collector.log_file.read_text():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_a_sampling_policy_that_is_none_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "sampling.yaml").write_text("{version: 1}")
    flags = {"compact_every": "1h", "sample": str(tmp_path / "sampling.yaml")}
    with (
        pytest.raises(RuntimeError, match=r"sampling\.yaml: .*otherwise"),
        running_collector(tmp_path / "lake", **flags),
    ):
        pass


@pytest.mark.parametrize("keep", [{"retain_age_s": 1}, {"retain_bytes": 1}, {"sampling_file": "a"}])
def test_what_upkeep_does_needs_an_interval(tmp_path: Path, keep: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="--compact-every"):
        CollectorSettings.model_validate({"data_dir": tmp_path, **keep})


async def test_upkeep_that_cannot_start_is_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No process to be had must not end it in silence, for data would be kept for ever."""
    again = asyncio.Event()

    def refuse(_: SpawnProcess) -> None:
        if "tried again" in caplog.text:
            again.set()
        raise OSError(errno.EAGAIN, "no process")

    monkeypatch.setattr(SpawnProcess, "start", refuse)
    task = asyncio.create_task(keep_up(CollectorSettings(data_dir=tmp_path), 0.001))
    await asyncio.wait_for(again.wait(), WAIT_S)
    assert not task.done()
    task.cancel()
