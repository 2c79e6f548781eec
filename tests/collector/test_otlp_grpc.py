"""OTLP/gRPC as clients see it."""

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from toolverdict.collector.testing import make_request, make_span

Serve = Callable[..., AbstractAsyncContextManager[Any]]
TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
VALID = make_request(make_span(1)).SerializeToString()


async def _call(
    address: str,
    body: bytes,
    method: str = TRACES,
    compression: grpc.Compression | None = None,
    options: tuple[tuple[str, int], ...] = (),
) -> bytes:
    limits = (("grpc.max_send_message_length", -1), *options)
    async with grpc.aio.insecure_channel(address, options=limits) as channel:
        answer: bytes = await channel.unary_unary(method, None, None)(body, compression=compression)
        return answer


def _metadata(error: grpc.aio.AioRpcError) -> dict[str, Any]:
    pairs: Any = error.trailing_metadata() or ()
    return dict(pairs)


async def test_success_is_an_empty_response(serve: Serve, stored: Callable[[], int]) -> None:
    async with serve() as collector:
        answer = await _call(collector.grpc, VALID)
        assert ExportTraceServiceResponse.FromString(answer) == ExportTraceServiceResponse()
    assert stored() == 1


@pytest.mark.parametrize("method", [TRACES, LOGS])
async def test_an_empty_message_succeeds_and_appends_nothing(serve: Serve, method: str) -> None:
    """B77"""
    async with serve() as collector:
        assert await _call(collector.grpc, b"", method) == b""
        assert list((collector.data_dir / "wal").glob("*.log")) == []


@pytest.mark.parametrize("method", [TRACES, LOGS])
async def test_a_malformed_message_is_an_invalid_argument(serve: Serve, method: str) -> None:
    """B74: permanent, with a reason, and nothing is stored."""
    async with serve() as collector:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _call(collector.grpc, b"\xff\xff", method)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "not a valid Export" in (caught.value.details() or "")
        assert collector.wal_bytes() == 0


async def test_partial_success(serve: Serve) -> None:
    """B80"""
    body = make_request(make_span(1), make_span(2, span_id=b"x")).SerializeToString()
    async with serve() as collector:
        answer = await _call(collector.grpc, body)
        partial = ExportTraceServiceResponse.FromString(answer).partial_success
        assert partial.rejected_spans == 1
        assert partial.error_message.startswith("span_id must be 8 bytes")


@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_five_mebibytes_pass_by_default(
    serve: Serve, stored: Callable[[], int], compression: grpc.Compression | None
) -> None:
    """B71: the setting reaches the server; gRPC's own limit would be 4 MiB."""
    body = make_request(make_span(1, name="x" * (5 * 1024 * 1024))).SerializeToString()
    async with serve() as collector:
        await _call(collector.grpc, body, compression=compression)
    assert stored() == 1


@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip])
async def test_a_message_over_the_limit_is_exhausted_for_good(
    serve: Serve, compression: grpc.Compression | None
) -> None:
    """B71: the same limit as over HTTP, for what is inflated, too; no RetryInfo, so no retry."""
    async with serve(max_body_bytes=1000) as collector:
        body = make_request(make_span(1, name="x" * 2000)).SerializeToString()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _call(collector.grpc, body, compression=compression)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in (caught.value.details() or "")
        assert "google.rpc.retryinfo-bin" not in _metadata(caught.value)


async def test_a_disk_error_is_unavailable_with_retry_info(
    serve: Serve, stored: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B74, B82"""

    def fail(descriptor: int) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    async with serve() as collector:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", fail)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await _call(collector.grpc, VALID)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        metadata = _metadata(caught.value)
        retry = RetryInfo.FromString(metadata["google.rpc.retryinfo-bin"])
        assert retry.retry_delay.seconds == 1
        status = Status.FromString(metadata["grpc-status-details-bin"])
        assert "Read-only" in status.message
        assert status.details[0].Is(RetryInfo.DESCRIPTOR)
        await _call(collector.grpc, VALID)
    assert stored() == 1


async def test_overload_is_unavailable(serve: Serve) -> None:
    """B74"""
    async with serve(max_inflight_bytes=10) as collector:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _call(collector.grpc, VALID)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_a_fault_of_ours_is_unavailable_and_tells_nothing(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*args: object) -> None:
        raise ZeroDivisionError("a secret")

    async with serve() as collector:
        monkeypatch.setattr("toolverdict.collector.intake.prepare", fault)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _call(collector.grpc, VALID)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "secret" not in (caught.value.details() or "")


async def test_frequent_pings_are_tolerated(serve: Serve, stored: Callable[[], int]) -> None:
    """B73: gRPC's own defaults say GOAWAY to the third ping on an idle connection."""
    async with serve() as collector:
        kinds = await asyncio.to_thread(_ping, collector.grpc, 20)
        assert kinds.count(PING) == 20
        assert GO_AWAY not in kinds
        await _call(collector.grpc, VALID)
    assert stored() == 1


SETTINGS, PING, GO_AWAY = 4, 6, 7


def _ping(address: str, count: int) -> list[int]:
    """The kinds of the HTTP/2 frames that answer so many pings (RFC 9113)."""
    host, _, port = address.rpartition(":")
    kinds: list[int] = []
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(SETTINGS, b""))
        with connection.makefile("rb") as answers, suppress(OSError):
            for _ in range(count):
                connection.sendall(_frame(PING, bytes(8)))
                answered = len(kinds)
                while PING not in kinds[answered:] and (head := answers.read(9)):
                    answers.read(int.from_bytes(head[:3]))
                    kinds.append(head[3])
    return kinds


def _frame(kind: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, 0]) + bytes(4) + payload


async def test_logs_over_grpc(serve: Serve) -> None:
    async with serve() as collector:
        # One resource, one scope and one empty log record.
        answer = await _call(collector.grpc, bytes.fromhex("0a0412021200"), LOGS)
        assert ExportLogsServiceResponse.FromString(answer) == ExportLogsServiceResponse()
        assert collector.wal_bytes() > 0
