"""pydantic-ai, driven by its own function model."""

from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from toolverdict.instrument import tool, trajectory
from toolverdict.instrument.approvals import Approval, ApprovalRequest
from toolverdict.instrument.guard import counts
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import capture_spans

pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.exceptions import CallDeferred, ModelRetry
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.tools import Tool, ToolApproved, ToolDenied

from toolverdict.instrument.adapters.pydantic_ai import instrument_tools

RUN: list[str] = []


def get_order(order_id: str, verbose: bool = False) -> str:
    """Look an order up."""
    RUN.append(order_id)
    return f"{order_id}: paid"


async def refund(order_id: str, amount: float) -> str:
    """Pay an order back."""
    return f"refunded {amount}"


def delete_user(user: str) -> str:
    """Delete a user."""
    raise AssertionError("never runs")


def agent(*turns: list[tuple[str, Any]], tools: Any = None, more: Any = ()) -> Agent[None, Any]:
    """An agent whose model makes these calls, turn after turn, and then answers."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn = sum(isinstance(message, ModelResponse) for message in messages)
        if turn >= len(turns):
            return ModelResponse([TextPart("done")])
        return ModelResponse(
            [
                ToolCallPart(name, given, tool_call_id=f"call_{turn + number}")
                for number, (name, given) in enumerate(turns[turn], 1)
            ]
        )

    return Agent(
        FunctionModel(answer),
        output_type=[str, DeferredToolRequests],
        tools=tools or [get_order, refund, delete_user],
        capabilities=[*more, instrument_tools(labels={} if tools else {"refund": ["payment"]})],
    )


def told(result: Any) -> list[tuple[str, str]]:
    """What the model was told by the tools."""
    return [
        (str(getattr(part, "outcome", "")), str(part.content))
        for message in result.all_messages()
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, ToolReturnPart | RetryPromptPart)
    ]


async def test_a_call_is_one_span_with_the_models_id(seen: Any) -> None:
    calls = [("get_order", {"order_id": "o-1"}), ("get_order", '{"order_id": "o-2"}')]
    with capture_spans(capture="full") as spans, trajectory("shop"):
        result = await agent(calls).run("where?")
    assert told(result) == [("success", "o-1: paid"), ("success", "o-2: paid")]
    found = seen(spans.tool_calls)
    assert sorted(call["gen_ai.tool.call.id"] for call in found) == ["call_1", "call_2"]
    assert {call["tool.outcome"] for call in found} == {"ok"}
    assert {call["gen_ai.agent.name"] for call in found} == {"shop"}
    arguments = sorted(call["gen_ai.tool.call.arguments"] for call in found)
    assert arguments == [
        '{"order_id":"o-1","verbose":false}',
        '{"order_id":"o-2","verbose":false}',
    ]


async def test_the_model_sees_the_same_tools() -> None:
    shown: list[Any] = []

    def look(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        shown.append(info.function_tools)
        return ModelResponse([TextPart("done")])

    for capabilities in ([], [instrument_tools()]):
        await Agent(FunctionModel(look), tools=[get_order], capabilities=capabilities).run("")
    assert shown[0] == shown[1]


async def test_a_denied_call_tells_the_model_and_the_run_goes_on(policy: Policy, seen: Any) -> None:
    with capture_spans(policy=policy) as spans:
        result = await agent([("delete_user", {"user": "u"})]).run("")
    assert result.output == "done"
    ((outcome, text),) = told(result)
    assert outcome == "failed"
    assert "denied by never-delete" in text
    assert seen(spans.tool_calls, "tool.outcome", "tool.executed") == [("denied", False)]


@pytest.mark.parametrize("amount", [1, 2])
async def test_a_policy_defers_and_the_approval_resumes(
    policy: Policy, seen: Any, amount: int
) -> None:
    paying = agent([("refund", {"order_id": "o-1", "amount": 1}), ("get_order", {"order_id": "o"})])
    with capture_spans(policy=policy) as spans:
        paused = await paying.run("")
        assert isinstance(paused.output, DeferredToolRequests)
        assert [call.tool_name for call in paused.output.approvals] == ["refund"]
        assert paused.output.metadata["call_1"]["approval_id"] == "appr_call_1"
        edited = {"order_id": "o-1", "amount": amount}
        yes: Any = True if amount == 1 else ToolApproved(override_args=edited)
        result = await paying.run(
            message_history=paused.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={"call_1": yes}),
        )
    assert result.output == "done"
    assert ("success", f"refunded {amount}.0") in told(result)
    refunds = [call for call in seen(spans.tool_calls) if call["tool.name"] == "refund"]
    assert [call["tool.outcome"] for call in refunds] == ["pending_approval", "ok"]
    assert [call["approval.status"] for call in refunds] == ["requested", "approved"]
    assert [call["approval.id"] for call in refunds] == ["appr_call_1"] * 2
    assert len({call["tool.args_hash"] for call in refunds}) == amount
    assert refunds[0].span.status.status_code is StatusCode.UNSET
    assert len(spans.tool_calls) == 3


async def test_a_rejected_call_does_not_run(policy: Policy, seen: Any) -> None:
    paying = agent([("refund", {"order_id": "o-1", "amount": 1})])
    with capture_spans(policy=policy) as spans:
        paused = await paying.run("")
        result = await paying.run(
            message_history=paused.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={"call_1": ToolDenied("no")}),
        )
    assert told(result) == [("denied", "no")]
    assert seen(spans.tool_calls, "tool.outcome") == ["pending_approval"]


async def test_an_approver_answers_before_the_call_is_deferred(policy: Policy, seen: Any) -> None:
    async def approver(request: ApprovalRequest) -> Approval:
        return request.approve("alice")

    with capture_spans(policy=policy, approver=approver) as spans:
        result = await agent([("refund", {"order_id": "o-1", "amount": 1})]).run("")
    assert result.output == "done"
    assert seen(spans.tool_calls, "tool.outcome", "approval.status") == [("ok", "approved")]


async def test_tools_that_defer_by_themselves_have_not_failed(seen: Any) -> None:
    def later() -> str:
        raise CallDeferred

    asking = agent([("get_order", {"order_id": "o"})], tools=[Tool(later), get_order])
    deferring = agent([("later", {})], tools=[later])
    needing = agent(
        [("get_order", {"order_id": "o-9"})], tools=[Tool(get_order, requires_approval=True)]
    )
    with capture_spans() as spans:
        assert (await asking.run("")).output == "done"
        assert isinstance((await deferring.run("")).output, DeferredToolRequests)
        paused = await needing.run("")
        assert "o-9" not in RUN
        await needing.run(
            message_history=paused.all_messages(),
            deferred_tool_results=DeferredToolResults(approvals={"call_1": True}),
        )
    assert "o-9" in RUN
    assert seen(spans.tool_calls, "tool.outcome") == ["ok", "pending_approval", "ok"]
    assert spans.tool_calls[1].status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("given", ['{"order_id": 7}', "{", {"verbose": True}])
async def test_arguments_that_do_not_fit_leave_a_span(given: Any, seen: Any) -> None:
    with capture_spans() as spans:
        result = await agent([("get_order", given)], [("get_order", {"order_id": "o-1"})]).run("")
    assert result.output == "done"
    assert [outcome for outcome, _ in told(result)] == ["retried", "success"]
    wrong, right = seen(spans.tool_calls)
    assert (wrong["tool.outcome"], right["tool.outcome"]) == ("invalid_arguments", "ok")
    assert wrong["gen_ai.tool.call.id"] == "call_1"
    assert ("tool.args_hash" in wrong) == (given != "{")
    assert wrong.span.status.status_code is StatusCode.ERROR
    assert spans.body_of(wrong.span) is None


async def test_a_tool_that_fails(seen: Any) -> None:
    def flaky(ctx: RunContext[None]) -> str:
        if ctx.retry == 0:
            raise ModelRetry("secret")
        raise TimeoutError("secret")

    with capture_spans() as spans, pytest.raises(TimeoutError):
        await agent([("flaky", {})], [("flaky", {})], tools=[flaky]).run("")
    assert seen(spans.tool_calls, "tool.outcome") == ["invalid_arguments", "timeout"]
    assert "secret" not in "".join(span.to_json() for span in spans)


async def test_the_frameworks_own_spans_go_around_ours(seen: Any) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    shop = agent(
        [("get_order", {"order_id": "o-1"})],
        more=[Instrumentation(settings=InstrumentationSettings(tracer_provider=provider))],
    )
    with capture_spans() as spans:
        await shop.run("")
    theirs = [s for s in exporter.get_finished_spans() if s.name == "execute_tool get_order"]
    assert len(theirs) == len(spans.tool_calls) == 1
    ours = spans.tool_calls[0]
    assert ours.parent is not None
    assert theirs[0].context is not None
    assert ours.parent.span_id == theirs[0].context.span_id
    call_id = "gen_ai.tool.call.id"
    assert (theirs[0].attributes or {})[call_id] == (ours.attributes or {})[call_id]


async def test_settings_that_do_not_fit() -> None:
    def shop(**settings: Any) -> Agent[None, Any]:
        model = FunctionModel(lambda messages, info: ModelResponse([TextPart("done")]))
        return Agent(model, tools=[refund], capabilities=[instrument_tools(**settings)])

    await shop(labels={"refnd": ["payment"]}).run("")
    assert counts()["adapter"] >= 1
    with pytest.raises(ValueError, match="did you mean 'payment'"):
        await shop(labels={"refund": ["payments"]}).run("")
    with pytest.raises(TypeError, match="no such argument: order"):
        await shop(exclude={"refund": ["order"]}).run("")
    with pytest.raises(TypeError, match="decorated with @tool"):
        await agent([], tools=[tool(refund)]).run("")
