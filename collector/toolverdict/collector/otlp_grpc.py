"""OTLP/gRPC: TraceService/Export and LogsService/Export, on raw bytes.

The methods are unary for every client, yet served as streams of one message: a unary handler would
be called when its message is in memory already, ours asks for room first and reads then.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NoReturn, TypeAlias

import grpc
import grpc.aio

from toolverdict.collector.admission import Room, Sender
from toolverdict.collector.connections import affordable, client_of_grpc_peer
from toolverdict.collector.content import MediaType
from toolverdict.collector.errors import (
    CollectorError,
    ConfigError,
    DecodeError,
    SlowBodyError,
    status_of,
)
from toolverdict.collector.reception import Reception
from toolverdict.collector.rpc_status import message_of, retry_info_bytes, status_bytes
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.signals import WIRE, Signal
from toolverdict.collector.tls import grpc_credentials, tls_files

_LOG = logging.getLogger(__name__)

_Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"

_MIN_PING_INTERVAL_MS: Final = 5_000
"""Clients may ping an idle connection this often; gRPC's own default is five minutes."""


_MAX_STREAMS: Final = 64
"""Requests at a time on one connection; a client keeps the others until one has been answered.

gRPC's limit for all connections would answer RESOURCE_EXHAUSTED, after which exporters drop data.
"""


class GrpcServer:
    """The gRPC listener."""

    def __init__(self, reception: Reception, settings: CollectorSettings) -> None:
        """Prepare the server; nothing listens yet."""
        self._reception = reception
        self._settings = settings
        self._server = grpc.aio.server(
            options=[
                # Without this two collectors would share a port in silence.
                ("grpc.so_reuseport", int(settings.workers > 1)),
                ("grpc.max_receive_message_length", settings.max_body_bytes),
                ("grpc.max_concurrent_streams", _MAX_STREAMS),
                ("grpc.max_allowed_incoming_connections", affordable(settings.max_connections)),
                # What has not been asked for stays in the socket of the client.
                ("grpc.http2.bdp_probe", 0),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", _MIN_PING_INTERVAL_MS),
                ("grpc.http2.max_ping_strikes", 0),
                ("grpc.keepalive_permit_without_calls", 1),
            ]
        )
        self._server.add_generic_rpc_handlers(
            [
                grpc.method_handlers_generic_handler(
                    wire.grpc_service,
                    {"Export": grpc.stream_unary_rpc_method_handler(self._export(signal))},
                )
                for signal, wire in WIRE.items()
            ]
        )

    async def start(self) -> int:
        """Listen; returns the port.

        Raises:
            ConfigError: when the address cannot be had.
        """
        host, port = self._settings.host, self._settings.grpc_port
        address, tls = join_address(host, port), tls_files(self._settings)
        try:
            if tls is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, grpc_credentials(tls))
        except RuntimeError as error:
            raise ConfigError(
                f"cannot listen for OTLP/gRPC on {host} port {port} (in use, or no such address); "
                "give another --grpc-port or --host"
            ) from error
        await self._server.start()
        return bound

    async def stop(self) -> None:
        """Stop accepting, let requests in flight finish, close all connections."""
        await self._server.stop(self._settings.drain_timeout_s)

    def _export(self, signal: Signal) -> Callable[[object, _Context], Awaitable[bytes]]:
        reception, settings = self._reception, self._settings

        async def export(_: object, context: _Context) -> bytes:
            try:
                peer = context.peer()
                caller = reception.tokens.caller(_authorization(context), client_of_grpc_peer(peer))
                sender = Sender(caller.client, peer)
                # gRPC tells no length before it has read the whole.
                room = reception.admission.admitted(sender, settings.max_body_bytes)
                async with room as held:
                    body = await self._read(context, held)
                    held.resize(len(body))
                    reception.received(signal, "grpc", len(body))
                    response = await reception.intake.accept(
                        signal, MediaType.PROTOBUF, body, caller.tenant
                    )
            except CollectorError as error:
                reception.answered(signal, "grpc", status_of(error).grpc.name)
                await _abort(context, error)
            except Exception as error:  # noqa: BLE001 - the client keeps its data and retries
                _LOG.exception("a request failed for a fault of the collector")
                reception.answered(signal, "grpc", status_of(error).grpc.name)
                await _abort(context, error)
            reception.answered(signal, "grpc", "OK")
            return response.SerializeToString()

        return export

    async def _read(self, context: _Context, held: Room) -> bytes:
        try:
            async with held.reading(self._settings.body_timeout_s):
                body = await context.read()
        except TimeoutError:
            raise SlowBodyError("the message did not arrive in time") from None
        if not isinstance(body, bytes):
            raise DecodeError("the call holds no message")
        return body


def join_address(host: str, port: int) -> str:
    """Host and port as one address, IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _authorization(context: _Context) -> str | None:
    for name, value in context.invocation_metadata() or ():
        if name == "authorization":
            return str(value)
    return None


async def _abort(context: _Context, error: Exception) -> NoReturn:
    """Answer with the error; one that may be retried says when."""
    status = status_of(error)
    message = message_of(error)
    metadata: list[tuple[str, Any]] = []
    if status.retry_after_s is not None:
        # The first is the standard; the Python exporter looks for the second.
        metadata = [
            ("grpc-status-details-bin", status_bytes(status, message)),
            ("google.rpc.retryinfo-bin", retry_info_bytes(status.retry_after_s)),
        ]
    await context.abort(status.grpc, message, tuple(metadata))
