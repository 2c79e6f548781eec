"""OTLP/HTTP: POST /v1/traces and /v1/logs, the two health checks, and the metrics."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from toolverdict.collector.admission import Reading, Room
from toolverdict.collector.auth import Caller
from toolverdict.collector.connections import Gate, affordable, client_of_http_peer
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
    PermanentError,
    SlowBodyError,
    TooLargeError,
    TransientError,
    UnauthorizedError,
    status_of,
)
from toolverdict.collector.intake import INLINE_BYTES
from toolverdict.collector.metrics import CONTENT_TYPE
from toolverdict.collector.reception import Reception
from toolverdict.collector.rpc_status import code_of, message_of, status_bytes
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.signals import WIRE, Response, Signal
from toolverdict.collector.tls import http_context, renew, tls_files

_LOG = logging.getLogger(__name__)

_LINGER_S: Final = 1.0
_READ_BYTES: Final = 64 * 1024
"""Twice as much of a body waits in memory before anybody has asked for it."""
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
        self._gate: Gate | None = None
        self._listener: asyncio.Server | None = None
        self._renewal: asyncio.Task[None] | None = None
        app = web.Application(middlewares=[self._note_head])
        for signal, wire in WIRE.items():
            app.router.add_post(wire.http_path, self._export(signal))
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            # aiohttp's own inflation takes a truncated gzip stream for a whole one.
            auto_decompress=False,
            # Read on for a moment after a refusal, or its answer is lost with the connection.
            lingering_time=_LINGER_S,
            keepalive_timeout=_KEEP_ALIVE_S,
            shutdown_timeout=settings.drain_timeout_s,
            read_bufsize=_READ_BYTES,
        )

    async def start(self) -> int:
        """Listen; returns the port.

        Raises:
            ConfigError: when the address cannot be had.
        """
        host, port = self._settings.host, self._settings.http_port
        tls = tls_files(self._settings)
        context = http_context(tls) if tls is not None else None
        await self._runner.setup()
        assert self._runner.server is not None
        self._gate = Gate(
            self._runner.server,
            affordable(self._settings.max_connections),
            self._settings.head_timeout_s,
        )
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                self._gate, host, port, ssl=context, reuse_port=self._settings.workers > 1
            )
        except OSError as error:
            await self._runner.cleanup()
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
        if self._gate is not None:
            self._gate.close()
        await self._runner.cleanup()

    @web.middleware
    async def _note_head(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._gate is not None:
            self._gate.heard(request.protocol)
        return await handler(request)

    def _export(self, signal: Signal) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def export(request: web.Request) -> web.Response:
            response = await self._answer(signal, request)
            self._reception.answered(signal, "http", str(response.status))
            return response

        return export

    async def _answer(self, signal: Signal, request: web.Request) -> web.Response:
        media_type = MediaType.JSON  # of an answer to a request that names none we know
        try:
            media_type = media_type_of(request.headers.get("Content-Type"))
            caller = self._caller(request)
            # A header that comes twice is one list (RFC 9110, 5.3).
            coding = ",".join(request.headers.getall("Content-Encoding", ()))
            room = self._reception.admission.admitted(caller.client, self._need(request, coding))
            async with room as held:
                async with held.reading(self._settings.body_timeout_s) as reading:
                    body = await self._read(request, held, reading)
                body = await self._inflate(body, coding, held)
                self._reception.received(signal, "http", len(body))
                response = await self._reception.intake.accept(
                    signal, media_type, body, caller.tenant
                )
        except CollectorError as error:
            return _failure(error, media_type)
        except TimeoutError:
            return _failure(SlowBodyError("the body did not arrive in time"), media_type)
        except ConnectionError:  # the client went away and hears no answer
            return _failure(TransientError("the connection was lost"), media_type)
        except Exception as error:  # noqa: BLE001 - the client keeps its data and retries
            _LOG.exception("a request failed for a fault of the collector")
            return _failure(error, media_type)
        return _success(signal, response, media_type)

    def _caller(self, request: web.Request) -> Caller:
        return self._reception.tokens.caller(
            request.headers.get("Authorization"),
            client_of_http_peer(request.get_extra_info("peername")),
        )

    def _need(self, request: web.Request, coding: str) -> int:
        """How many bytes of memory a request may need before its body is inflated.

        Raises:
            TooLargeError: when it says itself that it is too large.
        """
        limit, length = self._settings.max_body_bytes, request.content_length
        if length is None:
            return min(limit, _FIRST_BYTES)
        if length > limit:
            raise TooLargeError(too_large_message(limit))
        return min(limit, _USUAL_RATIO * length) if is_coded(coding) else length

    async def _read(self, request: web.Request, held: Room, reading: Reading) -> bytes:
        """The body; the limit holds while reading, whatever Content-Length says."""
        limit = self._settings.max_body_bytes
        if request.content_length:
            # There is room for all of it: let it come without a stop.
            request.content.set_read_chunk_size(request.content_length)
        pieces: list[bytes] = []
        size = 0
        async for piece in request.content.iter_any():
            size += len(piece)
            if size > limit:
                raise TooLargeError(too_large_message(limit))
            if size > held.size:
                held.grow(min(limit, 2 * size))
            reading.came(len(piece))
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

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

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._draining:
            return web.Response(status=503, text="stopping\n")
        if not self._reception.intake.is_ready:
            return web.Response(status=503, text="the log cannot be written\n")
        return web.Response(text="ready\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        try:
            caller = self._caller(request)
        except UnauthorizedError as error:
            return _failure(error, MediaType.JSON)
        if caller.tenant is not None:  # the numbers are of all tenants
            return web.Response(status=403, text="send a token without a tenant\n")
        text = self._reception.metrics_text()
        return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})


def _success(signal: Signal, response: Response, media_type: MediaType) -> web.Response:
    """Exactly 200 with the response message: some exporters take any other 2xx for a failure."""
    if media_type is MediaType.PROTOBUF:
        return web.Response(body=response.SerializeToString(), content_type=media_type)
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
    return web.Response(body=orjson.dumps(tree), content_type=media_type)


def _failure(error: Exception, media_type: MediaType) -> web.Response:
    """The error as google.rpc.Status in the media type of the request."""
    status = status_of(error)
    message = message_of(error)
    if media_type is MediaType.PROTOBUF:
        body = status_bytes(status, message)
    else:
        body = orjson.dumps({"code": code_of(status), "message": message})
    response = web.Response(status=status.http, body=body, content_type=media_type)
    if status.retry_after_s is not None:
        response.headers["Retry-After"] = str(status.retry_after_s)
    if isinstance(error, UnauthorizedError):
        response.headers["WWW-Authenticate"] = "Bearer"
    if not isinstance(error, PermanentError) or isinstance(error, TooLargeError):
        response.force_close()  # the rest of the body is not worth reading
    return response
