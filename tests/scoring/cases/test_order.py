"""Order: constraints of a partial order between matched calls, and the fewest calls to blame."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.scoring.cases import order
from toolverdict.scoring.cases.order import Precedence, constraints, to_blame
from toolverdict.scoring.model import Placed
from toolverdict.scoring.testing import call, placed

Order = tuple[tuple[int, ...], ...]


def starting(*starts: float, lasts: float = 0.5) -> dict[int, list[Placed]]:
    """Matched calls by expectation, started at these seconds."""
    in_time = placed(*(call(f"t{i}", at=at, lasts=lasts) for i, at in enumerate(starts)))
    return {int(place.call.tool[1:]): [place] for place in in_time}


def held(matched: dict[int, list[Placed]], before: Order | None = None) -> list[bool | None]:
    return [constraint.held for constraint in constraints(matched, before)]


def blamed(matched: dict[int, list[Placed]], before: Order | None = None) -> list[str]:
    return [late.call.call.tool for late in to_blame(matched, before)]


def test_calls_in_order_break_nothing() -> None:
    assert held(starting(1, 2, 3)) == [True, True]
    assert blamed(starting(1, 2, 3)) == []


def test_of_d_a_b_c_only_d_is_to_blame() -> None:
    """Pairwise, three constraints would be blamed on three calls."""
    assert blamed(starting(2, 3, 4, 1)) == ["t3"]


def test_of_two_in_the_wrong_order_the_one_that_came_too_early_is_to_blame() -> None:
    (late,) = to_blame(starting(4, 1), None)
    assert (late.call.call.tool, late.other.call.tool, late.too_early) == ("t1", "t0", True)


def test_a_call_before_its_predecessor_ended_is_premature() -> None:
    (broken,) = constraints(starting(0, 4, lasts=5), None)
    assert (broken.broken, broken.held) == ("premature", False)


def test_a_call_before_its_predecessor_started_is_inverted() -> None:
    (broken,) = constraints(starting(4, 0), None)
    assert (broken.broken, broken.later.call.tool) == ("inverted", "t1")


def test_without_an_end_nothing_shows_that_a_call_waited() -> None:
    first, second = placed(call("t0", end_ns=None), call("t1"))
    assert held({0: [first], 1: [second]}) == [None]


def test_equal_starts_are_concurrent_and_nobody_is_to_blame() -> None:
    assert blamed(starting(1, 1, 1)) == []


def test_two_in_any_order_then_a_third() -> None:
    """Each of the two is a constraint of its own; between them there is none."""
    then: Order = ((), (), (0, 1))
    assert held(starting(2, 1, 3), then) == [True, True]
    assert held(starting(1, 5, 3), then) == [True, False]
    assert blamed(starting(1, 5, 3), then) == ["t2"]


def test_intervals_count_and_not_only_starts() -> None:
    """One of two predecessors was still running."""
    user, order, refund = placed(
        call("get_user", at=0, lasts=5), call("get_order", at=0, lasts=3), call("refund", at=4)
    )
    found = constraints({0: [user], 1: [order], 2: [refund]}, ((), (), (0, 1)))
    broken = [(c.earlier.call.tool, c.later.call.tool) for c in found if c.broken == "premature"]
    assert broken == [("get_user", "refund")]
    assert [c.held for c in found].count(True) == 1


def test_what_was_not_called_passes_its_constraints_on() -> None:
    """a before b before c, and b is missing: a still comes before c."""
    matched = starting(2, 9, 1)
    del matched[1]
    assert held(matched, ((), (0,), (1,))) == [False]


def test_without_an_order_there_is_nothing_to_keep() -> None:
    assert held(starting(3, 2, 1), ((), (), ())) == []


def test_every_call_of_a_repeated_expectation_is_held_to_the_order() -> None:
    first, second, third = placed(call("a", at=1), call("b", at=2), call("a", at=3))
    (broken,) = constraints({0: [first, third], 1: [second]}, None)
    assert (broken.broken, broken.earlier.index) == ("inverted", third.index)
    assert held({0: [second], 1: [first, third]}) == [False, True]


@st.composite
def orders(draw: st.DrawFn) -> tuple[dict[int, list[Placed]], Order]:
    size = draw(st.integers(0, 6))
    before = tuple(
        tuple(draw(st.sets(st.integers(0, index - 1)))) if index else () for index in range(size)
    )
    starts = draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))
    return starting(*starts), before


@pytest.mark.parametrize("listed", [True, False], ids=["total order", "partial order"])
@given(drawn=orders())
def test_the_blamed_are_a_smallest_set_that_explains_all_inversions(
    listed: bool, drawn: tuple[dict[int, list[Placed]], Order]
) -> None:
    matched, before = drawn
    order = None if listed else before
    closure = _closure(len(matched), order)
    starts = {index: places[0].call.start_ns for index, places in matched.items()}
    inversions = [(i, j) for i, j in closure if starts[j] < starts[i]]
    found = {int(name[1:]) for name in blamed(matched, order)}
    assert all(found & set(pair) for pair in inversions)
    smallest = next(
        size
        for size in range(len(matched) + 1)
        for chosen in combinations(matched, size)
        if all(set(chosen) & set(pair) for pair in inversions)
    )
    assert len(found) == smallest


def _closure(size: int, before: Order | None) -> set[tuple[int, int]]:
    if before is None:
        return set(combinations(range(size), 2))
    pairs = {(i, j) for j in range(size) for i in before[j]}
    for _ in range(size):
        pairs |= {(i, m) for i, j in pairs for k, m in pairs if j == k}
    return pairs


def test_what_comes_before_what_however_far() -> None:
    listed = Precedence(None, 3)
    assert [listed(i, j) for i, j in ((0, 1), (0, 2), (1, 0), (1, 1))] == [True, True, False, False]
    assert [listed.rank(i) for i in (2, 0)] == [(0, 2), (0, 0)]
    assert (listed.says_nothing, listed.before) == (False, None)
    partial = Precedence(((1,), (2,), ()), 3)
    assert [partial(i, j) for i, j in ((1, 0), (2, 0), (2, 1), (0, 2))] == [True, True, True, False]
    assert sorted(range(3), key=partial.rank) == [2, 1, 0]
    assert (partial.says_nothing, partial.before) == (False, ((1,), (2,), ()))
    assert Precedence(((), ()), 2).says_nothing


def test_all_that_answer_the_earlier_one_are_waited_for() -> None:
    """The last to start, the last to end and one without an end each stand for a reason."""
    early = call("a", at=0, lasts=9)
    late = call("a", at=3, lasts=1)
    open_ = call("a", at=1, end_ns=None)
    first, second, third = placed(early, open_, late)
    (next_,) = placed(call("b", at=5))
    (found,) = constraints({0: [first, third], 1: [next_]}, None)
    assert (found.broken, found.earlier) == ("premature", first)
    (found,) = constraints({0: [third, second], 1: [next_]}, None)
    assert (found.broken, found.held, found.earlier) == (None, None, second)
    (found,) = constraints({0: [second, third], 1: placed(call("b", at=2))}, None)
    assert (found.broken, found.earlier) == ("inverted", third)
    (found,) = constraints({0: [third], 1: [next_]}, None)
    assert (found.held, found.later) == (True, next_)


def test_a_call_that_starts_as_the_other_ends_has_waited() -> None:
    assert held(starting(0, 2, lasts=2)) == [True]
    assert held(starting(0, 0, lasts=2)) == [False]  # at once is premature, and not inverted
    (found,) = constraints(starting(0, 0, lasts=2), None)
    assert found.broken == "premature"


def test_a_call_that_came_too_late_is_said_so() -> None:
    """a, b, c, d made as b, c, d, a: a alone, and it came after b, which comes later."""
    (late,) = to_blame(starting(4, 1, 2, 3), None)
    assert (late.call.call.tool, late.other.call.tool, late.too_early) == ("t0", "t1", False)


def test_the_blamed_are_listed_in_time() -> None:
    assert blamed(starting(5, 6, 2, 1)) == ["t3", "t2"]


def test_the_blamed_are_looked_for_among_so_many_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "_MOST_CALLS", 2)
    assert blamed(starting(1, 2, 0)) == []
    assert blamed(starting(2, 1, 3)) == ["t1"]


def test_a_constraint_through_another_is_not_told_twice() -> None:
    """a before b before c, and a before c as well: two constraints."""
    assert held(starting(1, 2, 3), ((), (0,), (0, 1))) == [True, True]
    assert held(starting(1, 2, 3, 4), ((), (), (0, 1), (2, 0))) == [True, True, True]
