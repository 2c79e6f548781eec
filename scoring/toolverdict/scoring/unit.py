"""One unit of work: an Arrow table of whole traces in, tables of results and counts out.

Pure: no files, no clock. The counts of units add up to those of the whole. Units are independent
but for conversations that go on in another one; those are put together after the last.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from toolverdict.instrument.policy import Policy
from toolverdict.scoring.cases.model import Case
from toolverdict.scoring.conversations import Conversations
from toolverdict.scoring.counts import Counts
from toolverdict.scoring.model import Share, Thresholds, Trajectory
from toolverdict.scoring.spans import log_records, traces
from toolverdict.scoring.tables import calls_table, findings_table, verdicts_table
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


def score_unit(
    spans: pa.Table,
    rules: Rules,
    logs: pa.Table | None = None,
    conversations: Conversations | None = None,
) -> UnitResult:
    """Scores the trajectories of a unit.

    Args:
        spans: whole traces, deduplicated and sorted by trace id, with the columns that
            :data:`toolverdict.scoring.spans.COLUMNS` names.
        rules: policy, cases and thresholds.
        logs: the log records of the unit, with the columns of
            :data:`toolverdict.scoring.spans.LOG_COLUMNS`.
        conversations: of several units, where a conversation may go on from one to the other: what
            may concern another unit is left there, for :func:`score_rest`.
    """
    records = log_records(logs) if logs is not None else ()
    own = conversations is None
    if conversations is None:
        conversations = Conversations()
    conversations.expect(records)
    before = conversations.traces, conversations.traces_without_calls
    scored = _Scored(rules)
    for trace in traces(spans):
        scored.add(conversations.add(trace))
    if own:
        scored.add(conversations.rest())
    scored.counts.spans = spans.num_rows
    scored.counts.traces = conversations.traces - before[0]
    scored.counts.traces_without_calls = conversations.traces_without_calls - before[1]
    return scored.result()


def score_rest(conversations: Conversations, rules: Rules) -> UnitResult:
    """Scores what the units before had left, since it concerned more than one of them."""
    scored = _Scored(rules)
    scored.add(conversations.rest())
    return scored.result()


class _Scored:
    """Trajectories judged, and counted."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._judged: list[Judged] = []
        self._shares: list[dict[str, Share]] = []
        self.counts = Counts()

    def add(self, trajectories: Iterable[Trajectory]) -> None:
        for trajectory in trajectories:
            one = _judge(trajectory, self._rules)
            if one is not None:
                self._judged.append(one)
                self._shares.append(self.counts.count(one))

    def result(self) -> UnitResult:
        judged = self._judged
        return UnitResult(
            calls_table(judged),
            findings_table(judged),
            verdicts_table(judged, self._shares),
            self.counts,
        )


def _judge(trajectory: Trajectory, rules: Rules) -> Judged | None:
    """The trajectory judged; None for a trace that neither called a tool nor played a case."""
    trajectory = replace(trajectory, case_id=rules.case_of_trajectory(trajectory))
    if not trajectory.calls and trajectory.case_id is None:
        return None
    case = rules.cases.get(trajectory.case_id or "")
    unknown = bool(rules.cases) and case is None and trajectory.case_id is not None
    return judge_trajectory(trajectory, rules.policy, case, rules.thresholds, unknown_case=unknown)
