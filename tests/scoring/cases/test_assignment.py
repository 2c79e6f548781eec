"""Assignment: exact, one to one, and independent of how either side is listed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.scoring.cases.judge import judge
from toolverdict.scoring.cases.model import Case, Expectation
from toolverdict.scoring.model import CaseScores
from toolverdict.scoring.testing import call, trajectory_of

Calls = list[tuple[str, Any]]


def scores(expected: Calls, actual: Calls) -> CaseScores:
    case = Case(
        id="c",
        expected=tuple(Expectation(tool=tool, arguments=arguments) for tool, arguments in expected),
    )
    return judge(trajectory_of(*(call(tool, args) for tool, args in actual)), case).scores


def summary(found: CaseScores) -> tuple[float | None, ...]:
    return (
        found.selection_precision,
        found.selection_recall,
        found.arguments.value,
        found.keys.value,
    )


A, B = {"q": "a"}, {"q": "b"}


@pytest.mark.parametrize(
    ("expected", "actual", "right"),
    [
        ([("search", A)] * 2, [("search", A)] * 2, (1, 1, 1, 1)),
        (
            [("search", A)],
            [("search", A)] + [("delete_db", {"i": i}) for i in range(9)],
            (0.1, 1, 1, 1),
        ),
        ([("refund", A)], [("refund", A)] * 50, (0.02, 1, 1, 1)),
        ([("refund", A)] * 2, [("refund", A)], (1, 0.5, 1, 1)),
        (
            [("transfer", {"to": "bob", "amount": 10})],
            [("transfer", {"to": "eve", "amount": 1_000_000})],
            (1, 1, 0, 0),
        ),
        (
            [("f", {"x": 1}), ("f", {"x": 2})],
            [("f", {"x": 2}), ("f", {"x": 3})],
            (1, 1, 0.5, 0.5),
        ),
        ([], [("delete_db", {})], (0, None, None, None)),
        ([], [], (None, None, None, None)),
        ([("a", {}), ("b", {}), ("c", {})], [("a", {}), ("b", {})], (1, 2 / 3, 1, 1)),
        ([("transfer", {"to": "bob", "amount": 10})], [("transfer", {})], (1, 1, 0, 0)),
        (
            [("transfer", {"to": "bob", "amount": 10})],
            [("transfer", {"to": "bob"})],
            (1, 1, 0, 0.5),
        ),
        (
            [("pay", {"to": "bob", "amount": 10})],
            [("pay", {"to": "eve", "amount": 1e6}), ("pay", {"to": "bob", "amount": 10})],
            (0.5, 1, 1, 1),
        ),
        ([("f", {})], [("f", "{bad")], (1, 1, 0, 0)),
    ],
    ids=[
        "twice and twice",
        "nine extras",
        "fifty for one",
        "one for two",
        "all arguments wrong",
        "one of two right",
        "nothing expected",
        "nothing at all",
        "one missing",
        "no arguments",
        "half the arguments",
        "wrong one first",
        "malformed",
    ],
)
def test_selection_and_arguments(
    expected: Calls, actual: Calls, right: tuple[float | None, ...]
) -> None:
    """Precision, recall, argument accuracy and mean key score of known hard cases."""
    assert summary(scores(expected, actual)) == pytest.approx(right)


def test_pairing_is_not_greedy() -> None:
    """B130: an early expectation does not take the call that a later one needs."""
    expected = [("book", {"a": 1, "b": 1, "c": 1}), ("book", {"a": 1, "b": 1, "c": 2})]
    actual = [("book", {"a": 1, "b": 1, "c": 2}), ("book", {"a": 1, "b": 5, "c": 5})]
    for one in (expected, expected[::-1]):
        for other in (actual, actual[::-1]):
            found = scores(one, other)
            assert found.arguments.value == 0.5
            assert found.keys.value == pytest.approx(2 / 3)


def test_a_server_prefix_is_an_alias() -> None:
    assert scores([("search", A)], [("mcp__docs__search", A)]).selection == 1


def test_of_a_failed_and_a_successful_call_the_successful_one_is_matched() -> None:
    case = Case(id="c", expected=(Expectation(tool="pay", arguments=A),))
    calls = (call("pay", A), call("pay", A, outcome="refused"))
    findings = judge(trajectory_of(*calls), case).findings
    assert [f.category for f in findings] == ["extra_call"]
    assert findings[0].call_index == 1


def test_two_hundred_calls_of_one_tool_are_solved_exactly() -> None:
    expected = [("f", {"x": i, "y": 0}) for i in range(200)]
    found = scores(expected, expected[::-1])
    assert found.arguments.value == 1.0


tools = st.sampled_from(["a", "b"])
arguments = st.fixed_dictionaries({"x": st.integers(0, 2), "y": st.integers(0, 1)})
lists = st.lists(st.tuples(tools, arguments), max_size=5)


@given(lists, lists, st.randoms(use_true_random=False))
def test_listing_order_changes_no_unordered_score(expected: Calls, actual: Calls, rng: Any) -> None:
    before = summary(scores(expected, actual))
    rng.shuffle(expected)
    rng.shuffle(actual)
    assert summary(scores(expected, actual)) == pytest.approx(before)


@given(lists, lists, tools, arguments)
def test_an_extra_call_raises_neither_precision_nor_selection(
    expected: Calls, actual: Calls, tool: str, args: Any
) -> None:
    before, after = scores(expected, actual), scores(expected, [*actual, (tool, args)])
    if before.pairs == after.pairs:
        assert (after.selection_precision or 0) <= (before.selection_precision or 1)
        assert (after.selection or 0) <= (before.selection if before.selection is not None else 1)


@given(lists)
def test_a_perfect_run_scores_one_or_none(expected: Calls) -> None:
    assert set(summary(scores(expected, expected))) <= {1.0, None}


@given(lists.filter(len), st.data())
def test_removing_a_matched_call_lowers_recall(expected: Calls, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(expected) - 1))
    found = scores(expected, expected[:index] + expected[index + 1 :])
    assert found.selection_recall is not None
    assert found.selection_recall < 1
