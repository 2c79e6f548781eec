"""One unit of work: an Arrow table of whole traces in, tables of results and counts out.

Pure: no files, no clock. Units are independent, and the counts of units add up to those of the
whole, so any engine may map this function over them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from toolverdict.instrument.policy import Policy
from toolverdict.scoring.cases.model import Case
from toolverdict.scoring.counts import Counts
from toolverdict.scoring.model import Thresholds, Trajectory
from toolverdict.scoring.spans import traces
from toolverdict.scoring.tables import calls_table, findings_table, verdicts_table
from toolverdict.scoring.trajectories import trajectories
from toolverdict.scoring.verdicts import Judged, judge_trajectory


@dataclass(frozen=True, slots=True)
class Rules:
    """What trajectories are judged by. ``case_of`` maps a trace or conversation id to a case id."""

    policy: Policy | None = None
    cases: Mapping[str, Case] = field(default_factory=dict)
    case_of: Mapping[str, str] = field(default_factory=dict)
    thresholds: Thresholds = field(default_factory=Thresholds)

    def case_of_trajectory(self, trajectory: Trajectory) -> str | None:
        """The id of the case this trajectory played: by the map, else as its spans say."""
        for key in (trajectory.trace_id, trajectory.conversation_id):
            if key is not None and key in self.case_of:
                return self.case_of[key]
        return trajectory.case_id


@dataclass(frozen=True, slots=True)
class UnitResult:
    """The rows and the counts of one unit."""

    calls: pa.Table
    findings: pa.Table
    verdicts: pa.Table
    counts: Counts


def score_unit(spans: pa.Table, rules: Rules) -> UnitResult:
    """Scores every trajectory of a unit.

    Args:
        spans: whole traces, deduplicated and sorted by trace id, with the columns that
            :data:`toolverdict.scoring.spans.COLUMNS` names.
        rules: policy, cases and thresholds.
    """
    judged: list[Judged] = []
    counts = Counts(spans=spans.num_rows)
    for trace in traces(spans):
        found = trajectories(trace)
        counts.traces += 1
        counts.traces_without_calls += not any(trajectory.calls for trajectory in found)
        for trajectory in found:
            one = _judge(trajectory, rules)
            if one is not None:
                judged.append(one)
                counts.count(one)
    return UnitResult(calls_table(judged), findings_table(judged), verdicts_table(judged), counts)


def _judge(trajectory: Trajectory, rules: Rules) -> Judged | None:
    """The trajectory judged; None for a trace that neither called a tool nor played a case."""
    trajectory = replace(trajectory, case_id=rules.case_of_trajectory(trajectory))
    if not trajectory.calls and trajectory.case_id is None:
        return None
    case = rules.cases.get(trajectory.case_id or "")
    unknown = bool(rules.cases) and case is None and trajectory.case_id is not None
    return judge_trajectory(trajectory, rules.policy, case, rules.thresholds, unknown_case=unknown)
