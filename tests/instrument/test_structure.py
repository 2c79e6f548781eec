"""Whether a tool's body ran is said by the structure of its spans, too."""

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from toolverdict.instrument import (
    Approval,
    ApprovalRequest,
    Refused,
    ToolDenied,
    settings,
    tool,
    tool_call,
)
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import CapturedSpans, capture_spans

ASK = Policy.parse(
    "{version: 1, id: p, rules: [{id: q, effect: require_approval, labels: [payment]}]}"
)


@tool
def get(thing: object) -> object:
    return thing


@tool(labels=["payment"])
def pay(amount: int) -> int:
    with settings.tracer().start_as_current_span("own work"):
        return amount


@tool
def refuse() -> None:
    raise Refused


@tool
def numbers(count: int) -> Iterator[int]:
    yield from range(count)


@tool
async def numbers_async(count: int) -> AsyncGenerator[int, None]:
    for number in range(count):
        yield number


@tool
def promise() -> Coroutine[Any, Any, int]:
    async def work() -> int:
        return 1

    return work()


def body_of(spans: CapturedSpans, call: ReadableSpan) -> ReadableSpan:
    body = spans.body_of(call)
    assert body is not None
    return body


def test_the_body_is_a_span_that_only_names_the_call() -> None:
    with capture_spans() as spans, tool_call("call_1"):
        get(1)
    (call,) = spans.tool_calls
    body = body_of(spans, call)
    assert (call.name, body.name) == ("tool.call get", "execute_tool get")
    assert body.kind is SpanKind.INTERNAL
    assert dict(body.attributes or {}) == {
        "gen_ai.tool.name": "get",
        "gen_ai.tool.call.id": "call_1",
    }


def test_no_body_no_span_of_it() -> None:
    with capture_spans(policy=ASK, approver=ApprovalRequest.reject) as spans:
        with pytest.raises(ToolDenied):
            pay(1)
        with pytest.raises(TypeError):
            get()  # type: ignore[call-arg]
    assert [span.name for span in spans] == ["tool.call pay", "tool.call get"]


def test_what_the_body_does_is_inside_and_what_the_approver_does_is_not() -> None:
    def approver(request: ApprovalRequest) -> Approval:
        get("who asks")
        return request.approve()

    with capture_spans(policy=ASK, approver=approver) as spans:
        pay(1)
    asked, call = spans.tool_calls
    (own,) = (span for span in spans if span.name == "own work")
    body = body_of(spans, call)
    assert asked.parent is not None
    assert call.context is not None
    assert asked.parent.span_id == call.context.span_id
    assert own.parent is not None
    assert body.context is not None
    assert own.parent.span_id == body.context.span_id
    assert (asked.end_time or 0) <= (body.start_time or 0)


def test_it_lasts_as_long_as_the_body() -> None:
    def slow_to_judge(result: object) -> None:
        time.sleep(0.02)

    with capture_spans() as spans:
        tool(name="x", outcome=slow_to_judge)(lambda: 1)()
        with pytest.raises(Refused):
            refuse()
    judged, refused = spans.tool_calls
    for call in (judged, refused):
        body = body_of(spans, call)
        assert (call.start_time or 0) <= (body.start_time or 0)
        assert (body.end_time or 0) <= (call.end_time or 0)
        assert body.status.status_code is StatusCode.UNSET
    assert (judged.end_time or 0) - (body_of(spans, judged).end_time or 0) > 10_000_000


def test_a_stream_has_it_from_the_first_step_to_the_end() -> None:
    async def consume() -> None:
        async for _ in numbers_async(2):
            await asyncio.sleep(0.005)
        made = promise()
        await asyncio.sleep(0.005)
        await made

    with capture_spans() as spans:
        stream = numbers(2)
        time.sleep(0.01)
        begun = time.time_ns()
        for _ in stream:
            time.sleep(0.005)
        asyncio.run(consume())
    assert (body_of(spans, spans.tool_calls[0]).start_time or 0) >= begun
    for call in spans.tool_calls:
        body = body_of(spans, call)
        assert (body.end_time or 0) - (body.start_time or 0) > 4_000_000


def test_a_stream_that_is_thrown_away_leaves_no_open_span() -> None:
    with capture_spans() as spans:
        stream = numbers(3)
        next(stream)
        del stream
        promise().close()
    assert [span.name for span in spans] == [
        "execute_tool numbers",
        "tool.call numbers",
        "execute_tool promise",
        "tool.call promise",
    ]


def test_a_body_span_that_cannot_be_made_costs_nothing_but_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from toolverdict.instrument import spans as span_module

    real = span_module.start_clean

    def broken(name: str, attributes: Any, within: Any = None) -> trace.Span:
        return trace.INVALID_SPAN if within is not None else real(name, attributes)

    @tool
    def outer() -> object:
        return get(1)

    with capture_spans() as spans:
        monkeypatch.setattr(span_module, "start_clean", broken)
        assert outer() == 1
    inner, around = spans
    assert inner.parent is not None
    assert around.context is not None
    assert inner.parent.span_id == around.context.span_id
