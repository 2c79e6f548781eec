"""One unit of work: an Arrow table of whole traces in, tables of results and counts out.

Pure: no files, no clock. The counts of units add up to those of the whole. Units are independent
but for conversations that go on in another one; those are put together after the last.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from toolverdict.instrument.catalogue.definitions import Catalogue
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.cases.model import Case
from toolverdict.scoring.columns.read import PlainTraces
from toolverdict.scoring.columns.score import PlainScore, PlainScorer
from toolverdict.scoring.conversations import Conversations
from toolverdict.scoring.counts import Counts
from toolverdict.scoring.model import Thresholds, Trajectory
from toolverdict.scoring.policy_coverage import seen_in
from toolverdict.scoring.rates.aggregate import Aggregates
from toolverdict.scoring.rates.shares import with_shares
from toolverdict.scoring.remembering import for_the_last
from toolverdict.scoring.spans import LogRecord, log_records, traces
from toolverdict.scoring.tables import calls_table, findings_table, verdicts_table
from toolverdict.scoring.verdicts import Judged, judge_trajectory


@dataclass(frozen=True, slots=True)
class Rules:
    """What trajectories are judged by. ``case_of`` maps a trace or conversation id to a case id."""

    policy: Policy | None = None
    cases: Mapping[str, Case] = field(default_factory=dict)
    case_of: Mapping[str, str] = field(default_factory=dict)
    thresholds: Thresholds = field(default_factory=Thresholds)
    catalogue: Catalogue | None = None

    def case_of_trajectory(self, trajectory: Trajectory) -> str | None:
        """The id of the case this trajectory played: by the map, else as its spans say."""
        for key in (trajectory.trace_id, trajectory.conversation_id):
            if key is not None and key in self.case_of:
                return self.case_of[key]
        return trajectory.case_id


@dataclass(frozen=True, slots=True)
class UnitResult:
    """The rows and the counts of one unit; ``held`` are ids of traces that were left out."""

    calls: pa.Table
    findings: pa.Table
    verdicts: pa.Table
    counts: Counts
    held: tuple[str, ...] = ()


def score_unit(
    spans: pa.Table,
    rules: Rules,
    logs: pa.Table | None = None,
    hold: Collection[str] | None = None,
) -> UnitResult:
    """Scores the trajectories of a unit.

    Args:
        spans: whole traces, deduplicated and sorted by trace id, with the columns that
            :data:`toolverdict.scoring.spans.COLUMNS` names.
        rules: policy, cases and thresholds.
        logs: the log records of the unit, with the columns of
            :data:`toolverdict.scoring.spans.LOG_COLUMNS`; with ``hold``, those of its traces.
        hold: given for one unit of several, where a conversation may go on from one to the other:
            traces that may concern another unit are left out, and so are those of these
            conversations, of which records name no trace.
    """
    records = list(log_records(logs)) if logs is not None else []
    conversations = Conversations(records)
    scored = _Scored(rules)
    others = scored.add_plain(spans, records, conversations.awaited.union(hold or ()))
    if hold is None:
        for trace in traces(others):
            scored.add(conversations.add(trace))
        scored.add(conversations.rest())
        scored.counts.spans += others.num_rows
        scored.counts.traces += conversations.traces
        scored.counts.traces_without_calls += conversations.traces_without_calls
        return scored.result()
    held = []
    for trace in traces(others):
        before, without_calls = conversations.held, conversations.traces_without_calls
        found = list(conversations.add(trace))
        if conversations.held > before or any(one.conversation_id in hold for one in found):
            held.append(trace[0].trace_id)
            continue
        scored.add(found)
        scored.counts.spans += len(trace)
        scored.counts.traces += 1
        scored.counts.traces_without_calls += conversations.traces_without_calls - without_calls
    return scored.result(tuple(held))


class _Scored:
    """Trajectories judged, and counted."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._judged: list[Judged] = []
        self._plain: list[PlainScore] = []
        self.counts = Counts()

    def add_plain(
        self, spans: pa.Table, records: Iterable[LogRecord], awaited: Collection[str]
    ) -> pa.Table:
        """Score the traces that can be read as columns; gives the spans of the others.

        Args:
            spans: of whole traces.
            records: their log records.
            awaited: conversations that records without a trace belong to.
        """
        if not spans.num_rows:
            return spans
        with_logs = {record.trace_id for record in records if record.trace_id is not None}
        plain = PlainTraces(spans, with_logs, awaited)
        scored = _scorer(self._rules).score(plain)
        self._plain.append(scored)
        for one in scored.judged:
            self.counts.see(one)
        self.counts.spans += int(plain.plain.sum())
        self.counts.traces += len(plain.traces.number)
        self.counts.traces_without_calls += plain.without_calls
        return plain.table.filter(pa.array(~plain.plain))

    def add(self, trajectories: Iterable[Trajectory]) -> None:
        for trajectory in trajectories:
            one = judge(trajectory, self._rules)
            if one is not None:
                self._judged.append(one)
                self.counts.see(one)

    def result(self, held: tuple[str, ...] = ()) -> UnitResult:
        calls = _all(calls_table(self._judged), [one.calls for one in self._plain])
        verdicts = _all(verdicts_table(self._judged), [one.verdicts for one in self._plain])
        findings = _all(findings_table(self._judged), [one.findings for one in self._plain])
        self.counts.seen = seen_in(calls)
        self.counts.trajectories, self.counts.calls = verdicts.num_rows, calls.num_rows
        self.counts.aggregates = Aggregates.of(calls, verdicts)
        return UnitResult(calls, findings, with_shares(verdicts, calls), self.counts, held)


def _all(table: pa.Table, others: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables([*others, table]).unify_dictionaries()


@for_the_last
def _scorer(rules: Rules) -> PlainScorer:
    """What scores plain traces; it remembers what it has seen of them."""
    return PlainScorer(
        lambda trajectory: judge(trajectory, rules),
        rules.policy,
        rules.catalogue,
        rules.case_of.keys(),
    )


def judge(trajectory: Trajectory, rules: Rules) -> Judged | None:
    """The trajectory judged; None for a trace that neither called a tool nor played a case."""
    trajectory = replace(trajectory, case_id=rules.case_of_trajectory(trajectory))
    if not trajectory.calls and trajectory.case_id is None:
        return None
    case = rules.cases.get(trajectory.case_id or "")
    unknown = bool(rules.cases) and case is None and trajectory.case_id is not None
    return judge_trajectory(
        trajectory,
        rules.policy,
        case,
        rules.thresholds,
        unknown_case=unknown,
        catalogue=rules.catalogue,
    )
