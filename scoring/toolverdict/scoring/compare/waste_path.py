"""Does the new version call more tools and succeed no more often?

Both must be shown, each by a one-sided test, so that no correction for two tests is needed
(an intersection-union test; Berger, Technometrics 24 (1982) 295-300).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, log, sqrt

import numpy as np
from scipy.special import stdtrit

from toolverdict.scoring.compare.differences import (
    bootstrap,
    expanded_quantiles,
    live_difference,
    paired_difference,
    pairs_of,
    welch,
)
from toolverdict.scoring.gate.evidence import CALLS, Scored, moments_of

MAX_CALL_GROWTH = 0.10
"""10 % more calls a trajectory are no waste yet."""
MIN_SUCCESS_GAIN = 0.02
"""2 percentage points more success pay for more calls."""

_FEWEST_CASES = 10
"""In fewer pairs of cases the growth of calls has no interval that could be trusted."""


@dataclass(frozen=True, slots=True)
class WastePath:
    """Growth of calls a trajectory and gain of the pass rate, each with an interval.

    The ends of an interval are one-sided bounds: each holds with the whole confidence. ``shown``:
    calls grew by more than ``max_call_growth`` and success gained less than ``min_success_gain``.
    ``excluded``: one of the two is refuted. With neither it is undecided. Everything is None where
    one of the two cannot be computed.
    """

    base_calls: float | None
    new_calls: float | None
    growth: float | None
    growth_low: float | None
    growth_high: float | None
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    max_call_growth: float
    min_success_gain: float
    shown: bool | None
    excluded: bool | None

    @property
    def sentence(self) -> str:
        """What was found, with its figures."""
        if self.growth is None or self.gain is None:
            return "calls and success: too little to compare: None (n=0)"
        figures = (
            f"calls a trajectory {self.base_calls:.2f} -> {self.new_calls:.2f} "
            f"({self.growth:+.1%} [{self.growth_low:+.1%}, {self.growth_high:+.1%}]), "
            f"success {self.gain:+.3f} [{self.gain_low:+.3f}, {self.gain_high:+.3f}]"
        )
        if self.shown:
            return f"calls more, succeeds no more: {figures}"
        said = "no waste path" if self.excluded else "a waste path is neither shown nor excluded"
        return f"{said}: {figures}"


def waste_path(
    base: Sequence[Scored],
    new: Sequence[Scored],
    *,
    paired: bool,
    max_call_growth: float = MAX_CALL_GROWTH,
    min_success_gain: float = MIN_SUCCESS_GAIN,
    confidence: float = 0.95,
    seed: int = 0,
) -> WastePath:
    """Compares calls and success of two versions, on the same cases or on live traffic."""
    two_sided = 2 * confidence - 1  # whose ends are one-sided bounds of this confidence
    calls = _paired_growth if paired else _live_growth
    means, growth = calls(base, new, two_sided, seed)
    before, after = moments_of(base, "pass_rate"), moments_of(new, "pass_rate")
    if paired:
        rates = before.rate(), after.rate()
        pairs = pairs_of(base, new, "pass_rate")
        gain = paired_difference("pass_rate", pairs, rates, two_sided, seed)
    else:
        gain = live_difference("pass_rate", before, after, two_sided)
    shown = excluded = None
    if growth is not None and gain.low is not None and gain.high is not None:
        shown = growth[1] > max_call_growth and gain.high < min_success_gain
        excluded = growth[2] <= max_call_growth or gain.low >= min_success_gain
    return WastePath(
        base_calls=means[0],
        new_calls=means[1],
        growth=growth[0] if growth is not None else None,
        growth_low=growth[1] if growth is not None else None,
        growth_high=growth[2] if growth is not None else None,
        gain=gain.difference,
        gain_low=gain.low,
        gain_high=gain.high,
        max_call_growth=max_call_growth,
        min_success_gain=min_success_gain,
        shown=shown,
        excluded=excluded,
    )


_Growth = tuple[tuple[float | None, float | None], tuple[float, float, float] | None]


def _paired_growth(
    base: Sequence[Scored], new: Sequence[Scored], confidence: float, seed: int
) -> _Growth:
    pairs = pairs_of(base, new, CALLS).comparable()
    if not pairs.count:
        return (None, None), None
    means = (
        float(pairs.base_hits.sum() / pairs.base_of.sum()),
        float(pairs.new_hits.sum() / pairs.new_of.sum()),
    )
    if not all(means) or pairs.count < _FEWEST_CASES:
        return means, None
    with np.errstate(divide="ignore", invalid="ignore"):
        samples = bootstrap(pairs, seed, logarithm=True)
    # A sample without any call on one side says nothing of a ratio.
    low, high = expanded_quantiles(samples[np.isfinite(samples)], pairs.count, confidence)
    return means, _growth(log(means[1] / means[0]), low, high)


def _live_growth(
    base: Sequence[Scored], new: Sequence[Scored], confidence: float, seed: int
) -> _Growth:
    del seed  # nothing is drawn
    before, after = moments_of(base, CALLS), moments_of(new, CALLS)
    means = before.value, after.value
    if not before.hits or not after.hits or before.variance is None or after.variance is None:
        return means, None
    (one, other) = (before.hits / before.of, after.hits / after.of)
    error, freedom = welch(
        (sqrt(before.variance) / one, before.clusters),
        (sqrt(after.variance) / other, after.clusters),
    )
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    ratio = log(other / one)
    return means, _growth(ratio, ratio - reach, ratio + reach)


def _growth(ratio: float, low: float, high: float) -> tuple[float, float, float]:
    """Growth and its bounds, from logarithms of the ratio."""
    return expm1(ratio), expm1(min(low, ratio)), expm1(max(high, ratio))
