"""What a run counted: the sums of all rates, and what it saw beside them; parts add up."""

from collections import Counter
from dataclasses import dataclass, field

from toolverdict.instrument.decisions import DANGEROUS_LABELS
from toolverdict.scoring.policy_coverage import SeenTool
from toolverdict.scoring.rates.aggregate import Aggregates
from toolverdict.scoring.rates.dimensions import MOST_GROUPS, OTHER
from toolverdict.scoring.verdicts import Judged

_MOST_SEEN = 100_000


@dataclass
class Counts:
    """Of one unit, or of several.

    ``played`` counts trajectories by case, ``confused`` pairs of an expected tool and the one called
    in its place; ``unknown_cases`` were named by spans and not given; ``seen`` are the tools that were
    called, as calls name them. Of ``undecided_dangerous_calls``
    neither a policy nor the recorded decision says whether they were allowed.
    """

    aggregates: Aggregates = field(default_factory=Aggregates.nothing)
    spans: int = 0
    traces: int = 0
    traces_without_calls: int = 0
    trajectories: int = 0
    calls: int = 0
    played: Counter[str] = field(default_factory=Counter)
    confused: Counter[tuple[str, str]] = field(default_factory=Counter)
    unknown_cases: set[str] = field(default_factory=set)
    seen: set[SeenTool] = field(default_factory=set)
    undecided_dangerous_calls: int = 0

    def add(self, other: "Counts") -> None:
        """Adds the counts of another unit."""
        self.aggregates += other.aggregates
        self.spans += other.spans
        self.traces += other.traces
        self.traces_without_calls += other.traces_without_calls
        self.trajectories += other.trajectories
        self.calls += other.calls
        self.played += other.played
        for pair, often in other.confused.items():
            self._confuse(pair, often)
        self.unknown_cases |= other.unknown_cases
        if len(self.seen) < _MOST_SEEN:  # past it only hostile names come
            self.seen |= other.seen
        self.undecided_dangerous_calls += other.undecided_dangerous_calls

    def see(self, judged: Judged) -> None:
        """Adds what no table tells of a trajectory: its case, and what nobody decided."""
        trajectory, scores = judged.trajectory, judged.verdict.scores
        if judged.case is not None:
            self.played[judged.case.id] += 1
        elif trajectory.case_id is not None:
            self.unknown_cases.add(trajectory.case_id)
        if scores is not None:
            for pair in scores.confused:
                self._confuse(pair, 1)
        for place, ruling in zip(trajectory.calls, judged.rulings, strict=True):
            if ruling.forbidden is None and not DANGEROUS_LABELS.isdisjoint(place.call.labels):
                self.undecided_dangerous_calls += 1

    def _confuse(self, pair: tuple[str, str], often: int) -> None:
        """Counts a pair; past a bound that only hostile names reach, as one of all others."""
        known = pair in self.confused or len(self.confused) < MOST_GROUPS
        self.confused[pair if known else (OTHER, OTHER)] += often
