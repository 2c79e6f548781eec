"""OTLP/HTTP: POST /v1/traces and /v1/logs, and the two health checks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler

from toolverdict.collector.connections import Gate, affordable
from toolverdict.collector.content import MediaType, inflate, media_type_of, too_large_message
from toolverdict.collector.errors import (
    CollectorError,
    ConfigError,
    PermanentError,
    SlowBodyError,
    TooLargeError,
    TransientError,
    status_of,
)
from toolverdict.collector.intake import INLINE_BYTES, Intake
from toolverdict.collector.rpc_status import code_of, message_of, status_bytes
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.signals import WIRE, Response, Signal

_LOG = logging.getLogger(__name__)

_LINGER_S: Final = 1.0
_KEEP_ALIVE_S: Final = 300.0
"""Longer than any exporter's pause between two batches."""


class HttpServer:
    """The HTTP listener."""

    def __init__(self, intake: Intake, settings: CollectorSettings) -> None:
        """Prepare the application; nothing listens yet."""
        self._intake = intake
        self._settings = settings
        self._draining = False
        self._gate: Gate | None = None
        self._listener: asyncio.Server | None = None
        app = web.Application(middlewares=[self._note_head])
        for signal, wire in WIRE.items():
            app.router.add_post(wire.http_path, self._export(signal))
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        self._runner = web.AppRunner(
            app,
            access_log=None,
            # aiohttp's own inflation takes a truncated gzip stream for a whole one.
            auto_decompress=False,
            # Read on for a moment after a refusal, or its answer is lost with the connection.
            lingering_time=_LINGER_S,
            keepalive_timeout=_KEEP_ALIVE_S,
            shutdown_timeout=settings.drain_timeout_s,
        )

    async def start(self) -> int:
        """Listen; returns the port.

        Raises:
            ConfigError: when the address cannot be had.
        """
        host, port = self._settings.host, self._settings.http_port
        await self._runner.setup()
        assert self._runner.server is not None
        self._gate = Gate(
            self._runner.server,
            affordable(self._settings.max_http_connections),
            self._settings.head_timeout_s,
        )
        try:
            self._listener = await asyncio.get_running_loop().create_server(self._gate, host, port)
        except OSError as error:
            await self._runner.cleanup()
            raise ConfigError(
                f"cannot listen for OTLP/HTTP on {host} port {port} "
                f"({error.strerror or 'no such address'}); "
                "give another --http-port or --host"
            ) from error
        return int(self._listener.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop accepting, let requests in flight finish, close all connections."""
        self._draining = True
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
            media_type = MediaType.JSON  # of an answer to a request that names none we know
            try:
                media_type = media_type_of(request.headers.get("Content-Type"))
                with self._intake.reserving() as reserve:
                    async with asyncio.timeout(self._settings.body_timeout_s):
                        body = await self._read(request, reserve)
                    response = await self._intake.accept(signal, media_type, body)
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

        return export

    async def _read(self, request: web.Request, reserve: Callable[[int], None]) -> bytes:
        """The body, inflated; the limit holds while reading, whatever Content-Length says."""
        limit = self._settings.max_body_bytes
        if (request.content_length or 0) > limit:
            raise TooLargeError(too_large_message(limit))
        pieces: list[bytes] = []
        size = 0
        async for piece in request.content.iter_any():
            size += len(piece)
            if size > limit:
                raise TooLargeError(too_large_message(limit))
            reserve(len(piece))
            pieces.append(piece)
        body = b"".join(pieces)
        # A header that comes twice is one list (RFC 9110, 5.3).
        coding = ",".join(request.headers.getall("Content-Encoding", ()))
        if coding and size > INLINE_BYTES:
            body = await asyncio.to_thread(inflate, body, coding, limit)
        else:
            body = inflate(body, coding, limit)
        reserve(max(0, len(body) - size))
        return body

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._draining:
            return web.Response(status=503, text="stopping\n")
        if not self._intake.is_ready:
            return web.Response(status=503, text="the log cannot be written\n")
        return web.Response(text="ready\n")


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
    if not isinstance(error, PermanentError) or isinstance(error, TooLargeError):
        response.force_close()  # the rest of the body is not worth reading
    return response
