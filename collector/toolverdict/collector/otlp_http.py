"""OTLP/HTTP: POST /v1/traces and /v1/logs, the two health checks, and the metrics."""

import asyncio
import gc
import logging
from functools import partial
from typing import Final

import h11
import orjson

from toolverdict.collector.admission import Reading, Room, Sender
from toolverdict.collector.auth import Caller
from toolverdict.collector.connections import affordable, client_of_http_peer
from toolverdict.collector.content import (
    MediaType,
    inflate,
    is_coded,
    media_type_of,
    too_large_message,
)
from toolverdict.collector.errors import (
    CollectorError,
    ConfigError,
    DecodeError,
    SlowBodyError,
    TooLargeError,
    TransientError,
    UnauthorizedError,
    status_of,
)
from toolverdict.collector.http1 import Handler, HttpListener, Request, Response
from toolverdict.collector.intake import INLINE_BYTES
from toolverdict.collector.metrics import CONTENT_TYPE
from toolverdict.collector.reception import Reception
from toolverdict.collector.rpc_status import code_of, message_of, status_bytes
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.signals import WIRE, Signal
from toolverdict.collector.signals import Response as ExportResponse
from toolverdict.collector.tls import http_context, renew, tls_files

_LOG = logging.getLogger(__name__)

_FIRST_BYTES: Final = 256 * 1024
"""Room for a body in chunks, whose length nobody tells; what is more is asked for as it comes."""
_USUAL_RATIO: Final = 16
"""How much smaller a coding makes a body at most, as a rule; what is more is asked for later."""
_KEEP_ALIVE_S: Final = 300.0
"""Longer than any exporter's pause between two batches."""


class HttpServer:
    """The HTTP listener."""

    def __init__(self, reception: Reception, settings: CollectorSettings) -> None:
        """Prepare the application; nothing listens yet."""
        self._reception = reception
        self._settings = settings
        self._draining = False
        self._connections = HttpListener(
            self._serve,
            affordable(settings.max_connections),
            settings.head_timeout_s,
            _KEEP_ALIVE_S,
        )
        self._listener: asyncio.Server | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._handlers: dict[str, dict[str, Handler]] = {
            wire.http_path: {"POST": partial(self._export, signal)} for signal, wire in WIRE.items()
        }
        for path, handler in (
            ("/healthz", self._healthz),
            ("/readyz", self._readyz),
            ("/metrics", self._metrics),
        ):
            self._handlers[path] = {"GET": handler, "HEAD": handler}

    async def start(self) -> int:
        """Listen; returns the port.

        Raises:
            ConfigError: when the address cannot be had.
        """
        host, port = self._settings.host, self._settings.http_port
        tls = tls_files(self._settings)
        context = http_context(tls) if tls is not None else None
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                self._connections, host, port, ssl=context, reuse_port=self._settings.workers > 1
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen for OTLP/HTTP on {host} port {port} "
                f"({error.strerror or 'no such address'}); "
                "give another --http-port or --host"
            ) from error
        if tls is not None and context is not None:
            self._renewal = asyncio.create_task(renew(context, tls))
        # All that was loaded stays; nobody needs to look for garbage in it, least of all at the end.
        gc.collect()
        gc.freeze()
        return int(self._listener.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop accepting, let requests in flight finish, close all connections."""
        self._draining = True
        if self._renewal is not None:
            self._renewal.cancel()
        if self._listener is not None:
            self._listener.close()
        await self._connections.close(self._settings.drain_timeout_s)

    async def _serve(self, request: Request) -> Response:
        methods = self._handlers.get(request.path)
        if methods is None:
            return _text("no such path\n", 404)
        handler = methods.get(request.method)
        if handler is None:
            return _text("no such method\n", 405)._replace(headers={"Allow": ", ".join(methods)})
        return await handler(request)

    async def _export(self, signal: Signal, request: Request) -> Response:
        response = await self._answer(signal, request)
        self._reception.answered(signal, "http", str(response.status))
        return response

    async def _answer(self, signal: Signal, request: Request) -> Response:
        media_type = MediaType.JSON  # of an answer to a request that names none we know
        try:
            media_type = media_type_of(request.headers.get("content-type"))
            caller = self._caller(request)
            coding = request.headers.get("content-encoding", "")
            need = self._need(request, coding)
            sender = Sender(caller.client, request.connection)
            async with self._reception.admission.admitted(sender, need) as held:
                async with held.reading(self._settings.body_timeout_s) as reading:
                    body = await self._read(request, held, reading)
                body = await self._inflate(body, coding, held)
                self._reception.received(signal, "http", len(body))
                response = await self._reception.intake.accept(
                    signal, media_type, body, caller.tenant
                )
        except CollectorError as error:
            return _failure(error, media_type)
        except h11.RemoteProtocolError:
            return _failure(DecodeError("the chunks of the body are broken"), media_type)
        except TimeoutError:
            return _failure(SlowBodyError("the body did not arrive in time"), media_type)
        except ConnectionError:  # the client went away and hears no answer
            return _failure(TransientError("the connection was lost"), media_type)
        except Exception as error:  # noqa: BLE001 - the client keeps its data and retries
            _LOG.exception("a request failed for a fault of the collector")
            return _failure(error, media_type)
        return _success(signal, response, media_type)

    def _caller(self, request: Request) -> Caller:
        return self._reception.tokens.caller(
            request.headers.get("authorization"),
            client_of_http_peer(request.peer),
        )

    def _need(self, request: Request, coding: str) -> int:
        """How many bytes of memory a request may need before its body is inflated.

        Raises:
            TooLargeError: when it says itself that it is too large.
        """
        limit, length = self._settings.max_body_bytes, request.length
        if request.is_chunked:
            return min(limit, _FIRST_BYTES)
        if length > limit:
            raise TooLargeError(too_large_message(limit))
        return min(limit, _USUAL_RATIO * length) if is_coded(coding) else length

    async def _read(self, request: Request, held: Room, reading: Reading) -> bytes:
        """The body; the limit holds while a chunked one comes."""
        if not request.is_chunked:
            return await request.read(reading.came)
        limit = self._settings.max_body_bytes
        pieces: list[bytes] = []
        size = 0
        async for piece in request.pieces():
            size += len(piece)
            if size > limit:
                raise TooLargeError(too_large_message(limit))
            if size > held.size:
                held.grow(min(limit, 2 * size))
            reading.came(len(piece))
            pieces.append(piece)
        return b"".join(pieces)

    async def _inflate(self, body: bytes, coding: str, held: Room) -> bytes:
        if is_coded(coding):
            limit = self._settings.max_body_bytes
            held.grow(min(limit, _USUAL_RATIO * len(body)))
            if len(body) > INLINE_BYTES:
                body = await asyncio.to_thread(inflate, body, coding, limit)
            else:
                body = inflate(body, coding, limit)
        held.resize(len(body))
        return body

    async def _healthz(self, _: Request) -> Response:
        return _text("ok\n")

    async def _readyz(self, _: Request) -> Response:
        if self._draining:
            return _text("stopping\n", 503)
        if not self._reception.intake.is_ready:
            return _text("the log cannot be written\n", 503)
        return _text("ready\n")

    async def _metrics(self, request: Request) -> Response:
        try:
            caller = self._caller(request)
        except UnauthorizedError as error:
            return _failure(error, MediaType.JSON)
        if caller.tenant is not None:  # the numbers are of all tenants
            return _text("send a token without a tenant\n", 403)
        text = self._reception.metrics_text()
        return Response(200, CONTENT_TYPE, text.encode())


def _text(text: str, status: int = 200) -> Response:
    return Response(status, "text/plain; charset=utf-8", text.encode())


def _success(signal: Signal, response: ExportResponse, media_type: MediaType) -> Response:
    """Exactly 200 with the response message: some exporters take any other 2xx for a failure."""
    if media_type is MediaType.PROTOBUF:
        return Response(200, media_type, response.SerializeToString())
    tree: dict[str, object] = {}
    if response.HasField("partial_success"):
        message = response.partial_success.error_message
        rejected = getattr(response.partial_success, WIRE[signal].rejected_field)
        # 64-bit integers are strings in the JSON of protobuf.
        tree = {
            "partialSuccess": {
                WIRE[signal].rejected_json_name: str(rejected),
                "errorMessage": message,
            }
        }
    return Response(200, media_type, orjson.dumps(tree))


def _failure(error: Exception, media_type: MediaType) -> Response:
    """The error as google.rpc.Status in the media type of the request."""
    status = status_of(error)
    message = message_of(error)
    if media_type is MediaType.PROTOBUF:
        body = status_bytes(status, message)
    else:
        body = orjson.dumps({"code": code_of(status), "message": message})
    headers: dict[str, str] = {}
    if status.retry_after_s is not None:
        headers["Retry-After"] = str(status.retry_after_s)
    if isinstance(error, UnauthorizedError):
        headers["WWW-Authenticate"] = "Bearer"
    return Response(status.http, media_type, body, headers)
