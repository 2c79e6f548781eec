"""Tools that yield: one span from the first item asked for to the last one given."""

import asyncio
import gc
import logging
import threading
import tracemalloc
import warnings
from collections.abc import AsyncGenerator, Generator, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from toolverdict.instrument import Refused, ToolDenied, tool, trajectory
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.settings import Capture
from toolverdict.instrument.testing import CapturedSpans, capture_spans

DENY = Policy.parse("{version: 1, id: p, rules: [{id: d, effect: deny, tools: ['*']}]}")


@pytest.fixture(autouse=True)
def nothing_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """B8: OpenTelemetry logs, and does not raise, when a context is detached in a wrong place."""
    with caplog.at_level(logging.INFO):
        yield
    assert caplog.records == []


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def only(spans: CapturedSpans) -> dict[str, Any]:
    (span,) = spans.tool_calls
    assert span.end_time is not None
    return attributes(span)


@tool
def count(n: int) -> Iterator[int]:
    yield from range(n)


@tool
async def count_async(n: int) -> AsyncGenerator[int, None]:
    for number in range(n):
        yield number


@tool
def inner() -> int:
    return 1


def test_attributes_are_there_after_exhaustion() -> None:
    """B10: nothing is set on a span that has ended."""
    with capture_spans(capture="full") as spans:
        assert list(count(3)) == [0, 1, 2]
    found = only(spans)
    assert (found["tool.items"], found["tool.outcome"]) == (3, "ok")
    assert found["tool.executed"] is True
    assert found["tool.args_hash"]
    assert found["policy.decision"] == "allow"
    assert spans.tool_calls[0].status.status_code is StatusCode.UNSET


async def test_attributes_are_there_after_async_exhaustion() -> None:
    """B10, B11: with capture on and off."""
    captures: tuple[Capture, ...] = ("off", "full")
    for capture in captures:
        with capture_spans(capture=capture) as spans:
            assert [number async for number in count_async(3)] == [0, 1, 2]
        found = only(spans)
        assert (found["tool.items"], found["tool.outcome"]) == (3, "ok")


async def test_yielding_nothing_is_empty() -> None:
    with capture_spans() as spans:
        assert list(count(0)) == []
        assert [number async for number in count_async(0)] == []
    assert [attributes(span)["tool.outcome"] for span in spans.tool_calls] == ["empty", "empty"]


async def test_a_generator_that_nobody_iterates_has_no_span() -> None:
    """B13: nothing ran, and nothing is left open."""
    with capture_spans(policy=DENY) as spans:
        count(3)
        count_async(3)
        count(3).close()  # type: ignore[attr-defined]
        await count_async(3).aclose()
        gc.collect()
    assert len(spans.tool_calls) == 0


def test_left_early_is_cancelled() -> None:
    """B11: closed after three, and dropped without being closed."""
    with capture_spans() as spans:
        closed: Any = count(10)
        assert [next(closed) for _ in range(3)] == [0, 1, 2]
        closed.close()
        for number in count(10):
            if number == 1:
                break
        gc.collect()
    assert [attributes(span)["tool.items"] for span in spans.tool_calls] == [3, 2]
    for span in spans.tool_calls:
        assert attributes(span)["tool.outcome"] == "cancelled"
        assert span.status.status_code is StatusCode.UNSET
        assert not span.events
        assert "error.type" not in attributes(span)


async def test_left_early_by_break_and_by_another_task() -> None:
    """B8: the consumer's break, the collector's sweep and a close in another task all end it."""
    with capture_spans() as spans:
        async for number in count_async(10):
            if number == 1:
                break
        gc.collect()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        stream = count_async(10)
        await anext(stream)
        await asyncio.create_task(stream.aclose())
    assert [attributes(span)["tool.outcome"] for span in spans.tool_calls] == [
        "cancelled",
        "cancelled",
    ]
    assert [attributes(span)["tool.items"] for span in spans.tool_calls] == [2, 1]


async def test_each_step_may_be_taken_in_another_task() -> None:
    with capture_spans() as spans:
        stream = count_async(3)
        for expected in range(3):
            step: Any = stream.__anext__()
            assert await asyncio.create_task(step) == expected
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    assert only(spans)["tool.outcome"] == "ok"


def test_each_step_may_be_taken_in_another_thread() -> None:
    with capture_spans() as spans:
        stream = count(3)
        taken: list[int] = []
        for _ in range(3):
            thread = threading.Thread(target=lambda: taken.append(next(stream)))
            thread.start()
            thread.join()
        assert [*taken, *stream] == [0, 1, 2]
    assert only(spans)["tool.outcome"] == "ok"


def test_the_consumer_does_not_run_inside_the_span() -> None:
    """The span is current while the tool runs, and never while its consumer does."""

    @tool
    def nested() -> Iterator[int]:
        yield inner()
        yield inner()

    with capture_spans() as spans:
        before = trace.get_current_span()
        for _ in nested():
            assert trace.get_current_span() is before
            inner()
        assert trace.get_current_span() is before
    whole = spans.tool_calls[-1]
    assert whole.name == "tool.call nested"
    body = spans.body_of(whole)
    assert body is not None
    assert body.context is not None
    parents = [span.parent.span_id if span.parent else None for span in spans.tool_calls]
    assert parents == [body.context.span_id, None, body.context.span_id, None, None]


async def test_the_async_consumer_does_not_run_inside_the_span() -> None:
    @tool
    async def nested() -> AsyncGenerator[int, None]:
        await asyncio.sleep(0)
        yield inner()
        yield inner()

    with capture_spans() as spans:
        before = trace.get_current_span()
        async for _ in nested():
            assert trace.get_current_span() is before
    *inners, whole = spans.tool_calls
    body = spans.body_of(whole)
    assert body is not None
    assert body.context is not None
    assert all(span.parent and span.parent.span_id == body.context.span_id for span in inners)


async def test_two_streams_do_not_mix() -> None:
    @tool
    async def nested(name: str) -> AsyncGenerator[int, None]:
        for _ in range(3):
            await asyncio.sleep(0)
            yield inner()

    async def consume(name: str) -> None:
        async for _ in nested(name):
            await asyncio.sleep(0)

    with capture_spans() as spans:
        await asyncio.gather(consume("a"), consume("b"))
    streams = {
        span.context.span_id
        for span in spans
        if span.name == "execute_tool nested" and span.context
    }
    inners = [span for span in spans.tool_calls if span.name == "tool.call inner"]
    parents = [span.parent.span_id for span in inners if span.parent]
    assert {parent: parents.count(parent) for parent in streams} == dict.fromkeys(streams, 3)


@tool
def echo() -> Generator[str, str, str]:
    said = "start"
    while said != "stop":
        try:
            said = yield said
        except KeyError as error:
            said = f"caught {error}"
    return "end"


@tool
async def echo_async() -> AsyncGenerator[str, str]:
    said = "start"
    while said != "stop":
        try:
            said = yield said
        except KeyError as error:
            said = f"caught {error}"


def test_send_throw_and_the_returned_value_pass_through() -> None:
    with capture_spans(capture="full") as spans:
        stream = echo()
        assert next(stream) == "start"
        assert stream.send("hello") == "hello"
        assert stream.throw(KeyError("x")) == "caught 'x'"
        with pytest.raises(StopIteration) as stopped:
            stream.send("stop")
        assert stopped.value.value == "end"
    found = only(spans)
    assert (found["tool.items"], found["tool.outcome"]) == (3, "ok")
    assert found["gen_ai.tool.call.result"] == '"end"'


def test_the_old_way_to_throw_passes_through() -> None:
    with capture_spans(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stream: Any = echo()
        next(stream)
        assert stream.throw(KeyError, KeyError("x"), None) == "caught 'x'"
        assert stream.throw(KeyError, "x") == "caught 'x'"
        assert stream.throw(KeyError, ("x", "y")) == "caught ('x', 'y')"
        assert stream.throw(KeyError) == "caught "
        assert stream.throw(KeyError("x"), None, None) == "caught 'x'"


async def test_asend_and_athrow_pass_through() -> None:
    with capture_spans() as spans:
        stream = echo_async()
        assert await anext(stream) == "start"
        assert await stream.asend("hello") == "hello"
        assert await stream.athrow(KeyError("x")) == "caught 'x'"
        with pytest.raises(StopAsyncIteration):
            await stream.asend("stop")
    assert only(spans)["tool.items"] == 3


async def test_exceptions_pass_through() -> None:
    with capture_spans() as spans:
        stream = echo()
        next(stream)
        with pytest.raises(Refused):
            stream.throw(Refused("secret"))
        with pytest.raises(StopIteration):
            next(stream)
        async_stream = echo_async()
        await anext(async_stream)
        with pytest.raises(Refused):
            await async_stream.athrow(Refused("secret"))
        with pytest.raises(StopAsyncIteration):
            await anext(async_stream)
    assert len(spans.tool_calls) == 2
    for span in spans.tool_calls:
        assert attributes(span)["tool.outcome"] == "refused"
        assert span.status.status_code is StatusCode.ERROR


async def test_cleaning_up_happens_inside_the_span() -> None:
    cleaned: list[trace.Span] = []

    @tool
    def cleaning() -> Iterator[int]:
        try:
            yield 1
        finally:
            cleaned.append(trace.get_current_span())

    @tool
    async def cleaning_async() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            cleaned.append(trace.get_current_span())

    with capture_spans() as spans:
        stream: Any = cleaning()
        next(stream)
        stream.close()
        async_stream = cleaning_async()
        await anext(async_stream)
        await async_stream.aclose()
    bodies = map(spans.body_of, spans.tool_calls)
    assert [span.get_span_context() for span in cleaned] == [
        body and body.context for body in bodies
    ]


async def test_a_fault_while_cleaning_up_is_seen() -> None:
    @tool
    def stubborn() -> Iterator[int]:
        try:
            yield 1
        finally:
            raise ValueError("cannot close")

    with capture_spans() as spans:
        stream: Any = stubborn()
        next(stream)
        with pytest.raises(ValueError, match="cannot close"):
            stream.close()
    assert only(spans)["tool.outcome"] == "error"


async def test_a_cancelled_step_cancels_the_call() -> None:
    """B14: a timeout in the middle of a stream."""

    @tool
    async def stuck() -> AsyncGenerator[int, None]:
        yield 1
        await asyncio.Event().wait()

    async def consume() -> None:
        async for _ in stuck():
            pass

    with capture_spans() as spans, pytest.raises(TimeoutError):
        await asyncio.wait_for(consume(), 0.01)
    found = only(spans)
    assert found["tool.outcome"] == "cancelled"
    assert found["error.type"] == "asyncio.exceptions.CancelledError"


async def test_a_denied_generator_yields_nothing() -> None:
    with capture_spans(policy=DENY) as spans:
        with pytest.raises(ToolDenied):
            next(iter(count(3)))
        with pytest.raises(ToolDenied):
            await anext(count_async(3))
    for span in spans.tool_calls:
        assert attributes(span)["tool.executed"] is False
        assert attributes(span)["tool.outcome"] == "denied"


def test_items_are_counted_and_not_kept() -> None:
    """B11: a million items take no memory."""
    tracemalloc.start()
    try:
        with capture_spans(capture="off") as spans:
            stream: Any = count(200_000)
            next(stream)
            before = tracemalloc.get_traced_memory()[0]
            for _ in stream:
                pass
            after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert only(spans)["tool.items"] == 200_000
    assert after - before < 100_000


def test_the_trajectory_is_that_of_the_start() -> None:
    with capture_spans() as spans:
        with trajectory("bot", conversation_id="c"):
            stream = count(2)
            next(iter(stream))
        list(stream)
    found = attributes(spans.tool_calls[-1])
    assert found["gen_ai.conversation.id"] == "c"
    assert spans.tool_calls[-1].parent is not None
