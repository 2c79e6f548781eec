"""Tools that return before they are done: the span ends where the work does."""

import asyncio
import copy
import gc
import inspect
import io
import logging
import operator
import sqlite3
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from toolverdict.instrument import Outcome, Refused, ToolDenied, tool, trajectory
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import CapturedSpans, capture_spans

VERIFIED = Policy.parse(
    "{version: 1, id: p, rules: [{id: r, effect: allow, tools: [pay], requires: [verify]}]}"
)


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.INFO):
        yield
    assert caplog.records == []


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def only(spans: CapturedSpans) -> dict[str, Any]:
    (span,) = spans.tool_calls
    assert span.end_time is not None
    return attributes(span)


def outcomes(spans: CapturedSpans) -> list[Any]:
    return [attributes(span).get("tool.outcome") for span in spans.tool_calls]


def inner_is_inside(spans: CapturedSpans) -> bool:
    inner, outer = spans.tool_calls
    return is_parent(spans.body_of(outer), inner)


def is_parent(parent: ReadableSpan | None, child: ReadableSpan) -> bool:
    assert parent is not None
    assert parent.context is not None
    assert child.parent is not None
    return bool(child.parent.span_id == parent.context.span_id)


@tool
def inner() -> int:
    return 1


async def body(fail: bool = False) -> int:
    await asyncio.sleep(0)
    if fail:
        raise Refused("secret")
    return inner()


class Promise:
    """Awaitable, and no coroutine."""

    def __init__(self) -> None:
        self.said = "hello"

    def __await__(self) -> Generator[Any, Any, int]:
        yield from asyncio.sleep(0).__await__()
        return inner()


@tool
def verify(fail: bool = False) -> Coroutine[Any, Any, int]:
    return body(fail)


@tool(labels=["payment"])
def pay() -> str:
    return "paid"


async def test_a_returned_coroutine_has_succeeded_when_it_was_awaited() -> None:
    with capture_spans(policy=VERIFIED), trajectory():
        promise = verify()
        with pytest.raises(ToolDenied, match="requires_unmet"):
            pay()
        assert await promise == 1
        pay()


DRIVERS: list[Callable[[Any], Any]] = [
    lambda promise: promise,
    asyncio.create_task,
    lambda promise: asyncio.wait_for(promise, 5),
    lambda promise: asyncio.gather(promise),
]


@pytest.mark.parametrize("drive", DRIVERS, ids=["await", "task", "wait_for", "gather"])
async def test_the_span_covers_what_is_awaited(drive: Callable[[Any], Any]) -> None:
    with capture_spans(capture="full") as spans:
        await drive(verify())
    assert inner_is_inside(spans)
    found = attributes(spans.tool_calls[1])
    assert (found["tool.outcome"], found["gen_ai.tool.call.result"]) == ("ok", "1")


async def test_what_the_coroutine_raises_is_the_outcome() -> None:
    with capture_spans() as spans:
        with pytest.raises(Refused):
            await verify(fail=True)
        task = asyncio.create_task(verify())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert outcomes(spans) == ["refused", "cancelled"]


def test_a_coroutine_looks_like_one() -> None:
    with capture_spans():
        promise = verify()
        assert inspect.iscoroutine(promise)
        assert asyncio.iscoroutine(promise)
        assert inspect.isawaitable(promise)
        assert inspect.getcoroutinestate(promise) == inspect.CORO_CREATED
        assert asyncio.run(promise) == 1


def test_a_coroutine_that_nobody_awaits_is_unknown() -> None:
    """It ends once, and satisfies nothing."""
    with capture_spans() as spans, trajectory() as opened:
        closed = verify()
        closed.close()
        assert outcomes(spans) == ["unknown"]
        closed.close()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            verify()  # type: ignore[unused-coroutine]
            gc.collect()
        assert [str(w.message) for w in caught] == ["coroutine 'body' was never awaited"]
        del closed
        gc.collect()
        assert opened.succeeded == frozenset()
    assert outcomes(spans) == ["unknown", "unknown"]


def test_a_coroutine_taken_by_hand() -> None:
    with capture_spans() as spans:
        started: Any = verify()
        started.send(None)
        started.close()
        thrown: Any = verify()
        with pytest.raises(Refused):
            thrown.throw(Refused, "secret", None)
    assert outcomes(spans) == ["cancelled", "refused"]


async def test_an_awaitable_of_another_kind() -> None:
    @tool
    def promise() -> Promise:
        return Promise()

    with capture_spans() as spans:
        made = promise()
        assert isinstance(made, Promise)
        assert made.said == "hello"
        assert await made == 1
    assert inner_is_inside(spans)


async def test_a_future_stays_what_it_is() -> None:
    @tool
    def start(work: Any) -> Any:
        return asyncio.ensure_future(work)

    with capture_spans() as spans, trajectory() as opened:
        task = start(asyncio.sleep(0, 1))
        assert type(task) is asyncio.Task
        assert outcomes(spans) == []
        assert await task == 1
        assert opened.succeeded == {"start"}
        with pytest.raises(Refused):
            await start(body(fail=True))
        cancelled = start(asyncio.sleep(9))
        cancelled.cancel()
        await asyncio.wait([cancelled])
    assert outcomes(spans)[:3] == ["ok", "refused", "cancelled"]


async def test_an_awaitable_may_be_awaited_again() -> None:
    @tool(outcome=lambda result: Outcome.ERROR)
    def promise() -> Promise:
        return Promise()

    with capture_spans() as spans:
        made = promise()
        assert (await made, await made) == (1, 1)
    assert [span.name for span in spans.tool_calls] == [
        "tool.call inner",
        "tool.call promise",
        "tool.call inner",
    ]


def test_a_future_of_a_thread() -> None:
    dropped: Any = Future()

    @tool
    def start(work: Any) -> Any:
        return work

    with capture_spans() as spans, ThreadPoolExecutor(1) as pool:
        assert start(pool.submit(lambda: 1)).result() == 1
        pool.shutdown()
        done: Any = Future()
        done.set_result([])
        start(done)
        assert outcomes(spans) == ["ok", "empty"]
        start(dropped)
        del dropped
        gc.collect()
    assert outcomes(spans)[2] == "unknown"


def numbers(n: int) -> Generator[int, str, str]:
    for number in range(n):
        inner()
        yield number
    return "end"


async def async_numbers(n: int) -> AsyncIterator[int]:
    for number in range(n):
        await asyncio.sleep(0)
        inner()
        yield number


class Stream:
    """As SDKs of models return: an iterator that is a context manager, too."""

    def __init__(self) -> None:
        self.left = 2
        self.response = "200"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        self.left -= 1
        return inner()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.left = 0

    def __aiter__(self) -> Self:
        raise NotImplementedError


class AsyncStream:
    def __init__(self) -> None:
        self.left = 2

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> int:
        if not self.left:
            raise StopAsyncIteration
        self.left -= 1
        return inner()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.left = 0


@tool
def stream(kind: str = "generator", n: int = 2) -> Any:
    made: dict[str, Callable[[], Any]] = {
        "generator": lambda: numbers(n),
        "expression": lambda: (inner() for _ in range(n)),
        "map": lambda: map(operator.call, [inner] * n),
        "stream": Stream,
        "async generator": lambda: async_numbers(n),
        "async stream": AsyncStream,
    }
    return made[kind]()


def assert_covered(spans: CapturedSpans) -> None:
    *inners, whole = spans.tool_calls
    assert len(inners) == 2
    assert all(is_parent(spans.body_of(whole), span) for span in inners)
    found = attributes(whole)
    assert (found["tool.items"], found["tool.outcome"]) == (2, "ok")
    assert whole.end_time is not None
    assert all((span.end_time or 0) <= whole.end_time for span in inners)


@pytest.mark.parametrize("kind", ["generator", "expression", "map", "stream"])
def test_a_returned_stream_is_covered_to_its_end(kind: str) -> None:
    """B7: what it does while it is read is inside of the span."""
    with capture_spans() as spans:
        made = stream(kind)
        assert len(spans.tool_calls) == 0
        assert len(list(made)) == 2
        assert list(made) == []
    assert_covered(spans)


@pytest.mark.parametrize("kind", ["async generator", "async stream"])
async def test_a_returned_async_stream_is_covered_to_its_end(kind: str) -> None:
    """B7: the same, from tools that are async themselves."""

    @tool
    async def later(kind: str) -> Any:
        return async_numbers(2) if kind == "async generator" else AsyncStream()

    for make in (stream, later):
        with capture_spans() as spans:
            made = make(kind)
            if inspect.isawaitable(made):
                made = await made
            assert len([item async for item in made]) == 2
        assert_covered(spans)


async def test_a_stream_that_has_to_be_awaited() -> None:
    async def connect() -> AsyncStream:
        return AsyncStream()

    @tool
    def open_stream() -> Any:
        return connect()

    with capture_spans() as spans:
        async with await open_stream() as made:
            assert isinstance(made, AsyncStream)
            assert len([item async for item in made]) == 2
    assert_covered(spans)


async def test_a_stream_thrown_away_ends_and_says_so() -> None:
    """B13: nothing is left open, whether somebody read of it or nobody."""
    with capture_spans() as spans:
        for kind in ("generator", "stream", "async generator", "async stream"):
            stream(kind)
            gc.collect()
        for kind in ("generator", "stream"):
            for _ in stream(kind):
                break
            gc.collect()
        async for _ in stream("async generator"):
            break
        gc.collect()
        await asyncio.sleep(0)
    calls = [span for span in spans.tool_calls if span.name.endswith("stream")]
    found = [(attributes(s)["tool.outcome"], attributes(s)["tool.items"]) for s in calls]
    assert found == [("unknown", 0)] * 4 + [("cancelled", 1)] * 3


async def test_a_stream_that_is_closed_ends() -> None:
    with capture_spans() as spans:
        closed = stream()
        next(closed)
        closed.close()
        with stream("stream") as left:
            next(left)
        async_closed = stream("async generator")
        await anext(async_closed)
        await async_closed.aclose()
        async with stream("async stream") as async_left:
            await anext(async_left)
        stream().close()
    calls = [span for span in spans.tool_calls if span.name.endswith("stream")]
    assert [attributes(s)["tool.outcome"] for s in calls] == ["cancelled"] * 4 + ["unknown"]


async def test_generators_are_spoken_to_as_before() -> None:
    def echo() -> Generator[str, str, str]:
        said = "start"
        while said != "stop":
            try:
                said = yield said
            except KeyError as error:
                said = f"caught {error}"
        return "end"

    async def async_echo() -> Any:
        said = "start"
        while True:
            try:
                said = yield said
            except KeyError as error:
                said = f"caught {error}"

    with capture_spans(capture="full") as spans:
        made: Any = tool(lambda: echo())()
        async_made: Any = tool(lambda: async_echo())()
        assert (next(made), made.send("x"), made.throw(KeyError, "y")) == (
            "start",
            "x",
            "caught 'y'",
        )
        with pytest.raises(StopIteration) as stopped:
            made.send("stop")
        assert stopped.value.value == "end"
        assert await anext(async_made) == "start"
        assert await async_made.asend("x") == "x"
        assert await async_made.athrow(KeyError("y")) == "caught 'y'"
        with pytest.raises(Refused):
            await async_made.athrow(Refused("secret"))
    assert inspect.isgenerator(made)
    assert inspect.isasyncgen(async_made)
    assert outcomes(spans) == ["ok", "refused"]
    assert attributes(spans.tool_calls[0])["gen_ai.tool.call.result"] == '"end"'


async def test_a_fault_in_a_stream_is_the_outcome() -> None:
    def failing() -> Iterator[int]:
        yield 1
        raise Refused("secret")

    class Failing(AsyncStream):
        async def __anext__(self) -> int:
            raise Refused("secret")

        async def __aexit__(self, *_: object) -> None:
            raise ValueError("secret")

    with capture_spans() as spans:
        with pytest.raises(Refused):
            list(tool(lambda: failing())())
        with pytest.raises(Refused):
            await anext(tool(lambda: Failing())())
        with pytest.raises(ValueError, match="secret"):
            async with tool(lambda: Failing())():
                pass
    assert outcomes(spans) == ["refused", "refused", "error"]
    assert "secret" not in str([span.to_json() for span in spans.tool_calls])


def test_a_stand_in_is_copied_as_what_it_stands_for() -> None:
    with capture_spans():
        with pytest.raises(TypeError, match="cannot pickle 'generator' object"):
            copy.copy(stream())
        assert type(copy.copy(stream("stream"))) is Stream


def test_what_is_a_value_stays_one() -> None:
    """Files and cursors are iterators by the way; lists and ranges are none."""
    file, cursor = io.StringIO("a"), sqlite3.connect(":memory:").execute("select 1")
    with capture_spans() as spans:
        for value in (file, cursor, [1], range(3), {"a": 1}, iter):
            assert tool(lambda value: value)(value) is value
    assert outcomes(spans) == ["ok"] * 6
    cursor.connection.close()


def test_a_result_that_fails_when_looked_at_is_handed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Nasty:
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            raise RuntimeError("secret")

    nasty = Nasty()
    with capture_spans() as spans:
        assert tool(lambda: nasty)() is nasty
    assert outcomes(spans) == ["ok"]
    assert caplog.messages == ["a result cannot be followed (RuntimeError)"]
    caplog.clear()
