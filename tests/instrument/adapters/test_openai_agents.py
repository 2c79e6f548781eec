"""openai-agents, driven by its own scripted model."""

import json
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from toolverdict.instrument import Refused, tool, trajectory
from toolverdict.instrument.approvals import Approval, ApprovalRequest
from toolverdict.instrument.guard import counts
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import capture_spans

pytest.importorskip("agents", reason="openai-agents is not installed")

from agents import (
    Agent,
    FunctionTool,
    RunConfig,
    Runner,
    RunState,
    function_tool,
    set_trace_processors,
)
from agents.testing import ScriptedModel, assistant_message, function_call

from toolverdict.instrument.adapters.openai_agents import instrument_tools

# The SDK's own exporter works in the background and would speak up in the middle of other tests.
set_trace_processors([])
QUIET = RunConfig(tracing_disabled=True)


@function_tool
def get_order(order_id: str, verbose: bool = False) -> str:
    """Look an order up.

    Args:
        order_id: The order.
        verbose: Whether to say all.
    """
    return f"{order_id}: paid"


@function_tool
async def refund(order_id: str, amount: float) -> str:
    """Pay an order back."""
    return "refunded"


@function_tool
def delete_user(user: str) -> str:
    """Delete a user."""
    raise AssertionError("never runs")


@function_tool
def cancel(order_id: str) -> str:
    """Cancel an order."""
    raise Refused(f"secret {order_id}")


LABELS = {"refund": ["payment"]}


def agent(*calls: tuple[str, Any], answer: str = "done", **settings: Any) -> Agent[Any]:
    """An agent whose model makes these calls in one turn and then answers."""
    requests = [
        function_call(name, given, call_id=f"call_{number}")
        for number, (name, given) in enumerate(calls, 1)
    ]
    tools = instrument_tools([get_order, refund, delete_user, cancel], labels=LABELS, **settings)
    model = ScriptedModel([requests, [assistant_message(answer)]])
    return Agent(name="shop", model=model, tools=tools)


def told(result: Any) -> list[str]:
    """What the model was told by the tools."""
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"]


async def test_a_call_is_one_span_with_the_models_id(seen: Any) -> None:
    with capture_spans(capture="full") as spans, trajectory("shop"):
        result = await Runner.run(
            agent(("get_order", {"order_id": "o-1"}), ("get_order", {"order_id": "o-2"})),
            "where is it?",
            run_config=QUIET,
        )
    assert result.final_output == "done"
    assert told(result) == ["o-1: paid", "o-2: paid"]
    calls = seen(spans.tool_calls)
    assert sorted(call["gen_ai.tool.call.id"] for call in calls) == ["call_1", "call_2"]
    assert {call["tool.outcome"] for call in calls} == {"ok"}
    assert {call["gen_ai.agent.name"] for call in calls} == {"shop"}
    arguments = sorted(call["gen_ai.tool.call.arguments"] for call in calls)
    assert arguments == ['{"order_id":"o-1"}', '{"order_id":"o-2"}']


async def test_hashes_are_those_of_a_decorated_function(seen: Any) -> None:
    @tool
    async def refund(order_id: str, amount: float) -> str:
        return "refunded"

    with capture_spans() as spans:
        await refund("o-1", 2.5)
        await Runner.run(
            agent(("refund", {"order_id": "o-1", "amount": 2.5})), "", run_config=QUIET
        )
    first, second = seen(spans.tool_calls, "tool.args_hash")
    assert first == second


def test_name_description_and_schema_stay() -> None:
    tools = instrument_tools([get_order, refund])
    for before, after in zip([get_order, refund], tools, strict=True):
        assert isinstance(after, FunctionTool)
        assert (after.name, after.description) == (before.name, before.description)
        assert after.params_json_schema == before.params_json_schema
        assert after.needs_approval is False
    assert get_order.on_invoke_tool is not tools[0].on_invoke_tool  # type: ignore[union-attr]


async def test_a_denied_call_tells_the_model_and_the_run_goes_on(policy: Policy, seen: Any) -> None:
    with capture_spans(policy=policy) as spans:
        result = await Runner.run(agent(("delete_user", {"user": "u"})), "", run_config=QUIET)
    assert result.final_output == "done"
    assert told(result) == [
        "tool 'delete_user' was denied by never-delete (rule): users are never deleted; "
        "do not repeat this call"
    ]
    assert seen(spans.tool_calls, "tool.outcome", "tool.executed") == [("denied", False)]


@pytest.mark.parametrize("by_text", [False, True])
async def test_a_policy_pauses_the_run_and_the_approval_resumes_it(
    policy: Policy, seen: Any, by_text: bool
) -> None:
    paying = agent(("refund", {"order_id": "o-1", "amount": 1}), ("get_order", {"order_id": "o-1"}))
    with capture_spans(policy=policy) as spans:
        paused = await Runner.run(paying, "", run_config=QUIET)
        (interruption,) = paused.interruptions
        assert interruption.name == "refund"
        state = paused.to_state()
        if by_text:  # another process may resume
            state = await RunState.from_string(paying, state.to_string())
            (interruption,) = state.get_interruptions()
        state.approve(interruption)
        result = await Runner.run(paying, state, run_config=QUIET)
    assert result.final_output == "done"
    refunds = [call for call in seen(spans.tool_calls) if call["tool.name"] == "refund"]
    assert [call["tool.outcome"] for call in refunds] == ["pending_approval", "ok"]
    assert [call["approval.status"] for call in refunds] == ["requested", "approved"]
    assert [call["approval.id"] for call in refunds] == ["appr_call_1"] * 2
    assert len({call["tool.args_hash"] for call in refunds}) == 1
    assert refunds[0].span.status.status_code is StatusCode.UNSET
    assert len(seen(spans.tool_calls)) == 3


async def test_a_rejected_call_does_not_run(policy: Policy, seen: Any) -> None:
    paying = agent(("refund", {"order_id": "o-1", "amount": 1}))
    with capture_spans(policy=policy) as spans:
        paused = await Runner.run(paying, "", run_config=QUIET)
        state = paused.to_state()
        state.reject(paused.interruptions[0])
        result = await Runner.run(paying, state, run_config=QUIET)
    assert result.final_output == "done"
    assert told(result) == ["Tool execution was not approved."]
    assert seen(spans.tool_calls, "tool.outcome") == ["pending_approval"]


@pytest.mark.parametrize(
    ("answer", "outcome", "text"),
    [("approved", "ok", "refunded"), ("rejected", "denied", "approval_rejected")],
)
async def test_an_approver_answers_before_the_framework_pauses(
    policy: Policy, seen: Any, answer: Any, outcome: str, text: str
) -> None:
    asked = []

    async def approver(request: ApprovalRequest) -> Approval:
        asked.append(dict(request.arguments))
        return Approval(request.id, answer, "alice")

    with capture_spans(policy=policy, approver=approver) as spans:
        result = await Runner.run(
            agent(("refund", {"order_id": "o-1", "amount": 1})), "", run_config=QUIET
        )
    assert not result.interruptions
    assert text in told(result)[0]
    assert asked == [{"order_id": "o-1", "amount": 1}]
    assert seen(spans.tool_calls, "tool.outcome", "approval.status") == [(outcome, answer)]


async def test_the_frameworks_own_approval_stays(seen: Any) -> None:
    @function_tool(needs_approval=True)
    def pay(amount: float) -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel(
        [[function_call("pay", {"amount": 1}, call_id="c")], [assistant_message("done")]]
    )
    payer = Agent(name="payer", model=model, tools=instrument_tools([pay]))
    with capture_spans() as spans:
        paused = await Runner.run(payer, "", run_config=QUIET)
        state = paused.to_state()
        state.approve(paused.interruptions[0])
        result = await Runner.run(payer, state, run_config=QUIET)
    assert result.final_output == "done"
    assert seen(spans.tool_calls, "tool.outcome") == ["ok"]


@pytest.mark.parametrize("given", ['{"order_id": 7}', "{", "[]", '{"verbose": true}'])
async def test_arguments_that_do_not_fit_leave_a_span(given: str, seen: Any) -> None:
    with capture_spans() as spans:
        result = await Runner.run(agent(("get_order", given)), "", run_config=QUIET)
    assert told(result) == ["An error occurred while running the tool. Please try again."]
    assert seen(spans.tool_calls, "tool.outcome", "tool.executed") == [("invalid_arguments", False)]
    assert spans[0].status.status_code is StatusCode.ERROR
    assert len(spans) == 1  # and no span of a body


async def test_a_tool_that_fails_is_handled_as_ever(seen: Any) -> None:
    with capture_spans() as spans:
        result = await Runner.run(agent(("cancel", {"order_id": "o-1"})), "", run_config=QUIET)
    assert told(result) == ["An error occurred while running the tool. Please try again."]
    assert seen(spans.tool_calls, "tool.outcome", "error.type") == [
        ("refused", "toolverdict.instrument.errors.Refused")
    ]
    assert "secret" not in spans[0].to_json()


async def test_a_tool_made_by_hand(policy: Policy, seen: Any) -> None:
    async def invoke(context: Any, given: str) -> str:
        raise RuntimeError(json.loads(given)["order_id"])

    by_hand = FunctionTool("get_order", "Look up.", {"type": "object", "properties": {}}, invoke)
    model = ScriptedModel([[function_call("get_order", {"order_id": "o-1"}, call_id="c")]])
    shop = Agent(name="shop", model=model, tools=instrument_tools([by_hand]))
    with capture_spans(policy=policy) as spans:
        with pytest.raises(Exception, match="o-1"):
            await Runner.run(shop, "", run_config=QUIET)
        assert seen(spans.tool_calls, "tool.outcome") == ["error"]


async def test_the_sdks_own_tracing_counts_the_call_once(seen: Any) -> None:
    """The SDK's tracing is not OpenTelemetry: beside ours there is no second span."""
    with capture_spans() as spans:
        await Runner.run(
            agent(("get_order", {"order_id": "o-1"})),
            "",
            run_config=RunConfig(trace_include_sensitive_data=False),
        )
    assert len(spans.tool_calls) == 1


async def test_idempotency_keys_and_excluded_arguments(seen: Any) -> None:
    paying = agent(
        ("refund", {"order_id": "o-1", "amount": 1}),
        ("refund", {"order_id": "o-1", "amount": 2}),
        idempotency_keys={"refund": "order_id"},
        exclude={"refund": ["amount"]},
    )
    with capture_spans(capture="full") as spans:
        await Runner.run(paying, "", run_config=QUIET)
    assert len({call["idempotency.key_hash"] for call in seen(spans.tool_calls)}) == 1
    assert seen(spans.tool_calls, "gen_ai.tool.call.arguments") == ['{"order_id":"o-1"}'] * 2


def test_settings_that_fit_no_tool_are_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'refund'"):
        instrument_tools([refund], labels={"refnd": ["payment"]})
    with pytest.raises(ValueError, match="did you mean 'payment'"):
        instrument_tools([refund], labels={"refund": ["payments"]})
    with pytest.raises(TypeError, match="no such argument: order"):
        instrument_tools([refund], idempotency_keys={"refund": "order"})


def test_a_tool_is_witnessed_once() -> None:
    @function_tool
    @tool
    def doubled(a: int) -> int:
        """Double."""
        return 2 * a

    with pytest.raises(TypeError, match="decorated with @tool"):
        instrument_tools([doubled])
    with pytest.raises(TypeError, match="instrumented already"):
        instrument_tools(instrument_tools([refund]))


async def test_always_approve_is_no_approval_of_a_policy(policy: Policy, seen: Any) -> None:
    turns = [
        [function_call("refund", {"order_id": "o", "amount": amount}, call_id=f"call_{amount}")]
        for amount in (1, 2, 1000)
    ]
    model = ScriptedModel([*turns, [assistant_message("done")]])
    paying = Agent(name="shop", model=model, tools=instrument_tools([refund], labels=LABELS))
    before = counts().get("adapter", 0)
    with capture_spans(policy=policy) as spans:
        state = (await Runner.run(paying, "", run_config=QUIET)).to_state()
        state.approve(state.get_interruptions()[0])
        state = (await Runner.run(paying, state, run_config=QUIET)).to_state()
        state.approve(state.get_interruptions()[0], always_approve=True)
        result = await Runner.run(paying, state, run_config=QUIET)
    assert not result.interruptions
    executed = [call for call in seen(spans.tool_calls) if call["tool.executed"]]
    assert [call["gen_ai.tool.call.id"] for call in executed] == ["call_1"]
    assert "needs approval appr_call_1000" in told(result)[-1]
    assert counts()["adapter"] > before


def test_a_plain_function_and_a_single_tool_are_refused_in_one_line() -> None:
    def plain() -> None: ...

    anything: Any = plain
    with pytest.raises(TypeError, match=r"plain is a function.*decorate it with @function_tool"):
        instrument_tools([anything])
    with pytest.raises(TypeError, match=r"plain is one FunctionTool.* in a list: \[plain\]"):
        instrument_tools(function_tool(anything))  # type: ignore[arg-type]
