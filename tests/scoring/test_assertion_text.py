"""What a failed assertion says, for everything that a case can ask."""

from typing import Any

import pytest

from toolverdict.instrument.policy import Policy
from toolverdict.scoring.assertion_text import case_failure, policy_failure
from toolverdict.scoring.cases.files import Place
from toolverdict.scoring.cases.formats import read_case
from toolverdict.scoring.model import Thresholds, ToolCall
from toolverdict.scoring.testing import call, trajectory_of
from toolverdict.scoring.verdicts import judge_trajectory


def said(document: dict[str, Any], *calls: ToolCall, **run: Any) -> list[str]:
    case = read_case(Place("case"), {"id": "c", **document}).case
    judged = judge_trajectory(trajectory_of(*calls, case_id="c", **run), None, case, Thresholds())
    assert judged.verdict.passed is not True
    return case_failure(case, judged).split("\n")


@pytest.mark.parametrize(
    ("expected", "line"),
    [
        ({"tool": "a"}, "    1. a"),
        ({"tool": "a", "args": {}}, "    1. a {}"),
        ({"tool": "a", "args_subset": {"n": 1}}, '    1. a at least {"n": 1}'),
        ({"tool": "a", "count": {"min": 2, "max": 3}}, "    1. a, 2 to 3 times"),
        ({"tool": "a", "count": {"min": 2}}, "    1. a, 2 to any number times"),
        ({"tool": "a", "optional": True}, "    1. a, optional"),
        ({"tool": "a", "outcome": "failure"}, "    1. a, ends as failure"),
    ],
)
def test_an_expected_call(expected: dict[str, Any], line: str) -> None:
    assert line in said({"expected_tool_calls": [expected, {"tool": "never"}]}, call("x", {}))


@pytest.mark.parametrize(
    ("forbidden", "line"),
    [
        ({"tool": "x"}, "    never x"),
        ({"tool": "x", "args_subset": {"to": "all"}}, '    never x with {"to": "all"}'),
        ({"tool": "x", "unless_after": ["ask", "look"]}, "    never x before ask and look"),
        ({"tool": "x", "reason": "not now"}, "    never x (not now)"),
    ],
)
def test_a_forbidden_call(forbidden: dict[str, Any], line: str) -> None:
    document = {"expected_tool_calls": [], "forbidden_tool_calls": [forbidden]}
    lines = said(document, call("x", {"to": "all"}))
    assert line in lines
    assert "    no call" in lines


def test_the_order_is_said_where_it_is_not_that_of_the_list() -> None:
    document = {"expected_tool_calls": [[{"tool": "a"}, {"tool": "b"}], {"tool": "c"}]}
    lines = said(document, call("c", {}), call("a", {}), call("b", {}))
    assert lines[2:5] == ["    1. a", "    2. b", "    3. c, after 1, 2"]
    assert any("order_inverted at span" in line for line in lines)


def test_of_several_ways_the_nearest_is_shown() -> None:
    ways = [
        {"name": "by card", "expected_tool_calls": [{"tool": "look"}, {"tool": "card"}]},
        {"name": "by bank", "expected_tool_calls": [{"tool": "look"}, {"tool": "bank"}]},
    ]
    lines = said({"alternatives": ways}, call("bank", {}))
    assert lines[2:5] == ["    (of 2 ways, the nearest: by bank)", "    1. look", "    2. bank"]


def test_retries_and_missing_arguments_are_shown() -> None:
    lines = said(
        {"expected_tool_calls": [{"tool": "pay", "args": {"n": 1}}]},
        call("pay", {"n": 2}, outcome="invalid_arguments"),
        call("pay", {"n": 2}),
        call("note"),
    )
    happened = lines[lines.index("happened:") + 1 :]
    assert happened[:3] == [
        '    1. pay {"n": 2}: invalid_arguments, span 0000000000000000',
        '    2. pay {"n": 2}: ok, retry of 1, span 0000000000000001',
        "    3. note (arguments not captured): ok, span 0000000000000002",
    ]


def test_no_call_at_all() -> None:
    lines = said({"expected_tool_calls": [{"tool": "pay"}]})
    assert lines[0] == "c failed: missing_call"
    assert lines[lines.index("happened:") + 1] == "    no call"


@pytest.mark.parametrize(
    ("document", "calls", "run", "reason"),
    [
        ({"args": {"n": 1}}, [call("pay")], {}, "arguments_not_captured: arguments were not"),
        (
            {},
            [call("pay", {})],
            {"gaps": ("no root", "b", "c", "d")},
            "spans are missing; end every",
        ),
        ({}, [call("pay", {}, outcome="unknown")], {}, "outcome_unknown: the trace does not show"),
    ],
)
def test_what_cannot_be_judged_says_what_to_do(
    document: dict[str, Any], calls: list[ToolCall], run: dict[str, Any], reason: str
) -> None:
    lines = said({"expected_tool_calls": [{"tool": "pay", **document}]}, *calls, **run)
    assert lines[0].startswith("c cannot be judged: ")
    assert reason in lines[0]
    assert lines[0].endswith(" (no root; b; c)") == bool(run)


def test_hostile_texts_are_shown_as_escapes_and_cut() -> None:
    lines = said(
        {"expected_tool_calls": [{"tool": "pay"}]},
        call("a\x1b[2J\u202e\nb", {"k": "\x07" + "y" * 10_000}),
        *(call(f"t{number}", {}) for number in range(60)),
    )
    text = "\n".join(lines)
    assert all(line.isprintable() for line in lines)
    assert r"a\x1b[2J\u202e\nb" in text
    assert max(len(line) for line in lines) < 400
    assert text.count("    and 11 more") == 2


def test_long_texts_are_compared_line_by_line() -> None:
    wanted, got = [f"line {n}" for n in range(80)], [f"line {n}!" for n in range(80)]
    document = {"expected_tool_calls": [{"tool": "pay", "args": {"a": wanted, "b": "x" * 70}}]}
    lines = said(document, call("pay", {"a": [*got, "more"], "b": "y" * 70}))
    assert '        -   "line 0",' in lines
    assert '        +   "line 0!",' in lines
    assert "        ..." in lines
    assert f'        - "{"x" * 70}"' in lines


def test_a_policy_that_cannot_be_decided_names_the_call() -> None:
    policy = Policy.parse(
        "version: 1\nid: p\nrules: [{id: r, effect: deny, tools: [pay], args: {n: {equals: 5}}}]"
    )
    run = trajectory_of(call("pay"), call("look", {}))
    judged = judge_trajectory(run, policy, None, Thresholds())
    assert policy_failure([judged]).split("\n") == [
        "calls may have broken the policy:",
        "    undecided at span 0000000000000000: pay: a rule looks at what the trace does not show",
        "happened:",
        "    1. pay (arguments not captured): ok, span 0000000000000000",
        "    2. look {}: ok, span 0000000000000001",
    ]


def test_a_long_difference_is_cut() -> None:
    expected = [f"passenger {n:03} of this flight" for n in range(100)]
    document = {"expected_tool_calls": [{"tool": "a", "args": {"o": expected}}]}
    lines = said(document, call("a", {"o": ["nobody"]}))
    assert any(line.strip() == "..." for line in lines)
    assert sum(line.lstrip().startswith(("-", "+")) for line in lines) < 100


def test_without_anything_scored_no_score_is_said() -> None:
    lines = said({"expected_tool_calls": [], "need": "required"}, user=["hi"])
    assert not any("scores:" in line for line in lines)
