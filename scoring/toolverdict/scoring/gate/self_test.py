"""A/A: how often the comparison with a baseline raises an alarm although nothing changed.

One ``OUT`` is split at random many times, each half is taken for a version of its own, and the
rates that the gate limits are compared as with a baseline. Where every case has several trials,
these are split, and halves are paired by case; else whole clusters are.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from toolverdict.scoring.compare.comparison import compare_rates, is_worse
from toolverdict.scoring.gate.evidence import Results, Scored
from toolverdict.scoring.gate.gated import GatedRate
from toolverdict.scoring.model import Share
from toolverdict.scoring.rates import Rate

SPLITS: Final = 200


@dataclass(frozen=True, slots=True)
class SelfTest:
    """How many splits raised an alarm; ``by_rate`` says which rates did.

    Splits of one set of trajectories are not independent, so the interval tells of the splitting
    and not of other data.
    """

    alarms: Rate
    by_rate: dict[str, int]
    paired: bool
    trajectories: int
    expected: float
    seed: int

    @property
    def sentence(self) -> str:
        """The false-alarm rate and what it should be."""
        halves = "trials of the same cases" if self.paired else "trajectories"
        return (
            f"false alarms: {self.alarms} of random halves of {self.trajectories} {halves}, "
            f"at most {self.expected:g} wanted (seed {self.seed})"
        )

    @property
    def too_many(self) -> bool:
        """Whether there are more alarms than the confidence promises, beyond chance."""
        return self.alarms.low is not None and self.alarms.low > self.expected


def self_test(
    results: Results,
    rates: Sequence[GatedRate],
    *,
    confidence: float = 0.95,
    splits: int = SPLITS,
    seed: int = 0,
) -> SelfTest:
    """Splits and compares; with fewer than two clusters there is nothing to split: ``None (n=0)``."""
    clusters: defaultdict[str, list[Scored]] = defaultdict(list)
    for one in sorted(results.trajectories, key=lambda one: one.trajectory_id):
        clusters[one.cluster].append(one)
    groups = [clusters[name] for name in sorted(clusters)]
    paired = bool(groups) and all(len(g) > 1 and g[0].case_id is not None for g in groups)
    rng = np.random.default_rng(seed)
    alarms, by_rate = 0, dict.fromkeys((gated.rate for gated in rates), 0)
    tried = splits if paired or len(groups) > 1 else 0
    for number in range(tried):
        halves = _split_within(groups, rng) if paired else _split_between(groups, rng)
        found = compare_rates(*halves, rates, paired, confidence, seed + number)
        worse = [one.rate for one in found if is_worse(one, confidence)]
        alarms += bool(worse)
        for rate in worse:
            by_rate[rate] += 1
    return SelfTest(
        Rate.of(Share(alarms, tried)),
        by_rate,
        paired,
        len(results.trajectories),
        1 - confidence,
        seed,
    )


def _split_within(
    groups: Sequence[Sequence[Scored]], rng: np.random.Generator
) -> tuple[list[Scored], list[Scored]]:
    """Half of the trials of each case on each side."""
    left: list[Scored] = []
    right: list[Scored] = []
    for group in groups:
        order = rng.permutation(len(group))
        half = len(group) // 2
        if len(group) % 2:
            half += int(rng.integers(2))
        left += [group[place] for place in order[:half]]
        right += [group[place] for place in order[half:]]
    return left, right


def _split_between(
    groups: Sequence[Sequence[Scored]], rng: np.random.Generator
) -> tuple[list[Scored], list[Scored]]:
    """Half of the clusters on each side."""
    order = rng.permutation(len(groups))
    half = len(groups) // 2
    left = [one for place in order[:half] for one in groups[place]]
    return left, [one for place in order[half:] for one in groups[place]]
