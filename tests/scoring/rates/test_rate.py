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


def test_a_rate_of_a_share_has_every_count() -> None:
    """Weights make the interval wider, and what was not seen is in the coverage alone."""
    share = Share(2, 8, unseen=2, squares=16)
    rate = Rate.of(share)
    low, high = wilson(1, 4)  # eight calls of weight two are as much evidence as four
    assert rate == Rate(0.25, 2, 8, low, high, 0.8)
    assert rate.as_json() == {
        "value": 0.25,
        "numerator": 2,
        "denominator": 8,
        "low": low,
        "high": high,
        "coverage": 0.8,
    }
    assert Rate.of(Share(0, 0, unseen=3)) == Rate(None, 0, 0, None, None, 0.0)


@pytest.mark.parametrize(
    ("value", "low", "high"), [(None, 0.1, 0.9), (0.5, None, 0.9), (0.5, 0.1, None)]
)
def test_a_rate_without_all_of_its_figures_is_none(
    value: float | None, low: float | None, high: float | None
) -> None:
    assert str(Rate(value, 1, 2, low, high, 1.0)) == "None (n=0)"


def test_fewer_hits_than_one_are_not_none() -> None:
    """Counts are weighted, so that they need not be whole."""
    assert wilson(0.5, 10)[0] > 0
    assert wilson(9.5, 10)[1] < 1
