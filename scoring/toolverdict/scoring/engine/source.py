"""The rows of a unit as tables of whole traces, each span once, in bounded memory.

A compacted part is read a few row groups at a time, since these end where a trace ends; several
parts are put together, which the plan has made few rows of. Logs are few: those of a unit are read
at once.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from toolverdict.collector.lake import Lake
from toolverdict.collector.lake.part_file import concat, read_groups, sort, trace_starts
from toolverdict.collector.lake.retries import SPAN_KEYS, one_per_span, without_retries
from toolverdict.collector.schema import LOGS, SPANS
from toolverdict.collector.signals import Signal
from toolverdict.scoring.engine.files import UnitFiles
from toolverdict.scoring.engine.keys import row_keys
from toolverdict.scoring.engine.units import EVERYTHING, Range, Stage, Unit
from toolverdict.scoring.spans import COLUMNS

SPAN_ROWS: Final = pa.schema(
    [SPANS.field(name) for name in dict.fromkeys((*SPAN_KEYS, *COLUMNS))]
).with_metadata(SPANS.metadata)
"""What is read of spans, and set aside of them."""
LOG_ROWS: Final = LOGS

BATCH_ROWS: Final = 50_000
"""Spans that are scored at once, but for a trace that has more."""

Mask = npt.NDArray[np.bool_]


class Source:
    """Reads what a unit is about."""

    def __init__(self, lake: Callable[[], Lake], files: UnitFiles, unit: Unit) -> None:
        """``lake`` opens the lake, for a unit that is in it."""
        self._open = lake
        self._files = files
        self._unit = unit

    def spans(self) -> Iterator[pa.Table]:
        """Tables of :data:`SPAN_ROWS`: whole traces, deduplicated, sorted; none for no span.

        Raises:
            LakeError: when a part is damaged or has a newer schema.
            PartGoneError: when a part is not there any more.
        """
        unit, schema = self._unit, SPAN_ROWS
        if unit.stage is Stage.WINDOW and len(unit.spans) == 1:
            tables = _whole_traces(self._groups(unit.spans[0], schema))
        else:
            whole = concat(self._tables(unit.spans, schema, "spans"), schema)
            tables = iter([sort(Signal.TRACES, whole)])
        if unit.stage is Stage.ACROSS:  # all or nothing: any two may belong together
            yield from (one_per_span(table) for table in tables)
            return
        for table in _batches(tables):
            if table.num_rows:
                yield one_per_span(table)

    def logs(self) -> pa.Table:
        """The log records, without copies, sorted by trace id; raises as :meth:`spans` does."""
        whole = concat(self._tables(self._unit.logs, LOG_ROWS, "logs"), LOG_ROWS)
        return without_retries(Signal.LOGS, sort(Signal.LOGS, whole))

    def _tables(self, names: Iterable[str], schema: pa.Schema, signal: str) -> Iterator[pa.Table]:
        if self._unit.stage is Stage.WINDOW:
            for name in names:
                yield from self._groups(name, schema)
            return
        number, of = self._unit.shard
        for name in names:
            table = pq.read_table(
                self._files.path(f"{self._unit.stage.value}-{signal}", name), schema=schema
            )
            if of > 1:
                keys = row_keys(table)
                table = table.filter(pa.array(keys % np.uint64(of) == number))
            yield table

    def _groups(self, name: str, schema: pa.Schema) -> Iterator[pa.Table]:
        within = self._unit.within
        for table in read_groups(self._open().store, name, schema, *within):
            yield table if within == EVERYTHING else table.filter(_inside(table, within))


def _inside(table: pa.Table, within: Range) -> Any:
    """Which rows are in a range; those without a trace id are in the first one."""
    ids: Any = table.column("trace_id")
    inside: Any = pa.scalar(True)
    if within.first is not None:
        behind: Any = pc.greater_equal(ids, pa.scalar(within.first))
        inside = pc.fill_null(behind, False)
    if within.end is not None:
        before: Any = pc.less(ids, pa.scalar(within.end))
        inside = pc.and_(inside, pc.fill_null(before, within.first is None))
    return inside


def _whole_traces(groups: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Sorted tables, none of which begins within a trace of the last one."""
    held: pa.Table | None = None
    for group in groups:
        table = group if held is None else concat([held, group], group.schema)
        in_order = sort(Signal.TRACES, table)
        starts = trace_starts(in_order.column("trace_id"))
        border = starts[-1] if starts else 0
        held = in_order.slice(border)
        if border:
            yield in_order.slice(0, border)
    if held is not None:
        yield held


def _batches(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Tables of about :data:`BATCH_ROWS` rows, cut where a trace ends."""
    gathered: list[pa.Table] = []
    rows = 0
    for table in tables:
        starts = np.array(trace_starts(table.column("trace_id")), np.int64)
        begin = 0
        while rows + table.num_rows - begin >= BATCH_ROWS:
            place = np.searchsorted(starts, begin + max(1, BATCH_ROWS - rows))
            end = int(starts[place]) if place < len(starts) else table.num_rows
            gathered.append(table.slice(begin, end - begin))
            yield _joined(gathered)
            gathered, rows, begin = [], 0, end
        if begin < table.num_rows:
            gathered.append(table.slice(begin))
            rows += table.num_rows - begin
    if gathered:
        yield _joined(gathered)


def _joined(tables: list[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables).unify_dictionaries()


def may_go_on(spans: pa.Table, quiet_since_ns: int) -> Mask:
    """Which rows are of a trace that may go on: no root has ended, and not all of it is old.

    Args:
        spans: whole traces, sorted by trace id.
        quiet_since_ns: a trace of which nothing was received since then is over.
    """
    if not spans.num_rows:
        return np.zeros(0, np.bool_)
    starts = np.array([0, *trace_starts(spans.column("trace_id"))])
    received = spans.column("received_time_unix_nano").to_numpy()
    latest = np.maximum.reduceat(received, starts)
    no_parent: Any = pc.equal(spans.column("parent_span_id"), pa.scalar(""))
    is_root: Any = pc.fill_null(no_parent, True)
    ended = is_root.to_numpy() & (spans.column("end_time_unix_nano").to_numpy() > 0)
    over = np.logical_or.reduceat(ended, starts) | (latest <= quiet_since_ns)
    return np.repeat(~over, np.diff(starts, append=spans.num_rows))
