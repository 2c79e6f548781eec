"""Intervals against published figures, and the laws that make a gate safe to trust."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import stdtrit
from scipy.stats import binomtest

from toolverdict.scoring.intervals import (
    Moments,
    clopper_pearson,
    cluster_moments,
    total,
    units_for,
    zero_events_bound,
)
from toolverdict.scoring.model import Share
from toolverdict.scoring.rates import Rate

counts = st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
clusters = st.lists(
    st.integers(1, 12).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    min_size=1,
    max_size=40,
)
weights = st.sampled_from([1.0, 1.5, 2.0, 16.0])


def moments(*sums: tuple[float, float], weight: float = 1.0) -> Moments:
    return total(cluster_moments([(Share(hits, of), weight)]) for hits, of in sums)


@given(counts)
def test_clopper_pearson_is_the_exact_interval(count: tuple[int, int]) -> None:
    hits, of = count
    expected = binomtest(hits, of).proportion_ci(0.95, method="exact")
    assert clopper_pearson(hits, of) == pytest.approx((expected.low, expected.high), abs=1e-9)


@given(counts)
def test_independent_units_have_wilsons_interval(count: tuple[int, int]) -> None:
    hits, of = count
    found = moments(*[(1, 1)] * hits, *[(0, 1)] * (of - hits))
    expected = binomtest(hits, of).proportion_ci(0.95, method="wilson")
    low, high = found.interval()
    assert low == pytest.approx(expected.low, abs=1e-9)
    if hits:
        assert high == pytest.approx(expected.high, abs=1e-9)


@pytest.mark.parametrize(
    ("of", "bound"), [(59, 0.0495), (100, 0.0295), (299, 0.00997), (1000, 0.0030)]
)
def test_without_an_event_the_bound_is_one_sided(of: int, bound: float) -> None:
    assert zero_events_bound(of) == pytest.approx(bound, abs=5e-5)
    assert moments(*[(0, 1)] * of).interval() == (0.0, zero_events_bound(of))


@pytest.mark.parametrize(("limit", "units"), [(0.05, 59), (0.01, 299), (0.005, 598), (0.001, 2995)])
def test_how_many_clean_units_show_that_a_rate_is_low(limit: float, units: int) -> None:
    assert units_for(limit) == units


def test_the_variance_is_that_of_estimating_equations() -> None:
    """Reference: GEE with independence and a robust covariance, statsmodels 0.15."""
    data = [(3, 4), (1, 2), (5, 5), (0, 3), (2, 6), (4, 4), (1, 1), (6, 8)]
    found = moments(*data)
    assert found.value == pytest.approx(2 / 3)
    assert found.variance is not None
    correction = sqrt(len(data) / (len(data) - 1))
    assert sqrt(found.variance) == pytest.approx(0.11065102171821536 * correction, rel=1e-6)
    assert found.standard_error == sqrt(found.variance)


def test_calls_that_fail_together_are_less_evidence_than_calls() -> None:
    together = moments(*[(5, 5)] * 8, *[(0, 5)] * 2)
    apart = moments(*[(4, 5)] * 10)
    assert together.value == apart.value
    assert together.effective == pytest.approx(10, rel=0.25)
    assert apart.effective == apart.kish == 50
    assert together.interval()[0] < apart.interval()[0]


def test_few_events_use_a_prior_correlation() -> None:
    """Ten calls each, no miss: a design effect of 1 + 9 * 0.1."""
    assert moments(*[(10, 10)] * 20).effective == pytest.approx(200 / 1.9)


@given(clusters)
def test_the_interval_holds_the_value_and_stays_in_bounds(data: list[tuple[int, int]]) -> None:
    found = moments(*data)
    low, high = found.interval()
    assert found.value is not None
    assert 0 <= low <= found.value <= high <= 1
    assert 1 - 1e-9 <= found.effective <= found.kish + 1e-9


@given(clusters, st.randoms(use_true_random=False), weights)
def test_the_order_of_clusters_changes_nothing(
    data: list[tuple[int, int]], random: object, weight: float
) -> None:
    shuffled = list(data)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert moments(*data, weight=weight) == moments(*shuffled, weight=weight)


@given(clusters, st.integers(0, 40), weights)
def test_parts_add_up_to_the_whole(data: list[tuple[int, int]], cut: int, weight: float) -> None:
    parts = moments(*data[:cut], weight=weight) + moments(*data[cut:], weight=weight)
    assert parts == moments(*data, weight=weight)


@given(clusters, weights)
def test_equal_weights_change_no_rate(data: list[tuple[int, int]], weight: float) -> None:
    plain, weighted = moments(*data), moments(*data, weight=weight)
    assert weighted.value == pytest.approx(plain.value)
    assert weighted.interval() == pytest.approx(plain.interval())
    assert weighted.of == pytest.approx(weight * plain.of)


def test_unequal_weights_are_less_evidence() -> None:
    shares = [(Share(1, 1), 1.0), (Share(1, 1), 1.0), (Share(0, 1), 10.0), (Share(1, 1), 10.0)]
    found = total(cluster_moments([one]) for one in shares)
    assert found.value == pytest.approx(12 / 22)
    assert found.kish == pytest.approx(22 * 22 / 202)


def test_what_could_not_be_seen_is_in_the_coverage_alone() -> None:
    found = total([moments((1, 2)), cluster_moments([(Share(unseen=2), 1.0)])])
    rate = found.rate()
    assert (rate.value, rate.coverage) == (0.5, 0.5)
    assert found.clusters == 1
    assert Moments().rate().value is None
    assert str(cluster_moments([(Share(unseen=2), 1.0)]).rate()) == "None (n=0)"


def test_the_coverage_of_the_interval_is_what_it_says() -> None:
    """200 trajectories of 1 to 20 calls that fail together: nominal 95 %, measured 90 % or more."""
    random = np.random.default_rng(7)
    p, correlation, held = 0.05, 0.4, 0
    for _ in range(400):
        sizes = random.integers(1, 21, 200)
        shape = (1 - correlation) / correlation
        rates = random.beta(p * shape, (1 - p) * shape, 200)
        hits = random.binomial(sizes, rates)
        low, high = moments(*zip(hits.tolist(), sizes.tolist(), strict=True)).interval()
        held += low <= p <= high
    assert held / 400 >= 0.90


def test_a_rate_has_every_count_and_the_interval_of_its_confidence() -> None:
    found = total([moments((1, 2), (0, 2), (2, 2)), cluster_moments([(Share(unseen=4), 1.0)])])
    assert found.rate() == Rate(0.5, 3, 6, *found.interval(0.95), 0.6)
    assert found.interval() == found.interval(0.95)
    assert found.rate(0.5) == Rate(0.5, 3, 6, *found.interval(0.5), 0.6)
    assert found.interval(0.5)[0] > found.interval(0.95)[0]
    assert found.interval(0.5)[1] < found.interval(0.95)[1]
    assert cluster_moments([(Share(unseen=2), 1.0)]).rate() == Rate(None, 0, 0, None, None, 0.0)
    assert Moments().rate() == Rate(None, 0, 0, None, None, None)


def test_korn_and_graubard_by_hand() -> None:
    """Eight clusters, four with a hit and six with a miss, worked through with their formulas."""
    data = [(3, 4), (0, 2), (5, 5), (0, 3), (2, 6), (4, 4), (0, 1), (6, 8)]
    found = moments(*data)
    hits, of = 20, 33
    p = hits / of
    spread = sum((h - p * m) ** 2 for h, m in data)
    variance = spread / of**2 * 8 / 7
    units = p * (1 - p) / variance
    freedom = min(5, 6) - 1
    units *= float(stdtrit(units - 1, 0.975) / stdtrit(freedom, 0.975)) ** 2
    assert found.variance == pytest.approx(variance)
    assert found.effective == pytest.approx(units)
    assert found.interval() == pytest.approx(clopper_pearson(p * units, units))
    assert not found.few_events


def test_two_clusters_with_a_hit_are_too_few_to_measure_how_they_differ() -> None:
    """Then at least a correlation of 0.1 is taken: 60 units in 20 clusters of 3."""
    found = moments((3, 3), (3, 3), *[(0, 3)] * 18)
    assert found.few_events
    assert found.effective == pytest.approx(19)  # measured: hits come in whole clusters
    spread = moments((1, 3), (1, 3), *[(0, 3)] * 18)
    assert spread.effective == pytest.approx(60 / 1.2)  # 1 + 2 * 0.1
    three = moments((3, 3), (3, 3), (3, 3), *[(0, 3)] * 17)
    assert not three.few_events


def test_the_standard_error_is_never_nothing() -> None:
    """Where all is alike: one hit and one miss more than were seen."""
    same = moments(*[(5, 5)] * 4)
    units = same.effective
    p = (units + 1) / (units + 2)
    assert same.standard_error == pytest.approx(sqrt(p * (1 - p) / (units + 2)))
    assert same.standard_error > 0


def test_one_cluster_has_no_variance_and_counts_as_correlated() -> None:
    one = moments((2, 10))
    assert one.variance is None
    assert one.effective == pytest.approx(10 / 1.9)
    assert Moments().variance is None


def test_weights_enter_every_sum() -> None:
    found = cluster_moments([(Share(1, 2, 1), 2.0), (Share(3, 4), 0.5)])
    assert found == Moments(
        clusters=1,
        hits=3.5,
        of=6,
        unseen=2,
        hits_squared=12.25,
        cross=21,
        of_squared=36,
        unit_squares=4 * 2 + 0.25 * 4,
        hit_clusters=1,
        miss_clusters=1,
    )
    assert cluster_moments([(Share(2, 2), 1.0)]).miss_clusters == 0
    assert cluster_moments([(Share(0, 2), 1.0)]).hit_clusters == 0


@pytest.mark.parametrize("limit", [0.5, 0.2, 0.05, 0.01, 0.001])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_so_many_units_show_it_and_one_fewer_does_not(limit: float, confidence: float) -> None:
    units = units_for(limit, confidence)
    assert zero_events_bound(units, confidence) <= limit + 1e-9
    assert units == 1 or zero_events_bound(units - 1, confidence) > limit


def test_a_limit_that_every_rate_keeps_needs_one_unit() -> None:
    assert units_for(0.95) == units_for(1.0) == units_for(2.0) == 1
    assert units_for(1 - 0.05**0.5) == 2  # the bound of two units is this limit itself


def test_clopper_pearson_of_other_confidences() -> None:
    expected = binomtest(3, 10).proportion_ci(0.8, method="exact")
    assert clopper_pearson(3, 10, 0.8) == pytest.approx((expected.low, expected.high))
    assert clopper_pearson(0, 10)[0] == 0.0
    assert clopper_pearson(10, 10)[1] == 1.0


def test_without_an_event_the_bound_has_the_confidence_that_was_asked_for() -> None:
    found = moments(*[(0, 1)] * 100)
    assert found.interval(0.8) == (0.0, zero_events_bound(100, 0.8))
    assert found.interval(0.8)[1] < found.interval()[1]


@pytest.mark.parametrize("hits", [1, 9])
def test_one_event_is_seen_and_one_miss_is(hits: int) -> None:
    expected = binomtest(hits, 10).proportion_ci(0.95, method="exact")
    assert clopper_pearson(hits, 10) == pytest.approx((expected.low, expected.high))
    assert clopper_pearson(0.5, 10)[0] > 0  # weighted counts need not be whole
    assert clopper_pearson(9.5, 10)[1] < 1
