"""OTLP/gRPC as clients see it."""

import asyncio
import errno
import http.client
import os
import socket
import threading
import urllib.request
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, closing, suppress
from typing import Any
from urllib.parse import urlsplit

import grpc
import grpc.aio
import pytest
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from toolverdict.collector import admission
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
        monkeypatch.setattr("toolverdict.collector.intake.judge", fault)
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


def _frame(kind: int, payload: bytes, flags: int = 0, stream: int = 0) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


DATA, HEADERS, WINDOW_UPDATE, END_HEADERS = 0, 1, 8, 4


def _pour(address: str, size: int, all_stalled: threading.Barrier) -> int:
    """Send a message of a size but for its last byte, as fast as flow control lets us.

    Returns how many bytes the server took before it took no more for a while. The connection stays
    open until that is so for all.
    """
    pairs = {
        ":method": "POST",
        ":scheme": "http",
        ":path": TRACES,
        ":authority": "x",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    # Literal fields without indexing (RFC 7541, 6.2.2).
    block = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in pairs.items()
    )
    rest = b"\0" + size.to_bytes(4) + bytes(size - 1)
    windows = {0: 65535, 1: 65535}
    sent = 0
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=1.0) as connection:
        connection.sendall(
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
            + _frame(SETTINGS, b"")
            + _frame(HEADERS, block, END_HEADERS, 1)
        )
        with connection.makefile("rb") as answers, suppress(OSError):
            while sent < len(rest):
                allowed = min(*windows.values(), 16384, len(rest) - sent)
                if allowed:
                    piece = rest[sent : sent + allowed]
                    connection.sendall(_frame(DATA, piece, 0, 1))
                    sent += allowed
                    windows = {stream: left - allowed for stream, left in windows.items()}
                    continue
                head = answers.read(9)
                payload = answers.read(int.from_bytes(head[:3]))
                if head[3] == WINDOW_UPDATE:
                    windows[int.from_bytes(head[5:9])] += int.from_bytes(payload)
                elif head[3] == SETTINGS and not head[4] & 1:
                    for at in range(0, len(payload), 6):
                        if int.from_bytes(payload[at : at + 2]) == 4:  # INITIAL_WINDOW_SIZE
                            windows[1] += int.from_bytes(payload[at + 2 : at + 6]) - 65535
        all_stalled.wait(20)
    return sent


async def test_a_message_is_not_read_before_there_is_room(serve: Serve) -> None:
    """B67, over gRPC: what many clients would send stays with them, not in our memory."""
    size, clients = 4 * 1024 * 1024, 12
    async with serve(max_body_bytes=size, max_inflight_bytes=2 * size) as collector:
        stalled = threading.Barrier(clients)
        with ThreadPoolExecutor(clients) as pool:
            loop = asyncio.get_running_loop()
            pours = [
                loop.run_in_executor(pool, _pour, collector.grpc, size, stalled)
                for _ in range(clients)
            ]
            taken = await asyncio.gather(*pours)
        # One is read, for a client gets half; of the others no more than a window.
        assert size - 1 <= max(taken)
        assert sum(taken) < size + clients * 256 * 1024
        # They are gone now, and so is what was kept for them.
        for _ in range(500):
            if "inflight_bytes 0\n" in await asyncio.to_thread(_metrics, collector.http):
                break
            await asyncio.sleep(0.02)
        assert "inflight_bytes 0\n" in await asyncio.to_thread(_metrics, collector.http)
        await _call(collector.grpc, VALID)


def _metrics(address: str) -> str:
    with urllib.request.urlopen(f"{address}/metrics", timeout=20) as response:
        return str(response.read().decode())


async def test_a_message_that_does_not_come_is_given_up(serve: Serve) -> None:
    async with (
        serve(body_timeout_s=0.1) as collector,
        grpc.aio.insecure_channel(collector.grpc) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.stream_unary(TRACES, None, None)(_nothing_comes())
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert "google.rpc.retryinfo-bin" in _metadata(caught.value)


async def _nothing_comes() -> AsyncIterator[bytes]:
    await asyncio.sleep(20)
    yield b""


async def test_a_call_without_a_message_is_invalid(serve: Serve) -> None:
    async with (
        serve() as collector,
        grpc.aio.insecure_channel(collector.grpc) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.stream_unary(TRACES, None, None)(iter(()))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_client_over_its_share_is_exhausted_with_retry_info(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the OTLP specification RESOURCE_EXHAUSTED is retried only if RetryInfo is there."""
    release = threading.Event()
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: release.wait(20))
    limits = {"max_body_bytes": 1000, "max_inflight_bytes": 2000, "admission_timeout_s": 0.1}
    body = make_request(make_span(1, name="x" * 700)).SerializeToString()
    async with serve(**limits) as collector:
        first = asyncio.create_task(_call(collector.grpc, body))
        await asyncio.sleep(0.2)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _call(collector.grpc, body)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "google.rpc.retryinfo-bin" in _metadata(caught.value)
        release.set()
        await first


async def test_logs_over_grpc(serve: Serve) -> None:
    async with serve() as collector:
        # One resource, one scope and one empty log record.
        answer = await _call(collector.grpc, bytes.fromhex("0a0412021200"), LOGS)
        assert ExportLogsServiceResponse.FromString(answer) == ExportLogsServiceResponse()
        assert collector.wal_bytes() > 0


async def test_a_message_that_stalls_is_given_up_when_others_wait(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC tells no length, so each call holds room for the largest until it has come."""
    monkeypatch.setattr(admission, "PATIENCE_S", 0.2)
    body = make_request(make_span(1)).SerializeToString()
    never = asyncio.Event()

    async def stall() -> AsyncIterator[bytes]:
        await never.wait()
        yield b""

    async with (
        serve(max_body_bytes=1000, max_inflight_bytes=1000) as collector,
        grpc.aio.insecure_channel(collector.grpc) as channel,
    ):
        stalled = channel.stream_unary(TRACES, None, None)(stall())
        await stalled.wait_for_connection()
        await asyncio.sleep(0.1)
        assert await asyncio.to_thread(_post_from, "127.0.1.1", collector.http, body) == 200
        assert await stalled.code() is grpc.StatusCode.UNAVAILABLE
        never.set()


def _post_from(address: str, url: str, body: bytes) -> int:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(
        parts.hostname or "", parts.port, 20, source_address=(address, 0)
    )
    headers = {"Content-Type": "application/x-protobuf"}
    with closing(connection):
        connection.request("POST", "/v1/traces", body, headers)
        return connection.getresponse().status
