"""Rows of trajectories that one of their form stands for: its rows, with their own names and times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa

from toolverdict.scoring.columns.alike import Forms
from toolverdict.scoring.columns.arrays import NONE, Column, Rows, column_of, rows_of, taken
from toolverdict.scoring.columns.read import PlainTraces
from toolverdict.scoring.columns.texts import encoded
from toolverdict.scoring.per_call import found_of
from toolverdict.scoring.sampling import adjusted_count
from toolverdict.scoring.tables import FINDINGS, VERDICTS, findings_table, verdicts_table
from toolverdict.scoring.verdicts import Judged

Found: TypeAlias = Mapping[str, Any]
"""What the judge found of one call, by column."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """The rows of a trajectory that was judged for all of its form.

    ``found`` is what was found of its call that did not end well, if it has one. It ``stands`` for
    others if all that was found is about that call, and says nothing that is this one's alone.
    """

    verdict: pa.Table
    findings: pa.Table
    found: Found | None
    stands: bool

    @classmethod
    def of(cls, judged: Judged, index: int | None) -> Self:
        """The stamp that a trajectory makes; ``index`` is its call that did not end well."""
        own = {judged.trajectory.trace_id, *(p.call.span_id for p in judged.trajectory.calls)}
        stands = judged.verdict.root_cause_span_id is None and all(
            finding.call_index == index
            and index is not None
            and finding.span_id == judged.trajectory.calls[index].call.span_id
            and finding.caused_by is None
            and not any(name in finding.message for name in own)
            for finding in judged.findings
        )
        return cls(
            verdict=verdicts_table([judged]),
            findings=findings_table([judged]),
            found=None if index is None else list(found_of(judged))[index],
            stands=stands,
        )


def stamped_verdicts(
    plain: PlainTraces, entries: Rows, stamp_of: Rows, stamps: Sequence[Stamp]
) -> pa.Table:
    """The verdicts of these trajectories, each by its stamp."""
    if not len(entries):
        return VERDICTS.empty_table()
    whole = pa.concat_tables([one.verdict for one in stamps]).unify_dictionaries()
    traces, names = plain.traces, taken(plain.trace_ids, entries)
    starts = pa.array(plain.begins(entries) // 1000)
    return _with(
        rows_of(whole, stamp_of),
        {
            "trajectory_id": names,
            "trace_id": names,
            "agent": traces.agent.of(traces.agent.codes[entries]).array(),
            "model": traces.model.of(traces.model.codes[entries]).array(),
            "service_version": traces.version.of(traces.version.codes[entries]).array(),
            "start_time": starts.cast(VERDICTS.field("start_time").type),
            "weight": _weights(plain, entries),
        },
    )


def _weights(plain: PlainTraces, entries: Rows) -> Column:
    """How many trajectories each stands for."""
    root = plain.traces.root[entries]
    states = encoded(taken(column_of(plain.table, "trace_state"), root))
    each = [adjusted_count(str(state)) for state in states.texts.to_pylist()]
    unsampled = len(each)  # where no state is given
    known: Column = pa.array([*each, 1.0], pa.float64())
    return taken(known, np.where(states.codes == NONE, unsampled, states.codes))


def stamped_findings(
    plain: PlainTraces,
    calls: pa.Table,
    entries: Rows,
    forms: Forms,
    stamp_of: Rows,
    stamps: Sequence[Stamp],
) -> pa.Table:
    """The findings of these trajectories, each by its stamp; all are about its one call."""
    sizes = np.array([one.findings.num_rows for one in stamps], np.int64)
    if not len(entries) or not sizes[stamp_of].any():
        return FINDINGS.empty_table()
    begins = np.cumsum(sizes) - sizes
    each = sizes[stamp_of]
    of_row = np.repeat(np.arange(len(entries)), each)
    within = np.arange(len(of_row)) - np.repeat(np.cumsum(each) - each, each)
    whole = pa.concat_tables([one.findings for one in stamps]).unify_dictionaries()
    call = forms.mild[entries[of_row]]
    names = taken(plain.trace_ids, entries[of_row])
    return _with(
        rows_of(whole, begins[stamp_of[of_row]] + within),
        {
            "trajectory_id": names,
            "trace_id": names,
            "span_id": taken(column_of(calls, "span_id"), call),
            "call_index": taken(column_of(calls, "index"), call),
        },
    )


def _with(table: pa.Table, columns: Mapping[str, Column]) -> pa.Table:
    """The table with some of its columns replaced."""
    for name, column in columns.items():
        place = table.schema.get_field_index(name)
        field = table.schema.field(name)
        table = table.set_column(place, field, column.cast(field.type))
    return table
