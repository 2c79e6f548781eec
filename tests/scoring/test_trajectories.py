"""Trajectories from spans: order, folding, splitting, and every broken tree a trace can hold."""

import json
import random
from typing import Any

import pytest

from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.model import Captured, Trajectory
from toolverdict.scoring.sampling import adjusted_count
from toolverdict.scoring.spans import Span
from toolverdict.scoring.trajectories import trajectories

TRACE = "0af7651916cd43dd8448eb211c80319c"


def span(
    span_id: str,
    parent: str | None = None,
    *,
    at: int = 0,
    ends: int | None = -1,
    name: str = "span",
    failed: bool = False,
    **attributes: Any,
) -> Span:
    keyed = {key.replace("__", "."): value for key, value in attributes.items()}
    return Span(
        TRACE, span_id, parent, name, at, at + 1 if ends == -1 else ends, failed, keyed, {}, ""
    )


def tool(span_id: str, parent: str | None = "root", name: str = "get", **attributes: Any) -> Span:
    attributes.setdefault("gen_ai__operation__name", "execute_tool")
    return span(span_id, parent, gen_ai__tool__name=name, **attributes)


def agent(span_id: str = "root", **attributes: Any) -> Span:
    return span(span_id, gen_ai__operation__name="invoke_agent", **attributes)


def only(spans: list[Span]) -> Trajectory:
    (trajectory,) = trajectories(spans)
    return trajectory


def test_calls_are_ordered_by_start_then_span_id_whatever_the_arrival() -> None:
    """B119: five siblings with equal starts come back in one order."""
    spans = [agent(), *(tool(f"{n}", at=5) for n in range(5)), tool("early", at=1)]
    orders = set()
    for seed in range(5):
        random.Random(seed).shuffle(spans)
        orders.add(tuple(place.call.span_id for place in only(spans).calls))
    assert orders == {("early", "0", "1", "2", "3", "4")}


def test_fields_come_from_the_span_and_what_it_lies_in() -> None:
    trajectory = only(
        [
            agent(
                gen_ai__agent__name="refunds",
                gen_ai__conversation__id="conv",
                test__case__name="case",
                gen_ai__request__model="m",
            ),
            tool("a", gen_ai__tool__call__id="call_1", gen_ai__tool__call__arguments='{"id": 1}'),
        ]
    )
    assert (trajectory.agent, trajectory.conversation_id) == ("refunds", "conv")
    assert (trajectory.case_id, trajectory.model) == ("case", "m")
    call = trajectory.calls[0].call
    assert (call.call_id, call.arguments, call.executed) == ("call_1", {"id": 1}, True)
    assert trajectory.complete


def test_a_call_in_three_spans_is_one_call_and_the_inner_error_counts() -> None:
    """Framework, MCP client and MCP server nest around one call."""
    trajectory = only(
        [
            agent(),
            tool("a", at=1, gen_ai__tool__call__arguments='{"id": 1}'),
            span("client", "a", at=2),
            tool("b", "client", "mcp__shop__get", at=3, failed=True, error__type="timeout"),
        ]
    )
    (place,) = trajectory.calls
    assert (place.call.span_id, place.call.outcome) == ("a", Outcome.TIMEOUT)
    assert place.call.arguments == {"id": 1}


def test_another_tool_a_sub_agent_and_a_recursion_are_calls_of_their_own() -> None:
    inner = {"gen_ai__tool__call__arguments": '{"n": 1}'}
    trajectory = only(
        [
            agent(),
            tool("a", name="ask", at=1, gen_ai__tool__call__arguments='{"n": 2}'),
            tool("b", "a", "get", at=2),
            tool("c", "a", "ask", at=3, **inner),
            span("sub", "a", at=4, gen_ai__operation__name="invoke_agent"),
            tool("d", "sub", "ask", at=5),
        ]
    )
    assert [place.call.span_id for place in trajectory.calls] == ["a", "b", "c", "d"]


def test_turns_and_parallel_calls_follow_the_model() -> None:
    chat: dict[str, Any] = {"gen_ai__operation__name": "chat"}
    trajectory = only(
        [
            agent(),
            span("m0", "root", at=1, **chat),
            tool("a", at=2),
            span("m1", "root", at=3, **chat),
            tool("b", at=4),
            tool("c", at=5),
        ]
    )
    assert [(p.turn, p.parallel_group) for p in trajectory.calls] == [(0, None), (1, 1), (1, 1)]


def test_two_conversations_under_one_trace_id_are_two_trajectories() -> None:
    """B125."""
    spans = [
        agent("r1", gen_ai__conversation__id="c1"),
        tool("a", "r1"),
        agent("r2", at=7, gen_ai__conversation__id="c2"),
        tool("b", "r2", at=8),
    ]
    found = trajectories(spans)
    assert [t.conversation_id for t in found] == ["c1", "c2"]
    assert [[p.call.span_id for p in t.calls] for t in found] == [["a"], ["b"]]
    assert len({t.trajectory_id for t in found}) == 2


@pytest.mark.parametrize(
    ("spans", "gap"),
    [
        ([tool("a", "lost")], "parent is missing"),
        ([tool("a", "a")], None),
        ([tool("a", "b"), tool("b", "a", "put")], "circle"),
        ([agent(), tool("a", ends=None)], "without an end"),
    ],
    ids=["orphan", "its own parent", "circle", "unfinished"],
)
def test_broken_trees_keep_their_calls_and_say_what_is_missing(
    spans: list[Span], gap: str | None
) -> None:
    """B116, B118: never an exception, never dropped in silence."""
    trajectory = only(spans)
    assert len(trajectory.calls) == sum("gen_ai.tool.name" in s.attributes for s in spans)
    assert any(gap in said for said in trajectory.gaps) if gap else trajectory.gaps == ()


def test_a_chain_of_fifty_thousand_spans_is_walked_and_not_recursed() -> None:
    """B118."""
    chain = [span("0", at=0), *(span(f"{n}", f"{n - 1}", at=n) for n in range(1, 50_000))]
    trajectory = only([*chain, tool("t", "49999", at=50_000)])
    assert len(trajectory.calls) == 1


def test_a_span_that_lists_tools_is_no_call() -> None:
    """B136: chat spans with tool definitions do not inflate the count."""
    chat = span("m", "root", gen_ai__operation__name="chat", gen_ai__tool__definitions="[]")
    assert only([agent(), chat, tool("a")]).calls[0].call.span_id == "a"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ("{bad", "{bad"),
        ("42", "42"),
        ("[" * 500 + "]" * 500, "[" * 500 + "]" * 500),
        ({"a": 1}, {"a": 1}),
    ],
    ids=["JSON", "JSON twice", "malformed", "a bare text", "too deep", "structured"],
)
def test_arguments_are_read_from_every_form(text: Any, value: Any) -> None:
    """B143."""
    call = only([agent(), tool("a", gen_ai__tool__call__arguments=text)]).calls[0].call
    assert (call.arguments, call.arguments_state) == (value, Captured.CAPTURED)


def test_not_captured_is_not_empty() -> None:
    call = only([agent(), tool("a", tool__args_hash="hmac-sha256:00")]).calls[0].call
    assert (call.arguments_state, call.result_state) == (Captured.HASHED, Captured.NOT_CAPTURED)
    assert call.outcome is Outcome.OK


@pytest.mark.parametrize(
    ("attributes", "outcome"),
    [
        ({"tool__outcome": "refused"}, Outcome.REFUSED),
        ({"tool__outcome": "nonsense"}, Outcome.UNKNOWN),
        ({"error__type": "pydantic.ValidationError"}, Outcome.INVALID_ARGUMENTS),
        ({"error__type": "TimeoutError"}, Outcome.TIMEOUT),
        ({"error__type": "KeyError"}, Outcome.ERROR),
        ({"failed": True}, Outcome.ERROR),
        ({"gen_ai__tool__call__result": "[]"}, Outcome.EMPTY),
        ({"gen_ai__tool__call__result": "completed, 0 errors"}, Outcome.OK),
        ({"ends": None}, Outcome.UNKNOWN),
    ],
    ids=str,
)
def test_outcome_from_what_the_span_says(attributes: dict[str, Any], outcome: Outcome) -> None:
    assert only([agent(), tool("a", **attributes)]).calls[0].call.outcome is outcome


def test_what_the_user_said_is_read_from_messages() -> None:
    messages = [
        {"role": "user", "parts": [{"type": "text", "content": "refund A-77"}]},
        {"role": "system", "parts": [{"type": "text", "content": "be kind"}]},
        {"role": "user", "parts": [{"type": "image"}, None]},
        "junk",
    ]
    trajectory = only([agent(gen_ai__input__messages=json.dumps(messages))])
    assert (trajectory.user_texts, trajectory.system_texts) == (("refund A-77",), ("be kind",))


@pytest.mark.parametrize(
    ("trace_state", "count"),
    [
        ("", 1.0),
        ("ot=th:0", 1.0),
        ("ot=th:8", 2.0),
        ("vendor=x,ot=rv:0123456789abcd;th:c", 4.0),
        ("ot=th:8,other=th:c", 2.0),
        ("ot=th:ffffffffffffff", 2.0**20),
        ("other=th:8", 1.0),
        ("toolverdict=th:unknown", None),
        ("ot=rv:0123456789abcd,toolverdict=th:unknown,vendor=x", None),
        ("ot=th:zz", None),
        ("ot=th:8;th:c", None),
        ("ot=rv:12;th:c", None),
    ],
)
def test_a_sampled_trace_stands_for_those_that_were_not_kept(
    trace_state: str, count: float | None
) -> None:
    """None where it was sampled and nobody knows how: that is not 1."""
    assert adjusted_count(trace_state) == count
