"""The plain traces of a table scored: rows of calls, findings and verdicts.

Quiet trajectories are judged once for all that are alike, the others one by one, by the same judge.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from toolverdict.instrument.catalogue.definitions import Catalogue
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.columns.arrays import (
    NONE,
    Column,
    Flags,
    Rows,
    among,
    column_of,
    rows_of,
    taken,
)
from toolverdict.scoring.columns.calls import call_columns, numbers
from toolverdict.scoring.columns.kinds import Kind
from toolverdict.scoring.columns.materialise import trajectories
from toolverdict.scoring.columns.quiet import CallClasses, is_quiet, quiet_traces
from toolverdict.scoring.columns.read import PlainTraces
from toolverdict.scoring.columns.texts import encoded
from toolverdict.scoring.known_tools import tools_under
from toolverdict.scoring.model import Trajectory
from toolverdict.scoring.per_call import found_of
from toolverdict.scoring.sampling import adjusted_count
from toolverdict.scoring.tables import CALLS, VERDICTS, findings_table, verdicts_table
from toolverdict.scoring.verdicts import Judged

Judge: TypeAlias = Callable[[Trajectory], Judged | None]
"""Judges a trajectory; None for one that neither called a tool nor played a case."""

Found: TypeAlias = Mapping[str, Any]
"""What the judge found of one call, by column."""


@dataclass(frozen=True, slots=True)
class PlainScore:
    """Rows of the plain trajectories of a table; ``judged`` are those that were looked at singly."""

    calls: pa.Table
    findings: pa.Table
    verdicts: pa.Table
    judged: Sequence[Judged]


@dataclass(slots=True)
class _Known:
    """What is known of the calls of one kind by one agent; ``kind`` is kept for its identity."""

    kind: Kind
    is_quiet: bool
    found: Found | None = None


class PlainScorer:
    """Scores the plain traces of one table after the other, by the same rules."""

    def __init__(
        self,
        judge: Judge,
        policy: Policy | None = None,
        catalogue: Catalogue | None = None,
        cased: Collection[str] = frozenset(),
    ) -> None:
        """Begin.

        Args:
            judge: of every trajectory.
            policy: by which the judge decides the calls.
            catalogue: by which it knows the tools.
            cased: ids of traces and conversations that played a case without saying so.
        """
        self._judge = judge
        self._policy = policy
        self._tools = tools_under(policy, catalogue)
        self._cased = cased
        self._known: dict[tuple[int, str | None], _Known] = {}
        self._verdicts: dict[bool, pa.Table] = {}

    def score(self, plain: PlainTraces) -> PlainScore:
        """Rows of all trajectories of the plain traces, each once."""
        spans, classes = call_columns(plain), CallClasses(plain)
        known = [self._of_class(*key) for key in zip(classes.kinds, classes.agents, strict=True)]
        quiet = self._quiet_traces(plain, classes, known)
        self._judge_examples(plain, spans, classes, known, quiet)
        judged = self._judged(plain, spans, np.flatnonzero(self._to_judge(plain) & ~quiet))
        verdicts = [
            self._quiet_verdicts(plain, classes, known, quiet),
            verdicts_table(judged),
        ]
        return PlainScore(
            calls=_calls(plain, spans, classes, known, quiet, judged),
            findings=findings_table(judged),
            verdicts=pa.concat_tables(verdicts),
            judged=judged,
        )

    def _of_class(self, kind: Kind, agent: str | None) -> _Known:
        key = id(kind), agent
        known = self._known.get(key)
        if known is None:
            quiet = kind.call is not None and is_quiet(kind.call, agent, self._policy, self._tools)
            known = self._known[key] = _Known(kind, quiet)
        return known

    def _to_judge(self, plain: PlainTraces) -> Flags:
        """Which trajectories there are: a trace without a call is none, unless it played a case."""
        there = (plain.traces.case.codes >= 0) | self._is_cased(plain)
        there[plain.calls.trace] = True
        return there

    def _is_cased(self, plain: PlainTraces) -> Flags:
        ids, conversations = plain.trace_ids(), plain.traces.conversation.array()
        return among(ids, self._cased) | among(conversations, self._cased)

    def _quiet_traces(
        self, plain: PlainTraces, classes: CallClasses, known: Sequence[_Known]
    ) -> Flags:
        quiet_classes = np.array([one.is_quiet for one in known], dtype=np.bool_)
        return quiet_traces(plain, quiet_classes[classes.of_call]) & ~self._is_cased(plain)

    def _judged(
        self, plain: PlainTraces, spans: Mapping[str, Column], entries: Rows
    ) -> list[Judged]:
        found = (self._judge(one) for one in trajectories(plain, spans, entries))
        return [one for one in found if one is not None]

    # --- what one of each stands for ------------------------------------------------------------

    def _judge_examples(
        self,
        plain: PlainTraces,
        spans: Mapping[str, Column],
        classes: CallClasses,
        known: Sequence[_Known],
        quiet: Flags,
    ) -> None:
        """Judge a quiet trajectory with a call of each class that none was judged with before."""
        here, first = np.unique(
            np.where(quiet[plain.calls.trace], classes.of_call, NONE), return_index=True
        )
        new = [
            (number, call)
            for number, call in zip(here.tolist(), first.tolist(), strict=True)
            if number != NONE and known[number].found is None
        ]
        entries = np.unique(plain.calls.trace[[call for _, call in new]])
        examples = dict(zip(entries.tolist(), self._judged(plain, spans, entries), strict=True))
        found = {entry: list(found_of(judged)) for entry, judged in examples.items()}
        for number, call in new:
            entry, index = int(plain.calls.trace[call]), int(plain.calls.index[call])
            known[number].found = found[entry][index]
        for entry, judged in examples.items():
            decided = all(one["compliant"] for one in found[entry])
            self._verdicts.setdefault(decided, verdicts_table([judged]))

    def _quiet_verdicts(
        self, plain: PlainTraces, classes: CallClasses, known: Sequence[_Known], quiet: Flags
    ) -> pa.Table:
        """The verdicts of quiet trajectories: that of one that is like them, with their own names."""
        of_class = np.array([bool(one.found and one.found["compliant"]) for one in known], np.bool_)
        decided = np.ones(len(quiet), dtype=np.bool_)
        decided[plain.calls.trace[~of_class[classes.of_call]]] = False
        entries = np.flatnonzero(quiet)
        if not len(entries):
            return VERDICTS.empty_table()
        tables = list(self._verdicts.values())
        place = {key: number for number, key in enumerate(self._verdicts)}
        rows = np.where(decided[entries], place.get(True, 0), place.get(False, 0))
        found = rows_of(pa.concat_tables(tables).unify_dictionaries(), rows)
        traces = plain.traces
        start = plain.begins(entries)
        weights = encoded(taken(column_of(plain.table, "trace_state"), traces.root[entries]))
        weight = pa.array([adjusted_count(t) for t in weights.texts.to_pylist()] + [1.0])
        own = {
            "trajectory_id": taken(plain.trace_ids(), entries),
            "trace_id": taken(plain.trace_ids(), entries),
            "agent": traces.agent.of(traces.agent.codes[entries]).array(),
            "model": traces.model.of(traces.model.codes[entries]).array(),
            "service_version": traces.version.of(traces.version.codes[entries]).array(),
            "start_time": pa.array(start // 1000).cast(VERDICTS.field("start_time").type),
            "weight": taken(weight, np.where(weights.codes < 0, len(weight) - 1, weights.codes)),
        }
        for name, column in own.items():
            field = VERDICTS.field(name)
            place_of = found.schema.get_field_index(name)
            found = found.set_column(place_of, field, column.cast(field.type))
        return found


def _calls(
    plain: PlainTraces,
    spans: Mapping[str, Column],
    classes: CallClasses,
    known: Sequence[_Known],
    quiet: Flags,
    judged: Sequence[Judged],
) -> pa.Table:
    """The rows of all calls: what their spans say, and what the judge found of them."""
    singly = np.flatnonzero(~quiet[plain.calls.trace])
    placed = [place for one in judged for place in one.trajectory.calls]
    attempt, retry_of = np.ones(len(plain.calls.row), np.int64), np.full(len(plain.calls.row), NONE)
    attempt[singly] = [place.attempt for place in placed]
    retry_of[singly] = [NONE if p.retry_of is None else p.retry_of for p in placed]
    source = classes.of_call.copy()
    source[singly] = len(known) + np.arange(len(singly))
    found = [one.found or {} for one in known]
    found += [one for trajectory in judged for one in found_of(trajectory)]
    names = found[-1].keys() if found else ()
    columns = {
        **spans,
        "attempt": numbers(attempt),
        "retry_of": numbers(retry_of),
        **{
            name: taken(pa.array([one.get(name) for one in found], CALLS.field(name).type), source)
            for name in names
        },
    }
    size = len(plain.calls.row)
    return pa.table(
        [
            columns[f.name].cast(f.type) if f.name in columns else pa.nulls(size, f.type)
            for f in CALLS
        ],
        schema=CALLS,
    )
