"""What Prometheus reads."""

import asyncio
import re
import urllib.request
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from toolverdict.collector.metrics import CONTENT_TYPE, Metrics
from toolverdict.collector.testing import make_request, make_span, post

Serve = Callable[..., AbstractAsyncContextManager[Any]]
TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

_SAMPLE = re.compile(
    r'([a-z_]+)(?:\{((?:[a-z_][a-z0-9_]*="(?:[^"\\]|\\.)*",?)+)\})? (\+Inf|-?[0-9.e+-]+)'
)


def _parse(text: str) -> dict[str, float]:
    """Samples by name and labels; fails on a line that is not in the text format."""
    samples: dict[str, float] = {}
    types: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            if word == "TYPE":
                assert name not in types
                types[name] = rest
            continue
        match = _SAMPLE.fullmatch(line)
        assert match, line
        name, labels, value = match.groups()
        assert re.sub(r"_(bucket|sum|count)$", "", name) in types or name in types
        key = f"{name}{{{labels}}}" if labels else name
        assert key not in samples
        samples[key.removeprefix("toolverdict_collector_")] = float(value)
    assert all(kind in ("counter", "gauge", "histogram") for kind in types.values())
    assert all(name.endswith("_total") for name, kind in types.items() if kind == "counter")
    return samples


def _scrape(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{address}/metrics", timeout=20) as response:
        assert response.headers["Content-Type"] == CONTENT_TYPE
        return _parse(response.read().decode())


def test_rows_are_added_up_and_survive_a_restart_of_their_worker(tmp_path: Path) -> None:
    file = tmp_path / "METRICS"
    Metrics(file, rows=2).close()
    first, second = Metrics(file, 0), Metrics(file, 1)
    first.add("accepted_total", "traces", amount=2)
    first.set("inflight_bytes", 10)
    second.add("accepted_total", "traces", amount=3)
    second.set("inflight_bytes", 5)
    second.close()
    again = Metrics(file, 1)
    again.add("accepted_total", "traces")
    samples = _parse(first.text({"version": 'a "quoted" \\ one'}))
    assert samples['accepted_total{signal="traces"}'] == 6
    assert samples["inflight_bytes"] == 10, "a worker that starts holds nothing yet"
    assert samples['info{version="a \\"quoted\\" \\\\ one"}'] == 1
    first.close()
    again.close()


def test_a_histogram_is_cumulative(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "METRICS")
    for seconds in (0.0005, 0.001, 0.02, 100.0):
        metrics.observe("fsync_seconds", seconds)
    samples = _parse(metrics.text({"version": "1"}))
    buckets = [v for k, v in samples.items() if k.startswith("fsync_seconds_bucket")]
    assert buckets == sorted(buckets)
    assert samples['fsync_seconds_bucket{le="0.001"}'] == 2
    assert samples['fsync_seconds_bucket{le="0.025"}'] == 3
    assert samples['fsync_seconds_bucket{le="60.0"}'] == 3
    assert samples['fsync_seconds_bucket{le="+Inf"}'] == samples["fsync_seconds_count"] == 4
    assert samples["fsync_seconds_sum"] == pytest.approx(100.0215)
    metrics.close()


async def test_a_replay_counts_as_stored_and_not_as_accepted(
    serve: Serve, tmp_path: Path, stored: Callable[[], int]
) -> None:
    """B92: a log that is replayed twice adds nothing to what was acknowledged or can be read."""
    body = make_request(make_span(1)).SerializeToString()
    async with serve() as collector:
        await asyncio.to_thread(post, f"{collector.http}/v1/traces", body)
        (segment,) = (tmp_path / "wal").glob("*.log")
        content = segment.read_bytes()
    for _ in range(2):
        segment.write_bytes(content)
        async with serve() as collector:
            for _ in range(500):
                samples = await asyncio.to_thread(_scrape, collector.http)
                if samples['stored_total{signal="traces"}']:
                    break
                await asyncio.sleep(0.02)
            assert samples['stored_total{signal="traces"}'] == 1
            assert samples['accepted_total{signal="traces"}'] == 0
        assert stored() == 1


def test_labels_are_declared(tmp_path: Path) -> None:
    """Nothing a client sends can make a series."""
    metrics = Metrics(tmp_path / "METRICS")
    with pytest.raises(KeyError):
        metrics.add("requests_total", "traces", "http", "418")
    metrics.close()


async def test_a_collector_tells_what_it_did(serve: Serve) -> None:
    good = make_request(make_span(1), make_span(2), make_span(3, span_id=b"x")).SerializeToString()
    async with serve(flush_interval_s=0.05) as collector:
        url = f"{collector.http}/v1/traces"
        await asyncio.to_thread(post, url, good)
        await asyncio.to_thread(post, url, b"\xff\xff")
        await asyncio.to_thread(post, url, b"{}", "application/json")
        await asyncio.to_thread(post, f"{collector.http}/v1/logs", b"")
        async with grpc.aio.insecure_channel(collector.grpc) as channel:
            export = channel.unary_unary(TRACES, None, None)
            await export(good)
            with pytest.raises(grpc.aio.AioRpcError):
                await export(b"\xff\xff")

        for _ in range(200):
            samples = await asyncio.to_thread(_scrape, collector.http)
            if samples['stored_total{signal="traces"}'] == 4:
                break
            await asyncio.sleep(0.02)
    label = 'signal="traces",transport="http",code='
    assert samples[f'requests_total{{{label}"200"}}'] == 2
    assert samples[f'requests_total{{{label}"400"}}'] == 1
    label = 'signal="traces",transport="grpc",code='
    assert samples[f'requests_total{{{label}"OK"}}'] == 1
    assert samples[f'requests_total{{{label}"INVALID_ARGUMENT"}}'] == 1
    assert samples['requests_total{signal="logs",transport="http",code="200"}'] == 1
    assert samples['accepted_total{signal="traces"}'] == 4
    assert samples['rejected_total{signal="traces",reason="span_id"}'] == 2
    assert samples['rejected_total{signal="traces",reason="record"}'] == 0
    assert samples['stored_total{signal="traces"}'] == 4
    assert samples['received_bytes_total{signal="traces",transport="grpc"}'] == len(good) + 2
    assert samples["empty_json_requests_total"] == 1
    assert samples["inflight_bytes"] == 0
    assert samples["ready"] == 1
    assert samples["fsync_seconds_count"] >= 1
    assert samples["flush_seconds_count"] >= 1
    (info,) = (key for key in samples if key.startswith("info{"))
    assert 'decoder="' in info
