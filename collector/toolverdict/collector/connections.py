"""How many connections there may be, whose they are, and how long one may say nothing.

Every connection is an open file. A process that has none left cannot write its log either, so the
limit stays well below what the system allows.
"""

import asyncio
import logging
import resource
from contextlib import suppress
from urllib.parse import unquote

from aiohttp import web

_LOG = logging.getLogger(__name__)


def raise_file_limit() -> None:
    """Allow this process as many open files as it may have; the usual soft limit is 1024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def affordable(connections: int) -> int:
    """So many connections, or a third of the open files this process may have: of two listeners."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections if soft == resource.RLIM_INFINITY else min(connections, soft // 3)


def client_of_http_peer(peer: object) -> str:
    """The address of a peer without its port, which is another for every connection."""
    return str(peer[0]) if isinstance(peer, tuple) and peer else "unknown"


def client_of_grpc_peer(peer: str) -> str:
    """The address in what gRPC calls a peer: ``ipv4:127.0.0.1:4711``, ``ipv6:%5B::1%5D:4711``."""
    _, _, address = peer.partition(":")
    host, _, _ = unquote(address).rpartition(":")
    return host.strip("[]") or "unknown"


class Gate:
    """Makes the protocol of each new connection, and ends those that send no request."""

    def __init__(self, server: web.Server, limit: int, head_timeout_s: float) -> None:
        """Stand before a server.

        Args:
            server: makes the protocols.
            limit: connections at a time; one more is closed at once.
            head_timeout_s: seconds until a connection without a complete request head is closed.
        """
        self._server = server
        self._limit = limit
        self._head_timeout_s = head_timeout_s
        self._silent: dict[asyncio.BaseProtocol, asyncio.TimerHandle] = {}
        self._has_refused = False

    def __call__(self) -> asyncio.BaseProtocol:
        """The protocol of a connection that was just accepted."""
        if len(self._server.connections) >= self._limit:
            if not self._has_refused:
                self._has_refused = True
                _LOG.warning("more than %d HTTP connections are refused (told once)", self._limit)
            return _Refusal()
        protocol = self._server()
        timer = asyncio.get_running_loop().call_later(self._head_timeout_s, self._give_up, protocol)
        self._silent[protocol] = timer
        return protocol

    def heard(self, protocol: asyncio.BaseProtocol) -> None:
        """Note that a complete request head has come."""
        timer = self._silent.pop(protocol, None)
        if timer is not None:
            timer.cancel()

    def close(self) -> None:
        """Forget all timers."""
        for timer in self._silent.values():
            timer.cancel()
        self._silent.clear()

    def _give_up(self, protocol: web.RequestHandler) -> None:
        self._silent.pop(protocol, None)
        protocol.force_close()


class _Refusal(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.abort()
