"""A lake as its readers see it: every row once, also while parts are compacted or deleted.

Compaction puts one part in place of several by giving it its name and then deleting them. Its
footer lists what it replaces, so a reader that sees both passes over the replaced ones. A listing
is not a snapshot: it may miss the new part and an old one that was deleted meanwhile. Therefore a
listing counts only when a second one shows the same compacted parts, and a part that is gone when
it is opened starts the reading anew.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.collector.errors import LakeError
from toolverdict.collector.lake.layout import (
    FOLDERS,
    LAKE_FILE,
    LAKE_FORMAT,
    LAKE_VERSION,
    PartName,
    bucket_folder,
    bucket_of,
    is_bucket_count,
    part_of,
)
from toolverdict.collector.lake.object_store import store_of
from toolverdict.collector.lake.part_file import (
    PartGoneError,
    concat,
    read_info,
    read_part,
    sort,
)
from toolverdict.collector.lake.regroup import whole_traces
from toolverdict.collector.lake.retries import SPAN_KEYS, one_per_span, without_retries
from toolverdict.collector.lake.store import LocalStore, Store
from toolverdict.collector.schema import SCHEMAS
from toolverdict.collector.signals import Signal

_T = TypeVar("_T")

_TRACE_ID: Final = re.compile("[0-9a-f]{32}")

_ATTEMPTS: Final = 100
"""Times that a reading starts anew; each time something was compacted or deleted meanwhile."""


class Lake:
    """Spans and log records in a folder or an object store, divided into buckets by trace id."""

    def __init__(self, store: Store, buckets: int) -> None:
        """Describe a lake; use :meth:`open` or :meth:`create` instead."""
        self.store: Final = store
        self.buckets: Final = buckets
        """Number of buckets, a power of two."""

    @property
    def location(self) -> str:
        """The folder or URL."""
        return self.store.location

    @property
    def path(self) -> Path:
        """The folder of a lake that is in one.

        Raises:
            LakeError: when it is in an object store.
        """
        if not isinstance(self.store, LocalStore):
            raise LakeError(f"{self.location} is not a folder; give the folder of a lake")
        return self.store.root

    @classmethod
    def open(cls, location: Path | str) -> "Lake":
        """Open a lake for reading.

        Args:
            location: a folder, or a URL (``s3://``, ``gs://``, ``az://``) as text.

        Raises:
            LakeError: when it is missing, is not a lake, or is one of a newer version.
        """
        store = store_of(location)
        if isinstance(store, LocalStore) and not store.root.is_dir():
            raise LakeError(f"there is no folder {location}; give the --data folder of a collector")
        file = f"{location}/{LAKE_FILE}"
        try:
            content = json.loads(store.read(LAKE_FILE))
        except FileNotFoundError:
            raise LakeError(
                f"{location} is not a lake (no {LAKE_FILE}); give the --data folder of a collector"
            ) from None
        except OSError as error:
            raise _unreadable(file, error) from error
        except (ValueError, RecursionError) as error:
            raise LakeError(f"{file} cannot be read; restore it from a copy") from error
        if not isinstance(content, dict) or content.get("format") != LAKE_FORMAT:
            raise LakeError(f"{file} does not describe a lake; give the --data folder of one")
        version, buckets = content.get("version"), content.get("buckets")
        if version != LAKE_VERSION or type(version) is not int:
            raise LakeError(
                f"{location} is a lake of version {version!s:.20}, this toolverdict reads version "
                f"{LAKE_VERSION}; upgrade toolverdict"
            )
        if type(buckets) is not int or not is_bucket_count(buckets):
            raise LakeError(f"{file} names no valid number of buckets; restore it from a copy")
        return cls(store, buckets)

    @classmethod
    def create(cls, location: Path | str, buckets: int = 1) -> "Lake":
        """Open the lake at a place, or make one there.

        Args:
            location: an existing folder, or a URL as text.
            buckets: a power of two up to 256, for a new lake; an existing one keeps its number.

        Raises:
            LakeError: as :meth:`open` does.
            OSError: when the place cannot be written.
        """
        if not is_bucket_count(buckets):
            raise ValueError("buckets must be a power of two up to 256")
        store = store_of(location)
        try:
            store.read(LAKE_FILE)
        except FileNotFoundError:
            content = {"format": LAKE_FORMAT, "version": LAKE_VERSION, "buckets": buckets}
            line = (json.dumps(content) + "\n").encode()
            store.write(LAKE_FILE, lambda sink: sink.write(line))
        except OSError:
            pass  # open says what is the matter
        return cls.open(location)

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
        wanted = _known(Signal.TRACES, columns)
        table = self._read(Signal.TRACES, bucket, [*SPAN_KEYS, *wanted])
        return sort(Signal.TRACES, one_per_span(table)).select(wanted)

    def read_logs(self, bucket: int, columns: Sequence[str] | None = None) -> pa.Table:
        """All log records of one bucket.

        Log records have no id: one that is equal to another in all but the time of receipt, and
        carries a time, came from a request that was sent again, and appears once.

        Args:
            bucket: from 0 to ``buckets`` - 1; records without a trace id are in bucket 0.
            columns: names of :data:`~toolverdict.collector.schema.LOGS` to return, None for all.

        Returns:
            The columns in the order asked for, sorted by (trace_id, time_unix_nano), records
            without a trace id last; equal ones stay in the order of arrival.

        Raises:
            LakeError: when a part is damaged or has a newer schema.
            KeyError: for an unknown column.
        """
        wanted = _known(Signal.LOGS, columns)
        table = self._read(Signal.LOGS, bucket, SCHEMAS[Signal.LOGS].names)
        return without_retries(Signal.LOGS, sort(Signal.LOGS, table)).select(wanted)

    def read_trace(self, trace_id: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The spans of one trace, each exactly once; nearly nothing else is read.

        Args:
            trace_id: 32 lower-case hex digits.
            columns: as for :meth:`read_spans`.

        Raises:
            LakeError: when it is no trace id, or a part is damaged or has a newer schema.
            KeyError: for an unknown column.
        """
        bucket = self.bucket_of(require_trace_id(trace_id))
        wanted = _known(Signal.TRACES, columns)
        table = self._read(Signal.TRACES, bucket, [*SPAN_KEYS, *wanted], trace_id)
        table = table.filter(pc.equal(table.column("trace_id"), pa.scalar(trace_id)))
        return sort(Signal.TRACES, one_per_span(table)).select(wanted)

    def iter_spans(self, bucket: int) -> Iterator[pa.Table]:
        """All columns of :meth:`read_spans` as tables of whole traces, in bounded memory.

        Tables come in the order of trace ids; :mod:`toolverdict.collector.lake.regroup` says what
        memory and temporary files it takes. Raises as :meth:`read_spans` does.
        """
        for table in self._iterate(Signal.TRACES, bucket):
            yield one_per_span(table)

    def iter_logs(self, bucket: int) -> Iterator[pa.Table]:
        """All columns of :meth:`read_logs` in the same way."""
        for table in self._iterate(Signal.LOGS, bucket):
            yield without_retries(Signal.LOGS, table)

    def bucket_of(self, trace_id: str | None) -> int:
        """The bucket of a trace id in hex; 0 for none."""
        return bucket_of(trace_id, self.buckets)

    def parts(self, signal: Signal, bucket: int) -> list[Path]:
        """The Parquet files that hold one bucket now, those of the earliest segments first.

        Raises:
            LakeError: when the lake is in an object store, or a compacted part is damaged.
        """
        return [self.path / part.name for part in self.current(signal, bucket)]

    def current(self, signal: Signal, bucket: int) -> list[PartName]:
        """The parts that hold one bucket now, in the order of arrival.

        Raises:
            LakeError: when a compacted part is damaged.
        """
        if not 0 <= bucket < self.buckets:
            raise ValueError(f"bucket {bucket} of a lake with {self.buckets}")
        return self.consistently(lambda: self._current(signal, bucket))

    def list_parts(self, folder: str, bucket: int | None = None) -> list[PartName]:
        """Every part below a folder, replaced ones too, in the order of arrival.

        Args:
            folder: below the lake.
            bucket: leave out other buckets.

        Raises:
            LakeError: when the folder cannot be listed.
        """
        within = None if bucket is None else bucket_folder(bucket)
        try:
            entries = self.store.list(folder, within)
        except OSError as error:
            raise _unreadable(f"{self.location}/{folder}", error) from error
        found = (part_of(*entry) for entry in entries)
        parts = [part for part in found if part is not None]
        return sorted(parts, key=lambda part: (part.compacted, part.file, part.name))

    def consistently(self, read: Callable[[], _T]) -> _T:
        """The result of a reading that no compaction or deletion got in the way of.

        Args:
            read: lists and reads everything it needs; is called again when a part was gone.

        Raises:
            LakeError: when parts keep going.
        """
        for _ in range(_ATTEMPTS):
            try:
                return read()
            except PartGoneError:
                continue
        raise LakeError(f"parts of {self.location} keep vanishing; see what deletes them")

    def _current(self, signal: Signal, bucket: int) -> list[PartName]:
        parts = self.list_parts(FOLDERS[signal], bucket)
        replaced = {
            (part.folder, file)
            for part in parts
            if part.compacted
            for file in read_info(self.store, part.name).replaces
        }
        again = self.list_parts(FOLDERS[signal], bucket)
        if [part for part in parts if part.compacted] != [part for part in again if part.compacted]:
            raise PartGoneError(FOLDERS[signal])
        return [part for part in parts if (part.folder, part.file) not in replaced]

    def _iterate(self, signal: Signal, bucket: int) -> Iterator[pa.Table]:
        def begin() -> tuple[pa.Table | None, Iterator[pa.Table]]:
            names = [part.name for part in self.current(signal, bucket)]
            tables = whole_traces(self.store, signal, names, SCHEMAS[signal])
            # With the first table every part has been read: from here on none can vanish.
            return next(tables, None), tables

        first, rest = self.consistently(begin)
        if first is not None:
            yield first
        yield from rest

    def _read(
        self, signal: Signal, bucket: int, columns: Sequence[str], trace_id: str | None = None
    ) -> pa.Table:
        """The columns of all parts of a bucket, one below the other, nothing sorted."""
        whole = SCHEMAS[signal]
        names = dict.fromkeys(columns)
        schema = pa.schema([whole.field(name) for name in names]).with_metadata(whole.metadata)

        tables: dict[str, pa.Table] = {}

        def read() -> list[pa.Table]:
            # Parts never change: what was read before another one vanished need not be read again.
            names = [part.name for part in self.current(signal, bucket)]
            for name in tables.keys() - names:
                del tables[name]
            for name in names:
                if name not in tables:
                    tables[name] = read_part(self.store, name, schema, trace_id)
            return [tables[name] for name in names]

        return concat(self.consistently(read), schema)


def require_trace_id(text: str) -> str:
    """The text, when it is a trace id as the lake writes it.

    Raises:
        LakeError: when it is not.
    """
    if not _TRACE_ID.fullmatch(text):
        raise LakeError(f"{text!r:.50} is no trace id; give 32 lower-case hex digits")
    return text


def _unreadable(what: str, error: OSError) -> LakeError:
    # What an object store says may be long.
    reason = (error.strerror or str(error)).partition("\n")[0][:200]
    return LakeError(f"{what} cannot be read ({reason}); make it readable and run this again")


def _known(signal: Signal, columns: Sequence[str] | None) -> list[str]:
    schema = SCHEMAS[signal]
    if columns is None:
        return schema.names
    unknown = sorted(set(columns) - set(schema.names))
    if unknown:
        raise KeyError(f"no such column: {', '.join(unknown)}")
    return list(columns)
