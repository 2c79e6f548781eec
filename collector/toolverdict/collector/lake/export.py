"""Rows of a lake as OTLP again, the same in meaning as what came in, each span once."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.collector.encode import encode_logs, encode_spans
from toolverdict.collector.lake.reading import Lake, require_trace_id
from toolverdict.collector.signals import Request, Signal

REQUEST_ROWS: Final = 512
"""Spans or log records in one request."""

_TIME: Final = {Signal.TRACES: "start_time_unix_nano", Signal.LOGS: "time_unix_nano"}


@dataclass(frozen=True)
class Selection:
    """Which rows to export; everything when nothing is set."""

    signals: tuple[Signal, ...] = (Signal.TRACES, Signal.LOGS)
    since: datetime | None = None
    """Rows that began earlier are left out."""
    until: datetime | None = None
    """Rows that began then or later are left out."""
    trace_id: str | None = None
    """Only this trace, 32 lower-case hex digits."""


def export(
    lake: Lake,
    selection: Selection,
    send: Callable[[Signal, Request], None],
    progress: Callable[[int, int], None] | None = None,
) -> Counter[Signal]:
    """Send what is selected, request by request; returns how many records there were.

    Memory is bounded as :mod:`toolverdict.collector.lake.regroup` says.

    Args:
        lake: the lake.
        selection: which rows.
        send: takes one request; what it raises ends the export.
        progress: told (buckets done, buckets in all) after each bucket.

    Raises:
        LakeError: when a part is damaged or has a newer schema, or the trace id is none.
    """
    sent: Counter[Signal] = Counter()
    buckets = range(lake.buckets)
    if selection.trace_id is not None:
        bucket = lake.bucket_of(require_trace_id(selection.trace_id))
        buckets = range(bucket, bucket + 1)
    for number, bucket in enumerate(buckets, 1):
        for signal in selection.signals:
            for table in _tables(lake, signal, bucket, selection):
                for start in range(0, table.num_rows, REQUEST_ROWS):
                    rows = table.slice(start, REQUEST_ROWS).to_pylist()
                    send(signal, _request(signal, rows))
                    sent[signal] += len(rows)
        if progress is not None:
            progress(number, len(buckets))
    return sent


def _tables(lake: Lake, signal: Signal, bucket: int, selection: Selection) -> Iterator[pa.Table]:
    if signal is Signal.TRACES and selection.trace_id is not None:
        yield _selected(lake.read_trace(selection.trace_id), signal, selection)
        return
    tables = lake.iter_spans(bucket) if signal is Signal.TRACES else lake.iter_logs(bucket)
    for table in tables:
        yield _selected(table, signal, selection)


def _selected(table: pa.Table, signal: Signal, selection: Selection) -> pa.Table:
    ids: Any = table.column("trace_id")
    times: Any = table.column(_TIME[signal])
    conditions: list[Any] = []
    if selection.trace_id is not None:
        conditions.append(pc.equal(ids, pa.scalar(selection.trace_id)))
    if selection.since is not None:
        conditions.append(pc.greater_equal(times, _unix_nano(selection.since)))
    if selection.until is not None:
        conditions.append(pc.less(times, _unix_nano(selection.until)))
    return table.filter(reduce(pc.and_, conditions)) if conditions else table


def _request(signal: Signal, rows: list[dict[str, Any]]) -> Request:
    return encode_spans(rows) if signal is Signal.TRACES else encode_logs(rows)


def _unix_nano(time: datetime) -> Any:
    since_1970 = time - datetime(1970, 1, 1, tzinfo=UTC)
    return pa.scalar(since_1970 // timedelta(microseconds=1) * 1000, pa.int64())
