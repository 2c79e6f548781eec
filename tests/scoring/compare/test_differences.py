"""Differences against references, and their laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_ind

from toolverdict.scoring.compare.differences import (
    Difference,
    holm,
    live_difference,
    mcnemar,
    paired_difference,
    pairs_of,
)
from toolverdict.scoring.gate.evidence import Scored, moments_of
from toolverdict.scoring.gate.testing import scored
from toolverdict.scoring.model import Share
from toolverdict.scoring.rates import Rate

NONE = Rate(None, 0, 0, None, None, None)


def cases(*hits: float, of: float = 1) -> list[Scored]:
    return [
        scored(f"t{place}", {"rate": Share(hit, of)}, case=f"c{place:03d}")
        for place, hit in enumerate(hits)
    ]


def paired(base: list[Scored], new: list[Scored], seed: int = 0) -> Difference:
    return paired_difference("rate", pairs_of(base, new, "rate"), (NONE, NONE), 0.95, seed)


def live(base: list[Scored], new: list[Scored]) -> Difference:
    return live_difference("rate", moments_of(base, "rate"), moments_of(new, "rate"), 0.95)


def with_p(p: float | None) -> Difference:
    return Difference("rate", NONE, NONE, None, None, None, p, "live", 0)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_the_exact_test(worse: int, better: int) -> None:
    expected = binomtest(worse, worse + better).pvalue if worse + better else 1.0
    assert mcnemar(worse, better) == pytest.approx(expected)


def test_mcnemar_against_a_table() -> None:
    """Reference: statsmodels 0.15, contingency_tables.mcnemar, exact."""
    assert mcnemar(9, 2) == pytest.approx(0.0654296875)


def test_holm_against_a_reference() -> None:
    """Reference: statsmodels 0.15, multitest.multipletests."""
    found = holm([with_p(p) for p in (0.01, 0.04, None, 0.03, 0.005)])
    assert [one.p_holm for one in found] == pytest.approx([0.03, 0.06, None, 0.06, 0.02])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_keeps_the_order_and_lowers_nothing(ps: list[float]) -> None:
    found = holm([with_p(p) for p in ps])
    in_order = sorted(zip(ps, (one.p_holm for one in found), strict=True))
    corrected = [one for _, one in in_order]
    assert all(one is not None and p <= one <= 1 for p, one in in_order)
    assert corrected == sorted(corrected, key=lambda one: one or 0)


def test_pairs_are_by_case_whatever_the_order() -> None:
    base = cases(1, 1, 1, 0, 1, 0, 1, 1, 1, 1, 1, 0)
    new = cases(0, 1, 0, 0, 1, 1, 1, 0, 1, 0, 1, 0)
    found = paired(base, new)
    assert found == paired(base[::-1], new[::-1])
    assert found.difference == pytest.approx(-3 / 12)
    assert (found.method, found.units) == ("mcnemar", 12)
    assert found.p == pytest.approx(mcnemar(4, 1))


def test_trials_of_a_case_are_summed_and_the_bootstrap_decides() -> None:
    base = [*cases(1, 1, 0, 1), *cases(1, 0, 0, 1)]
    new = [*cases(1, 1, 0, 0), *cases(1, 1, 1, 0)]
    found = paired(base, new)
    assert found.method == "bootstrap"
    assert found.difference == pytest.approx(0)


def test_only_cases_of_both_are_compared() -> None:
    base, new = cases(1, 1, 1), cases(1, 1, 0, 0, 0)
    assert paired(base, new).units == 3
    assert paired(base, []).difference is None
    assert str(paired(base, [])) == "None (n=0)"


def test_a_case_where_the_rate_could_not_be_evaluated_is_not_a_pair() -> None:
    new = [*cases(1, 1), scored("t2", {"rate": Share(unseen=1)}, case="c002")]
    assert paired(cases(1, 1, 1), new).units == 2


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_few_cases_that_all_got_worse_show_nothing(count: int) -> None:
    """A bootstrap of three equal changes would be sure; a sign test of three is not."""
    found = paired(cases(*[4] * count, of=5), cases(*[3] * count, of=5))
    assert found.p is not None
    assert found.p >= 0.05
    assert found.low is not None
    assert found.high is not None
    assert found.low < -0.2 < 0 < found.high


def test_no_change_in_few_cases_leaves_change_possible() -> None:
    found = paired(cases(*[1] * 10), cases(*[1] * 10))
    assert (found.difference, found.p) == (0, 1)
    assert found.low == pytest.approx(-0.2589, abs=1e-4)


def test_the_bootstrap_is_seeded() -> None:
    random = np.random.default_rng(3)
    base = cases(*random.integers(0, 6, 40).tolist(), of=5)
    new = cases(*random.integers(0, 6, 40).tolist(), of=5)
    assert paired(base, new, seed=1) == paired(base, new, seed=1)
    assert paired(base, new, seed=1) != paired(base, new, seed=2)


def test_the_paired_bootstrap_is_near_the_normal_interval_where_both_hold() -> None:
    random = np.random.default_rng(4)
    before, after = random.integers(0, 11, 400), random.integers(0, 11, 400)
    found = paired(cases(*before.tolist(), of=10), cases(*after.tolist(), of=10))
    deltas = (after - before) / 10
    reach = 1.966 * deltas.std(ddof=1) / np.sqrt(400)
    assert found.low == pytest.approx(deltas.mean() - reach, abs=0.004)
    assert found.high == pytest.approx(deltas.mean() + reach, abs=0.004)


def test_independent_samples_are_welchs_t_test() -> None:
    random = np.random.default_rng(8)
    before, after = random.integers(0, 6, 50), random.integers(1, 6, 80)
    base = [scored(f"b{n}", {"rate": Share(int(h), 5)}) for n, h in enumerate(before)]
    new = [scored(f"n{n}", {"rate": Share(int(h), 5)}) for n, h in enumerate(after)]
    found = live(base, new)
    expected = ttest_ind(after / 5, before / 5, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-6)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-6)


def test_no_event_on_either_side_is_no_proof_of_equality() -> None:
    quiet = [scored(f"t{n}", {"rate": Share(0, 1)}) for n in range(50)]
    found = live(quiet, quiet)
    assert found.difference == 0
    assert found.low is not None
    assert found.low < -0.03
    assert found.p == 1


shares = st.lists(
    st.integers(1, 6).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    min_size=2,
    max_size=25,
)


@given(shares, shares)
def test_swapping_versions_swaps_the_sign(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    base = [scored(f"b{n}", {"rate": Share(*one)}) for n, one in enumerate(left)]
    new = [scored(f"n{n}", {"rate": Share(*one)}) for n, one in enumerate(right)]
    there, back = live(base, new), live(new, base)
    assert there.difference is not None
    assert back.difference == pytest.approx(-there.difference)
    assert back.p == pytest.approx(there.p)
    assert there.low is not None
    assert there.high is not None
    assert there.low <= there.difference <= there.high
