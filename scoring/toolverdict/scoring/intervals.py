"""Rates whose units are not independent: intervals from the sums of each cluster.

Calls of one trajectory fail together, and so do trials of one case. Such a group is a cluster; an
interval that took its calls for independent ones would be too narrow.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import ceil, fsum, log, log1p, sqrt

from scipy.special import betaincinv, ndtri, stdtrit

from toolverdict.scoring.model import Share
from toolverdict.scoring.rates.rate import Rate, wilson

_FEW_CLUSTERS = 3
_PRIOR_CORRELATION = 0.1
"""Of units in a cluster, while there are too few to measure it."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums over clusters from which a rate and its variance follow; disjoint parts add up.

    Per cluster ``h`` are its hits and ``m`` its units, both weighted. ``unit_squares`` is the sum
    over units of the squared weight. ``hit_clusters`` and ``miss_clusters`` are the clusters with
    any hit and with any miss: of a rare event they say how much was seen.
    """

    clusters: float = 0
    hits: float = 0.0
    of: float = 0.0
    unseen: float = 0.0
    hits_squared: float = 0.0
    cross: float = 0.0
    of_squared: float = 0.0
    unit_squares: float = 0.0
    hit_clusters: float = 0
    miss_clusters: float = 0

    def __add__(self, other: "Moments") -> "Moments":
        """Sums of two parts that share no cluster."""
        return total((self, other))

    @property
    def value(self) -> float | None:
        """Hits over units; None where nothing was evaluable."""
        return self.hits / self.of if self.of else None

    @property
    def independent(self) -> bool:
        """Whether no cluster has more than one unit."""
        return self.of_squared <= self.unit_squares

    @property
    def kish(self) -> float:
        """How many units of equal weight carry as much evidence, were they independent."""
        return self.of * self.of / self.unit_squares

    @property
    def effective(self) -> float:
        """How many independent units carry as much evidence; at most :attr:`kish`.

        Source: Korn and Graubard, Survey Methodology 24 (1998) 193-201. Their degrees of freedom
        count all clusters; of a rare event few clusters tell anything, so that those with a hit
        (or with a miss) are counted here. With fewer than three of them the measured variance says
        little, and a correlation of 0.1 is assumed to be the least.
        """
        if self.independent:
            return self.kish
        prior = (
            self.of
            * self.of
            / ((1 - _PRIOR_CORRELATION) * self.unit_squares + _PRIOR_CORRELATION * self.of_squared)
        )
        if not self.variance:
            return prior
        p = self.hits / self.of
        units = max(p * (1 - p) / self.variance, 1.0)
        if self.few_events:
            return min(units, prior)
        freedom = min(self.hit_clusters, self.miss_clusters) - 1
        if units > 1 and freedom < units - 1:
            units *= float(stdtrit(max(units - 1, 1.0), 0.975) / stdtrit(freedom, 0.975)) ** 2
        return min(max(units, 1.0), self.kish)

    @property
    def variance(self) -> float | None:
        """Of the value, by linearisation over clusters; None with fewer than two."""
        if self.clusters < 2 or not self.of:
            return None
        p = self.hits / self.of
        spread = self.hits_squared - 2 * p * self.cross + p * p * self.of_squared
        return max(spread, 0.0) / (self.of * self.of) * self.clusters / (self.clusters - 1)

    @property
    def few_events(self) -> bool:
        """Whether too little was seen to measure how much clusters differ."""
        return min(self.hit_clusters, self.miss_clusters) < _FEW_CLUSTERS

    @property
    def standard_error(self) -> float:
        """Of the value, over clusters; never 0, since what was not seen is still possible."""
        if not self.few_events and self.variance:
            return sqrt(self.variance)
        units = self.effective
        p = (self.hits / self.of * units + 1) / (units + 2)
        return sqrt(p * (1 - p) / (units + 2))

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The interval of the value, which needs ``of`` > 0; it always holds the value.

        Without any event the upper end is one-sided. Independent units: Wilson. Clusters:
        Clopper-Pearson on the effective number of units.
        """
        p = self.hits / self.of
        if self.hits <= 0:
            return 0.0, zero_events_bound(self.effective, confidence)
        if self.independent:
            units = self.kish
            low, high = wilson(p * units, units, float(ndtri((1 + confidence) / 2)))
        else:
            units = self.effective
            low, high = clopper_pearson(p * units, units, confidence)
        return min(low, p), max(high, p)

    def rate(self, confidence: float = 0.95) -> Rate:
        """The rate with its interval; with nothing evaluable, ``None (n=0)``."""
        whole = self.of + self.unseen
        coverage = self.of / whole if whole else None
        value = self.value
        if value is None:
            return Rate(None, self.hits, self.of, None, None, coverage)
        return Rate(value, self.hits, self.of, *self.interval(confidence), coverage)


def cluster_moments(members: Iterable[tuple[Share, float]]) -> Moments:
    """The moments of one cluster: its members' shares, each with its weight."""
    members = [(share, weight) for share, weight in members]
    hits = fsum(weight * share.hits for share, weight in members)
    of = fsum(weight * share.of for share, weight in members)
    unseen = fsum(weight * share.unseen for share, weight in members)
    if not of:
        return Moments(unseen=unseen)
    return Moments(
        clusters=1,
        hits=hits,
        of=of,
        unseen=unseen,
        hits_squared=hits * hits,
        cross=hits * of,
        of_squared=of * of,
        unit_squares=fsum(weight * weight * share.of for share, weight in members),
        hit_clusters=int(hits > 0),
        miss_clusters=int(hits < of),
    )


def total(parts: Iterable[Moments]) -> Moments:
    """The sum of disjoint parts, whatever their order."""
    parts = list(parts)
    return Moments(
        **{one.name: fsum(getattr(part, one.name) for part in parts) for one in fields(Moments)}
    )


def clopper_pearson(hits: float, of: float, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval for ``hits`` of ``of`` > 0, which need not be whole numbers.

    Source: Clopper and Pearson, Biometrika 26 (1934) 404-413.
    """
    tail = (1 - confidence) / 2
    low = 0.0 if hits <= 0 else float(betaincinv(hits, of - hits + 1, tail))
    high = 1.0 if hits >= of else float(betaincinv(hits + 1, of - hits, 1 - tail))
    return low, high


def zero_events_bound(of: float, confidence: float = 0.95) -> float:
    """What a rate is at most, with this confidence, when none of ``of`` > 0 units was a hit.

    The one-sided Clopper-Pearson bound: 0.0295 for 100 units, about 3 / ``of``.
    """
    return float(1 - (1 - confidence) ** (1 / of))


def units_for(limit: float, confidence: float = 0.95) -> int:
    """How many units without any event show that a rate is at most ``limit`` > 0: 299 for 1 %."""
    if limit >= confidence:
        return 1
    # Where the bound is the limit itself, rounding must not ask for one more.
    return ceil(log(1 - confidence) / log1p(-limit) - 1e-9)
