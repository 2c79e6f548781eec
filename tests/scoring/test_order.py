"""Order: constraints between matched calls, and the fewest calls to blame."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from toolverdict.scoring.cases.order import broken_constraints, to_blame
from toolverdict.scoring.model import Placed
from toolverdict.scoring.testing import call, placed


def starting(*starts: float, lasts: float = 0.5) -> list[Placed]:
    """Calls in expected order that started at these seconds."""
    in_time = placed(*(call(f"t{i}", at=at, lasts=lasts) for i, at in enumerate(starts)))
    return sorted(in_time, key=lambda place: place.call.tool)


def test_calls_in_order_break_nothing() -> None:
    assert broken_constraints(starting(1, 2, 3)) == []
    assert to_blame(starting(1, 2, 3)) == []


def test_of_d_a_b_c_only_d_is_to_blame() -> None:
    assert [place.call.tool for place in to_blame(starting(2, 3, 4, 1))] == ["t3"]


def test_a_call_before_its_predecessor_ended_is_premature() -> None:
    (broken,) = broken_constraints(starting(0, 4, lasts=5))
    assert broken.how == "premature"


def test_a_call_before_its_predecessor_started_is_inverted() -> None:
    (broken,) = broken_constraints(starting(4, 0))
    assert (broken.how, broken.later.call.tool) == ("inverted", "t1")


def test_equal_starts_are_concurrent_and_nobody_is_to_blame() -> None:
    assert to_blame(starting(1, 1, 1)) == []


@given(st.lists(st.integers(0, 6), max_size=7))
def test_without_the_blamed_calls_the_rest_is_in_order(starts: list[int]) -> None:
    calls = starting(*starts)
    blamed = {place.index for place in to_blame(calls)}
    rest = [place.call.start_ns for place in calls if place.index not in blamed]
    assert all(one <= other for one, other in pairwise(rest))
    # and no smaller set does it: the longest rising subsequence by brute force
    best = max(
        (len(run) for run in _rising_runs([place.call.start_ns for place in calls])), default=0
    )
    assert len(rest) == best


def _rising_runs(starts: list[int]) -> list[list[int]]:
    runs: list[list[int]] = [[]]
    for start in starts:
        runs += [[*run, start] for run in runs if not run or run[-1] <= start]
    return runs
