"""OTLP/HTTP as clients see it."""

import asyncio
import errno
import gzip
import http.client
import json
import logging
import os
import random
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import pyarrow as pa
import pytest
from google.protobuf.message import Message
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans

from toolverdict.collector import admission, intake
from toolverdict.collector.otlp_json import protobuf_of_json
from toolverdict.collector.testing import (
    Answer,
    make_request,
    make_span,
    otlp_json_of,
    post,
)

Serve = Callable[..., AbstractAsyncContextManager[Any]]
JSON = "application/json"
VALID = make_request(make_span(1)).SerializeToString()


def _gzip(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)  # the same bytes, and so the same test, every time


async def _post(url: str, body: bytes, *args: Any) -> Answer:
    return await asyncio.to_thread(post, url, body, *args)


async def test_success_is_200_with_a_response_in_the_type_of_the_request(serve: Serve) -> None:
    """B70: 204, or another media type, is a failure for the stock exporters."""
    async with serve() as collector:
        url = f"{collector.http}/v1/traces"
        answer = await _post(url, VALID)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/x-protobuf")
        assert ExportTraceServiceResponse.FromString(answer.body) == ExportTraceServiceResponse()
        answer = await _post(url, otlp_json_of(make_request(make_span(2))), JSON)
        assert (answer.status, answer.body) == (200, b"{}")
        assert answer.headers["content-type"].startswith(JSON)


@pytest.mark.parametrize(
    ("body", "content_type", "coding"),
    [
        (b"", "application/x-protobuf", None),
        (_gzip(b""), "application/x-protobuf", "gzip"),
        (b"{}", JSON, None),
        (b'{"resourceSpans":[]}', JSON, None),
        (b'{"resourceSpans":[{"scopeSpans":[]}]}', JSON, None),
        (
            ExportTraceServiceRequest(
                resource_spans=[ResourceSpans(scope_spans=[ScopeSpans()])]
            ).SerializeToString(),
            "application/x-protobuf",
            None,
        ),
    ],
)
async def test_empty_requests_succeed_and_append_nothing(
    serve: Serve, body: bytes, content_type: str, coding: str | None
) -> None:
    """B77"""
    async with serve() as collector:
        answer = await _post(f"{collector.http}/v1/traces", body, content_type, coding)
        assert answer.status == 200
        assert list((collector.data_dir / "wal").glob("*.log")) == []


async def test_json_without_spans_is_logged_once(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """B65: data sent to the wrong path is accepted, as OTLP demands, but not in silence."""
    async with serve() as collector:
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                answer = await _post(f"{collector.http}/v1/traces", b'{"hello":1}', JSON)
                assert answer.status == 200
    assert caplog.text.count("held no spans") == 1


@pytest.mark.parametrize(
    ("body", "content_type", "coding", "status"),
    [
        (b"\xff\xff", "application/x-protobuf", None, 400),
        (VALID[:-1], "application/x-protobuf", None, 400),
        (b"[]", JSON, None, 400),
        (b"null", JSON, None, 400),
        (b"{", JSON, None, 400),
        (VALID, JSON, None, 400),
        (VALID, "application/x-protobuf", "gzip", 400),
        (_gzip(VALID)[:-4], "application/x-protobuf", "gzip", 400),
        (VALID, "application/x-protobuf", "br", 415),
        (VALID, "text/plain", None, 415),
        (VALID, "", None, 415),
        (bytes(2000), "application/x-protobuf", None, 413),
        (_gzip(bytes(2000)), "application/x-protobuf", "gzip", 413),
    ],
)
async def test_permanent_errors_say_why_and_store_nothing(
    serve: Serve, body: bytes, content_type: str, coding: str | None, status: int
) -> None:
    """B68, B74: a status that is never retried, with a reason in the type of the request."""
    async with serve(max_body_bytes=1000) as collector:
        answer = await _post(f"{collector.http}/v1/traces", body, content_type, coding)
        assert answer.status == status
        assert "retry-after" not in answer.headers
        if content_type == "application/x-protobuf":
            message = Status.FromString(answer.body).message
        else:
            message = json.loads(answer.body)["message"]
        assert len(message) > 10
        if status == 413:
            assert "1000 bytes" in message
        assert collector.wal_bytes() == 0


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("limit", ["max_request_records", "max_request_messages"])
async def test_too_many_objects_are_400(serve: Serve, as_json: bool, limit: str) -> None:
    request = make_request(*(make_span(number, name="") for number in range(9)))
    async with serve(**{limit: 8}) as collector:
        url = f"{collector.http}/v1/traces"
        if as_json:
            answer = await _post(url, otlp_json_of(request), JSON)
        else:
            answer = await _post(url, request.SerializeToString())
        assert answer.status == 400
        assert b"more than 8 " in answer.body
        assert collector.wal_bytes() == 0


async def test_invalid_spans_are_counted_and_their_siblings_stored(
    serve: Serve, stored: Callable[[], int]
) -> None:
    """B59, B80: partial success names the field."""
    request = make_request(make_span(1), make_span(2, trace_id=b"x"), make_span(3))
    async with serve() as collector:
        url = f"{collector.http}/v1/traces"
        answer = await _post(url, request.SerializeToString())
        partial = ExportTraceServiceResponse.FromString(answer.body).partial_success
        assert (answer.status, partial.rejected_spans) == (200, 1)
        assert partial.error_message.startswith("trace_id must be 16 bytes")
        body = otlp_json_of(make_request(make_span(4), make_span(5)))
        base64_id = body.replace(make_span(5).trace_id.hex().encode(), b"cgXI6uihz643E6Zqq7Nl4w==")
        answer = await _post(url, base64_id, JSON)
        partial_json = json.loads(answer.body)["partialSuccess"]
        assert partial_json["rejectedSpans"] == "1"
        assert "trace_id" in partial_json["errorMessage"]
    assert stored() == 3


async def test_a_request_of_invalid_spans_alone_appends_nothing(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Each reason is logged once, however many such spans come."""
    async with serve() as collector:
        body = make_request(make_span(1, span_id=b"")).SerializeToString()
        for _ in range(3):
            assert (await _post(f"{collector.http}/v1/traces", body)).status == 200
        assert collector.wal_bytes() == 0
    assert caplog.text.count("rejected spans: span_id must be") == 1


async def test_logs_with_a_warning(serve: Serve) -> None:
    """A record that loses only its association is stored, and the client is told."""
    record = LogRecord(trace_id=b"short")
    request = ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(scope_logs=[ScopeLogs(log_records=[record])])]
    )
    async with serve() as collector:
        answer = await _post(f"{collector.http}/v1/logs", request.SerializeToString())
        partial = ExportLogsServiceResponse.FromString(answer.body).partial_success
        assert partial.rejected_log_records == 0
        assert "was left out" in partial.error_message
        assert collector.wal_bytes() > 0
        answer = await _post(f"{collector.http}/v1/logs", otlp_json_of(request), JSON)
        assert json.loads(answer.body)["partialSuccess"]["rejectedLogRecords"] == "0"


async def test_gzip_members_are_all_read(serve: Serve, stored: Callable[[], int]) -> None:
    """B68: a stream of two members is one request of two parts."""
    first, second = (make_request(make_span(n)).SerializeToString() for n in (1, 2))
    body = _gzip(first) + _gzip(second)
    async with serve() as collector:
        answer = await _post(f"{collector.http}/v1/traces", body, "application/x-protobuf", "GZIP")
        assert answer.status == 200
    assert stored() == 2


async def test_a_disk_error_is_503_with_a_delay(
    serve: Serve, stored: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B74, B82: a full or read-only disk is never a 200, and clients may retry."""

    def fail(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with serve() as collector:
        url = f"{collector.http}/v1/traces"
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", fail)
            answer = await _post(url, VALID)
            assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert "No space left" in Status.FromString(answer.body).message
            ready = await asyncio.to_thread(_get, f"{collector.http}/readyz")
            assert ready.startswith("HTTP/1.1 503")
        assert (await _post(url, VALID)).status == 200
        assert (await asyncio.to_thread(_get, f"{collector.http}/readyz")).endswith("ready\n")
    assert stored() == 1


async def test_overload_is_503(serve: Serve) -> None:
    """B74"""
    async with serve(max_inflight_bytes=10) as collector:
        answer = await _post(f"{collector.http}/v1/traces", VALID)
        assert (answer.status, "retry-after" in answer.headers) == (503, True)


async def test_a_long_backlog_is_503(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """B85: the log on disk is bounded, too."""
    async with serve(max_wal_bytes=1) as collector:
        url = f"{collector.http}/v1/traces"
        assert (await _post(url, VALID)).status == 200
        monkeypatch.setattr("toolverdict.collector.flush.Flusher.backlog_bytes", 100)
        assert (await _post(url, VALID)).status == 503


async def test_a_fault_of_ours_is_503_and_tells_nothing(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*args: object) -> None:
        raise ZeroDivisionError("a secret")

    async with serve() as collector:
        monkeypatch.setattr("toolverdict.collector.intake.judge", fault)
        answer = await _post(f"{collector.http}/v1/traces", VALID)
        assert answer.status == 503
        assert b"secret" not in answer.body


async def test_paths_methods_and_health(serve: Serve) -> None:
    async with serve() as collector:
        assert (await _post(f"{collector.http}/v1/metrics", b"")).status == 404
        assert "405" in await asyncio.to_thread(_get, f"{collector.http}/v1/traces")
        assert (await asyncio.to_thread(_get, f"{collector.http}/healthz")).endswith("ok\n")


async def test_a_chunked_body_is_stopped_at_the_limit(
    serve: Serve, stored: Callable[[], int]
) -> None:
    """B67: no Content-Length, no end; the connection is closed and others are served."""
    async with serve(max_body_bytes=100_000) as collector:
        url = f"{collector.http}/v1/traces"
        answer, sent = await asyncio.to_thread(_stream_chunks, url, 200_000_000)
        assert answer.startswith(b"HTTP/1.1 413")
        assert b"Connection: close" in answer
        assert sent < 100_000_000
        assert (await _post(url, VALID)).status == 200
    assert stored() == 1


async def test_a_body_that_does_not_come_is_given_up(serve: Serve) -> None:
    """A slow client must not hold memory that others need."""
    async with serve(body_timeout_s=0.1) as collector:
        answer = await asyncio.to_thread(_raw, collector.http, b"5\r\nab")
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"Retry-After" in answer


@pytest.mark.parametrize("sent", [b"", b"POST /v1/traces HTTP/1.1\r\nHo"])
async def test_a_connection_without_a_request_is_closed(serve: Serve, sent: bytes) -> None:
    """One that has sent a request stays open for the next."""
    async with serve(head_timeout_s=0.2) as collector:

        def wait_for_the_end() -> bytes:
            with _connect(collector.http) as connection:
                connection.sendall(sent)
                return _received(connection)

        def come_back() -> bool:
            with _connect(collector.http) as connection:
                for _ in range(2):
                    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                    if not connection.recv(4096).startswith(b"HTTP/1.1 200"):
                        return False
                    time.sleep(0.4)
            return True

        assert await asyncio.to_thread(wait_for_the_end) == b""
        assert await asyncio.to_thread(come_back)


async def test_connections_are_limited(serve: Serve) -> None:
    async with serve(max_connections=3) as collector:

        def crowd() -> bytes:
            with ExitStack() as opened:
                for _ in range(3):
                    opened.enter_context(_connect(collector.http))
                time.sleep(0.1)
                return _received(opened.enter_context(_connect(collector.http)))

        assert await asyncio.to_thread(crowd) == b""
        await asyncio.sleep(0.1)
        assert (await _post(f"{collector.http}/v1/traces", VALID)).status == 200


async def test_a_repeated_coding_header_is_one_list(serve: Serve) -> None:
    head = (
        f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: {JSON}\r\n"
        "Content-Encoding: identity\r\nContent-Encoding: gzip\r\nConnection: close\r\n"
    )
    body = _gzip(b"{}")

    def send(url: str) -> bytes:
        with _connect(url) as connection:
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            return _received(connection)

    async with serve() as collector:
        assert (await asyncio.to_thread(send, collector.http)).startswith(b"HTTP/1.1 200")


async def test_a_large_compressed_body_is_inflated(serve: Serve, stored: Callable[[], int]) -> None:
    request = make_request(make_span(1, name=random.Random(1).randbytes(100_000).hex()))
    async with serve() as collector:
        body = _gzip(request.SerializeToString())
        answer = await _post(f"{collector.http}/v1/traces", body, "application/x-protobuf", "gzip")
        assert answer.status == 200
    assert stored() == 1


async def test_broken_chunks_are_400(serve: Serve) -> None:
    async with serve() as collector:
        answer = await asyncio.to_thread(_raw, collector.http, b"zz\r\nx\r\n")
        assert b" 400 " in answer.split(b"\r\n")[0]
        assert collector.wal_bytes() == 0


async def test_a_client_that_goes_away_leaves_nothing(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """Half a body is no request, and no fault of the collector to be logged."""
    async with serve() as collector:

        def go_away() -> None:
            with _connect(collector.http) as connection:
                connection.sendall(_CHUNKED_HEAD + b"5\r\nab")

        await asyncio.to_thread(go_away)
        answer = await _post(f"{collector.http}/v1/traces", b"")
        assert answer.status == 200
        assert collector.wal_bytes() == 0
    assert caplog.text == ""


async def test_a_large_request_is_parsed_in_a_thread(
    serve: Serve, stored: Callable[[], int]
) -> None:
    request = make_request(*(make_span(n, name="x" * 1000) for n in range(200)))
    async with serve() as collector:
        url = f"{collector.http}/v1/traces"
        answer = await _post(url, otlp_json_of(request), "application/json; charset=utf-8")
        assert answer.status == 200
    assert stored() == 200


async def test_large_json_is_parsed_one_at_a_time(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, stored: Callable[[], int]
) -> None:
    """Its values take many times its size in memory."""
    at_once, most = 0, 0
    lock = threading.Lock()

    def watched(body: bytes, message_type: type[Message]) -> bytes:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.05)
        with lock:
            at_once -= 1
        return protobuf_of_json(body, message_type)

    monkeypatch.setattr(intake, "protobuf_of_json", watched)
    body = otlp_json_of(make_request(make_span(1, name="x" * 100_000)))
    async with serve() as collector:
        url = f"{collector.http}/v1/traces"
        answers = await asyncio.gather(*(_post(url, body, "application/json") for _ in range(4)))
        assert [answer.status for answer in answers] == [200] * 4
    assert most == 1
    assert stored() == 1


async def test_zstd_over_http(serve: Serve, stored: Callable[[], int]) -> None:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(VALID)
    async with serve() as collector:
        body = sink.getvalue().to_pybytes()
        answer = await _post(f"{collector.http}/v1/traces", body, "application/x-protobuf", "ZSTD")
        assert answer.status == 200
    assert stored() == 1


def _request(body: bytes, extra: str = "") -> bytes:
    head = (
        "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
        f"{extra}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def test_pipelined_requests_are_answered_in_order(
    serve: Serve, stored: Callable[[], int]
) -> None:
    """RFC 9112, 9.3.2: all in one write; a bad one in their midst spoils none of the others."""
    bodies = [make_request(make_span(number)).SerializeToString() for number in range(5)]
    bodies[2] = b"\xff\xff"

    def send(url: str) -> bytes:
        with _connect(url) as connection:
            last = _request(bodies[-1], "Connection: close\r\n")
            connection.sendall(b"".join(map(_request, bodies[:-1])) + last)
            return _received(connection)

    async with serve() as collector:
        answer = await asyncio.to_thread(send, collector.http)
    statuses = re.findall(rb"HTTP/1\.1 (\d+) ", answer)
    assert statuses == [b"200", b"200", b"400", b"200", b"200"]
    assert stored() == 4


async def test_a_connection_stays_open_for_the_next_request(serve: Serve) -> None:
    """Also after an error that is the client's."""

    def send(url: str) -> list[int]:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=20)
        statuses = []
        connection.connect()
        ours = connection.sock
        for body in (VALID, b"\xff", VALID):
            headers = {"Content-Type": "application/x-protobuf"}
            connection.request("POST", "/v1/traces", body, headers)
            response = connection.getresponse()
            response.read()
            statuses.append(response.status)
            assert connection.sock is ours
        connection.close()
        return statuses

    async with serve() as collector:
        assert await asyncio.to_thread(send, collector.http) == [200, 400, 200]


async def test_two_lengths_of_one_body_are_refused(serve: Serve) -> None:
    """A request that two servers would read differently (RFC 9112, 6.3) is read by none."""
    raw = _request(VALID, "Transfer-Encoding: chunked\r\n")

    def send(url: str) -> bytes:
        with _connect(url) as connection:
            connection.sendall(raw)
            return _received(connection)

    async with serve() as collector:
        answer = await asyncio.to_thread(send, collector.http)
        assert b" 400 " in answer.split(b"\r\n")[0]
        assert collector.wal_bytes() == 0


async def test_a_client_over_its_share_is_429_with_a_delay(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, stored: Callable[[], int]
) -> None:
    release = threading.Event()
    real_sync = os.fdatasync

    def slow(descriptor: int) -> None:
        release.wait(20)
        real_sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", slow)
    body = make_request(make_span(1, name="x" * 700)).SerializeToString()
    async with serve(max_inflight_bytes=1500, admission_timeout_s=0.1) as collector:
        url = f"{collector.http}/v1/traces"
        first = asyncio.create_task(_post(url, body))
        await asyncio.sleep(0.2)
        answer = await _post(url, body)
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert Status.FromString(answer.body).code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        release.set()
        assert (await first).status == 200
    assert stored() == 1


@pytest.mark.parametrize("head", ["Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n", None])
async def test_stalled_bodies_of_many_addresses_starve_nobody(
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    stored: Callable[[], int],
    head: str | None,
) -> None:
    """In chunks they hold what arrived; with a length they are given up when others wait."""
    size = 1024 * 1024
    if head is None:
        monkeypatch.setattr(admission, "PATIENCE_S", 0.2)
        head = f"Content-Length: {size}\r\n\r\na"
    start = "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
    async with serve(max_body_bytes=size, max_inflight_bytes=4 * size) as collector:
        parts = urlsplit(collector.http)
        with ExitStack() as stack:
            for number in range(4):
                connection = socket.create_connection(
                    (parts.hostname or "", parts.port or 0), 20, (f"127.0.1.{number + 1}", 0)
                )
                stack.enter_context(connection)
                connection.sendall((start + head).encode())
            await asyncio.sleep(0.1)
            body = make_request(make_span(1, name="x" * 1000)).SerializeToString()
            assert (await _post(f"{collector.http}/v1/traces", body)).status == 200
    assert stored() == 1


async def test_a_large_body_in_chunks_gets_its_room_as_it_comes(
    serve: Serve, stored: Callable[[], int]
) -> None:
    body = make_request(make_span(1, name="x" * 3_000_000)).SerializeToString()
    chunks = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    async with serve() as collector:
        answer = await asyncio.to_thread(_raw, f"{collector.http}/v1/traces", chunks)
        assert b" 200 " in answer.split(b"\r\n")[0]
    assert stored() == 1


def _connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


def _get(url: str) -> str:
    with _connect(url) as connection:
        path = urlsplit(url).path
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        return _received(connection).decode()


def _raw(url: str, chunks: bytes) -> bytes:
    with _connect(url) as connection:
        connection.sendall(_CHUNKED_HEAD + chunks)
        return _received(connection)


_CHUNKED_HEAD = (
    b"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


def _stream_chunks(url: str, total: int) -> tuple[bytes, int]:
    """Send chunks until the server has had enough; its answer and how much was sent."""
    chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
    sent = 0
    with _connect(url) as connection:
        connection.sendall(_CHUNKED_HEAD)
        with suppress(OSError):
            while sent < total:
                connection.sendall(chunk)
                sent += len(chunk)
                if sent > 1_000_000:
                    connection.setblocking(False)
                    with suppress(BlockingIOError):
                        if answer := connection.recv(65536, socket.MSG_PEEK):
                            return answer, sent
                    connection.settimeout(20)
        return _received(connection), sent


def _received(connection: socket.socket) -> bytes:
    pieces = []
    with suppress(OSError):
        while piece := connection.recv(65536):
            pieces.append(piece)
    return b"".join(pieces)


def _expecting(url: str, length: int, headers: str = "") -> bytes:
    """What a client hears that sends a head and waits to be asked for the body."""
    with _connect(url) as connection:
        connection.sendall(
            (
                "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
                f"Content-Length: {length}\r\nExpect: 100-continue\r\n{headers}\r\n"
            ).encode()
        )
        answer = connection.recv(65536)
        if answer.startswith(b"HTTP/1.1 100 "):
            connection.sendall(VALID)
            answer += connection.recv(65536)
        return answer


async def test_a_body_is_asked_for_when_its_head_is_accepted(
    serve: Serve, stored: Callable[[], int]
) -> None:
    async with serve() as collector:
        answer = await asyncio.to_thread(_expecting, collector.http, len(VALID))
        assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")
    assert stored() == 1


async def test_no_body_is_asked_for_that_will_be_refused(serve: Serve, tmp_path: Path) -> None:
    """A client without a token, or with too much, learns it before it has sent anything."""
    tokens = tmp_path / "tokens.txt"
    tokens.write_text("acme tv_0123456789abcdef\n")
    async with serve(max_body_bytes=1000, tokens_file=tokens) as collector:
        known = "Authorization: Bearer tv_0123456789abcdef\r\n"
        for length, headers, status in ((len(VALID), "", 401), (1001, known, 413)):
            answer = await asyncio.to_thread(_expecting, collector.http, length, headers)
            assert answer.startswith(f"HTTP/1.1 {status} ".encode())
            assert b"Connection: close" in answer
        asked = await asyncio.to_thread(_expecting, collector.http, len(VALID), known)
        assert asked.startswith(b"HTTP/1.1 100 ")


async def test_what_is_sent_ahead_waits_in_the_socket(serve: Serve) -> None:
    """Pipelined requests are answered one by one; the memory of a connection does not grow."""
    count = 500
    async with serve() as collector:

        def send(url: str) -> int:
            with _connect(url) as connection:
                sender = threading.Thread(target=connection.sendall, args=[_request(VALID) * count])
                sender.start()
                answers = b""
                while answers.count(b"HTTP/1.1 200 OK\r\n") < count:
                    answers += connection.recv(65536)
                sender.join()
                return answers.count(b"HTTP/1.1 200 OK\r\n")

        assert await asyncio.to_thread(send, collector.http) == count
