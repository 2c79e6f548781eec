"""pass^k, against its definition and against what chance alone would give."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.scoring.gate.repeats import pass_hat, pass_hat_k
from toolverdict.scoring.gate.testing import scored


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.integers(1, 9))
def test_it_is_the_share_of_draws_in_which_all_pass(trials: list[bool], k: int) -> None:
    if k > len(trials):
        with pytest.raises(ValueError, match="at least"):
            pass_hat_k(sum(trials), len(trials), k)
        return
    draws = list(combinations(trials, k))
    expected = sum(all(draw) for draw in draws) / len(draws)
    assert pass_hat_k(sum(trials), len(trials), k) == pytest.approx(expected)


@given(st.integers(1, 12), st.integers(1, 12))
def test_more_trials_are_never_easier(passed: int, missed: int) -> None:
    values = [pass_hat_k(passed, passed + missed, k) for k in range(1, passed + missed + 1)]
    assert values == sorted(values, reverse=True)


def test_cases_are_averaged_and_those_with_too_few_trials_are_named() -> None:
    trials = {"a": [True, True, True], "b": [True, False, True], "c": [True, True]}
    trajectories = [
        scored(f"{case}{number}", {}, case=case, passed=outcome)
        for case, outcomes in trials.items()
        for number, outcome in enumerate(outcomes)
    ]
    found = pass_hat(trajectories, 3)
    assert (found.value, found.cases, found.too_few) == (0.5, 2, ("c",))
    assert pass_hat(trajectories[::-1], 3) == found
    assert pass_hat(trajectories, 2).value == pytest.approx((1 + 1 / 3 + 1) / 3)
    assert str(pass_hat(trajectories, 4)) == "None (n=0)"


def test_ten_cases_that_all_pass_are_no_certainty() -> None:
    trajectories = [
        scored(f"{case}.{n}", {}, case=str(case), passed=True)
        for case in range(10)
        for n in range(2)
    ]
    found = pass_hat(trajectories, 2)
    assert found.value == found.high == 1
    assert found.low == pytest.approx(0.741, abs=0.001)


def test_what_was_not_judged_is_no_trial() -> None:
    trajectories = [scored("a", {}, case="c", passed=True), scored("b", {}, case="c", passed=None)]
    assert pass_hat(trajectories, 1).cases == 1
    assert pass_hat(trajectories, 2).too_few == ("c",)
    assert pass_hat([scored("x", {}, passed=True)], 1).value is None
