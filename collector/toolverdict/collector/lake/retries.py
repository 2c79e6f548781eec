"""What is there twice: the one place that says which records are copies of which.

A client that did not get our answer sends the same request again, so the same record is stored
again, with a later time of receipt. Two rules follow:

* a *retry* is a record that is equal to another in all but the time of receipt. Compaction keeps
  the one received last. For spans that is all; a log record has no id, so only one that carries a
  time can be a retry, and two in one request never are.
* a *span* is one, however many records tell of it (B94: one at its start, one at its end). Readers
  take a complete record before an unfinished one, then the one received last. Compaction keeps
  them all: only the reader's choice may lose what differs.
"""

from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.collector.schema import SORT_KEYS
from toolverdict.collector.signals import Signal

_RECEIVED: Final = "received_time_unix_nano"

SPAN_KEYS: Final = (*SORT_KEYS[Signal.TRACES], "end_time_unix_nano", _RECEIVED)
"""The columns that :func:`one_per_span` looks at."""

_SAME: Final = {
    Signal.TRACES: ("trace_id", "start_time_unix_nano", "span_id"),
    Signal.LOGS: ("trace_id", "time_unix_nano"),
}
"""Columns in which a retry and its first are equal, and neighbours in a sorted table."""


def one_per_span(table: pa.Table) -> pa.Table:
    """One record of each span; the rows stay in their order.

    Args:
        table: rows with at least :data:`SPAN_KEYS`, in the order of arrival.
    """
    suspects = _repeated(table.column("span_id"))
    if not len(suspects):
        return table
    keys = table.select(SPAN_KEYS).take(suspects).append_column("row", suspects)
    complete = pc.greater(keys.column("end_time_unix_nano"), pa.scalar(0, pa.int64()))
    # By row at last: what was received at one nanosecond stays in the order of arrival.
    ranked = keys.append_column("complete", complete.cast(pa.int8())).sort_by(
        [(name, "ascending") for name in ("trace_id", "span_id", "complete", _RECEIVED, "row")]
    )
    beaten = ranked.slice(0, len(suspects) - 1).filter(_like_next(ranked, ("trace_id", "span_id")))
    return _without(table, beaten.column("row"))


def _repeated(values: Any) -> Any:
    """The rows of a column whose value is there more than once."""
    counts = pc.value_counts(values)
    if len(counts) == len(values):
        return pa.array([], pa.uint64())
    repeated = counts.filter(pc.greater(counts.field("counts"), pa.scalar(1, pa.int64()))).field(
        "values"
    )
    return pc.indices_nonzero(pc.is_in(values, value_set=repeated))


def _without(table: pa.Table, rows: Any) -> pa.Table:
    numbers = pa.array(range(table.num_rows), pa.uint64())
    return table.filter(pc.invert(pc.is_in(numbers, value_set=rows)))


def without_retries(signal: Signal, table: pa.Table) -> pa.Table:
    """A table in the order of the lake without the records that are retries of others in it.

    Args:
        signal: what the rows are.
        table: all columns, whole traces, in the order of the lake.
    """
    if table.num_rows < 2:
        return table
    same = _like_next(table, _SAME[signal])
    first = pa.array([False])
    alike = pc.or_(pa.concat_arrays([same, first]), pa.concat_arrays([first, same]))
    suspects = pc.indices_nonzero(alike)
    if not len(suspects):
        return table
    retries = _retries(signal, table.take(suspects))
    if not retries:
        return table
    return _without(table, suspects.take(pa.array(retries, pa.uint64())))


def _retries(signal: Signal, table: pa.Table) -> list[int]:
    """Rows that are equal to one received later."""
    received: list[Any] = table.column(_RECEIVED).to_pylist()
    contents = _contents(table.drop_columns([_RECEIVED]))
    timed = _timed(table) if signal is Signal.LOGS else [True] * table.num_rows
    # By receipt, the latest first: it is the one that stays.
    order = sorted(range(table.num_rows), key=lambda row: (received[row], row), reverse=True)
    latest: dict[int, int] = {}
    retries = []
    for row in order:
        if not timed[row]:
            continue
        seen = contents[row] in latest
        kept = latest.setdefault(contents[row], received[row])
        if seen and (signal is Signal.TRACES or kept != received[row]):
            retries.append(row)
    return retries


def _contents(table: pa.Table) -> list[int]:
    """A number for each row, the same for rows that are equal.

    No value leaves its column: thousands of rows may share one text of megabytes, which is in
    memory once.
    """
    numbers: Any = pa.repeat(pa.scalar(0, pa.int64()), table.num_rows)
    for column in table.columns:
        codes, words = _codes(column.combine_chunks())
        # Both are less than the number of rows or words, so their product fits.
        mixed = pc.add(pc.multiply(numbers, pa.scalar(words + 1, pa.int64())), codes)
        numbers = mixed.dictionary_encode().indices.cast(pa.int64())
    found: list[int] = numbers.to_pylist()
    return found


def _codes(values: Any) -> tuple[Any, int]:
    """A number for each value, the same for equal ones, and how many there are; null is the last."""
    if pa.types.is_nested(values.type):  # only in columns of a newer version
        values = pa.array(list(map(repr, values.to_pylist())), pa.large_string())
    if pa.types.is_dictionary(values.type):
        words = values.dictionary.dictionary_encode()
        codes = words.indices.take(values.indices)
    else:
        words = values.dictionary_encode()
        codes = words.indices
    count = len(words.dictionary)
    return pc.fill_null(codes.cast(pa.int64()), count), count


def _timed(table: pa.Table) -> list[bool]:
    times = zip(
        table.column("time_unix_nano").to_pylist(),
        table.column("observed_time_unix_nano").to_pylist(),
        strict=True,
    )
    return [bool(time or observed) for time, observed in times]


def _like_next(table: pa.Table, names: tuple[str, ...]) -> Any:
    """For every row but the last, whether the next one has the same values; null equals null."""
    columns = [_equal_to_next(table.column(name).combine_chunks()) for name in names]
    return reduce(pc.and_, columns)


def _equal_to_next(values: Any) -> Any:
    this, following = values.slice(0, len(values) - 1), values.slice(1)
    equal = pc.fill_null(pc.equal(this, following), False)
    if not values.null_count:
        return equal
    return pc.or_(equal, pc.and_(this.is_null(), following.is_null()))
