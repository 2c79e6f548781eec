"""Sampling does not bend the rates: simulations in which the truth is known.

The populations stay the same, only the trace ids are drawn again, as by an SDK. What is measured is
what a reader of the lake would compute, with the weights that the scorer reads from ``trace_state``.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from toolverdict.collector.sampling.applying import apply_to_spans
from toolverdict.collector.sampling.columns import words_of
from toolverdict.collector.sampling.deciding import decide
from toolverdict.collector.sampling.policy import SamplingPolicy
from toolverdict.collector.sampling.testing import (
    SECOND_NS,
    START_NS,
    random_trace_ids,
    span_table,
)
from toolverdict.collector.sampling.traces import gather
from toolverdict.scoring.sampling import adjusted_count

Floats = npt.NDArray[np.float64]

TRACES = 3000
SPANS_EACH = 3
DRAWS = 150
LATER = START_NS + 86_400 * SECOND_NS

RULES = """
version: 1
quiet_s: 60
window_s: 60
otherwise: {keep: 0.05}
rules:
  - {id: failed, keep: 0.5, failed: true}
  - {id: denied, keep: 1.0, decisions: [deny]}
  - {id: slow, keep: 0.3, slower_than_s: 20}
"""
CAPPED = """
version: 1
quiet_s: 60
window_s: 60
otherwise: {keep: 0.3, cap: {traces: 6}}
rules:
  - {id: failed, keep: 1.0, failed: true, cap: {traces: 8, by: agent}}
  - {id: denied, keep: 1.0, decisions: [deny], cap: {traces: 5}}
  - {id: tools, keep: 0.5, tools: ["refund"], cap: {traces: 4, by: tool}}
"""


class Population:
    """Traces of which it is known what went wrong; a third of the failures show nowhere."""

    def __init__(self) -> None:
        random = np.random.default_rng(7)
        # An incident: in a tenth of the time, half of the traffic, ten times the failures.
        incident = random.random(TRACES) < 0.5
        self.minute = np.where(
            incident, random.integers(0, 4, TRACES), random.integers(0, 40, TRACES)
        )
        self.bad = random.random(TRACES) < np.where(incident, 0.40, 0.04)
        self.shows = self.bad & (random.random(TRACES) < 0.67)
        self.forbidden = random.random(TRACES) < np.where(self.bad, 0.15, 0.01)
        slow = random.random(TRACES) < np.where(self.bad, 0.3, 0.05)
        last = np.arange(TRACES * SPANS_EACH) % SPANS_EACH == SPANS_EACH - 1

        def each(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.repeat(values, SPANS_EACH)

        self.columns: dict[str, npt.NDArray[Any]] = {
            "status_code": np.where(last & each(self.shows), 2, 0),
            "policy_decision": np.where(last & each(self.forbidden), "deny", "allow"),
            "end_time_unix_nano": START_NS + np.where(last & each(slow), 30, 1) * SECOND_NS,
            "received_time_unix_nano": START_NS + each(self.minute) * 60 * SECOND_NS,
            "gen_ai_tool_name": np.where(each(random.random(TRACES) < 0.4), "refund", "get_order"),
            "gen_ai_agent_name": np.array(["a", "b"])[each((random.random(TRACES) < 0.3) * 1)],
        }

    def weights(self, policy: SamplingPolicy, random: np.random.Generator) -> Floats:
        """What each trace stands for after a draw; 0 for those that are not there any more."""
        ids = random_trace_ids(random, TRACES)
        spans = span_table([id for id in ids for _ in range(SPANS_EACH)], **self.columns)
        decisions = decide(gather(spans, policy), policy, {}, LATER).decisions
        assert len(decisions) == TRACES
        kept = apply_to_spans(spans, decisions).table
        number = {id: place for place, id in enumerate(ids)}
        state = words_of(kept.column("trace_state"))
        adjusted = np.array([adjusted_count(text) for text in state.values])
        weights = np.zeros(TRACES)
        weights[[number[str(id)] for id in kept.column("trace_id").to_pylist()]] = adjusted[
            state.codes
        ]
        return weights


@dataclass(frozen=True)
class Estimates:
    """One value for each draw."""

    value: Floats
    error: Floats

    def bias_in_errors(self, truth: float) -> float:
        return float(abs(self.value.mean() - truth) / self.own_error())

    def own_error(self) -> float:
        """Of the mean of all draws."""
        return float(self.value.std(ddof=1) / np.sqrt(len(self.value)))

    def covered(self, truth: float) -> float:
        return float(np.mean(np.abs(self.value - truth) <= 1.96 * self.error))


def rate(weights: Floats, hits: npt.NDArray[np.bool_]) -> Estimates:
    """Hajek's ratio in every row, with its error from the linearised residuals.

    The sample is drawn trace by trace, so each residual counts with w * (w - 1).
    """
    total = weights.sum(axis=1)
    value = (weights * hits).sum(axis=1) / total
    residuals = hits - value[:, None]
    variance = (weights * np.maximum(weights - 1, 0) * residuals**2).sum(axis=1) / total**2
    return Estimates(value, np.sqrt(variance))


@pytest.fixture(scope="module")
def population() -> Population:
    return Population()


def draws(population: Population, policy: str, count: int = DRAWS) -> Floats:
    random = np.random.default_rng(11)
    parsed = SamplingPolicy.parse(policy)
    return np.array([population.weights(parsed, random) for _ in range(count)])


@pytest.fixture(scope="module")
def by_rules(population: Population) -> Floats:
    return draws(population, RULES)


@pytest.fixture(scope="module")
def capped(population: Population) -> Floats:
    return draws(population, CAPPED)


@pytest.mark.parametrize("policy", ["by_rules", "capped"])
@pytest.mark.parametrize("what", ["bad", "forbidden"])
def test_weighted_rates_are_the_truth(
    policy: str, what: str, population: Population, request: pytest.FixtureRequest
) -> None:
    """Their bias is within its own error, and 95 % intervals are right about as often."""
    weights = request.getfixturevalue(policy)
    hits = getattr(population, what)
    estimates = rate(weights, hits)
    assert estimates.bias_in_errors(hits.mean()) < 3
    assert estimates.own_error() < 0.03 * hits.mean()
    assert 0.90 <= estimates.covered(hits.mean()) <= 0.99


@pytest.mark.parametrize("policy", ["by_rules", "capped"])
@pytest.mark.parametrize("what", ["bad", "forbidden"])
def test_rates_without_weights_are_not(
    policy: str, what: str, population: Population, request: pytest.FixtureRequest
) -> None:
    weights = request.getfixturevalue(policy)
    hits = getattr(population, what)
    assert rate((weights > 0).astype(np.float64), hits).bias_in_errors(hits.mean()) > 10


def test_rates_without_weights_are_several_times_the_truth(
    population: Population, by_rules: Floats
) -> None:
    naive = rate((by_rules > 0).astype(np.float64), population.forbidden)
    assert naive.value.mean() > 2 * population.forbidden.mean()


@pytest.mark.parametrize("policy", ["by_rules", "capped"])
def test_adjusted_counts_add_up_to_the_population(
    policy: str, population: Population, request: pytest.FixtureRequest
) -> None:
    total = request.getfixturevalue(policy).sum(axis=1)
    spread = total.std(ddof=1) / np.sqrt(len(total))
    assert abs(total.mean() - TRACES) < 3 * spread
    assert spread < 0.01 * TRACES


def test_a_silent_failure_is_seen(population: Population, by_rules: Floats) -> None:
    """What no rule matches has a probability, too, and so an unbiased rate."""
    silent = population.bad & ~population.shows
    assert rate(by_rules, silent).bias_in_errors(silent.mean()) < 3


def test_a_cap_is_a_hard_limit(population: Population) -> None:
    policy = SamplingPolicy.parse(
        "{version: 1, quiet_s: 60, window_s: 60, otherwise: {keep: 1.0, cap: {traces: 10}}}"
    )
    weights = population.weights(policy, np.random.default_rng(3))
    kept = np.bincount(population.minute[weights > 0], minlength=40)
    there = np.bincount(population.minute, minlength=40)
    assert kept.tolist() == np.minimum(there, 10).tolist()
    assert there.max() > 300


def test_weights_of_the_rule_that_fired_would_be_wrong(population: Population) -> None:
    """The known trap: of two rules that match, not the one that happened to keep the trace counts,
    but the one with the larger probability. A trace that failed and was denied weighs 1."""
    weights = population.weights(SamplingPolicy.parse(RULES), np.random.default_rng(5))
    both = population.shows & population.forbidden
    assert both.sum() > 20
    assert set(weights[both]) == {1.0}
