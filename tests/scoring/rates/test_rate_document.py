"""A rate as the document that others read: every field, and what it says where nothing was seen."""

import pytest

from toolverdict.scoring.model import Share
from toolverdict.scoring.rates import Rate, wilson


def test_a_rate_holds_its_counts_its_interval_and_its_coverage() -> None:
    rate = Rate.of(Share(3, 4, unseen=1))
    low, high = wilson(3, 4)
    assert rate == Rate(0.75, 3, 4, low, high, 0.8)
    assert rate.as_json() == {
        "value": 0.75,
        "numerator": 3,
        "denominator": 4,
        "low": low,
        "high": high,
        "coverage": 0.8,
    }


def test_where_nothing_was_evaluable_the_counts_stand_all_the_same() -> None:
    assert Rate.of(Share(0, 0, unseen=3)) == Rate(None, 0, 0, None, None, 0.0)
    assert Rate.of(Share()) == Rate(None, 0, 0, None, None, None)
    assert str(Rate.of(Share())) == "None (n=0)"


def test_the_interval_is_that_of_the_evidence_and_not_of_the_weight() -> None:
    """Two calls that stand for a hundred are the evidence of two."""
    rate = Rate.of(Share(1, 1).times(50.0) + Share(0, 1).times(50.0))
    assert (rate.value, rate.numerator, rate.denominator) == (0.5, 50, 100)
    assert (rate.low, rate.high) == pytest.approx(wilson(1, 2))


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(10, 10, 0.7225, 1.0), (0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (1, 8, 0.0224, 0.4709)],
)
def test_wilson_of_published_counts(hits: int, of: int, low: float, high: float) -> None:
    assert wilson(hits, of) == pytest.approx((low, high), abs=1e-4)
    assert wilson(5, 10, 1.6448536) == pytest.approx((0.2693, 0.7307), abs=1e-4)
