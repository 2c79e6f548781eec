"""What the evidence decides: three states, and no way from fail to pass by failing more."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from toolverdict.scoring.gate.checks import State, decide
from toolverdict.scoring.gate.gate_file import Gate
from toolverdict.scoring.gate.gated import GATED, GatedRate
from toolverdict.scoring.gate.report import overall
from toolverdict.scoring.intervals import Moments, cluster_moments, total
from toolverdict.scoring.model import Share

BY_KEY = {gated.key: gated for gated in GATED}
GATE = Gate(min_pass_rate=0.5)
PASSED = BY_KEY["min_pass_rate"]
ARGUMENTS = BY_KEY["min_argument_accuracy_high_risk"]
FORBIDDEN = BY_KEY["max_forbidden_tool_call_rate"]
WASTE = BY_KEY["max_retry_waste_rate"]

clusters = st.lists(
    st.integers(1, 8).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    min_size=1,
    max_size=60,
)


def of(*sums: tuple[float, float], unseen: float = 0) -> Moments:
    shares = [Share(hits, units) for hits, units in sums] + [Share(unseen=unseen)] * bool(unseen)
    return total(cluster_moments([(share, 1.0)]) for share in shares)


def state(gated: GatedRate, limit: float, moments: Moments) -> State:
    return decide(gated, limit, moments, GATE)[0]


@pytest.mark.parametrize(
    ("hits", "units", "expected"),
    [
        (10, 10, State.INCONCLUSIVE),  # ten of ten is [0.72, 1]
        (500, 500, State.PASS),
        (480, 500, State.INCONCLUSIVE),
        (400, 500, State.FAIL),
        (0, 3, State.FAIL),
    ],
)
def test_a_minimum_is_decided_by_the_whole_interval(hits: int, units: int, expected: State) -> None:
    moments = of(*[(1, 1)] * hits, *[(0, 1)] * (units - hits))
    assert state(PASSED, 0.97, moments) is expected


@pytest.mark.parametrize(
    ("hits", "units", "limit", "expected"),
    [
        (0, 3, 0, State.PASS),  # a limit of 0 is a veto
        (1, 10_000, 0, State.FAIL),
        (0, 100, 0.01, State.INCONCLUSIVE),  # 299 would show it
        (0, 299, 0.01, State.PASS),
        (2, 100, 0.01, State.FAIL),  # above the limit: without regard to chance
        (1, 200, 0.01, State.INCONCLUSIVE),
    ],
)
def test_forbidden_calls_are_a_veto(hits: int, units: int, limit: float, expected: State) -> None:
    moments = of(*[(1, 1)] * hits, *[(0, 1)] * (units - hits))
    assert state(FORBIDDEN, limit, moments) is expected


def test_a_maximum_of_waste_is_decided_by_the_whole_interval() -> None:
    assert state(WASTE, 0.05, of(*[(1, 1)] * 6, *[(0, 1)] * 94)) is State.INCONCLUSIVE
    assert state(WASTE, 0.05, of(*[(1, 1)] * 30, *[(0, 1)] * 70)) is State.FAIL
    assert state(WASTE, 0.05, of(*[(1, 1)] * 5, *[(0, 1)] * 995)) is State.PASS


@pytest.mark.parametrize("gated", GATED, ids=lambda gated: gated.rate)
@pytest.mark.parametrize("limit", [0.0, 0.5, 1.0])
def test_nothing_evaluated_never_passes(gated: GatedRate, limit: float) -> None:
    """B175: a rate that does not exist is neither above nor below a limit."""
    assert state(gated, limit, Moments()) is State.INCONCLUSIVE
    assert state(gated, limit, of(unseen=5)) is State.INCONCLUSIVE


def test_unknown_forbidden_calls_are_a_bucket_of_their_own() -> None:
    assert state(FORBIDDEN, 0, of(*[(0, 1)] * 1000)) is State.PASS
    assert state(FORBIDDEN, 0, of(*[(0, 1)] * 1000, unseen=1)) is State.INCONCLUSIVE
    assert state(FORBIDDEN, 0, of((1, 1), unseen=1000)) is State.FAIL


def test_too_little_coverage_does_not_pass() -> None:
    seen = [(1, 1)] * 900
    assert state(ARGUMENTS, 0.9, of(*seen, unseen=100)) is State.PASS
    assert state(ARGUMENTS, 0.9, of(*seen, unseen=101)) is State.INCONCLUSIVE


@given(clusters, st.integers(0, 59), st.sampled_from(GATED), st.floats(0, 1))
def test_one_more_failure_never_turns_fail_into_pass(
    data: list[tuple[int, int]], place: int, gated: GatedRate, limit: float
) -> None:
    place %= len(data)
    hits, units = data[place]
    step = -1 if gated.higher_is_better else 1
    assume(0 <= hits + step <= units)
    worse = [*data[:place], (hits + step, units), *data[place + 1 :]]
    before, after = state(gated, limit, of(*data)), state(gated, limit, of(*worse))
    assert (before, after) != (State.FAIL, State.PASS)


@given(clusters, st.sampled_from(GATED), st.floats(0, 1), st.floats(0, 1))
def test_a_stricter_limit_never_helps(
    data: list[tuple[int, int]], gated: GatedRate, one: float, other: float
) -> None:
    order = [State.FAIL, State.INCONCLUSIVE, State.PASS]
    loose, strict = sorted((one, other), reverse=not gated.higher_is_better)
    if not gated.higher_is_better:
        assume(strict > 0)  # 0 is a veto, which none seen passes
    found = of(*data)
    assert order.index(state(gated, strict, found)) <= order.index(state(gated, loose, found))


@given(st.lists(st.sampled_from(State)), st.sampled_from(State))
def test_the_gate_says_the_worst_of_its_checks(states: list[State], more: State) -> None:
    order = [State.FAIL, State.INCONCLUSIVE, State.PASS]
    whole = overall([*states, more])
    assert whole is min([*states, more], key=order.index)
    assert overall(reversed([*states, more])) is whole
    assert overall([]) is State.INCONCLUSIVE
