"""The official Python exporters, as an agent uses them, against a real collector."""

import asyncio
import errno
import logging
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression as HttpCompression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from toolverdict.collector.lake import Lake
from toolverdict.collector.schema import attributes_of
from toolverdict.collector.testing import running_collector


def _exporter(collector: Any, kind: str) -> SpanExporter:
    match kind:
        case "http":
            return HttpExporter(f"{collector.http}/v1/traces")
        case "http-gzip":
            url = f"{collector.http}/v1/traces"
            return HttpExporter(url, compression=HttpCompression.Gzip)
        case "http-deflate":
            url = f"{collector.http}/v1/traces"
            return HttpExporter(url, compression=HttpCompression.Deflate)
        case "grpc-gzip":
            return GrpcExporter(collector.grpc, insecure=True, compression=grpc.Compression.Gzip)
        case _:
            return GrpcExporter(collector.grpc, insecure=True)


@pytest.mark.parametrize("kind", ["http", "http-gzip", "http-deflate", "grpc", "grpc-gzip"])
def test_spans_of_the_stock_exporter_arrive(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """B68, B70: without one warning of the exporter."""
    data_dir = tmp_path / "lake"
    with caplog.at_level(logging.WARNING), running_collector(data_dir) as collector:
        provider = TracerProvider(resource=Resource({"service.name": "agent"}))
        provider.add_span_processor(BatchSpanProcessor(_exporter(collector, kind)))
        tracer = provider.get_tracer("tests")
        for number in range(50):
            with tracer.start_as_current_span("execute_tool refund") as span:
                span.set_attribute("gen_ai.tool.name", "refund")
                span.set_attribute("tool.items", number)
        assert provider.force_flush()
        provider.shutdown()
        assert collector.terminate() == 0
    rows = Lake.open(data_dir).read_spans(0).to_pylist()
    assert sorted(attributes_of(row)["tool.items"] for row in rows) == list(range(50))
    assert {(row["service_name"], row["gen_ai.tool.name"]) for row in rows} == {("agent", "refund")}
    assert not [r for r in caplog.records if r.name.startswith("opentelemetry")]


@pytest.mark.parametrize("kind", ["http", "grpc"])
async def test_the_stock_exporter_tries_again_after_a_disk_error(
    serve: Callable[..., AbstractAsyncContextManager[Any]],
    stored: Callable[[], int],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """B74: the status makes it retry, so a full disk that gets room again loses nothing."""
    real_sync, failures = os.fdatasync, iter([True])

    def fails_once(descriptor: int) -> None:
        if next(failures, False):
            raise OSError(errno.ENOSPC, "No space left on device")
        real_sync(descriptor)

    span = TracerProvider().get_tracer("tests").start_span("execute_tool refund")
    span.end()
    monkeypatch.setattr(os, "fdatasync", fails_once)
    async with serve() as collector:
        exporter = _exporter(collector, kind)
        result = await asyncio.to_thread(exporter.export, [span])  # type: ignore[list-item]
        exporter.shutdown()
    assert result is SpanExportResult.SUCCESS
    assert next(failures, None) is None
    assert stored() == 1
