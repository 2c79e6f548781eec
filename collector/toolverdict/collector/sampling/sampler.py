"""Tail sampling of a lake, as its compaction uses it.

First everything that has gone quiet is decided, at once, then compaction applies it::

    with lake.store.upkeep():
        sampler = decided(policy, lake, now - grace)
        compact(lake, CompactionSettings(grace, sampler), now)

Decisions are on the disk before :func:`decided` returns, so whatever is interrupted afterwards is
done again with the same result.
"""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa

from toolverdict.collector.lake.layout import hour_of
from toolverdict.collector.lake.reading import Lake
from toolverdict.collector.lake.regroup import whole_traces
from toolverdict.collector.sampling.applying import apply_to_logs, apply_to_spans
from toolverdict.collector.sampling.columns import Bools, ids_of, words_of
from toolverdict.collector.sampling.deciding import Decisions, decide
from toolverdict.collector.sampling.memory import Memory
from toolverdict.collector.sampling.policy import SamplingPolicy
from toolverdict.collector.sampling.traces import Traces, columns_needed, gather
from toolverdict.collector.schema import SPANS
from toolverdict.collector.signals import Signal

_LOG = logging.getLogger(__name__)

_SEGMENT: Final = timedelta(hours=2)
"""A span is in the folder of the hour in which its segment began, at most so long before."""


@dataclass
class SamplingCounts:
    """What a sampler did, for the line that a command prints."""

    traces_kept: int = 0
    """Decided now, and kept."""
    traces_dropped: int = 0
    traces_waiting: int = 0
    """Not quiet yet."""
    spans_kept: int = 0
    spans_dropped: int = 0
    late_spans_dropped: int = 0
    """Of those dropped, the ones that came after their trace had been decided."""
    spans_undecided: int = 0
    """Passed as they are, each weighing 1: their parts have to be compacted once more."""
    log_records_dropped: int = 0


class Sampler:
    """Decides the quiet traces of a lake, remembers it, and applies it to tables."""

    def __init__(self, lake: Lake, policy: SamplingPolicy, *, until_unix_nano: int) -> None:
        """Read what was decided before.

        Args:
            lake: the lake; use it inside ``lake.store.upkeep()``.
            policy: what to keep.
            until_unix_nano: all spans that were received before this time are in the lake: now,
                less the time that a collector may take to write a part.

        Raises:
            LakeError: when the sampler's memory is damaged or of a newer version.
        """
        self._lake = lake
        self._policy = policy
        self._until = until_unix_nano
        self._memory = Memory(lake.store)
        self._decisions, self._open_since = self._memory.recall()
        self._tools = self._memory.tools()
        self.counts: Final = SamplingCounts()

    def decide(self) -> None:
        """Decide every trace of the lake that is quiet and not decided yet.

        Reads a few columns of the hours that can hold such traces, in bounded memory, and keeps
        about 150 bytes for each of them.

        Raises:
            LakeError: when a part is damaged or has a newer schema.
            OSError: when the disk does not take the decisions; nothing is decided then.
        """
        self.decide_tables(self._open_spans())

    def decide_tables(self, tables: Iterable[pa.Table]) -> None:
        """Decide what is quiet in these tables and not decided yet, and remember it durably.

        Args:
            tables: spans with at least the columns that
                :func:`~toolverdict.collector.sampling.traces.columns_needed` names; all spans of a
                trace are in one of them. Caps hold over all tables of one call.

        Raises:
            LakeError: when a trace id is not one.
            OSError: when the disk does not take the decisions; nothing is decided then.
        """
        parts = [gather(self._without_decided(table), self._policy) for table in tables]
        if not any(len(part.ids) for part in parts):
            return
        decided = decide(Traces.union(parts), self._policy, self._tools, self._until)
        kept = int(np.count_nonzero(decided.decisions.kept))
        self.counts.traces_kept += kept
        self.counts.traces_dropped += len(decided.decisions) - kept
        self.counts.traces_waiting += decided.waiting
        if decided.tools != self._tools:
            # First: whoever does this round again finds the same tools new in the same window.
            self._memory.remember_tools(decided.tools)
            self._tools = dict(decided.tools)
        if len(decided.decisions):
            self._memory.remember(
                decided.decisions,
                self._policy.names,
                until_unix_nano=self._until,
                open_since=decided.open_since,
            )
            self._decisions = Decisions.union([self._decisions, decided.decisions])
            self._memory.forget(self._until, self._policy.remember_days)

    def thin(self, signal: Signal, table: pa.Table) -> pa.Table:
        """What stays of a table; spans that do have what they stand for in ``trace_state``.

        Rows of no trace, or of one that is not decided, pass as they are.

        Raises:
            LakeError: when a trace id is not one.
        """
        if signal is Signal.LOGS:
            logs = apply_to_logs(table, self._decisions)
            self.counts.log_records_dropped += logs.dropped
            return logs.table
        spans = apply_to_spans(table, self._decisions)
        self.counts.spans_kept += spans.kept
        self.counts.spans_dropped += spans.dropped
        self.counts.late_spans_dropped += spans.late
        self.counts.spans_undecided += spans.undecided
        return spans.table

    def undecided(self, table: pa.Table) -> int:
        """How many rows are of a trace that nothing is decided on.

        Raises:
            LakeError: when a trace id is not one.
        """
        return int(np.count_nonzero(self._open_rows(table)))

    def _open_spans(self) -> Iterator[pa.Table]:
        """Whole traces of all hours that can hold a trace that is not decided.

        Those are the hours since the first of them began, and whatever was stored later than it was
        received, as when a collector could not reach the lake for a day.
        """
        names = dict.fromkeys([*columns_needed(self._policy), "span_id"])  # the order needs it
        schema = pa.schema([SPANS.field(name) for name in names])
        first = None if self._open_since is None else hour_of(self._open_since) - _SEGMENT
        store = self._lake.store
        for bucket in range(self._lake.buckets):
            parts = [
                part.name
                for part in self._lake.current(Signal.TRACES, bucket)
                if first is None or part.folder.hour >= first or not part.compacted
            ]
            yield from whole_traces(store, Signal.TRACES, parts, schema, store.scratch)

    def _without_decided(self, spans: pa.Table) -> pa.Table:
        is_open = self._open_rows(spans)
        return spans if is_open.all() else spans.filter(pa.array(is_open))

    def _open_rows(self, table: pa.Table) -> Bools:
        """For every row whether its trace is one that nothing is decided on."""
        trace = words_of(table.column("trace_id"))
        # The last is where the code of no trace leads.
        return np.append(self._decisions.find(ids_of(trace.values)) < 0, False)[trace.codes]


def decided(policy: SamplingPolicy, lake: Lake, until: datetime) -> Sampler:
    """A sampler that has decided every trace of a lake that is quiet, and says so in the log.

    Args:
        policy: what to keep.
        lake: the lake; call this inside ``lake.store.upkeep()``.
        until: all spans that were received before this time are in the lake.

    Raises:
        LakeError: when a part or the sampler's memory is damaged or of a newer version.
        OSError: when the disk does not take the decisions; nothing is decided then.
    """
    since_1970 = until - datetime(1970, 1, 1, tzinfo=UTC)
    sampler = Sampler(lake, policy, until_unix_nano=since_1970 // timedelta(microseconds=1) * 1000)
    sampler.decide()
    counts = sampler.counts
    _LOG.info(
        "%s: sampling keeps %d traces, drops %d, and waits for %d",
        lake.location,
        counts.traces_kept,
        counts.traces_dropped,
        counts.traces_waiting,
    )
    return sampler
