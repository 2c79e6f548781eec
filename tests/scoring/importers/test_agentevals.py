"""Reference trajectories of agentevals: which messages are calls, in which order, and what is lost."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from toolverdict.scoring.errors import InputError
from toolverdict.scoring.importers import Imported, Strictness
from toolverdict.scoring.testing import call


def asks(*calls: dict[str, Any], content: str = "") -> dict[str, Any]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def openai(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": "c", "function": {"name": name, "arguments": json.dumps(arguments)}}


USER = {"role": "user", "content": "Refund A123, please"}
ORDER = asks(openai("get_order", order_id="A123"))
PARALLEL = asks(openai("refund", order_id="A123"), openai("notify", order_id="A123"))
RESULT = {"role": "tool", "content": "{}", "tool_call_id": "c"}
BYE = {"role": "assistant", "content": "Done."}
TRAJECTORY = [USER, ORDER, RESULT, PARALLEL, RESULT, RESULT, BYE]
EXPECTED = [
    {"tool": "get_order", "args": {"order_id": "A123"}},
    [
        {"tool": "refund", "args": {"order_id": "A123"}},
        {"tool": "notify", "args": {"order_id": "A123"}},
    ],
]


@pytest.mark.parametrize(
    "document",
    [
        TRAJECTORY,
        {"messages": TRAJECTORY},
        {"reference_outputs": {"messages": TRAJECTORY}, "outputs": [BYE]},
        {"inputs": {"question": "Refund A123, please"}, "outputs": {"messages": TRAJECTORY[1:]}},
        {"inputs": {"messages": [USER]}, "referenceOutputs": TRAJECTORY[1:]},
        [{"input": "Refund A123, please", "expected": TRAJECTORY}],
    ],
    ids=["list", "object", "reference", "row", "camel", "rows"],
)
def test_a_trajectory_is_one_case(imported: Callable[..., Imported], document: Any) -> None:
    (case,) = imported("agentevals", document).cases
    assert case["input"] == "Refund A123, please"
    assert case["expected_tool_calls"] == EXPECTED


def test_calls_of_one_message_are_in_any_order(
    imported: Callable[..., Imported], passes: Callable[..., bool]
) -> None:
    (case,) = imported("agentevals", TRAJECTORY).cases
    order, refund, notify = (
        call(tool, {"order_id": "A123"}) for tool in ("get_order", "refund", "notify")
    )
    assert passes(case, order, refund, notify)
    assert passes(case, order, notify, refund)
    assert not passes(case, notify, order, refund)
    assert not passes(case, order, refund)
    assert not passes(case, order, refund, notify, call("audit", {}))


@pytest.mark.parametrize(
    "message",
    [
        {"type": "ai", "content": "", "tool_calls": [{"name": "pay", "args": {"n": 1}, "id": "c"}]},
        {"role": "ai", "tool_calls": [{"name": "pay", "args": {"n": 1}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me pay."},
                {"type": "tool_use", "id": "t", "name": "pay", "input": {"n": 1}},
            ],
        },
    ],
    ids=["langchain", "agentevals", "anthropic"],
)
def test_messages_of_every_kind(imported: Callable[..., Imported], message: Any) -> None:
    (case,) = imported("agentevals", [USER, message]).cases
    assert case["expected_tool_calls"] == [{"tool": "pay", "args": {"n": 1}}]


def test_lines_are_trajectories(imported: Callable[..., Imported]) -> None:
    lines = [json.dumps({"id": "a", "messages": TRAJECTORY}), json.dumps([USER, BYE])]
    made = imported("agentevals", "\n".join(lines) + "\n", "rows.jsonl")
    assert [case["id"] for case in made.cases] == ["a", "rows_1"]
    assert made.cases[1]["expected_tool_calls"] == []


def test_what_is_said_and_returned_is_a_loss(imported: Callable[..., Imported]) -> None:
    assert imported("agentevals", TRAJECTORY).losses == (
        "cases.json: 2: what a tool returned is not compared (3 places in all)",
        "cases.json: 6: what the agent said is not compared",
    )


def test_a_match_mode_is_said_by_whoever_imports(
    imported: Callable[..., Imported], passes: Callable[..., bool]
) -> None:
    superset = Strictness(order="any", extra="allow", args="ignore")
    (case,) = imported("agentevals", TRAJECTORY, strictness=superset).cases
    calls = (call("notify", {}), call("refund", {}), call("look", {}), call("get_order", {}))
    assert passes(case, *calls)
    assert not passes(case, *calls[1:])


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"results": [{}], "steps": [["a"]]}, "cases.json: is a graph trajectory: it names nodes"),
        ({"rows": 1}, "cases.json: expected the key 'reference_outputs' or "),
        ([USER, {"role": "assistant", "tool_calls": [{"args": {}}]}], "1.tool_calls.0: expected"),
        ([USER, asks({"name": "a", "args": "{"})], "0.args: expected the arguments as a JSON"),
        ("{", "is not JSON"),
    ],
)
def test_a_file_of_something_else_is_one_line(
    imported: Callable[..., Imported], document: Any, why: str
) -> None:
    with pytest.raises(InputError) as caught:
        imported("agentevals", document)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
