"""The lake on disk, and how to read it: the contract between the collector and everyone else.

::

    DIR/lake.json                                  format, version and number of buckets
    DIR/spans/date=2026-11-30/hour=14/bucket=00/part-<segment id>-<n>.parquet
    DIR/logs/...                                   the same for log records
    DIR/wal/                                       the collector's own; no reader looks there

``date`` and ``hour`` are the UTC hour in which the collector began the segment, never a time that
a client sent. ``bucket`` is decimal with at least two digits: the last byte of the trace id modulo
the number of buckets, so all spans of a trace, however late they came, are in one bucket. A log
record without a trace id is in bucket 0. A file that is being written has a name that starts with a
dot; readers see a part whole or not at all.

To read a lake::

    lake = Lake.open(Path("data"))
    for bucket in range(lake.buckets):
        spans = lake.read_spans(bucket, ["trace_id", "span_id", "name", "gen_ai.tool.name"])
        logs = lake.read_logs(bucket)
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from toolverdict.collector.durable import replace_durably
from toolverdict.collector.errors import LakeError
from toolverdict.collector.schema import SCHEMA_VERSION, SCHEMAS, SORT_KEYS, VERSION_KEY
from toolverdict.collector.signals import Signal

LAKE_FORMAT: Final = "toolverdict-lake"
LAKE_VERSION: Final = 1
MAX_BUCKETS: Final = 256
"""A bucket is chosen by one byte of the trace id."""

FOLDERS: Final[dict[Signal, str]] = {Signal.TRACES: "spans", Signal.LOGS: "logs"}
_LAKE_FILE: Final = "lake.json"


class Lake:
    """A folder of spans and log records, divided into buckets by trace id."""

    def __init__(self, path: Path, buckets: int) -> None:
        """Describe a lake; use :meth:`open` or :meth:`create` instead."""
        self.path: Final = path
        self.buckets: Final = buckets
        """Number of buckets, a power of two."""

    @classmethod
    def open(cls, path: Path) -> "Lake":
        """Open a lake for reading.

        Raises:
            LakeError: when the folder is missing, is not a lake, or is one of a newer version.
        """
        if not path.is_dir():
            raise LakeError(f"there is no folder {path}; give the --data folder of a collector")
        file = path / _LAKE_FILE
        try:
            content = json.loads(file.read_bytes())
        except FileNotFoundError:
            raise LakeError(
                f"{path} is not a lake (no {_LAKE_FILE}); give the --data folder of a collector"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise LakeError(f"{file} cannot be read; restore it from a copy") from error
        if not isinstance(content, dict) or content.get("format") != LAKE_FORMAT:
            raise LakeError(f"{file} does not describe a lake; give the --data folder of one")
        version, buckets = content.get("version"), content.get("buckets")
        if version != LAKE_VERSION or isinstance(version, bool):
            raise LakeError(
                f"{path} is a lake of version {version!s:.20}, this toolverdict reads version "
                f"{LAKE_VERSION}; upgrade toolverdict"
            )
        if not isinstance(buckets, int) or not _is_bucket_count(buckets):
            raise LakeError(f"{file} names no valid number of buckets; restore it from a copy")
        return cls(path, buckets)

    @classmethod
    def create(cls, path: Path, buckets: int = 1) -> "Lake":
        """Open the lake in an existing folder, or make one there.

        Args:
            path: the folder.
            buckets: a power of two up to 256, for a new lake; an existing one keeps its number.

        Raises:
            LakeError: as :meth:`open` does.
            OSError: when the folder cannot be written.
        """
        if not _is_bucket_count(buckets):
            raise ValueError("buckets must be a power of two up to 256")
        file = path / _LAKE_FILE
        if not file.exists():
            temporary = path / f".{_LAKE_FILE}.tmp"
            content = {"format": LAKE_FORMAT, "version": LAKE_VERSION, "buckets": buckets}
            temporary.write_text(json.dumps(content) + "\n")
            replace_durably(temporary, file)
        return cls.open(path)

    def read_spans(self, bucket: int, columns: Sequence[str] | None = None) -> pa.Table:
        """All spans of one bucket, each exactly once.

        Spans are unique by (trace_id, span_id): requests that a client sent again appear once. Of
        several records of one span a complete one (``end_time_unix_nano`` set) wins whatever the
        order of arrival, then the one received last.

        Args:
            bucket: from 0 to ``buckets`` - 1.
            columns: names of :data:`~toolverdict.collector.schema.SPANS` to read, None for all.

        Returns:
            The columns in the order asked for, sorted by (trace_id, start_time_unix_nano,
            span_id). A column that an older part lacks is null there.

        Raises:
            LakeError: when a part is damaged or has a newer schema.
            KeyError: for an unknown column.
        """
        wanted = self._columns(Signal.TRACES, columns)
        keys = ["trace_id", "span_id", "start_time_unix_nano", "end_time_unix_nano"]
        keys.append("received_time_unix_nano")
        table = self._read(Signal.TRACES, bucket, list(dict.fromkeys([*keys, *wanted])))
        order = _span_order(table.select(keys))
        return table.select(wanted).take(order)

    def read_logs(self, bucket: int, columns: Sequence[str] | None = None) -> pa.Table:
        """All log records of one bucket.

        Log records have no id, so records of a request that a client sent again appear again.

        Args:
            bucket: from 0 to ``buckets`` - 1; records without a trace id are in bucket 0.
            columns: names of :data:`~toolverdict.collector.schema.LOGS` to read, None for all.

        Returns:
            The columns in the order asked for, sorted by (trace_id, time_unix_nano), records
            without a trace id last; equal ones stay in the order of arrival.

        Raises:
            LakeError: when a part is damaged or has a newer schema.
            KeyError: for an unknown column.
        """
        wanted = self._columns(Signal.LOGS, columns)
        keys = SORT_KEYS[Signal.LOGS]
        table = self._read(Signal.LOGS, bucket, list(dict.fromkeys([*keys, *wanted])))
        order = pc.sort_indices(table, sort_keys=[(key, "ascending") for key in keys])
        return table.select(wanted).take(order)

    def bucket_of(self, trace_id: str | None) -> int:
        """The bucket of a trace id in hex; 0 for none."""
        return int(trace_id[-2:], 16) % self.buckets if trace_id else 0

    def parts(self, signal: Signal, bucket: int) -> list[Path]:
        """The Parquet files of one bucket, in the order of their segments."""
        if not 0 <= bucket < self.buckets:
            raise ValueError(f"bucket {bucket} of a lake with {self.buckets}")
        pattern = f"date=*/hour=*/{bucket_folder(bucket)}/part-*.parquet"
        folder = self.path / FOLDERS[signal]
        return sorted(folder.glob(pattern), key=lambda part: part.name)

    @staticmethod
    def _columns(signal: Signal, columns: Sequence[str] | None) -> list[str]:
        schema = SCHEMAS[signal]
        if columns is None:
            return schema.names
        unknown = sorted(set(columns) - set(schema.names))
        if unknown:
            raise KeyError(f"no such column: {', '.join(unknown)}")
        return list(columns)

    def _read(self, signal: Signal, bucket: int, columns: list[str]) -> pa.Table:
        """The columns of all parts of a bucket, one below the other, nothing sorted."""
        whole = SCHEMAS[signal]
        schema = pa.schema([whole.field(name) for name in columns]).with_metadata(whole.metadata)
        tables = [_read_part(part, schema) for part in self.parts(signal, bucket)]
        # Dictionaries differ from part to part; one for all makes chunks comparable.
        return pa.concat_tables([schema.empty_table(), *tables]).unify_dictionaries()


def bucket_folder(bucket: int) -> str:
    """The folder name of a bucket."""
    return f"bucket={bucket:02d}"


def _is_bucket_count(number: int) -> bool:
    return 0 < number <= MAX_BUCKETS and number & (number - 1) == 0


def _read_part(part: Path, schema: pa.Schema) -> pa.Table:
    """The fields of a schema from one file, null where the file has no such column.

    The schema is ours and explicit: neither an all-null column nor a folder name such as
    ``hour=00`` can change a type.
    """
    try:
        # Opened here: Arrow would take a name such as "lake:v1" for a URI.
        with (
            part.open("rb") as opened,
            pq.ParquetFile(opened, page_checksum_verification=True) as file,
        ):
            found = file.schema_arrow
            version = int((found.metadata or {}).get(VERSION_KEY, b"0"))
            if version > SCHEMA_VERSION:
                raise LakeError(
                    f"{part} has columns of version {version}, this toolverdict reads version "
                    f"{SCHEMA_VERSION}; upgrade toolverdict"
                )
            present = [name for name in schema.names if name in found.names]
            table = file.read(columns=present, use_threads=True)
            missing = [field.name for field in schema if not field.nullable]
            missing = [name for name in missing if name not in found.names]
            if missing:
                raise ValueError(f"no column {missing[0]}")
        arrays = [
            table.column(field.name).cast(field.type)
            if field.name in present
            else pa.nulls(table.num_rows, field.type)
            for field in schema
        ]
        whole = pa.Table.from_arrays(arrays, schema=schema)
        whole.validate(full=True)
        for field in schema:
            if not field.nullable and whole.column(field.name).null_count:
                raise ValueError(f"null in column {field.name}")
    except (pa.ArrowException, OSError, ValueError) as error:
        raise LakeError(
            f"{part} cannot be read ({type(error).__name__}); start the collector on this folder "
            "to write it anew from its log, or move the file away"
        ) from error
    return whole


def _span_order(keys: pa.Table) -> "pa.Array[Any]":
    """Indices of the records that stay, in the order of the result."""
    complete = pc.greater(keys.column("end_time_unix_nano"), pa.scalar(0, pa.int64()))
    ranked = keys.append_column("complete", complete.cast(pa.int8())).append_column(
        "row", pa.array(range(keys.num_rows), pa.int64())
    )
    # Stable: what was received at one nanosecond stays in the order of parts and rows.
    ranked = ranked.sort_by(
        [
            (name, "ascending")
            for name in ("trace_id", "span_id", "complete", "received_time_unix_nano", "row")
        ]
    )
    if ranked.num_rows > 1:
        differs = pc.or_(_next_differs(ranked, "trace_id"), _next_differs(ranked, "span_id"))
        ranked = ranked.filter(pa.concat_arrays([differs, pa.array([True])]))
    ranked = ranked.sort_by([(key, "ascending") for key in SORT_KEYS[Signal.TRACES]])
    return ranked.column("row").combine_chunks()


def _next_differs(table: pa.Table, name: str) -> pa.BooleanArray:
    """For every row but the last, whether the next one has another value."""
    values = table.column(name).combine_chunks()
    return pc.not_equal(values.slice(0, len(values) - 1), values.slice(1))
