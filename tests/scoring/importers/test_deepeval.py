"""Test cases and goldens of deepeval, in both spellings of their keys."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from toolverdict.scoring.errors import InputError
from toolverdict.scoring.importers import Imported
from toolverdict.scoring.testing import call

SAVED = {  # as a data set is saved: snake case outside, camel case inside
    "input": "Refund A123",
    "expected_output": "Refunded.",
    "name": "refund",
    "tools_called": None,
    "expected_tools": [
        {"name": "get_order", "type": "FUNCTION", "inputParameters": {"order_id": "A123"}},
        {"name": "refund", "reasoning": "it was asked for", "output": {"ok": True}},
    ],
}
CAMEL = {
    "input": "Refund A123",
    "name": "refund",
    "expectedTools": [
        {"name": "get_order", "input_parameters": {"order_id": "A123"}},
        {"name": "refund"},
    ],
}
CASE = {
    "id": "refund",
    "input": "Refund A123",
    "expected_tool_calls": [
        {"tool": "get_order", "args": {"order_id": "A123"}},
        {"tool": "refund"},
    ],
    "order": "any",
    "extra": "allow",
}


@pytest.mark.parametrize("document", [SAVED, [CAMEL], {"goldens": [SAVED]}, {"testCases": [CAMEL]}])
def test_a_golden_is_a_case(imported: Callable[..., Imported], document: Any) -> None:
    assert imported("deepeval", document).cases == (CASE,)


def test_lines(imported: Callable[..., Imported]) -> None:
    lines = "\n".join(json.dumps(one) for one in (SAVED, {**CAMEL, "name": "again"}))
    assert [c["id"] for c in imported("deepeval", lines, "d.jsonl").cases] == ["refund", "again"]


def test_it_judges_as_tool_correctness_does(
    imported: Callable[..., Imported], passes: Callable[..., bool]
) -> None:
    (case,) = imported("deepeval", SAVED).cases
    order, refund = call("get_order", {"order_id": "A123"}), call("refund", {"any": 1})
    assert passes(case, refund, call("look", {}), order)
    assert not passes(case, refund, call("get_order", {"order_id": "A124"}))
    assert not passes(case, refund)


def test_nothing_expected_is_nothing_called(
    imported: Callable[..., Imported], passes: Callable[..., bool]
) -> None:
    (case,) = imported("deepeval", {"input": "Thanks", "expected_tools": []}).cases
    assert passes(case)
    assert not passes(case, call("refund", {}))


def test_losses(imported: Callable[..., Imported]) -> None:
    silent = {"input": "Hello", "expected_tools": None}
    assert imported("deepeval", [SAVED, silent]).losses == (
        "cases.json: 0.expected_output: the expected output is not compared",
        "cases.json: 0.expected_tools.1.output: what a tool is expected to return is not compared",
        "cases.json: 0.expected_tools.1.reasoning: the reasoning before a call is not compared",
        "cases.json: 1: names no expected tools: no case was made",
    )


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ([{"input": "Hello"}], "holds no case of deepeval; .*names no expected tools"),
        ([{"expected_tools": [{"inputParameters": {}}]}], "expected_tools.0: expected the key 'na"),
        ([{"expected_tools": "refund"}], "expected a list, got a str"),
        ([{"expected_tools": [{"name": "a", "input_parameters": 3}]}], "expected an object, got a"),
        ("7", "expected a list, got a int"),
    ],
)
def test_a_file_of_something_else_is_one_line(
    imported: Callable[..., Imported], document: Any, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        imported("deepeval", document)
