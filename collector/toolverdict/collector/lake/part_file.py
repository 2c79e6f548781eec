"""One Parquet file of the lake: how it is written, and how it is read with suspicion.

Measured on tool-call spans of 1.3 kB: two thirds of the cost of writing is zstd on arguments and
results. So only text is compressed, and arguments, which are the most of it, by Snappy until they
are compacted: that takes half of the time and half as many bytes again, which zstd on the ids saves
elsewhere. What repeats is a dictionary (as rows are sorted by trace, ids
of traces and conversations do), times are deltas, and statistics are kept for the columns that
people filter by. A Bloom filter finds the parts that hold a trace.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from toolverdict.collector.errors import LakeError
from toolverdict.collector.lake.store import Store
from toolverdict.collector.schema import SCHEMA_VERSION, SORT_KEYS, VERSION_KEY
from toolverdict.collector.signals import Signal
from toolverdict.instrument import semconv

ROW_GROUP_ROWS: Final = 30_000
"""A row group ends at the first trace border after so many rows."""

_STEP_ROWS: Final = 4096
_STEP_BYTES: Final = 8 * 1024 * 1024
"""Rows of a column that are encoded at a time: so many, or fewer when they are large. After each
step a page may end, at about 1 MiB."""

HOT_LEVEL: Final = 1
COMPACT_LEVEL: Final = 3
"""Levels of zstd: quick while spans come in, small once they are compacted."""

REPLACES_KEY: Final = b"toolverdict.replaces"
"""Footer of a compacted part: JSON list of the files of its folder that it stands for."""

OPEN_ROWS_KEY: Final = b"toolverdict.open_rows"
"""Footer: rows that no thinning has decided on: there was none, or their traces went on."""

_FILTERED: Final = frozenset(
    {
        "trace_id",
        "start_time",
        "start_time_unix_nano",
        "time",
        "time_unix_nano",
        "service_name",
        semconv.TOOL_NAME,
        semconv.TOOL_OUTCOME,
        semconv.GEN_AI_TOOL_NAME,
        semconv.GEN_AI_AGENT_NAME,
        semconv.GEN_AI_CONVERSATION_ID,
    }
)
"""Columns with statistics and a page index."""

_TIMES: Final = frozenset({"start_time", "time"})
"""The column of times of spans and of log records, null when a record has none."""

_PER_TRACE: Final = frozenset({"trace_id", semconv.GEN_AI_CONVERSATION_ID, semconv.SESSION_ID})
"""Text that repeats from row to row in a part sorted by trace."""

_MOST_TEXT: Final = semconv.GEN_AI_TOOL_CALL_ARGUMENTS
"""The column with most of the text of tool calls."""

Order = list[tuple[str, Literal["ascending", "descending"]]]


class PartGoneError(Exception):
    """The part was replaced or deleted after it was listed; list again."""


class PartInfo(NamedTuple):
    """What the footer of a part says."""

    rows: int
    row_groups: int
    raw_bytes: int
    """Bytes of the columns before compression."""
    schema_version: int
    first: datetime | None
    """The earliest time of a record, None when none has one."""
    last: datetime | None
    """The latest time at which a record began."""
    replaces: frozenset[str]
    """Files of the same folder whose rows are in this part."""
    open_rows: int
    """Rows that may still be thinned."""


def order_of(signal: Signal) -> Order:
    """How the rows of a part are sorted."""
    return [(key, "ascending") for key in SORT_KEYS[signal]]


def sort(signal: Signal, table: pa.Table) -> pa.Table:
    """The rows in the order of the lake; equal ones stay in the order of arrival."""
    return table if is_sorted(signal, table) else table.sort_by(order_of(signal))


def is_sorted(signal: Signal, table: pa.Table) -> bool:
    """Whether the rows are in the order of the lake."""
    in_order: Any = pa.scalar(True)
    for key in reversed(SORT_KEYS[signal]):
        values: Any = table.column(key).combine_chunks()
        this, following = values.slice(0, max(0, len(values) - 1)), values.slice(1)
        # Null sorts behind everything, so it is before nothing but equal to itself.
        before = pc.fill_null(pc.less(this, following), this.is_valid())
        equal = pc.fill_null(pc.equal(this, following), following.is_null())
        in_order = pc.or_(before, pc.and_(equal, in_order))
    return bool(pc.all(in_order, min_count=0).as_py())


class PartWriter:
    """Writes sorted tables of whole traces as one part."""

    def __init__(
        self, sink: pa.NativeFile, signal: Signal, schema: pa.Schema, level: int = HOT_LEVEL
    ) -> None:
        """Begin a part; close it to write the footer."""
        self.rows = 0
        self._sink = sink
        self._signal = signal
        self._schema = schema
        self._level = level
        self._writer: pq.ParquetWriter | None = None

    def write(self, table: pa.Table) -> None:
        """Add rows that sort after all that were written, as row groups of whole traces."""
        starts = trace_starts(table.column("trace_id"))
        if self._writer is None:
            rows = min(table.num_rows, ROW_GROUP_ROWS)
            traces = rows * (len(starts) + 1) // max(1, table.num_rows)
            options = _options(self._signal, self._schema, self._level, traces)
            options["write_batch_size"] = _step_of(table)
            self._writer = pq.ParquetWriter(self._sink, self._schema, **options)
        for group in _row_groups(table, starts):
            self._writer.write_table(group, row_group_size=max(1, group.num_rows))
        self.rows += table.num_rows

    def close(self, metadata: Mapping[bytes, bytes] | None = None) -> None:
        """Write the footer, with these entries in it."""
        if self._writer is None:
            self.write(self._schema.empty_table())
        assert self._writer is not None
        if metadata:
            self._writer.add_key_value_metadata(metadata)  # type: ignore[arg-type]
        self._writer.close()


@contextmanager
def _opened(store: Store, name: str) -> Iterator[pq.ParquetFile]:
    """A part that was opened; what goes wrong inside names it.

    Raises:
        LakeError: when it is damaged or has a newer schema.
        PartGoneError: when it is not there any more.
    """
    try:
        with (
            store.open(name) as opened,
            pq.ParquetFile(opened, page_checksum_verification=True) as file,
        ):
            version = _version(file)
            if version > SCHEMA_VERSION:
                raise LakeError(
                    f"{store.location}/{name} has columns of version {version}, this toolverdict "
                    f"reads version {SCHEMA_VERSION}; upgrade toolverdict"
                )
            yield file
    except FileNotFoundError as error:
        raise PartGoneError(name) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and _is_gone(store, name):
            raise PartGoneError(name) from error
        raise LakeError(
            f"{store.location}/{name} cannot be read ({type(error).__name__}); start the "
            "collector on this folder to write it anew from its log, or move the file away"
        ) from error


def read_info(store: Store, name: str) -> PartInfo:
    """The footer of a part.

    Raises:
        LakeError: when it is damaged or has a newer schema.
        PartGoneError: when it is not there any more.
    """
    with _opened(store, name) as file:
        metadata = file.metadata
        entries: Mapping[bytes, bytes] = metadata.metadata or {}
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        first, last = _time_range(groups)
        return PartInfo(
            rows=metadata.num_rows,
            row_groups=len(groups),
            raw_bytes=sum(group.total_byte_size for group in groups),
            schema_version=_version(file),
            first=first,
            last=last,
            replaces=_file_names(entries.get(REPLACES_KEY, b"[]")),
            open_rows=int(entries.get(OPEN_ROWS_KEY, b"0")),
        )


def read_part(store: Store, name: str, schema: pa.Schema, trace_id: str | None = None) -> pa.Table:
    """The fields of a schema from one part, null where the part has no such column.

    The schema is ours and explicit: neither an all-null column nor a folder name such as
    ``hour=00`` can change a type.

    Args:
        store: where the part is.
        name: the part.
        schema: the columns.
        trace_id: read only the row groups that may hold this trace.

    Raises:
        LakeError: when it is damaged or has a newer schema.
        PartGoneError: when it is not there any more.
    """
    with _opened(store, name) as file:
        present = _present(file, schema)
        groups = list(range(file.num_row_groups))
        if trace_id is not None:
            groups = [number for number in groups if _may_hold(file, number, trace_id)]
        return conform(file.read_row_groups(groups, columns=present, use_threads=True), schema)


def read_groups(
    store: Store,
    name: str,
    schema: pa.Schema,
    first: str | None = None,
    end: str | None = None,
) -> Iterator[pa.Table]:
    """As :func:`read_part`, one row group at a time.

    Groups of which the statistics say that all of their trace ids are before ``first``, or not
    before ``end``, are left out.
    """
    with _opened(store, name) as file:
        present = _present(file, schema)
        for number in range(file.num_row_groups):
            if not _may_overlap(file, number, first, end):
                continue
            yield conform(file.read_row_group(number, columns=present, use_threads=False), schema)


def read_schema(store: Store, name: str) -> pa.Schema:
    """The columns that a part has, newer ones included; raises as :func:`read_part` does."""
    with _opened(store, name) as file:
        return file.schema_arrow


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A table with exactly these columns: cast, or null where it lacks one.

    Raises:
        ValueError: when a value does not fit, or a column that is always there is not.
    """
    missing = [field.name for field in schema if not field.nullable]
    missing = [name for name in missing if name not in table.column_names]
    if missing:
        raise ValueError(f"no column {missing[0]}")
    arrays = [
        table.column(field.name).cast(field.type)
        if field.name in table.column_names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    whole = pa.Table.from_arrays(arrays, schema=schema)
    whole.validate(full=True)
    for field in schema:
        if not field.nullable and whole.column(field.name).null_count:
            raise ValueError(f"null in column {field.name}")
    return whole


def concat(tables: Iterable[pa.Table], schema: pa.Schema) -> pa.Table:
    """Tables one below the other; a dictionary for all makes chunks comparable."""
    return pa.concat_tables([schema.empty_table(), *tables]).unify_dictionaries()


def trace_starts(trace_ids: "pa.ChunkedArray[Any]") -> list[int]:
    """Rows of a sorted column at which another trace begins, the first row left out.

    Each row without a trace id is a trace of its own.
    """
    if len(trace_ids) < 2:
        return []
    ids = trace_ids.combine_chunks()
    compared: Any = pc.not_equal(ids.slice(0, len(ids) - 1), ids.slice(1))
    differs: Any = pc.fill_null(compared, True)
    starts: list[int] = pc.add(pc.indices_nonzero(differs), 1).to_pylist()
    return starts


def _row_groups(table: pa.Table, starts: Sequence[int]) -> Iterator[pa.Table]:
    """Cut a sorted table where one trace ends and the next begins."""
    begin = 0
    while (at := bisect_left(starts, begin + ROW_GROUP_ROWS)) < len(starts):
        yield table.slice(begin, starts[at] - begin)
        begin = starts[at]
    yield table.slice(begin)


def _step_of(table: pa.Table) -> int:
    """How many rows to encode at a time: a power of two, so that little changes it."""
    rows = min(_STEP_ROWS, _STEP_BYTES * table.num_rows // max(1, table.nbytes))
    return 1 << max(1, rows).bit_length() - 1


def _options(signal: Signal, schema: pa.Schema, level: int, traces: int) -> dict[str, Any]:
    """How to write a part whose row groups have about so many traces."""
    dictionaries, texts, deltas = _encodings(schema)
    codecs = dict.fromkeys(schema.names, "ZSTD")
    if level < COMPACT_LEVEL:
        packed = {*texts, *_PER_TRACE}
        codecs = {name: "ZSTD" if name in packed else "NONE" for name in schema.names}
        if _MOST_TEXT in codecs:
            codecs[_MOST_TEXT] = "SNAPPY"
    return {
        "compression": codecs,
        "compression_level": {name: level for name, codec in codecs.items() if codec == "ZSTD"},
        "use_dictionary": dictionaries,
        "column_encoding": dict.fromkeys(deltas, "DELTA_BINARY_PACKED"),
        "write_statistics": [name for name in schema.names if name in _FILTERED],
        "write_page_index": True,
        # Pages, and steps, of Arrow's own size cost a tenth of the time: there are many columns.
        "max_rows_per_page": 2 * ROW_GROUP_ROWS,
        "write_page_checksum": True,
        "bloom_filter_options": {"trace_id": {"ndv": max(1, traces), "fpp": 0.01}},
        "sorting_columns": pq.SortingColumn.from_ordering(schema, order_of(signal)),
    }


def _encodings(schema: pa.Schema) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
    """Columns that are dictionaries, that are compressed, and whose values are deltas."""
    dictionaries, texts, deltas = [], [], []
    for field in schema:
        is_text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
        if pa.types.is_timestamp(field.type) or field.type == pa.int64():
            deltas.append(field.name)
        elif is_text and field.name not in _PER_TRACE:
            texts.append(field.name)
        elif not pa.types.is_nested(field.type):
            dictionaries.append(field.name)
    return dictionaries, texts, deltas


def _time_range(groups: Sequence[Any]) -> tuple[datetime | None, datetime | None]:
    """The range of the column of times in the statistics of row groups."""
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    found = [column.statistics for column in columns if column.path_in_schema in _TIMES]
    ranges = [statistics for statistics in found if statistics and statistics.has_min_max]
    first = min((statistics.min for statistics in ranges), default=None)
    return first, max((statistics.max for statistics in ranges), default=None)


def _present(file: pq.ParquetFile, schema: pa.Schema) -> list[str]:
    names = set(file.schema_arrow.names)
    return [name for name in schema.names if name in names]


def _may_hold(file: pq.ParquetFile, number: int, trace_id: str) -> bool:
    """Whether the statistics of a row group leave room for a trace."""
    return all(least <= trace_id <= most for least, most in _id_ranges(file, number))


def _may_overlap(file: pq.ParquetFile, number: int, first: str | None, end: str | None) -> bool:
    """Whether the statistics of a row group leave room for trace ids of a range."""
    if first is None and end is None:
        return True
    return all(
        (first is None or most >= first) and (end is None or least < end)
        for least, most in _id_ranges(file, number)
    )


def _id_ranges(file: pq.ParquetFile, number: int) -> list[tuple[str, str]]:
    """The least and the greatest trace id of a row group, as far as its statistics say."""
    group = file.metadata.row_group(number)
    columns = [group.column(index) for index in range(group.num_columns)]
    found = [column.statistics for column in columns if column.path_in_schema == "trace_id"]
    ranges: list[Any] = [statistics for statistics in found if statistics]
    return [(known.min, known.max) for known in ranges if known.has_min_max]


def _file_names(text: bytes) -> frozenset[str]:
    """The names in a JSON list.

    Raises:
        ValueError: when it is anything else.
    """
    names = orjson.loads(text)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("no list of file names")
    return frozenset(names)


def _version(file: pq.ParquetFile) -> int:
    return int((file.metadata.metadata or {}).get(VERSION_KEY, b"0"))


def _is_gone(store: Store, name: str) -> bool:
    try:
        return all(entry.name != name for entry in store.list(name.rpartition("/")[0]))
    except OSError:
        return False
