"""How many bytes of requests are in memory at a time, and whose.

A request asks for its room before its body is read and waits for it, which stops the reading of its
socket: the client feels back-pressure instead of an error. Room is given whole, so requests that
hold a part of what they need cannot wait for each other. It goes to the client that holds least,
and no client gets more than its share, so one that floods the collector delays itself.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from operator import itemgetter
from typing import Final, NamedTuple

from toolverdict.collector.errors import FairShareError, OverloadedError

MAX_WAITING: Final = 256
"""Requests that may wait; each may have filled the buffer of its connection, about 128 KiB."""


PATIENCE_S: Final = 2.0
"""Seconds a body may take while others wait for room, besides what its bytes take at the rate."""

MIN_BYTES_PER_S: Final = 256 * 1024
"""The rate at which a body has to come while others wait for room."""


class Room:
    """The bytes one admitted request holds."""

    def __init__(self, admission: "Admission", client: str, size: int) -> None:
        """Use :meth:`Admission.admitted`."""
        self._admission = admission
        self._client = client
        self.size = size

    @asynccontextmanager
    async def reading(self, longest_s: float) -> AsyncIterator["Reading"]:
        """Give the client its time to send; less while others wait for room.

        Args:
            longest_s: seconds it has when nobody waits.

        Raises:
            TimeoutError: when it was too slow.
        """
        async with asyncio.timeout(longest_s) as timeout:
            reading = Reading(self, timeout)
            self._admission._readings.add(reading)
            try:
                if self._admission.is_short:
                    reading.hurry()
                yield reading
            finally:
                self._admission._readings.discard(reading)

    def grow(self, size: int) -> None:
        """Hold at least so many bytes of a body whose length nobody knows yet.

        Raises:
            OverloadedError: when more was asked for than is left, or than this client's share.
        """
        if size > self.size:
            self._admission._grow(self._client, size - self.size, self.size)
            self.size = size

    def resize(self, size: int) -> None:
        """Hold so many bytes from now on: what is given back goes to who waits.

        Raises:
            OverloadedError: when more was asked for than is left.
        """
        self._admission._resize(self._client, size - self.size)
        self.size = size


class Reading:
    """A body on its way: while others wait for room, it must come at a rate."""

    def __init__(self, room: Room, timeout: asyncio.Timeout) -> None:
        """Use :meth:`Room.reading`."""
        self._room = room
        self._timeout = timeout
        self._longest_s = timeout.when()
        self._due_s = asyncio.get_running_loop().time() + PATIENCE_S

    def came(self, size: int) -> None:
        """Note that so many bytes arrived."""
        self._due_s += size / MIN_BYTES_PER_S
        if self._room._admission.is_short:
            self.hurry()

    def hurry(self) -> None:
        """Others wait: end with what the rate allows instead of the longest time."""
        if self._longest_s is not None and not self._timeout.expired():
            self._timeout.reschedule(min(self._longest_s, self._due_s))


class _Waiting(NamedTuple):
    size: int
    granted: asyncio.Future[None]


_OVER_SHARE: Final = "this client has its share of requests in flight; send the request later"


class Admission:
    """Shares a number of bytes between the clients of one event loop."""

    def __init__(self, limit_bytes: int, wait_s: float) -> None:
        """Share out.

        Args:
            limit_bytes: what all requests together may hold.
            wait_s: seconds a request waits for room before it is refused.
        """
        self._limit_bytes = limit_bytes
        self._wait_s = wait_s
        self._held: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._readings: set[Reading] = set()
        self.held_bytes = 0
        """Bytes of all requests that are in memory or being read."""

    @property
    def is_short(self) -> bool:
        """Whether somebody waits who has not got a share yet."""
        share = self._share()
        return any(
            self._is_within(share, client, queue[0].size) for client, queue in self._waiting.items()
        )

    @asynccontextmanager
    async def admitted(self, client: str, size: int) -> AsyncIterator[Room]:
        """Wait for room for a request, and give it back at the end.

        Args:
            client: who sends; clients share fairly.
            size: bytes that the request may need at most.

        Raises:
            FairShareError: when this client held its share for too long.
            OverloadedError: when there was no room for too long, or never can be.
        """
        if size > self._limit_bytes:
            raise OverloadedError("the request needs more memory than all requests may hold")
        if self._waiting or not self._fits(client, size):
            await self._wait(client, size)
        else:
            self._take(client, size)
        room = Room(self, client, size)
        try:
            yield room
        finally:
            room.resize(0)

    def _fits(self, client: str, size: int) -> bool:
        room = self.held_bytes + size <= self._limit_bytes
        return room and self._is_within(self._share(client), client, size)

    def _share(self, client: str | None = None) -> int:
        """The bytes each client may hold; one on its own gets half, to have room for the next."""
        clients = len(self._held.keys() | self._waiting.keys() | ({client} if client else set()))
        return self._limit_bytes // max(2, clients)

    def _is_within(self, share: int, client: str, size: int) -> bool:
        """Whether a client stays within a share; its only request may be as large as it likes."""
        held = self._held[client]
        return held == 0 or held + size <= share

    def _take(self, client: str, size: int) -> None:
        self.held_bytes += size
        self._held[client] += size
        if self._held[client] == 0:
            del self._held[client]

    def _resize(self, client: str, change: int) -> None:
        if change > 0 and self.held_bytes + change > self._limit_bytes:
            raise OverloadedError("too many requests are in flight; send the request later")
        self._take(client, change)
        if change < 0:
            self._grant()

    def _grow(self, client: str, change: int, size: int) -> None:
        held = self._held[client]
        if held > size and held + change > self._share(client):
            raise FairShareError(_OVER_SHARE)
        self._resize(client, change)

    async def _wait(self, client: str, size: int) -> None:
        if sum(map(len, self._waiting.values())) >= MAX_WAITING:
            raise self._refusal(client, size)
        waiting = _Waiting(size, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(client, deque()).append(waiting)
        self._grant()
        if self.is_short:
            for reading in self._readings:
                reading.hurry()
        try:
            async with asyncio.timeout(self._wait_s):
                await waiting.granted
        except BaseException as error:
            if waiting.granted.cancelled():
                self._forget(client, waiting)
            else:  # it got its room in the very moment it gave up
                self._resize(client, -size)
            if isinstance(error, TimeoutError):
                raise self._refusal(client, size) from None
            raise

    def _forget(self, client: str, waiting: _Waiting) -> None:
        queue = self._waiting[client]
        queue.remove(waiting)
        if not queue:
            del self._waiting[client]
        self._grant()

    def _grant(self) -> None:
        """Give room to the first request of whoever holds least, as long as there is some."""
        while True:
            share = self._share()
            heads = [
                (self._held[client], client, waiting)
                for client, queue in self._waiting.items()
                if (waiting := next((w for w in queue if not w.granted.done()), None)) is not None
                and self._is_within(share, client, waiting.size)
            ]
            if not heads:
                return
            _, client, waiting = min(heads, key=itemgetter(0))
            if self.held_bytes + waiting.size > self._limit_bytes:
                return  # nobody overtakes: a large request gets its turn, too
            self._waiting[client].remove(waiting)
            if not self._waiting[client]:
                del self._waiting[client]
            self._take(client, waiting.size)
            waiting.granted.set_result(None)

    def _refusal(self, client: str, size: int) -> OverloadedError:
        if not self._is_within(self._share(client), client, size):
            return FairShareError(_OVER_SHARE)
        return OverloadedError("too many requests are in flight; send the request later")
