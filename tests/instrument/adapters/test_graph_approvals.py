"""Approvals of calls that share one task of a graph: ``ToolNode``, and nodes of one's own."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from toolverdict.instrument.approvals import Approval, ApprovalRequest
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import capture_spans

pytest.importorskip("langchain_core", reason="langchain-core is not installed")
pytest.importorskip("langgraph", reason="langgraph is not installed")

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, interrupt

from toolverdict.instrument.adapters.langchain import instrument_tools

THREAD: RunnableConfig = {"configurable": {"thread_id": "1"}}
ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> Iterator[None]:
    ran.clear()
    yield
    ran.clear()


@tool
def pay(order: str) -> str:
    """Pay."""
    ran.append(order)
    return f"paid {order}"


@tool
async def refund(order: str) -> str:
    """Pay back."""
    for _ in range(20):
        await asyncio.sleep(0)
    ran.append(order)
    return f"paid {order}"


def graph(node: Any, saver: Any) -> Any:
    made = StateGraph(MessagesState)
    made.add_node("tools", node)
    made.add_edge(START, "tools")
    made.add_edge("tools", END)
    return made.compile(checkpointer=saver)


def tool_node(bare: BaseTool, saver: Any) -> Any:
    """As another process would make it."""
    return graph(ToolNode(instrument_tools([bare], labels={bare.name: ["payment"]})), saver)


def calls(name: str, *orders: str) -> Any:
    requests = [{"name": name, "args": {"order": order}, "id": f"call_{order}"} for order in orders]
    return {"messages": [AIMessage("", tool_calls=requests)]}


def answer(decision: str, **bound: str) -> Any:
    return Command(resume={"decisions": [{"type": decision}], **bound})


def shown(state: Any) -> list[str]:
    questions = [waiting.value for waiting in state.get("__interrupt__", ())]
    return [question["action_requests"][0]["args"]["order"] for question in questions]


def told(state: Any) -> list[tuple[str, str]]:
    found = [message for message in state["messages"] if isinstance(message, ToolMessage)]
    return [(message.status, str(message.content)) for message in found]


@pytest.mark.parametrize("slow", [("a", "b", "b"), ("b", "a", "a"), ("b", "a", "b")])
async def test_a_yes_is_for_the_call_that_was_shown_and_for_one_run(
    policy: Policy, slow: tuple[str, ...], seen: Any
) -> None:
    saver, order = InMemorySaver(), list(slow)

    async def approver(request: ApprovalRequest) -> Approval | None:
        for _ in range(50 if request.arguments["order"] == order[0] else 0):
            await asyncio.sleep(0)
        return None

    with capture_spans(policy=policy, approver=approver) as spans:
        given: Any = calls("refund", "a", "b")
        asked: list[str] = []
        for _ in range(2):
            state = await tool_node(refund, saver).ainvoke(given, THREAD)
            assert ran == asked[: len(ran)]
            asked += shown(state)
            order.pop(0)
            given = answer("approve")
        state = await tool_node(refund, saver).ainvoke(given, THREAD)
    assert sorted(asked) == sorted(ran) == ["a", "b"]
    assert told(state) == [("success", "paid a"), ("success", "paid b")]
    executed = [call for call in seen(spans.tool_calls) if call["tool.executed"]]
    assert sorted(call["gen_ai.tool.call.id"] for call in executed) == ["call_a", "call_b"]


def test_many_at_once_in_threads(policy: Policy) -> None:
    saver, orders = InMemorySaver(), [f"o{n}" for n in range(6)]
    with capture_spans(policy=policy):
        given: Any = calls("pay", *orders)
        asked: list[str] = []
        for _ in orders:
            state = tool_node(pay, saver).invoke(given, THREAD)
            assert set(ran) <= set(asked)
            asked += shown(state)
            given = answer("approve")
        state = tool_node(pay, saver).invoke(given, THREAD)
    assert sorted(asked) == sorted(ran) == orders
    assert told(state) == [("success", f"paid {order}") for order in orders]


IN_TURN: RunnableConfig = {"configurable": {"thread_id": "1"}, "max_concurrency": 1}


def test_each_call_has_its_own_answer(policy: Policy) -> None:
    app = tool_node(pay, InMemorySaver())
    with capture_spans(policy=policy):
        assert shown(app.invoke(calls("pay", "a", "b"), IN_TURN)) == ["a"]
        assert shown(app.invoke(answer("reject"), IN_TURN)) == ["b"]
        state = app.invoke(answer("approve"), IN_TURN)
    assert ran == ["b"]
    assert [status for status, _ in told(state)] == ["error", "success"]


@pytest.mark.parametrize("name", ["approval_id", "args_hash"])
@pytest.mark.parametrize(("own", "expected"), [(True, ["a"]), (False, [])])
def test_an_answer_may_say_what_it_is_for(
    policy: Policy, name: str, own: bool, expected: list[str]
) -> None:
    app = tool_node(pay, InMemorySaver())
    with capture_spans(policy=policy):
        (waiting,) = app.invoke(calls("pay", "a"), IN_TURN)["__interrupt__"]
        bound = {name: waiting.value[name] if own else "another"}
        app.invoke(answer("approve", **bound), IN_TURN)
    assert ran == expected


@pytest.mark.parametrize("by_id", [False, True])
def test_what_ran_and_failed_is_not_run_again(policy: Policy, by_id: bool) -> None:
    @tool
    def pay(order: str) -> str:
        """Pay."""
        ran.append(order)
        if order == "a":
            raise ConnectionError("gone")
        return "paid"

    (made,) = instrument_tools([pay], labels={"pay": ["payment"]})
    app = graph(ToolNode([made], handle_tool_errors=True), InMemorySaver())
    with capture_spans(policy=policy):
        state = app.invoke(calls("pay", "a", "b"), IN_TURN)
        for _ in range(2):
            (waiting,) = state["__interrupt__"]
            yes = {"decisions": [{"type": "approve"}]}
            given: Any = Command(resume={waiting.id: yes} if by_id else yes)
            state = app.invoke(given, IN_TURN)
    assert ran == ["a", "b"]
    assert told(state) == [
        ("error", "error: it ran and failed, and its approval was for one run"),
        ("success", "paid"),
    ]


def test_a_tool_that_interrupts_by_itself_after_its_approval(policy: Policy) -> None:
    @tool
    def pay(order: str) -> str:
        """Pay."""
        ran.append(f"{order} because {interrupt('why?')}")
        return "paid"

    app = tool_node(pay, InMemorySaver())
    with capture_spans(policy=policy):
        assert shown(app.invoke(calls("pay", "a"), IN_TURN)) == ["a"]
        state = app.invoke(answer("approve"), IN_TURN)
        assert [waiting.value for waiting in state["__interrupt__"]] == ["why?"]
        state = app.invoke(Command(resume="it broke"), IN_TURN)
    assert ran == ["a because it broke"]
    assert told(state) == [("success", "paid")]


def test_calls_that_no_model_made_are_told_apart_by_their_order(policy: Policy) -> None:
    (made,) = instrument_tools([pay], labels={"pay": ["payment"]})

    def node(state: Any) -> Any:
        why = interrupt("start?")
        texts = [made.invoke({"order": order}) for order in ("a", "a")]
        return {"messages": [AIMessage(f"{why}: {texts}")]}

    app = graph(node, InMemorySaver())
    with capture_spans(policy=policy):
        app.invoke({"messages": []}, IN_TURN)
        assert shown(app.invoke(Command(resume="now"), IN_TURN)) == ["a"]
        assert ran == []
        assert shown(app.invoke(answer("approve"), IN_TURN)) == ["a"]
        assert ran == ["a"]
        state = app.invoke(answer("approve"), IN_TURN)
    assert ran == ["a", "a"]
    assert state["messages"][-1].content == "now: ['paid a', 'paid a']"


def test_another_version_of_the_graphs_inside_leaves_the_call_waiting(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("langgraph.types._interrupt_id")
    with capture_spans(policy=policy):
        state = tool_node(pay, InMemorySaver()).invoke(calls("pay", "a"), IN_TURN)
    assert ran == []
    assert "needs approval appr_call_a" in told(state)[0][1]


def test_an_answer_to_a_question_of_another_graph_is_no_approval(policy: Policy) -> None:
    """A sub-agent asks in the same words, at the same time, in the same task."""
    begun = threading.Event()

    def approver(request: ApprovalRequest) -> Approval | None:
        begun.set()
        return None

    def node(state: Any) -> Any:
        ran.append(f"agent: {interrupt({'action_requests': [{'args': {'order': 'agent'}}]})}")
        return {"messages": []}

    agent = graph(node, None)

    @tool
    def delegate(order: str) -> str:
        """Let an agent do it."""
        assert begun.wait(60)
        agent.invoke({"messages": []})
        return "done"

    app = graph(
        ToolNode([delegate, *instrument_tools([pay], labels={"pay": ["payment"]})]),
        InMemorySaver(),
    )
    requests = [
        {"name": name, "args": {"order": "a"}, "id": f"call_{name}"} for name in ("delegate", "pay")
    ]
    given: Any = {"messages": [AIMessage("", tool_calls=requests)]}
    with capture_spans(policy=policy, approver=approver):
        assert shown(app.invoke(given, THREAD)) == ["agent"]
        assert shown(app.invoke(answer("approve"), THREAD)) == ["a"]
        assert [text for text in ran if not text.startswith("agent")] == []
        app.invoke(answer("approve"), THREAD)
    assert ran.count("a") == 1


def test_a_run_that_was_cut_off_is_not_tried_again(policy: Policy) -> None:
    class Cut(BaseException):
        pass

    @tool
    def pay(order: str) -> str:
        """Pay."""
        ran.append(order)
        raise Cut

    def node(state: Any) -> Any:
        (made,) = instrument_tools([pay], labels={"pay": ["payment"]})
        call = {"type": "tool_call", "name": "pay", "id": "1", "args": {"order": "a"}}
        try:
            told = made.invoke(call)
        except Cut:
            interrupt("it was cut off; go on?")
            raise AssertionError("it runs no second time") from None
        interrupt("it was cut off; go on?")
        return {"messages": [told]}

    app = graph(node, InMemorySaver())
    with capture_spans(policy=policy):
        app.invoke({"messages": []}, IN_TURN)
        app.invoke(answer("approve"), IN_TURN)
        state = app.invoke(Command(resume="yes"), IN_TURN)
    assert ran == ["a"]
    assert told(state) == [("error", "error: it may have run, and its approval was for one run")]


async def test_a_call_that_is_stopped_after_its_yes_keeps_nobody_waiting() -> None:
    """Who answered a graph is not known, so it is nobody whom a policy names."""
    named = Policy.parse(
        "version: 1\nid: shop\nrules:\n  - id: ask\n    effect: require_approval\n"
        "    labels: [payment]\n    approval: {approvers: [alice]}\n"
    )
    app = tool_node(refund, InMemorySaver())
    with capture_spans(policy=named):
        async with asyncio.timeout(60):
            state = await app.ainvoke(calls("refund", "a", "b"), THREAD)
            asked = shown(state)
            for _ in range(2):
                state = await app.ainvoke(answer("approve"), THREAD)
                asked += shown(state)
    assert sorted(asked) == ["a", "b"]
    assert ran == []
    assert [status for status, _ in told(state)] == ["error", "error"]
