"""Who gets room for a request when there is little."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from toolverdict.collector import admission
from toolverdict.collector.admission import Admission, Room, Sender
from toolverdict.collector.errors import FairShareError, OverloadedError

SHORT_S = 0.05
LONG_S = 30.0


async def _enter(
    stack: AsyncExitStack, shared: Admission, client: str, size: int, connection: int = 0
) -> Room:
    return await stack.enter_async_context(_room(shared, client, size, connection))


def _room(shared: Admission, client: str, size: int, connection: int = 0) -> Room:
    return shared.admitted(Sender(client, connection), size)


async def test_room_is_given_back() -> None:
    shared = Admission(100, SHORT_S)
    for _ in range(5):
        async with _room(shared, "a", 50):
            assert shared.held_bytes == 50
    assert shared.held_bytes == 0


async def test_what_can_never_fit_is_refused_at_once() -> None:
    shared = Admission(100, LONG_S)
    with pytest.raises(OverloadedError):
        await _enter(AsyncExitStack(), shared, "a", 101)


async def test_one_client_gets_half_and_leaves_the_rest() -> None:
    """A flood from one address delays itself; who comes next is served at once."""
    shared = Admission(100, SHORT_S)
    async with AsyncExitStack() as stack:
        await _enter(stack, shared, "flood", 25)
        await _enter(stack, shared, "flood", 25)
        with pytest.raises(FairShareError, match="its share"):
            await _enter(stack, shared, "flood", 25)
        await _enter(stack, shared, "quiet", 25)
        assert shared.held_bytes == 75


async def test_its_only_request_may_be_larger_than_the_share() -> None:
    shared = Admission(100, SHORT_S)
    async with _room(shared, "a", 90):
        assert shared.held_bytes == 90


async def test_no_room_at_all_is_overload() -> None:
    shared = Admission(100, SHORT_S)
    async with _room(shared, "a", 90):
        with pytest.raises(OverloadedError) as caught:
            await _enter(AsyncExitStack(), shared, "b", 20)
        assert not isinstance(caught.value, FairShareError)


async def test_waiting_ends_when_room_is_given_back() -> None:
    shared = Admission(100, LONG_S)
    order: list[str] = []

    async def send(client: str, size: int) -> None:
        async with _room(shared, client, size):
            order.append(client)
            await asyncio.sleep(0)

    async with AsyncExitStack() as stack:
        room = await _enter(stack, shared, "first", 100)
        tasks = [asyncio.create_task(send(client, 40)) for client in ("b", "b", "b", "c")]
        await asyncio.sleep(0)
        assert order == []
        room.resize(10)
        await asyncio.sleep(0.01)
        # b has its turn, and then c before b's second.
        assert order[:2] == ["b", "c"]
    await asyncio.gather(*tasks)
    assert sorted(order) == ["b", "b", "b", "c"]
    assert shared.held_bytes == 0


async def test_a_large_request_is_not_overtaken_for_ever() -> None:
    """Small ones that would fit wait behind it."""
    shared = Admission(100, LONG_S)
    order: list[str] = []

    async def send(client: str, size: int) -> None:
        async with _room(shared, client, size):
            order.append(client)

    async with AsyncExitStack() as stack:
        await _enter(stack, shared, "holder", 50)
        large = asyncio.create_task(send("large", 80))
        await asyncio.sleep(0)
        small = asyncio.create_task(send("small", 10))
        await asyncio.sleep(0.01)
        assert order == []
    await asyncio.gather(large, small)
    assert order == ["large", "small"]


async def test_who_gives_up_leaves_nothing_behind() -> None:
    shared = Admission(100, LONG_S)
    async with _room(shared, "a", 100):
        task = asyncio.create_task(_enter(AsyncExitStack(), shared, "b", 10))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert shared.held_bytes == 0
    async with _room(shared, "c", 100):
        pass


async def test_a_cancellation_in_the_moment_of_the_grant_gives_back() -> None:
    shared = Admission(100, LONG_S)
    async with AsyncExitStack() as stack:
        await _enter(stack, shared, "a", 100)
        task = asyncio.create_task(_enter(AsyncExitStack(), shared, "b", 10))
        await asyncio.sleep(0)
    assert shared.held_bytes == 10  # granted, and not taken up yet
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert shared.held_bytes == 0


async def test_growing_beyond_what_is_left_is_overload() -> None:
    shared = Admission(100, SHORT_S)
    async with _room(shared, "a", 50) as room:
        room.resize(100)
        with pytest.raises(OverloadedError):
            room.resize(101)
    assert shared.held_bytes == 0


async def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "MAX_WAITING", 2)
    shared = Admission(100, LONG_S)
    async with _room(shared, "a", 100):
        waiting = [
            asyncio.create_task(_enter(AsyncExitStack(), shared, str(number), 10))
            for number in range(2)
        ]
        await asyncio.sleep(0)
        with pytest.raises(OverloadedError):
            await _enter(AsyncExitStack(), shared, "late", 10)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert shared.held_bytes == 0


async def test_a_body_that_stalls_is_given_up_when_others_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "PATIENCE_S", SHORT_S)
    shared = Admission(100, LONG_S)
    stalled = asyncio.Event()

    async def stall() -> None:
        async with _room(shared, "slow", 100) as room, room.reading(LONG_S):
            stalled.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(stall())
    await stalled.wait()
    async with _room(shared, "honest", 50):
        pass
    with pytest.raises(TimeoutError):
        await task
    assert shared.held_bytes == 0


async def test_a_body_that_comes_at_a_rate_is_not_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "PATIENCE_S", 0.0)
    shared = Admission(100, LONG_S)
    async with _room(shared, "quick", 100) as room, room.reading(LONG_S) as reading:
        reading.came(100 * admission.MIN_BYTES_PER_S)
        waiting = asyncio.create_task(_enter(AsyncExitStack(), shared, "b", 10))
        await asyncio.sleep(SHORT_S)
    await waiting


async def test_who_waits_for_its_own_share_hurries_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "PATIENCE_S", 0.0)
    shared = Admission(100, SHORT_S)
    async with _room(shared, "slow", 10) as room, room.reading(LONG_S):
        async with _room(shared, "flood", 50):
            with pytest.raises(FairShareError):
                await _enter(AsyncExitStack(), shared, "flood", 20)
        await asyncio.sleep(0)


async def test_a_body_of_unknown_length_grows_within_the_share() -> None:
    shared = Admission(100, SHORT_S)
    async with _room(shared, "a", 30), _room(shared, "a", 10) as room:
        room.grow(20)
        room.grow(5)
        assert room.size == 20
        with pytest.raises(FairShareError):
            room.grow(21)
        async with _room(shared, "b", 10) as only:
            only.grow(50)
            with pytest.raises(OverloadedError):
                only.grow(51)
    assert shared.held_bytes == 0


async def test_connections_of_one_client_take_turns() -> None:
    """Many agents behind one address: one that floods delays itself, not its neighbour."""
    shared = Admission(100, LONG_S)
    order: list[int] = []

    async def send(connection: int) -> None:
        async with _room(shared, "office", 25, connection):
            order.append(connection)

    async with AsyncExitStack() as stack:
        first = await _enter(stack, shared, "office", 25, connection=1)
        await _enter(stack, shared, "office", 25, connection=1)
        tasks = [asyncio.create_task(send(connection)) for connection in (1, 1, 1, 2)]
        await asyncio.sleep(0)
        assert order == []
        first.resize(0)
        await asyncio.sleep(0.01)
        assert order[0] == 2
    await asyncio.gather(*tasks)
    assert sorted(order) == [1, 1, 1, 2]
    assert shared.held_bytes == 0


async def test_a_connection_keeps_to_its_part_while_a_neighbour_sends() -> None:
    shared = Admission(100, SHORT_S)
    async with AsyncExitStack() as stack:
        await _enter(stack, shared, "office", 20, connection=1)
        await _enter(stack, shared, "office", 5, connection=2)
        with pytest.raises(FairShareError):
            await _enter(stack, shared, "office", 10, connection=1)
        await _enter(stack, shared, "office", 20, connection=2)
        assert shared.held_bytes == 45


async def test_a_stalled_body_gives_way_to_a_neighbour_behind_the_same_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admission, "PATIENCE_S", SHORT_S)
    shared = Admission(100, LONG_S)
    stalled = asyncio.Event()

    async def stall() -> None:
        async with _room(shared, "office", 50, 1) as room, room.reading(LONG_S):
            stalled.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(stall())
    await stalled.wait()
    async with _room(shared, "office", 50, 2):
        pass
    with pytest.raises(TimeoutError):
        await task
    assert shared.held_bytes == 0
