"""A rate: counts, intervals, and what cannot be computed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.scoring.model import Share
from toolverdict.scoring.rates import Rate, wilson

counts = st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


def test_nothing_evaluable_is_none_and_not_a_number() -> None:
    rate = Rate.of(Share(0, 0, unseen=3))
    assert (rate.value, rate.low, rate.high, rate.coverage) == (None, None, None, 0.0)
    assert str(rate) == "None (n=0)"
    assert Rate.of(Share()).coverage is None


def test_ten_of_ten_is_not_certainty() -> None:
    rate = Rate.of(Share(10, 10))
    assert rate.value == 1.0
    assert rate.low == pytest.approx(0.722, abs=0.001)
    assert rate.high == 1.0


def test_a_rate_says_its_counts() -> None:
    assert str(Rate.of(Share(1, 8))) == "0.125 (1/8) [0.022, 0.471]"


@given(counts)
def test_wilson_holds_the_value_and_stays_in_bounds(count: tuple[int, int]) -> None:
    hits, of = count
    low, high = wilson(hits, of)
    assert 0.0 <= low <= hits / of <= high <= 1.0
    assert low < high


@given(counts)
def test_wilson_is_symmetric(count: tuple[int, int]) -> None:
    hits, of = count
    low, high = wilson(hits, of)
    assert wilson(of - hits, of) == pytest.approx((1 - high, 1 - low))
