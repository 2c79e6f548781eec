"""Of equally right pairs those are taken that keep the case's order, also beside extra calls."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from toolverdict.scoring.cases import keeping_order
from toolverdict.scoring.cases.assignment import Assignment, assign
from toolverdict.scoring.cases.judge import judge
from toolverdict.scoring.cases.model import Case, Expectation, Extra
from toolverdict.scoring.cases.order import Precedence, constraints
from toolverdict.scoring.cases.pairing import ToolPairs
from toolverdict.scoring.cases.references import Answers
from toolverdict.scoring.model import Placed
from toolverdict.scoring.testing import call, placed, trajectory_of

Before = tuple[tuple[int, ...], ...] | None


def tools_in(text: str) -> tuple[Expectation, ...]:
    return tuple(Expectation(tool=tool) for tool in text.split())


def made(text: str) -> tuple[Placed, ...]:
    return placed(*(call(tool) for tool in text.split()))


def assigned(
    expected: Sequence[Expectation], calls: Sequence[Placed], before: Before = None
) -> Any:
    return assign(expected, Precedence(before, len(expected)), calls, calls)[0]


def indexes(found: Assignment) -> list[int]:
    return [pair.call.index for pair in found.pairs]


def broken(matched: dict[int, list[Placed]], before: Before) -> int:
    return sum(one.held is False for one in constraints(matched, before))


@pytest.mark.parametrize(
    ("expected", "actual", "right"),
    [
        ("look pay", "pay look pay", [1, 2]),
        ("look pay look", "pay look look pay look", [1, 3, 4]),
        ("a b c", "c b a b c", [2, 3, 4]),
        ("a b a a", "b a b a a", [1, 2, 3, 4]),
        ("b c a", "c b a c a b", [1, 3, 4]),
        ("c a b", "a b c b a c c b", [2, 4, 7]),
        ("pay look", "pay look pay", [0, 1]),
        ("look pay", "pay pay look", [2, 0]),
    ],
    ids=[
        "one before",
        "two of each",
        "mirrored",
        "many",
        "from the first calls",
        "far on",
        "the first is right",
        "none is right",
    ],
)
def test_the_call_that_keeps_the_order_is_taken(
    expected: str, actual: str, right: list[int]
) -> None:
    assert indexes(assigned(tools_in(expected), made(actual))) == right


def test_an_allowed_extra_call_inverts_nothing() -> None:
    case = Case(id="c", expected=tools_in("look pay"), extra=Extra(default="allow"))
    result = judge(trajectory_of(*(call(tool) for tool in ("pay", "look", "pay"))), case)
    assert result.scores.order.value == 1
    assert result.findings == ()


def test_right_arguments_come_before_the_order() -> None:
    expected = (
        Expectation(tool="look", arguments={}),
        Expectation(tool="pay", arguments={"to": "bob"}),
    )
    calls = placed(call("pay", {"to": "bob"}), call("look", {}), call("pay", {"to": "eve"}))
    assert indexes(assigned(expected, calls)) == [1, 0]


def test_a_call_still_running_is_not_waited_for() -> None:
    """Of two look-ups only the first had ended when the payment began."""
    look = [call("look", at=1), call("look", at=2, lasts=9)]
    found = assigned(tools_in("look pay"), placed(*look, call("pay", at=5)))
    assert indexes(found) == [0, 2]
    late = assigned(
        tools_in("pay look"), placed(call("pay", at=0, lasts=3), *look, call("look", at=4))
    )
    assert indexes(late) == [0, 3]


def test_without_an_end_only_the_start_counts() -> None:
    calls = placed(call("pay", at=0), call("look", at=1, end_ns=None), call("pay", at=2))
    assert indexes(assigned(tools_in("look pay"), calls)) == [1, 2]


def test_a_list_against_its_own_numbering_pairs_by_what_waits() -> None:
    """Listed first, but said to come after: the later of two equal calls is its."""
    calls = made("f f")
    assert indexes(assigned(tools_in("f f"), calls, ((1,), ()))) == [1, 0]
    assert indexes(assigned(tools_in("f f"), calls, ((), ()))) == [0, 1]


def test_the_work_on_a_hostile_trace_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping_order, "_MOST_STEPS", 2)
    assert indexes(assigned(tools_in("look pay"), made("pay look pay"))) == [1, 0]


@given(
    st.lists(st.sampled_from("ab"), min_size=1, max_size=4),
    st.lists(st.sampled_from("ab"), min_size=1, max_size=6),
)
def test_where_some_choice_keeps_the_listed_order_it_is_found(
    expected: list[str], actual: list[str]
) -> None:
    wanted, calls = tools_in(" ".join(expected)), made(" ".join(actual))
    found = assigned(wanted, calls)
    assume(not found.missing)
    everything = permutations(range(len(calls)), len(wanted))
    fewest = min(
        broken({at: [calls[c]] for at, c in enumerate(chosen)}, None)
        for chosen in everything
        if all(actual[c] == expected[at] for at, c in enumerate(chosen))
    )
    mine = broken({pair.expected: [pair.call] for pair in found.pairs}, None)
    assert (mine == 0) == (fewest == 0)


@pytest.mark.parametrize(
    ("expected", "actual", "settled"),
    [
        ([1, 2], [2, 1], True),
        ([1, 1], [1, 1], False),
        ([1], [1, 1], False),
        ([1], [1, 2], True),
        ([1, 2], [1], True),
        ([1, 1], [1], False),
        ([1, 2], [3], False),
    ],
    ids=str,
)
def test_where_no_other_pairs_are_as_good_nothing_is_chosen_again(
    expected: list[int], actual: list[int], settled: bool
) -> None:
    wanted = [Expectation(tool="f", arguments={"x": x}) for x in expected]
    calls = placed(*(call("f", {"x": x}) for x in actual))
    pairs = ToolPairs(range(len(wanted)), wanted, calls, Answers(calls))
    assert pairs.settled is settled


def test_pairs_of_other_servers_settle_nothing() -> None:
    """Neither all that is expected nor all that was called is paired."""
    wanted = [Expectation(tool="a.f"), Expectation(tool="a.f")]
    calls = placed(call("f", {}, tool_server="a"), call("f", {}, tool_server="b"))
    pairs = ToolPairs(range(2), wanted, calls, Answers(calls))
    assert (len(pairs.found), pairs.settled) == (1, False)
