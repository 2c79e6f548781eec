"""Traces that somebody made to cost time or to break: read whole, in bounded work, without a word.

Nothing is timed: each of these is large enough that work that grows with its square would hang.
"""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolverdict.scoring.conversations import trajectories_of
from toolverdict.scoring.dialects import values
from toolverdict.scoring.dialects.failures import Signs, ending
from toolverdict.scoring.dialects.messages import Asked, items, nested
from toolverdict.scoring.model import Captured, Trajectory
from toolverdict.scoring.spans import Event, LogRecord, Span

TRACE = "0af7651916cd43dd8448eb211c80319c"


def span(span_id: str, parent: str | None, at: int, trace: str = TRACE, **a: Any) -> Span:
    attributes = {key.replace("__", "."): value for key, value in a.items()}
    return Span(trace, span_id, parent, "span", at, at + 1, False, attributes, {}, "")


def tool(number: int, parent: str | None = "root", **a: Any) -> Span:
    a = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": "pay", **a}
    return span(f"t{number}", parent, number, **a)


def chat(number: int, **a: Any) -> Span:
    return span(f"m{number}", "root", number, gen_ai__operation__name="chat", **a)


def asked(*ids: str, tool: str = "pay") -> str:
    parts = [{"type": "tool_call", "id": i, "name": tool, "arguments": {"n": 1}} for i in ids]
    return json.dumps([{"role": "assistant", "parts": parts}])


def read(spans: list[Span], logs: list[LogRecord] | None = None) -> list[Trajectory]:
    return list(trajectories_of([spans], logs or []))


ROOT = span("root", None, 0, gen_ai__operation__name="invoke_agent")


def test_twenty_thousand_spans_of_one_tool_inside_each_other() -> None:
    chain = [tool(n, f"t{n - 1}" if n else None) for n in range(20_000)]
    (trajectory,) = read(chain)
    assert len(trajectory.calls) == 1


def test_twenty_thousand_requests_and_calls_with_one_id() -> None:
    spans = [ROOT]
    for n in range(1, 20_000, 2):
        spans.append(chat(n, gen_ai__output__messages=asked("call_0")))
        spans.append(tool(n + 1, gen_ai__tool__call__id="call_0"))
    (trajectory,) = read(spans)
    assert len(trajectory.calls) == 10_000
    assert all(place.call.span_id.startswith("t") for place in trajectory.calls)


def test_ten_thousand_requests_in_one_answer_that_nothing_follows() -> None:
    output = asked(*(f"c{n}" for n in range(10_000)))
    (trajectory,) = read([ROOT, chat(1, gen_ai__output__messages=output)])
    assert len(trajectory.calls) == 10_000


def test_ten_thousand_records_and_decisions_of_one_call() -> None:
    a = {"tool_use_id": "c", "mcp_tool_name": "pay", "decision": "accept", "success": "true"}
    logs = [
        LogRecord(TRACE, "root", Event(name, a, None, n), {})
        for n in range(10_000)
        for name in ("claude_code.tool_result", "claude_code.tool_decision")
    ]
    (trajectory,) = read([ROOT, tool(1, gen_ai__tool__call__id="c")], logs)
    assert len(trajectory.calls) == 1


def test_five_thousand_traces_that_may_all_go_on_with_each_other() -> None:
    traces = []
    for n in range(5_000):
        a = {"gen_ai__operation__name": "chat", "gen_ai__conversation__id": "one"}
        history = json.dumps(
            [
                *json.loads(asked("c0")),
                {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c0"}]},
            ]
        )
        a |= {"gen_ai__output__messages": asked("c0"), "gen_ai__input__messages": history}
        traces.append([span("m", None, n, trace=f"{n:032x}", **a)])
    assert sum(len(t.calls) for t in trajectories_of(traces)) == 5_000


def test_models_and_tools_whose_parents_run_in_a_circle() -> None:
    a = {"gen_ai__operation__name": "chat", "gen_ai__output__messages": asked("c1", "c2")}
    spans = [span("m1", "t2", 1, **a), tool(2, "m1", gen_ai__tool__call__id="c1")]
    (trajectory,) = read(spans)
    assert [place.call.call_id for place in trajectory.calls] == ["c1", "c2"]
    assert not trajectory.complete


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "{'a': " * 5_000 + "1" + "}" * 5_000,
        "(" * 60_000 + ")" * 60_000,
        "[" + "-" * 60_000 + "1]",
        "{'a': 1, 'a': 2}",
        "{'\\d': 1}",
        "[__import__('os').getpid()]",
        "{**{}}",
        "[1e999, -0.0, 10**10**10]",
    ],
    ids=["open", "deep", "parentheses", "signs", "twice", "escape", "call", "spread", "numbers"],
)
def test_a_python_literal_is_read_within_bounds_or_stays_a_text(text: str) -> None:
    read = values.decoded(text)
    assert read == text or isinstance(read, dict | list)
    assert values.constructed(f"ToolCall(name={text})") is None or len(text) < 100


def test_a_literal_that_names_a_key_twice_is_not_read() -> None:
    assert values.decoded("{'to': 'eve', 'to': 'bob'}") == "{'to': 'eve', 'to': 'bob'}"


def test_flattened_attributes_that_contradict_each_other_are_read_somehow() -> None:
    attributes = {
        "p.0.message": "text",
        "p.0.message.role": "assistant",
        "p.-1.x": 1,
        "p." + "a." * 500 + "b": 1,
        "p.99999999999.x": 2,
        "p.": 3,
    }
    assert isinstance(nested(attributes, "p."), dict | list)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "type",
                    "parts",
                    "content",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "id",
                    "tool_call_id",
                    "toolUse",
                    "toolResult",
                    "function_call",
                    "functionResponse",
                    "tool_call",
                    "tool_call_result",
                    "result",
                    "origin",
                    "message",
                    "kwargs",
                    "status",
                ]
            ),
            inner | st.sampled_from(["tool", "assistant", "tool_call", "tool_call_response"]),
            max_size=5,
        )
    ),
    max_leaves=24,
)


@settings(max_examples=300, deadline=None)
@given(_JSON)
def test_no_shape_of_messages_breaks_the_reader(value: Any) -> None:
    for generated in (True, False):
        for item in items(value, generated=generated):
            if isinstance(item, Asked):
                assert item.tool


@settings(max_examples=200, deadline=None)
@given(_JSON, st.lists(st.text(max_size=200), max_size=4), st.booleans(), st.booleans())
def test_every_result_and_text_has_an_ending(
    value: Any, texts: list[str], failed: bool, ended: bool
) -> None:
    signs = Signs(failed=failed, ended=ended, texts=tuple(texts), classes=tuple(texts[:1]))
    told = ending(signs + Signs(), values.result(value), Captured.CAPTURED)
    assert told.executed in (True, False, None)
    if failed:
        assert not told.outcome.succeeded
