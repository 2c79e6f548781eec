"""HTTP/1.1 for clients that send large bodies: asyncio below, h11 for heads and chunks.

A body whose length is told goes from the socket straight into a buffer of that size, whole, and the
request runs as one task. That is what this is for: a general web server takes more CPU time for half
a megabyte than judging and logging it does.

A connection has one request at a time. What a client sends ahead stays in its socket, but for
:data:`AHEAD_BYTES`.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias, cast
from urllib.parse import urlsplit

import h11

_LOG = logging.getLogger(__name__)

AHEAD_BYTES: Final = 64 * 1024
"""Bytes of a connection that wait in memory before anybody has asked for them, twice at most."""

_HEAD_BYTES: Final = 16 * 1024
"""The largest head; also how much is read at once where a head is expected."""

_LINGER_S: Final = 1.0
"""Seconds to read on after a refusal: an answer is lost when its connection is reset."""


class Response(NamedTuple):
    """An answer."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = {}
    """Further ones."""


class Request:
    """A head that has come, and the way to its body."""

    def __init__(self, event: h11.Request, connection: "_Connection") -> None:
        """Take what h11 has read.

        Raises:
            ValueError: when the target is no path, or the body has two lengths (RFC 9112, 6.3).
        """
        self.method: Final = event.method.decode("ascii")
        self.path: Final = _path_of(event.target.decode("latin-1"))
        self.headers: Final = _headers_of(event)
        """By name in lower case; one that comes twice is one list (RFC 9110, 5.3)."""
        self.is_chunked: Final = "transfer-encoding" in self.headers
        if self.is_chunked and "content-length" in self.headers:
            raise ValueError("two lengths")
        self.length: Final = int(self.headers.get("content-length", "0"))
        """Bytes of a body that is not chunked; h11 has checked the number."""
        self.connection: Final = connection
        """What the request came on; an object to be compared, no more."""

    @property
    def peer(self) -> object:
        """The address at the other end."""
        return self.connection.peer

    async def read(self, came: Callable[[int], None]) -> bytes:
        """The body when its length was told.

        Args:
            came: told how many bytes have come, each time.

        Raises:
            ConnectionError: when the client went away.
        """
        return await self.connection.read(self.length, came)

    def pieces(self) -> AsyncIterator[bytes]:
        """The body when it is chunked, as it comes.

        Raises:
            ConnectionError: when the client went away.
            h11.RemoteProtocolError: when it is no chunked body.
        """
        return self.connection.pieces()


Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class HttpListener:
    """Answers the requests of all connections; the factory of ``loop.create_server``."""

    def __init__(
        self, handler: Handler, max_connections: int, head_timeout_s: float, keep_alive_s: float
    ) -> None:
        """Answer with a function.

        Args:
            handler: answers a request; an exception closes the connection.
            max_connections: one more is closed at once.
            head_timeout_s: seconds a new connection has to send the first head.
            keep_alive_s: seconds it has for each of the others.
        """
        self.handler: Final = handler
        self.head_timeout_s: Final = head_timeout_s
        self.keep_alive_s: Final = keep_alive_s
        self.is_closing = False
        self.connections: Final[set[_Connection]] = set()
        self.scratch: Final = memoryview(bytearray(AHEAD_BYTES))
        """Where heads and chunks are received; each is taken out at once."""
        self._max_connections = max_connections
        self._has_refused = False

    def __call__(self) -> asyncio.BaseProtocol:
        """The protocol of a connection that was just accepted."""
        if len(self.connections) < self._max_connections:
            return _Connection(self)
        if not self._has_refused:
            self._has_refused = True
            _LOG.warning(
                "more than %d HTTP connections are refused (told once)", self._max_connections
            )
        return _Refusal()

    async def close(self, timeout_s: float) -> None:
        """Close idle connections, and the others once they are answered or the time is over."""
        self.is_closing = True
        for connection in list(self.connections):
            connection.close_when_idle()
        tasks = [item.task for item in self.connections if item.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)
        for connection in list(self.connections):
            connection.abort()


class _Connection(asyncio.BufferedProtocol):
    def __init__(self, listener: HttpListener) -> None:
        self.peer: object = None
        self.task: asyncio.Task[None] | None = None
        """Answers the request that has come."""
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = _new_parser()
        self._ahead = bytearray()
        """What came and was not asked for yet."""
        self._body: memoryview | None = None
        """What is left to fill of a body that is being read."""
        self._came: Callable[[int], None] | None = None
        self._waiter: asyncio.Future[None] | None = None
        """Resolved when the body is whole, or a piece of a chunked one has come."""
        self._has_body = False
        """Whether a part of the body was not read yet."""
        self._is_paused = False
        self._is_writable = True
        self._is_discarding = False
        self._is_lost = False
        self._due_s = math.inf
        self._timer: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.peer = transport.get_extra_info("peername")
        self._listener.connections.add(self)
        self._set_due(self._listener.head_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._listener.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._fail_waiter()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._body is not None:
            return self._body
        return self._listener.scratch[: AHEAD_BYTES if self.task else _HEAD_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self._body is not None:
            self._take(nbytes)
        elif not self._is_discarding:
            self._ahead += self._listener.scratch[:nbytes]
            self._go_on()

    def eof_received(self) -> bool:
        """A client may close its side and wait for the answer, but not in the middle of a body."""
        self._fail_waiter()
        can_be_half_closed = self._transport is not None and self._transport.can_write_eof()
        return can_be_half_closed and self.task is not None and not self._has_body

    def pause_writing(self) -> None:
        self._is_writable = False

    def resume_writing(self) -> None:
        self._is_writable = True
        self._go_on()

    # ------------------------------------------------------------------------ heads and bodies

    def _go_on(self) -> None:
        """Use what has come: for the head of the next request, or the body of this one."""
        if self.task is None:
            self._read_head()
        elif self._waiter is not None:
            _resolve(self._waiter)
        self._pause(len(self._ahead) >= AHEAD_BYTES)

    def _read_head(self) -> None:
        if not self._is_writable or self._is_discarding or not self._ahead:
            return
        try:
            event = self._event()
            if event is h11.NEED_DATA:
                return
            assert isinstance(event, h11.Request)
            request = Request(event, self)
        except (h11.RemoteProtocolError, ValueError) as error:
            self._refuse(getattr(error, "error_status_hint", HTTPStatus.BAD_REQUEST))
            return
        self._due_s = math.inf
        self._has_body = request.is_chunked or request.length > 0
        if not request.is_chunked:
            # The rest is no matter of h11; what it was given beyond the head is the body's.
            self._ahead += self._parser.trailing_data[0]
        self.task = self._loop.create_task(self._answer(request, event))

    def _event(self) -> object:
        if self._ahead:
            self._parser.receive_data(bytes(self._ahead))
            self._ahead.clear()
        return self._parser.next_event()

    async def read(self, length: int, came: Callable[[int], None]) -> bytes:
        body = bytearray(length)
        here = min(length, len(self._ahead))
        body[:here] = self._ahead[:here]
        del self._ahead[:here]
        came(here)
        if here < length:
            self._body, self._came = memoryview(body)[here:], came
            try:
                await self._wait()
            finally:
                self._body = self._came = None
        self._has_body = False
        # A copy would cost as much as the checksum of it: nobody writes to it from here on.
        return cast("bytes", body)

    def _take(self, size: int) -> None:
        assert self._body is not None
        assert self._came is not None
        self._body = self._body[size:]
        self._came(size)
        if not self._body:
            self._body = None
            if self._waiter is not None:
                _resolve(self._waiter)

    async def pieces(self) -> AsyncIterator[bytes]:
        while not isinstance(event := self._event(), h11.EndOfMessage):
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            else:
                await self._wait()
        self._has_body = False
        self._ahead[:0] = self._parser.trailing_data[0]

    async def _wait(self) -> None:
        """Wait for more of the body, which the client may have to be asked for.

        Raises:
            ConnectionError: when the client went away.
        """
        if self._is_lost:
            raise ConnectionResetError
        self._invite()
        self._waiter = self._loop.create_future()
        self._pause(False)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _fail_waiter(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(ConnectionResetError())

    def _pause(self, wanted: bool) -> None:
        if wanted is self._is_paused or self._transport is None or self._transport.is_closing():
            return
        self._is_paused = wanted
        if wanted:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # -------------------------------------------------------------------------------- answers

    async def _answer(self, request: Request, event: h11.Request) -> None:
        try:
            response = await self._listener.handler(request)
        except asyncio.CancelledError:
            self.abort()
            raise
        except Exception:  # noqa: BLE001 - one request must not end the listener
            _LOG.exception("a request failed for a fault of the collector")
            self.abort()
            return
        stays = not (
            self._has_body
            or self._listener.is_closing
            or event.http_version < b"1.1"
            or "close" in request.headers.get("connection", "").lower()
            or response.headers.get("Connection") == "close"
        )
        self._send(response, stays, with_body=request.method != "HEAD")
        self.task = None
        if not stays:
            self._linger()
            return
        self._parser = _new_parser()
        self._set_due(self._listener.keep_alive_s)
        self._go_on()

    def _refuse(self, status: int) -> None:
        """Answer what is no request."""
        text = f"{status}: {HTTPStatus(status).phrase}\n".encode()
        self._send(Response(status, "text/plain; charset=utf-8", text), stays=False)
        self._linger()

    def _send(self, response: Response, stays: bool, with_body: bool = True) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        lines = [
            f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}",
            f"Content-Type: {response.content_type}",
            f"Content-Length: {len(response.body)}",
            f"Date: {_date(int(time.time()))}",
            *(f"{name}: {value}" for name, value in response.headers.items()),
        ]
        if not stays:
            lines.append("Connection: close")
        head = "\r\n".join([*lines, "\r\n"]).encode("latin-1")
        self._transport.write(head + response.body if with_body else head)

    def _invite(self) -> None:
        """Ask for the body of a client that waits to be asked (RFC 9110, 10.1.1)."""
        if self._parser.they_are_waiting_for_100_continue and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # --------------------------------------------------------------------------------- the end

    def close_when_idle(self) -> None:
        """Close, unless a request is being answered; then after that."""
        if self.task is None and not self._is_discarding:
            self._close()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()
        if self.task is not None:
            self.task.cancel()

    def _close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _linger(self) -> None:
        """Close when the client has had time to read the answer: what it still sends is dropped."""
        self._is_discarding = True
        self._ahead.clear()
        if self._transport is None or self._transport.is_closing():
            return
        if not self._has_body:
            self._close()
            return
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._pause(False)
        self._set_due(_LINGER_S)

    def _set_due(self, after_s: float) -> None:
        """Close after so many seconds; a timer that would wake too late is replaced."""
        self._due_s = self._loop.time() + after_s
        if self._timer is None or self._timer.when() > self._due_s:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(self._due_s, self._look_at_clock)

    def _look_at_clock(self) -> None:
        self._timer = None
        if self._loop.time() >= self._due_s:
            self._close()
        elif self._due_s < math.inf:
            self._timer = self._loop.call_at(self._due_s, self._look_at_clock)


class _Refusal(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.abort()


def _new_parser() -> h11.Connection:
    return h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES)


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


@lru_cache(maxsize=1)
def _date(unix_s: int) -> str:
    return formatdate(unix_s, usegmt=True)


def _path_of(target: str) -> str:
    """The path of a target in any of its forms (RFC 9112, 3.2)."""
    return target.partition("?")[0] if target.startswith("/") else urlsplit(target).path


def _headers_of(event: h11.Request) -> dict[str, str]:
    headers: dict[str, str] = {}
    for raw_name, raw_value in event.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers
