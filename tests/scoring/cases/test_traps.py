"""Comparisons that are easily got wrong (``tests/data/cases/traps.yaml``), each scored right.

Those that are no comparison of a case with calls are here in their own words.
"""

from pathlib import Path
from typing import Any

import pytest

from toolverdict.instrument.yaml_files import read_yaml
from toolverdict.scoring.cases.files import Place
from toolverdict.scoring.cases.formats import read_case
from toolverdict.scoring.model import Category, Thresholds, ToolCall
from toolverdict.scoring.rates import wilson
from toolverdict.scoring.rates.testing import aggregates_of
from toolverdict.scoring.testing import call, trajectory_of
from toolverdict.scoring.verdicts import judge_trajectory

TRAPS = read_yaml((Path(__file__).parents[2] / "data/cases/traps.yaml").read_bytes()).data


def expected(listed: Any) -> Any:
    """``[tool, arguments]`` as a case writes it; a list of such is a group."""
    if not listed or isinstance(listed[0], list):
        return [expected(one) for one in listed]
    tool, arguments = listed
    return {"tool": tool, **({} if arguments is None else {"args": arguments})}


def made(one: Any) -> ToolCall:
    if isinstance(one, dict):
        return call(one["tool"], {}, at=one["at"], lasts=one.get("lasts", 0.5))
    return call(*one)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: str(trap["name"]))
def test_traps_are_scored_right(trap: dict[str, Any]) -> None:
    document = {"id": "c", "expected_tool_calls": expected(trap["expected"])}
    document |= {"order": trap["order"]} if "order" in trap else {}
    document |= {"forbidden_tool_calls": trap["forbidden"]} if "forbidden" in trap else {}
    calls = [made(one) for one in trap["actual"] * trap.get("repeat", 1)]
    case = read_case(Place("traps"), document).case
    result = judge_trajectory(trajectory_of(*calls), None, case, Thresholds())
    scores = result.verdict.scores
    assert scores is not None
    duplicates = aggregates_of(result).rates()[""].get("duplicate_call_rate")
    categories = {f.category.value for f in result.findings}
    found = {
        "precision": scores.selection_precision,
        "recall": scores.selection_recall,
        "arguments": scores.arguments.value,
        "first_attempt": scores.arguments_first_attempt.value,
        "keys": scores.keys.value,
        "order": scores.order.value,
        "call_f1": scores.call_f1,
        "missing": scores.missing,
        "extra": scores.extra,
        "need": result.verdict.need,
        "forbidden": result.verdict.forbidden_attempted,
        "retry_waste": result.verdict.retry_waste,
        "duplicates": duplicates.hits if duplicates is not None else 0,
        "passed": result.verdict.passed,
        "reason": result.verdict.reason,
        "blamed": [
            str(calls[f.call_index or 0].tool)
            for f in result.findings
            if f.category is Category.ORDER_INVERTED
        ],
        "category": trap["right"].get("category")
        if trap["right"].get("category") in categories
        else categories,
    }
    for name, right in trap["right"].items():
        wanted = pytest.approx(right) if isinstance(right, float) else right
        assert found[name] == wanted, name


def test_ten_of_ten_leaves_room_for_failures() -> None:
    low, high = wilson(10, 10)
    assert (round(low, 3), high) == (0.722, 1.0)
