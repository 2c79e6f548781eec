"""Rates: a count over a count, always with both and with an interval.

Where the denominator is 0 the value is None: never 0, 1 or NaN in its place.
"""

from dataclasses import dataclass
from math import sqrt

from toolverdict.scoring.model import Share

_Z95 = 1.959963984540054  # two-sided 95 %


@dataclass(frozen=True, slots=True)
class Rate:
    """A share with its 95 % interval and its coverage.

    ``numerator`` and ``denominator`` are counts weighted by how many calls or trajectories each
    kept one stands for (1 where nothing was sampled); the interval is that of the evidence, which
    sampling makes smaller, not larger. ``coverage`` is the evaluable part of all
    that could have been evaluated; None when there was nothing at all.
    """

    value: float | None
    numerator: float
    denominator: float
    low: float | None
    high: float | None
    coverage: float | None

    @classmethod
    def of(cls, share: Share) -> "Rate":
        """The rate of a share; with nothing evaluable, ``None (n=0)``."""
        whole = share.of + share.unseen
        coverage = share.of / whole if whole else None
        if share.value is None:
            return cls(None, share.hits, share.of, None, None, coverage)
        low, high = wilson(share.value * share.effective, share.effective)
        return cls(share.value, share.hits, share.of, low, high, coverage)

    def __str__(self) -> str:
        """``0.125 (1/8) [0.022, 0.471]``, or ``None (n=0)``."""
        if self.value is None or self.low is None or self.high is None:
            return "None (n=0)"
        counts = f"{self.numerator:g}/{self.denominator:g}"
        return f"{self.value:.3f} ({counts}) [{self.low:.3f}, {self.high:.3f}]"

    def as_json(self) -> dict[str, float | None]:
        """The fields by name, as they stand in ``summary.json``."""
        return {
            "value": self.value,
            "numerator": self.numerator,
            "denominator": self.denominator,
            "low": self.low,
            "high": self.high,
            "coverage": self.coverage,
        }


def wilson(hits: float, of: float, z: float = _Z95) -> tuple[float, float]:
    """Wilson's score interval for ``hits`` of ``of`` > 0; never empty, never outside [0, 1].

    Source: E. B. Wilson, JASA 22 (1927) 209-212. 10 of 10 gives [0.722, 1].
    """
    p = hits / of
    middle = p + z * z / (2 * of)
    spread = z * sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    scale = 1 + z * z / of
    # At the two ends the formula is exact but its rounding is not.
    low = 0.0 if hits <= 0 else max(0.0, (middle - spread) / scale)
    high = 1.0 if hits >= of else min(1.0, (middle + spread) / scale)
    return low, high
