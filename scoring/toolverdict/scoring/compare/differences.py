"""The difference of a rate between two versions, with its interval and its p-value.

On the same cases the versions are paired by case; on live traffic they are two samples whose
trajectories are clustered.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, ndtr, stdtr, stdtrit

from toolverdict.scoring.gate.evidence import Scored
from toolverdict.scoring.intervals import Moments, zero_events_bound
from toolverdict.scoring.model import Share
from toolverdict.scoring.rates import Rate

_Floats: TypeAlias = NDArray[np.float64]

REPEATS: Final = 2000
"""Bootstrap samples: the smallest p-value that they can show is 0.001."""

_MOST_CELLS = 4_000_000  # of one block of bootstrap weights, 32 MB


@dataclass(frozen=True, slots=True)
class Difference:
    """New minus base of one rate. Everything is None where nothing could be compared.

    ``units`` are the cases that both played, else the clusters of both samples. ``p`` is
    two-sided; ``p_holm`` is corrected for all the rates that were compared with it.
    """

    rate: str
    base: Rate
    new: Rate
    difference: float | None
    low: float | None
    high: float | None
    p: float | None
    method: str
    units: int
    p_holm: float | None = None

    def __str__(self) -> str:
        """``-0.100 [-0.180, -0.020]``, or ``None (n=0)``."""
        if self.difference is None or self.low is None or self.high is None:
            return "None (n=0)"
        return f"{self.difference:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Per case that both versions played, hits and units of a rate in each, in the order of ids."""

    base_hits: _Floats
    base_of: _Floats
    new_hits: _Floats
    new_of: _Floats

    @property
    def count(self) -> int:
        """How many cases."""
        return len(self.base_of)

    def comparable(self) -> "Pairs":
        """The cases in which the rate was evaluable in both."""
        both = (self.base_of > 0) & (self.new_of > 0)
        return Pairs(
            self.base_hits[both], self.base_of[both], self.new_hits[both], self.new_of[both]
        )


def pairs_of(base: Iterable[Scored], new: Iterable[Scored], rate: str) -> Pairs:
    """The pairs of a rate over the cases that both played; trials of one case are summed."""
    left, right = _by_case(base, rate), _by_case(new, rate)
    common = sorted(left.keys() & right.keys())
    columns = np.array([(*left[case], *right[case]) for case in common], dtype=np.float64)
    return Pairs(*columns.reshape(-1, 4).T)


def _by_case(trajectories: Iterable[Scored], rate: str) -> Mapping[str, tuple[float, float]]:
    sums: dict[str, tuple[float, float]] = {}
    for one in trajectories:
        if one.case_id is None or one.weight is None:
            continue
        share = one.shares.get(rate, Share())
        hits, of = sums.get(one.case_id, (0.0, 0.0))
        sums[one.case_id] = hits + one.weight * share.hits, of + one.weight * share.of
    return sums


def paired_difference(
    rate: str, pairs: Pairs, rates: tuple[Rate, Rate], confidence: float, seed: int
) -> Difference:
    """New minus base on the same cases.

    The interval is a bootstrap of cases, and at least what a change of a case that was not seen
    leaves possible. One yes or no a case on each side: McNemar's exact test; else the p-value is
    the bootstrap's, and never less than a sign test of so many changed cases could give.
    """
    pairs = pairs.comparable()
    base, new = rates
    if not pairs.count:
        return Difference(rate, base, new, None, None, None, None, "paired", 0)
    change = float(
        pairs.new_hits.sum() / pairs.new_of.sum() - pairs.base_hits.sum() / pairs.base_of.sum()
    )
    deltas = pairs.new_hits / pairs.new_of - pairs.base_hits / pairs.base_of
    changed = int(np.count_nonzero(deltas))
    unseen = zero_events_bound(pairs.count, confidence)
    low = high = change
    p, method = 1.0, "bootstrap"
    if changed:
        samples = bootstrap(pairs, seed)
        low, high = expanded_quantiles(samples, pairs.count, confidence)
        p = max(_bootstrap_p(samples), 2.0 ** (1 - changed))
    if np.all(pairs.base_of == 1) and np.all(pairs.new_of == 1) and np.all(deltas % 1 == 0):
        p, method = mcnemar(int((deltas < 0).sum()), int((deltas > 0).sum())), "mcnemar"
    low, high = max(-1.0, min(low, change - unseen)), min(1.0, max(high, change + unseen))
    return Difference(rate, base, new, change, low, high, p, method, pairs.count)


def expanded_quantiles(samples: _Floats, count: int, confidence: float) -> tuple[float, float]:
    """The bootstrap's interval, with tails cut for how few cases there are.

    Source: Hesterberg, The American Statistician 69 (2015) 371-386.
    """
    tail = 0.0
    if count > 1:
        tail = float(ndtr(-sqrt(count / (count - 1)) * stdtrit(count - 1, (1 + confidence) / 2)))
    low, high = np.quantile(samples, [tail, 1 - tail])
    return float(low), float(high)


def bootstrap(pairs: Pairs, seed: int, *, logarithm: bool = False) -> _Floats:
    """The difference in resampled sets of cases; with ``logarithm``, that of the logarithms."""
    rng = np.random.default_rng(seed)
    count = pairs.count
    block = max(1, min(REPEATS, _MOST_CELLS // count))
    columns = np.stack([pairs.base_hits, pairs.base_of, pairs.new_hits, pairs.new_of], axis=1)
    samples = []
    for start in range(0, REPEATS, block):
        size = min(block, REPEATS - start)
        drawn = rng.integers(0, count, (size, count)) + np.arange(size)[:, None] * count
        weights = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        base_hits, base_of, new_hits, new_of = (weights @ columns).T
        base, new = base_hits / base_of, new_hits / new_of
        samples.append(np.log(new) - np.log(base) if logarithm else new - base)
    return np.concatenate(samples)


def _bootstrap_p(samples: _Floats) -> float:
    """Two-sided: how often a resampled difference is on the other side of 0."""
    other = min(int((samples <= 0).sum()), int((samples >= 0).sum()))
    return min(1.0, 2 * (other + 1) / (len(samples) + 1))


def mcnemar(worse: int, better: int) -> float:
    """The exact p-value of so many cases that got worse and better.

    Source: McNemar, Psychometrika 12 (1947) 153-157, with the binomial distribution.
    """
    changed = worse + better
    return min(1.0, 2 * float(bdtr(min(worse, better), changed, 0.5))) if changed else 1.0


def live_difference(rate: str, base: Moments, new: Moments, confidence: float) -> Difference:
    """New minus base in two samples of traffic: Welch's t with errors robust to clusters."""
    rates = base.rate(confidence), new.rate(confidence)
    units = int(base.clusters + new.clusters)
    if base.value is None or new.value is None:
        return Difference(rate, *rates, None, None, None, None, "live", units)
    change = new.value - base.value
    error, freedom = welch((base.standard_error, base.clusters), (new.standard_error, new.clusters))
    reach = float(stdtrit(freedom, (1 + confidence) / 2)) * error
    p = 2 * float(stdtr(freedom, -abs(change) / error))
    low, high = max(-1.0, change - reach), min(1.0, change + reach)
    return Difference(rate, *rates, change, low, high, p, "live", units)


def welch(base: tuple[float, float], new: tuple[float, float]) -> tuple[float, float]:
    """Standard error and degrees of freedom of a difference, from those of both sides.

    Source: Satterthwaite, Biometrics Bulletin 2 (1946) 110-114. Each side is (error, clusters).
    """
    squares = [error * error for error, _ in (base, new)]
    below = sum(
        square * square / max(clusters - 1, 1)
        for square, (_, clusters) in zip(squares, (base, new), strict=True)
    )
    both = sum(squares)
    freedom = both * both / below if below else base[1] + new[1] - 2
    return sqrt(both), max(freedom, 1.0)


def holm(differences: Sequence[Difference]) -> list[Difference]:
    """The same with p-values corrected for how many were compared.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979) 65-70.
    """
    known = sorted((one.p, place) for place, one in enumerate(differences) if one.p is not None)
    corrected: dict[int, float] = {}
    reached = 0.0
    for rank, (p, place) in enumerate(known):
        reached = max(reached, min(1.0, p * (len(known) - rank)))
        corrected[place] = reached
    return [replace(one, p_holm=corrected.get(place)) for place, one in enumerate(differences)]
