"""langchain-core tools, LangGraph's ToolNode and LangChain's agents, driven by a fake chat model."""

import subprocess
import sys
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import StatusCode

from toolverdict.instrument import ToolDenied, trajectory
from toolverdict.instrument import tool as our_tool
from toolverdict.instrument.approvals import Approval, ApprovalRequest
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import CapturedSpans, capture_spans

pytest.importorskip("langchain_core", reason="langchain-core is not installed")
pytest.importorskip("langgraph", reason="langgraph is not installed")
pytest.importorskip("langchain", reason="langchain is not installed")

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, InjectedToolCallId, StructuredTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command, interrupt
from pydantic import ValidationError

from toolverdict.instrument.adapters.langchain import instrument_tools


class Model(FakeMessagesListChatModel):
    """Answers from a list, whatever tools it is given."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


@tool
def get_order(order_id: str, verbose: bool = False) -> str:
    """Look an order up."""
    return f"{order_id}: paid"


@tool
async def refund(order_id: str, amount: float) -> str:
    """Pay an order back."""
    return "refunded"


@tool
def pay(amount: float) -> str:
    """Pay."""
    return "paid"


@tool
def delete_user(user: str) -> str:
    """Delete a user."""
    raise AssertionError("never runs")


LABELS = {"refund": ["payment"], "pay": ["payment"]}
THREAD: RunnableConfig = {"configurable": {"thread_id": "1"}}


def agent(*calls: tuple[str, dict[str, Any]], tools: Any = None, **settings: Any) -> Any:
    """An agent whose model makes these calls in one turn and then answers."""
    requests = [
        {"name": name, "args": given, "id": f"call_{number}"}
        for number, (name, given) in enumerate(calls, 1)
    ]
    made = instrument_tools([get_order, refund, pay, delete_user], labels=LABELS)
    model = Model(responses=[AIMessage("", tool_calls=requests), AIMessage("done")])
    return create_agent(model, tools or made, checkpointer=InMemorySaver(), **settings)


def asked() -> Any:
    return {"messages": [("user", "please")]}


def told(state: Any) -> list[tuple[str, str]]:
    """What the model was told by the tools."""
    found = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    return [(message.status, str(message.content)) for message in found]


async def test_a_call_is_one_span_with_the_models_id(seen: Any) -> None:
    with capture_spans(capture="full") as spans, trajectory("shop"):
        state = await agent(
            ("get_order", {"order_id": "o-1"}), ("get_order", {"order_id": "o-2"})
        ).ainvoke(asked(), THREAD)
    assert told(state) == [("success", "o-1: paid"), ("success", "o-2: paid")]
    calls = seen(spans.tool_calls)
    assert sorted(call["gen_ai.tool.call.id"] for call in calls) == ["call_1", "call_2"]
    assert {call["tool.outcome"] for call in calls} == {"ok"}
    assert {call["gen_ai.agent.name"] for call in calls} == {"shop"}
    arguments = sorted(call["gen_ai.tool.call.arguments"] for call in calls)
    assert arguments == ['{"order_id":"o-1"}', '{"order_id":"o-2"}']


def test_sync_async_and_by_hand(seen: Any) -> None:
    import asyncio

    read, back, *_ = instrument_tools([get_order, refund])
    with capture_spans() as spans:
        assert read.invoke({"order_id": "o-1"}) == "o-1: paid"
        assert asyncio.run(read.ainvoke({"order_id": "o-1"})) == "o-1: paid"
        assert read.invoke("o-1") == "o-1: paid"
        assert asyncio.run(back.ainvoke({"order_id": "o-1", "amount": 1})) == "refunded"
    assert seen(spans.tool_calls, "tool.outcome") == ["ok"] * 4
    assert len(set(seen(spans.tool_calls, "tool.args_hash")[:3])) == 1


def test_name_description_and_schema_stay() -> None:
    before = [get_order, refund, pay]
    for old, new in zip(before, instrument_tools(before), strict=True):
        assert isinstance(new, StructuredTool)
        assert type(new).__name__ == type(old).__name__
        assert (new.name, new.description, new.args) == (old.name, old.description, old.args)
        assert new.tool_call_schema == old.tool_call_schema
        assert not hasattr(old, "toolverdict_witness")


def test_a_denied_call_tells_the_model_and_the_run_goes_on(policy: Policy, seen: Any) -> None:
    with capture_spans(policy=policy) as spans:
        state = agent(("delete_user", {"user": "u"})).invoke(asked(), THREAD)
        with pytest.raises(ToolDenied):
            instrument_tools([delete_user])[0].invoke({"user": "u"})
    assert state["messages"][-1].content == "done"
    assert told(state) == [
        (
            "error",
            "tool 'delete_user' was denied by never-delete (rule): users are never deleted; "
            "do not repeat this call",
        )
    ]
    assert seen(spans.tool_calls, "tool.outcome", "tool.executed") == [("denied", False)] * 2


@pytest.mark.parametrize(
    ("decision", "outcome", "status"), [("approve", "ok", "success"), ("reject", "denied", "error")]
)
def test_a_policy_interrupts_the_graph(
    policy: Policy, seen: Any, decision: str, outcome: str, status: str
) -> None:
    paying = agent(("pay", {"amount": 1}), ("get_order", {"order_id": "o-1"}))
    with capture_spans(policy=policy) as spans:
        paused = paying.invoke(asked(), THREAD)
        (waiting,) = paused["__interrupt__"]
        assert waiting.value["action_requests"][0]["args"] == {"amount": 1}
        answer: Any = Command(resume={"decisions": [{"type": decision}]})
        state = paying.invoke(answer, THREAD)
    assert state["messages"][-1].content == "done"
    assert told(state)[0][0] == status
    pays = [call for call in seen(spans.tool_calls) if call["tool.name"] == "pay"]
    assert [call["tool.outcome"] for call in pays] == ["pending_approval", outcome]
    assert [call["approval.id"] for call in pays] == ["appr_call_1"] * 2
    assert len({call["tool.args_hash"] for call in pays}) == 1
    assert pays[0].span.status.status_code is StatusCode.UNSET


async def test_an_async_tool_is_interrupted_and_resumed_as_well(policy: Policy, seen: Any) -> None:
    paying = agent(("refund", {"order_id": "o-1", "amount": 1}))
    with capture_spans(policy=policy) as spans:
        paused = await paying.ainvoke(asked(), THREAD)
        assert len(paused["__interrupt__"]) == 1
        answer: Any = Command(resume={"decisions": [{"type": "approve"}]})
        state = await paying.ainvoke(answer, THREAD)
    assert told(state) == [("success", "refunded")]
    assert seen(spans.tool_calls, "tool.outcome") == ["pending_approval", "ok"]


@pytest.mark.parametrize("answer", [True, "approve", {"decisions": []}, {"type": "approve"}])
def test_only_a_clear_yes_approves(policy: Policy, seen: Any, answer: Any) -> None:
    paying = agent(("pay", {"amount": 1}))
    with capture_spans(policy=policy) as spans:
        paying.invoke(asked(), THREAD)
        paying.invoke(Command(resume=answer), THREAD)
    assert seen(spans.tool_calls, "tool.outcome") == ["pending_approval", "denied"]


def test_an_approver_answers_before_the_graph_is_interrupted(policy: Policy, seen: Any) -> None:
    def approver(request: ApprovalRequest) -> Approval:
        return request.approve("alice")

    with capture_spans(policy=policy, approver=approver) as spans:
        state = agent(("pay", {"amount": 1})).invoke(asked(), THREAD)
    assert told(state) == [("success", "paid")]
    assert seen(spans.tool_calls, "approval.status") == ["approved"]


def test_without_a_graph_an_approval_is_an_exception(policy: Policy) -> None:
    with capture_spans(policy=policy), pytest.raises(Exception, match="needs approval"):
        instrument_tools([pay], labels={"pay": ["payment"]})[0].invoke({"amount": 1})


def test_a_tool_that_interrupts_by_itself_has_not_failed(seen: Any) -> None:
    @tool
    def ask(question: str) -> str:
        """Ask the user."""
        return str(interrupt(question))

    asking = agent(("ask", {"question": "why?"}), tools=instrument_tools([ask]))
    with capture_spans() as spans:
        assert asking.invoke(asked(), THREAD)["__interrupt__"][0].value == "why?"
        assert told(asking.invoke(Command(resume="because"), THREAD)) == [("success", "because")]
    assert seen(spans.tool_calls, "tool.outcome") == ["pending_approval", "ok"]
    assert spans.tool_calls[0].status.status_code is StatusCode.UNSET


def test_an_exception_that_is_only_called_like_an_interrupt_is_an_error(seen: Any) -> None:
    class GraphInterrupt(Exception):
        pass

    @tool
    def fail() -> str:
        """Fail."""
        raise GraphInterrupt

    with capture_spans() as spans, pytest.raises(GraphInterrupt):
        instrument_tools([fail])[0].invoke({})
    assert seen(spans.tool_calls, "tool.outcome") == ["error"]


def test_the_human_in_the_loop_middleware_stays(seen: Any) -> None:
    paying = agent(
        ("pay", {"amount": 1}), middleware=[HumanInTheLoopMiddleware(interrupt_on={"pay": True})]
    )
    with capture_spans() as spans:
        assert paying.invoke(asked(), THREAD)["__interrupt__"]
        edited = {"name": "pay", "args": {"amount": 2}}
        answer = {"decisions": [{"type": "edit", "edited_action": edited}]}
        state = paying.invoke(Command(resume=answer), THREAD)
    assert state["messages"][-1].content == "done"
    assert seen(spans.tool_calls, "tool.outcome") == ["ok"]


def test_arguments_that_do_not_fit_leave_a_span(seen: Any) -> None:
    model_says = agent(("get_order", {"order_id": 7}), ("get_order", {"order_id": "o-1"}))
    with capture_spans(capture="full") as spans:
        state = model_says.invoke(asked(), THREAD)
        with pytest.raises(ValidationError):
            instrument_tools([get_order])[0].invoke({})
    assert [status for status, _ in told(state)] == ["error", "success"]
    (wrong, nothing) = [c for c in seen(spans.tool_calls) if c["tool.outcome"] != "ok"]
    assert wrong["tool.outcome"] == nothing["tool.outcome"] == "invalid_arguments"
    assert wrong["gen_ai.tool.call.arguments"] == '{"order_id":7}'
    assert wrong["tool.executed"] is False
    assert wrong.span.status.status_code is StatusCode.ERROR
    assert spans.body_of(wrong.span) is None


def test_injected_arguments_are_not_the_models(seen: Any) -> None:
    @tool
    def whoami(name: str, call_id: Annotated[str, InjectedToolCallId], runtime: ToolRuntime) -> str:
        """Say who."""
        return f"{name} {call_id} {len(runtime.state['messages'])}"

    with capture_spans(capture="full") as spans:
        state = agent(("whoami", {"name": "me"}), tools=instrument_tools([whoami])).invoke(
            asked(), THREAD
        )
    assert told(state) == [("success", "me call_1 2")]
    assert seen(spans.tool_calls, "gen_ai.tool.call.arguments") == ['{"name":"me"}']


def test_a_tool_that_is_a_class_and_one_with_an_artifact(policy: Policy, seen: Any) -> None:
    class Shop(BaseTool):
        name: str = "get_order"
        description: str = "Look up."

        def _run(self, order_id: str) -> str:
            return order_id

    @tool(response_format="content_and_artifact")
    def delete_user(user: str) -> tuple[str, object]:
        """Delete."""
        raise AssertionError("never runs")

    made = instrument_tools([Shop(), delete_user])
    with capture_spans(policy=policy) as spans:
        calls = [("get_order", {"order_id": "o-1"}), ("delete_user", {"user": "u"})]
        state = agent(*calls, tools=made).invoke(asked(), THREAD)
    assert [status for status, _ in told(state)] == ["success", "error"]
    assert sorted(seen(spans.tool_calls, "tool.outcome")) == ["denied", "ok"]


def test_openinferences_span_of_the_tool_stands_around_ours(seen: Any) -> None:
    package = pytest.importorskip(
        "openinference.instrumentation.langchain", reason="openinference is not installed"
    )
    theirs = CapturedSpans()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(theirs))
    instrumentor = package.LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    try:
        with capture_spans() as spans:
            agent(("get_order", {"order_id": "o-1"})).invoke(asked(), THREAD)
    finally:
        instrumentor.uninstrument()
    (ours,) = spans.tool_calls
    (around,) = [s for s in seen(theirs) if s.get("openinference.span.kind") == "TOOL"]
    assert ours.parent is not None
    assert ours.parent.span_id == around.span.context.span_id


def test_a_tool_is_witnessed_once() -> None:
    doubled: Callable[[int], int] = our_tool(lambda a: 2 * a)
    with pytest.raises(TypeError, match="decorated with @tool"):
        instrument_tools([StructuredTool.from_function(doubled, name="d", description="Double.")])
    with pytest.raises(TypeError, match="instrumented already"):
        instrument_tools(instrument_tools([pay]))


def test_it_imports_no_graph() -> None:
    code = (
        "import sys, toolverdict.instrument.adapters.langchain\n"
        "names = ['langgraph', 'agents', 'pydantic_ai', 'mcp', 'google.adk']\n"
        "print([name for name in names if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_plain_function_and_a_single_tool_are_refused_in_one_line() -> None:
    def plain() -> None:
        """Do nothing."""

    anything: Any = plain
    with pytest.raises(TypeError, match=r"plain is a function.*decorate it with LangChain's @tool"):
        instrument_tools([anything])
    with pytest.raises(TypeError, match=r"plain is one StructuredTool.* in a list: \[plain\]"):
        instrument_tools(StructuredTool.from_function(anything))  # type: ignore[arg-type]
