"""pass^k: how likely all of k trials of a case pass. A version that works half the time has 0.5^k.

Source: Yao et al., tau-bench (2024): per case C(c, k) / C(n, k) for c of n trials passed, which is
unbiased; the mean over cases.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import comb

import numpy as np

from toolverdict.scoring.gate.evidence import Scored
from toolverdict.scoring.intervals import zero_events_bound

_REPEATS = 2000


@dataclass(frozen=True, slots=True)
class PassHat:
    """pass^k over the cases with at least ``k`` evaluable trials.

    ``too_few`` are the cases with fewer: they are not in the mean. The interval is a bootstrap of
    cases; where all cases agree, what so many cases leave possible.
    """

    k: int
    value: float | None
    low: float | None
    high: float | None
    cases: int
    too_few: tuple[str, ...]

    def __str__(self) -> str:
        """``0.446 (40 cases) [0.321, 0.570]``, or ``None (n=0)``."""
        if self.value is None:
            return "None (n=0)"
        return f"{self.value:.3f} ({self.cases} cases) [{self.low:.3f}, {self.high:.3f}]"


def pass_hat_k(passed: int, trials: int, k: int) -> float:
    """C(passed, k) / C(trials, k).

    Raises:
        ValueError: fewer than ``k`` trials, or more passed than tried.
    """
    if not 1 <= k <= trials or not 0 <= passed <= trials:
        raise ValueError(
            f"pass^{k} needs at least {k} trials, of which {passed} of {trials} passed"
        )
    return comb(passed, k) / comb(trials, k)


def pass_hat(
    trajectories: Iterable[Scored], k: int, confidence: float = 0.95, seed: int = 0
) -> PassHat:
    """pass^k of the trials of each case, averaged over cases."""
    trials: defaultdict[str, list[bool]] = defaultdict(list)
    for one in trajectories:
        if one.case_id is not None and one.passed is not None:
            trials[one.case_id].append(one.passed)
    enough = {case: outcomes for case, outcomes in sorted(trials.items()) if len(outcomes) >= k}
    too_few = tuple(sorted(trials.keys() - enough.keys()))
    if not enough:
        return PassHat(k, None, None, None, 0, too_few)
    values = np.array([pass_hat_k(sum(o), len(o), k) for o in enough.values()])
    mean = float(values.mean())
    if np.ptp(values) == 0:
        bound = zero_events_bound(len(values), confidence)
        low, high = max(0.0, mean - bound), min(1.0, mean + bound)
    else:
        rng = np.random.default_rng(seed)
        means = [values[rng.integers(0, len(values), len(values))].mean() for _ in range(_REPEATS)]
        tail = (1 - confidence) / 2
        low, high = (float(end) for end in np.quantile(means, [tail, 1 - tail]))
    return PassHat(k, mean, min(low, mean), max(high, mean), len(values), too_few)
