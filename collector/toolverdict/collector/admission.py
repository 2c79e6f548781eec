"""How many bytes of requests are in memory at a time, and whose.

A request asks for its room before its body is read and waits for it, which stops the reading of its
socket: the client feels back-pressure instead of an error. Room is given whole, so requests that
hold a part of what they need cannot wait for each other. It goes to the client that holds least,
and no client gets more than its share, so one that floods the collector delays itself. The
connections of a client share in the same way what the client may hold: many senders may stand
behind one address.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Hashable
from operator import itemgetter
from types import TracebackType
from typing import Final, NamedTuple, Self

from toolverdict.collector.errors import FairShareError, OverloadedError

MAX_WAITING: Final = 256
"""Requests that may wait; each may have filled the buffer of its connection, about 400 KiB."""


PATIENCE_S: Final = 2.0
"""Seconds a body may take while others wait for room, besides what its bytes take at the rate."""

MIN_BYTES_PER_S: Final = 256 * 1024
"""The rate at which a body has to come while others wait for room."""


class Sender(NamedTuple):
    """Whose room it is."""

    client: str
    """A tenant or an address: clients share the memory fairly."""
    connection: Hashable
    """Connections of a client share fairly what the client has."""


class Room:
    """The bytes one request holds inside ``async with``."""

    def __init__(self, admission: "Admission", sender: Sender, size: int) -> None:
        """Use :meth:`Admission.admitted`."""
        self._admission = admission
        self._sender = sender
        self.size = size

    async def __aenter__(self) -> Self:
        """Wait for the room.

        Raises:
            FairShareError: when this client or connection held its share for too long.
            OverloadedError: when there was no room for too long, or never can be.
        """
        await self._admission._admit(self._sender, self.size)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give the room back."""
        self.resize(0)
        self._admission._leave(self._sender)

    def reading(self, longest_s: float) -> "Reading":
        """Give the client its time to send; less while others wait for room.

        Args:
            longest_s: seconds it has when nobody waits.
        """
        return Reading(self._admission, self._sender.client, longest_s)

    def grow(self, size: int) -> None:
        """Hold at least so many bytes of a body whose length nobody knows yet.

        Raises:
            OverloadedError: when more was asked for than is left, or than this client's share.
        """
        if size > self.size:
            self._admission._grow(self._sender, size - self.size, self.size)
            self.size = size

    def resize(self, size: int) -> None:
        """Hold so many bytes from now on: what is given back goes to who waits.

        Raises:
            OverloadedError: when more was asked for than is left.
        """
        self._admission._resize(self._sender, size - self.size)
        self.size = size


class Reading:
    """A body on its way, inside ``async with``: while others wait for room, it must come at a rate."""

    def __init__(self, admission: "Admission", client: str, longest_s: float) -> None:
        """Use :meth:`Room.reading`."""
        self._admission = admission
        self._timeout = asyncio.timeout(longest_s)
        self._longest_s: float | None = None
        self._due_s = asyncio.get_running_loop().time() + PATIENCE_S
        self.client: Final = client

    async def __aenter__(self) -> Self:
        """Begin to wait for the body."""
        await self._timeout.__aenter__()
        self._longest_s = self._timeout.when()
        self._admission._readings.add(self)
        self._hurry_if_due()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it.

        Raises:
            TimeoutError: when the client was too slow.
        """
        self._admission._readings.discard(self)
        await self._timeout.__aexit__(kind, error, traceback)

    def came(self, size: int) -> None:
        """Note that so many bytes arrived."""
        self._due_s += size / MIN_BYTES_PER_S
        self._hurry_if_due()

    def hurry(self) -> None:
        """Others wait: end with what the rate allows instead of the longest time."""
        if self._longest_s is not None and not self._timeout.expired():
            self._timeout.reschedule(min(self._longest_s, self._due_s))

    def _hurry_if_due(self) -> None:
        if self._admission.is_short_for(self.client):
            self.hurry()


class _Waiting(NamedTuple):
    size: int
    granted: asyncio.Future[None]


class _Client:
    """What a client holds and waits for, by connection."""

    def __init__(self) -> None:
        self.requests: Counter[Hashable] = Counter()
        """Requests that hold room or wait for it."""
        self.held_bytes = 0
        self.held: Counter[Hashable] = Counter()
        self.waiting: dict[Hashable, deque[_Waiting]] = {}

    def is_within(self, connection: Hashable, size: int, share: int) -> bool:
        """Whether a connection stays within its part of the client's share."""
        return _is_within(share // len(self.requests), self.held[connection], size)

    def next(self, share: int) -> tuple[Hashable, _Waiting] | None:
        """What waits on the connection that holds least, among those within their part."""
        heads = (
            (connection, waiting)
            for connection, queue in self.waiting.items()
            if (waiting := next((item for item in queue if not item.granted.done()), None))
            and self.is_within(connection, waiting.size, share)
        )
        least: tuple[Hashable, _Waiting] | None = None
        for connection, waiting in heads:
            if self.held[connection] == 0:
                return connection, waiting
            if least is None or self.held[connection] < self.held[least[0]]:
                least = connection, waiting
        return least

    def remove(self, connection: Hashable, waiting: _Waiting) -> None:
        """Take a request out of the queue of its connection."""
        queue = self.waiting[connection]
        queue.remove(waiting)
        if not queue:
            del self.waiting[connection]


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
        self._clients: dict[str, _Client] = {}
        self._readings: set[Reading] = set()
        self._waiting = 0
        self.held_bytes = 0
        """Bytes of all requests that are in memory or being read."""

    def admitted(self, sender: Sender, size: int) -> Room:
        """The room for a request: entering it waits for it, leaving it gives it back.

        Args:
            sender: who sends.
            size: bytes that the request may need at most.
        """
        return Room(self, sender, size)

    def is_short_for(self, client: str) -> bool:
        """Whether somebody waits who has less than its share, so that this client should hurry.

        That may be another client, or another connection of this one.
        """
        return self._waiting > 0 and any(
            name == client or self._is_client_within(known, found[1].size)
            for name, known in self._clients.items()
            if (found := known.next(self._share())) is not None
        )

    async def _admit(self, sender: Sender, size: int) -> None:
        if size > self._limit_bytes:
            raise OverloadedError("the request needs more memory than all requests may hold")
        self._clients.setdefault(sender.client, _Client()).requests[sender.connection] += 1
        try:
            has_room = self.held_bytes + size <= self._limit_bytes
            if self._waiting or not has_room or not self._is_within(sender, size):
                await self._wait(sender, size)
            else:
                self._hold(sender, size)
        except BaseException:
            self._leave(sender)
            raise

    def _leave(self, sender: Sender) -> None:
        """Forget a request, and a client that has no other: those who stay have more."""
        requests = self._clients[sender.client].requests
        requests[sender.connection] -= 1
        if requests[sender.connection] == 0:
            del requests[sender.connection]
            if not requests:
                del self._clients[sender.client]
            self._grant()

    def _share(self) -> int:
        """The bytes each client may hold; one on its own gets half, to have room for the next."""
        return self._limit_bytes // max(2, len(self._clients))

    def _is_client_within(self, known: _Client, size: int) -> bool:
        return _is_within(self._share(), known.held_bytes, size)

    def _is_within(self, sender: Sender, size: int) -> bool:
        known = self._clients[sender.client]
        return self._is_client_within(known, size) and known.is_within(
            sender.connection, size, self._share()
        )

    def _hold(self, sender: Sender, change: int) -> None:
        self.held_bytes += change
        known = self._clients[sender.client]
        known.held_bytes += change
        known.held[sender.connection] += change
        if known.held[sender.connection] == 0:
            del known.held[sender.connection]

    def _resize(self, sender: Sender, change: int) -> None:
        if change > 0 and self.held_bytes + change > self._limit_bytes:
            raise OverloadedError("too many requests are in flight; send the request later")
        self._hold(sender, change)
        if change < 0:
            self._grant()

    def _grow(self, sender: Sender, change: int, size: int) -> None:
        held_bytes = self._clients[sender.client].held_bytes
        if held_bytes > size and held_bytes + change > self._share():
            raise FairShareError(_OVER_SHARE)
        self._resize(sender, change)

    async def _wait(self, sender: Sender, size: int) -> None:
        if self._waiting >= MAX_WAITING:
            raise self._refusal(sender, size)
        known = self._clients[sender.client]
        waiting = _Waiting(size, asyncio.get_running_loop().create_future())
        known.waiting.setdefault(sender.connection, deque()).append(waiting)
        self._waiting += 1
        self._grant()
        self._hurry()
        try:
            async with asyncio.timeout(self._wait_s):
                await waiting.granted
        except BaseException as error:
            if waiting.granted.cancelled():
                known.remove(sender.connection, waiting)
                self._waiting -= 1
            else:  # it got its room in the very moment it gave up
                self._resize(sender, -size)
            if isinstance(error, TimeoutError):
                raise self._refusal(sender, size) from None
            raise

    def _hurry(self) -> None:
        clients = {reading.client for reading in self._readings}
        short = {client for client in clients if self.is_short_for(client)}
        for reading in self._readings:
            if reading.client in short:
                reading.hurry()

    def _grant(self) -> None:
        """Give room to the first request of whoever holds least, as long as there is some."""
        while self._waiting:
            share = self._share()
            heads = [
                (known.held_bytes, Sender(client, found[0]), found[1])
                for client, known in self._clients.items()
                if (found := known.next(share)) is not None
                and self._is_client_within(known, found[1].size)
            ]
            if not heads:
                return
            _, sender, waiting = min(heads, key=itemgetter(0))
            if self.held_bytes + waiting.size > self._limit_bytes:
                return  # nobody overtakes: a large request gets its turn, too
            self._clients[sender.client].remove(sender.connection, waiting)
            self._waiting -= 1
            self._hold(sender, waiting.size)
            waiting.granted.set_result(None)

    def _refusal(self, sender: Sender, size: int) -> OverloadedError:
        if not self._is_within(sender, size):
            return FairShareError(_OVER_SHARE)
        return OverloadedError("too many requests are in flight; send the request later")


def _is_within(share: int, held: int, size: int) -> bool:
    """Whether somebody stays within a share; its only request may be as large as it likes."""
    return held == 0 or held + size <= share
