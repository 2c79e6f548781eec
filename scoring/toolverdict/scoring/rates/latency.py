"""How long calls took: quantiles from a histogram whose bins grow by a fixed factor.

Histograms of parts add up to that of the whole. A quantile is at most :data:`ERROR` (1 %) away from
the duration of a call at that rank, since a bin is no wider than that. Only calls whose body ran and
whose end is known count: a refusal takes no time, and a call without an end has no length yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Final

import numpy as np

from toolverdict.scoring.rates.columns import Codes, Columns, Mask

ERROR: Final = 0.01
"""Greatest relative error of a quantile."""

_GROWTH: Final = (1 + ERROR) / (1 - ERROR)
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Latency:
    """Durations in seconds at three ranks, weighted; of ``calls`` calls that were recorded."""

    calls: int
    p50: float
    p90: float
    p99: float


def timed(calls: Columns) -> tuple[Codes, Mask]:
    """The bin of each call, and which calls have one."""
    start, started = calls.integers("start_time_unix_nano")
    end, ended = calls.integers("end_time_unix_nano")
    lasted = end - start
    there = calls.is_true("executed") & started & ended & (lasted >= 0)
    bins = np.ceil(np.log(np.maximum(lasted, 1)) / log(_GROWTH))
    return bins.astype(np.int64), there


def latency(weights: Mapping[int, float], calls: int) -> Latency:
    """The quantiles of a histogram: the weight in each bin, of at least one."""
    bins = sorted(weights)
    up_to = np.cumsum([weights[one] for one in bins])
    ranks = {name: int(np.searchsorted(up_to, q * up_to[-1])) for name, q in QUANTILES.items()}
    return Latency(calls, **{name: _seconds(bins[rank]) for name, rank in ranks.items()})


def _seconds(number: int) -> float:
    """The duration that is least wrong, relatively, for all in a bin."""
    return float(2 * _GROWTH**number / (1 + _GROWTH) / 1e9)
