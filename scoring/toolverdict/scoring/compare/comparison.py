"""Base and new results, compared rate by rate: on the same cases if there are any, else live."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from toolverdict.scoring.compare.differences import (
    Difference,
    holm,
    live_difference,
    paired_difference,
    pairs_of,
)
from toolverdict.scoring.compare.waste_path import (
    MAX_CALL_GROWTH,
    MIN_SUCCESS_GAIN,
    WastePath,
    waste_path,
)
from toolverdict.scoring.gate.evidence import Results, Scored, moments_of
from toolverdict.scoring.gate.gated import GATED, GatedRate

Mode: TypeAlias = Literal["auto", "paired", "live"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """All that was compared. ``cases_lost`` were played by base and are not by new."""

    mode: Literal["paired", "live"]
    differences: tuple[Difference, ...]
    waste: WastePath
    cases_both: int
    cases_lost: tuple[str, ...]
    cases_added: tuple[str, ...]
    confidence: float
    seed: int

    @property
    def worse(self) -> tuple[Difference, ...]:
        """The rates of which it is shown that they got worse."""
        return tuple(one for one in self.differences if is_worse(one, self.confidence))

    @property
    def comparable(self) -> bool:
        """Whether any rate could be compared."""
        return any(one.difference is not None for one in self.differences)


_HIGHER_IS_BETTER = {gated.rate: gated.higher_is_better for gated in GATED}


def is_worse(one: Difference, confidence: float) -> bool:
    """Whether a rate got worse, and chance explains it too rarely for this confidence."""
    if one.difference is None or one.p_holm is None or one.p_holm >= 1 - confidence:
        return False
    return (one.difference < 0) == _HIGHER_IS_BETTER[one.rate] and one.difference != 0


def compare(
    base: Results,
    new: Results,
    *,
    rates: Iterable[GatedRate] = GATED,
    mode: Mode = "auto",
    max_call_growth: float = MAX_CALL_GROWTH,
    min_success_gain: float = MIN_SUCCESS_GAIN,
    confidence: float = 0.95,
    seed: int = 0,
) -> Comparison:
    """Compares two ``OUT``; in mode ``auto`` on the same cases where there is one."""
    both = base.cases_played & new.cases_played
    paired = mode == "paired" or (mode == "auto" and bool(both))
    return Comparison(
        mode="paired" if paired else "live",
        differences=compare_rates(
            base.trajectories, new.trajectories, rates, paired, confidence, seed
        ),
        waste=waste_path(
            base.trajectories,
            new.trajectories,
            paired=paired,
            max_call_growth=max_call_growth,
            min_success_gain=min_success_gain,
            confidence=confidence,
            seed=seed,
        ),
        cases_both=len(both),
        cases_lost=tuple(sorted(base.cases_played - new.cases_played)),
        cases_added=tuple(sorted(new.cases_played - base.cases_played)),
        confidence=confidence,
        seed=seed,
    )


def compare_rates(
    base: Sequence[Scored],
    new: Sequence[Scored],
    rates: Iterable[GatedRate],
    paired: bool,
    confidence: float,
    seed: int,
) -> tuple[Difference, ...]:
    """The difference of each rate, p-values corrected for how many there are."""
    differences = []
    for gated in rates:
        before, after = moments_of(base, gated.rate), moments_of(new, gated.rate)
        if paired:
            both = before.rate(confidence), after.rate(confidence)
            pairs = pairs_of(base, new, gated.rate)
            differences.append(paired_difference(gated.rate, pairs, both, confidence, seed))
        else:
            differences.append(live_difference(gated.rate, before, after, confidence))
    return tuple(holm(differences))
