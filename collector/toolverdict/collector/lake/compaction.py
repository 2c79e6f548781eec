"""Compaction: the many parts of a closed hour become one, sorted, without retries, and smaller.

A folder (hour and bucket) is the unit: rows stay in the hour in which they were received, so
nothing has to happen in two folders at once, and a span that comes late moves nothing. A trace that
crosses the hour is in two folders; readers of a bucket read both.

One rename is the commit: the new part has a footer that lists the files it replaces, and those are
deleted after it. A crash before the rename leaves a temporary file, one after it leaves replaced
parts; the next run clears both away. The list stays in the footer for good: a part that the
collector writes again, because it died between writing it and deleting its segment, is known.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby

import orjson
import pyarrow as pa

from toolverdict.collector.errors import LakeError
from toolverdict.collector.lake.layout import (
    FOLDERS,
    PartFolder,
    PartName,
    compacted_file,
    hour_end,
    is_compacted_file,
    unfinished_file,
)
from toolverdict.collector.lake.part_file import (
    COMPACT_LEVEL,
    OPEN_ROWS_KEY,
    REPLACES_KEY,
    PartGoneError,
    PartInfo,
    PartWriter,
    read_info,
    read_part,
    read_schema,
)
from toolverdict.collector.lake.reading import Lake
from toolverdict.collector.lake.regroup import whole_traces
from toolverdict.collector.lake.retries import without_retries
from toolverdict.collector.lake.thinning import Thinning
from toolverdict.collector.schema import SCHEMAS

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class CompactionSettings:
    """When an hour is compacted, and what becomes of its traces."""

    grace: timedelta = timedelta(minutes=30)
    """How long after its end an hour is closed."""
    thinning: Thinning | None = None
    """Says what is kept of the traces; None keeps every span and log record."""


@dataclass
class Compaction:
    """What a compaction did."""

    folders: int = 0
    """Folders that were compacted."""
    parts_before: int = 0
    parts_after: int = 0
    rows_before: int = 0
    rows_after: int = 0
    retries: int = 0
    """Copies of records, from requests that were sent again, that were dropped."""
    bytes_before: int = 0
    bytes_after: int = 0
    removed: int = 0
    """Replaced parts and temporary files of an earlier run that were removed."""
    faults: list[str] = field(default_factory=list)
    """Parts that were left as they are, and why; one line each."""


def compact(
    lake: Lake,
    settings: CompactionSettings,
    now: datetime | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Compaction:
    """Compact every folder of a closed hour that holds more than one compacted part.

    Call it inside ``lake.store.upkeep()``. A collector may write and readers may read meanwhile.

    Args:
        lake: the lake.
        settings: when an hour is closed, and what is kept.
        now: the time, for tests.
        progress: told (folders done, folders in all) after each folder.

    Raises:
        OSError: when the disk does not take a part; nothing is lost then.
    """
    now = now or datetime.now(UTC)
    done = Compaction()
    _remove_unfinished(lake, done)
    parts = [part for name in FOLDERS.values() for part in lake.list_parts(name)]
    parts.sort(key=lambda part: part.folder)
    closed = [
        (folder, list(members))
        for folder, members in groupby(parts, key=lambda part: part.folder)
        if hour_end(folder.hour) + settings.grace <= now
    ]
    for number, (folder, members) in enumerate(closed, 1):
        try:
            _Folder(lake, folder, settings.thinning, done).compact(members)
        except MemoryError:  # Arrow's own is one too; other folders may need less
            done.faults.append(
                f"{folder.name} stays as it is: it needs more memory than there is; run "
                "`toolverdict lake compact` where there is more"
            )
        except (LakeError, PartGoneError, pa.ArrowException) as error:
            done.faults.append(f"{folder.name} stays as it is: {error}")
        if progress is not None:
            progress(number, len(closed))
    for fault in done.faults:
        _LOG.error("%s", fault)
    return done


def _remove_unfinished(lake: Lake, done: Compaction) -> None:
    names = [entry.name for folder in FOLDERS.values() for entry in lake.store.list(folder)]
    unfinished = [
        name for name in names if is_compacted_file(unfinished_file(name.rpartition("/")[2]) or "")
    ]
    lake.store.delete(unfinished)
    done.removed += len(unfinished)


class _Folder:
    """One folder while it is compacted."""

    def __init__(
        self, lake: Lake, folder: PartFolder, thinning: Thinning | None, done: Compaction
    ) -> None:
        self._lake = lake
        self._folder = folder
        self._thinning = thinning
        self._done = done
        self._rows_read = 0
        self._retries = 0
        self._open_rows = 0

    def compact(self, parts: Sequence[PartName]) -> None:
        infos, unreadable = self._infos(parts)
        replaced = frozenset[str]().union(*(info.replaces for info in infos.values()))
        left_over = [part for part in parts if part.file in replaced]
        self._lake.store.delete(part.name for part in left_over)
        self._done.removed += len(left_over)
        inputs = [part for part in infos if part.file not in replaced]
        name = compacted_file(part.file for part in inputs)
        # A part that this very compaction left damaged is written anew; any other damaged one may
        # stand for rows that nothing else holds.
        lost = [part.name for part in unreadable if part.compacted and part.file != name]
        if lost:
            raise LakeError(f"{lost[0]} holds rows that no other part has; restore it from a copy")
        if self._is_due(inputs, infos):
            replaces = replaced | {part.file for part in inputs}
            self._replace(inputs, f"{self._folder.name}/{name}", replaces)

    def _infos(self, parts: Sequence[PartName]) -> tuple[dict[PartName, PartInfo], list[PartName]]:
        infos: dict[PartName, PartInfo] = {}
        unreadable = []
        for part in parts:
            try:
                infos[part] = read_info(self._lake.store, part.name)
            except LakeError as error:
                unreadable.append(part)
                self._done.faults.append(str(error))
        return infos, unreadable

    def _is_due(self, inputs: Sequence[PartName], infos: Mapping[PartName, PartInfo]) -> bool:
        if len(inputs) != 1:
            return bool(inputs)
        (part,) = inputs
        return not part.compacted or self._is_newly_decided(part, infos[part])

    def _is_newly_decided(self, part: PartName, info: PartInfo) -> bool:
        """Whether there is something to thin in rows that were open when the part was written."""
        if self._thinning is None or not info.open_rows:
            return False
        ids = pa.schema([SCHEMAS[self._folder.signal].field("trace_id")])
        undecided = self._thinning.undecided(read_part(self._lake.store, part.name, ids))
        return undecided < info.open_rows

    def _replace(self, inputs: Sequence[PartName], name: str, replaces: frozenset[str]) -> None:
        store, signal = self._lake.store, self._folder.signal
        schema = self._schema(inputs)
        rows = 0

        def fill(sink: pa.NativeFile) -> None:
            nonlocal rows
            writer = PartWriter(sink, signal, schema, COMPACT_LEVEL)
            for table in self._tables(inputs, schema):
                writer.write(table)
            rows = writer.rows
            writer.close(
                {
                    REPLACES_KEY: orjson.dumps(sorted(replaces)),
                    OPEN_ROWS_KEY: b"%d" % self._open_rows,
                }
            )

        store.write(name, fill)
        written = read_info(store, name)
        if written.rows != rows or written.replaces != replaces:
            raise LakeError(f"{name} is not what was written; its parts are kept")
        store.delete(part.name for part in inputs)
        self._report(inputs, rows, self._size(name))

    def _schema(self, inputs: Sequence[PartName]) -> pa.Schema:
        """Our columns, then those that a newer version wrote: nothing is lost."""
        ours = SCHEMAS[self._folder.signal]
        found = [read_schema(self._lake.store, part.name) for part in inputs]
        newer = [
            pa.schema([column for column in schema if column.name not in ours.names])
            for schema in found
        ]
        extra = pa.unify_schemas(newer, promote_options="permissive")
        nullable = [column.with_nullable(True) for column in extra]
        return pa.schema([*ours, *nullable]).with_metadata(ours.metadata)

    def _tables(self, inputs: Sequence[PartName], schema: pa.Schema) -> Iterator[pa.Table]:
        store, signal = self._lake.store, self._folder.signal
        names = [part.name for part in inputs]
        for table in whole_traces(store, signal, names, schema, store.scratch):
            self._rows_read += table.num_rows
            unique = without_retries(signal, table)
            self._retries += table.num_rows - unique.num_rows
            yield self._thinned(unique)

    def _thinned(self, table: pa.Table) -> pa.Table:
        if self._thinning is None:
            self._open_rows += table.num_rows
            return table
        self._open_rows += self._thinning.undecided(table)
        return self._thinning.thin(self._folder.signal, table)

    def _size(self, name: str) -> int:
        entries = self._lake.store.list(self._folder.name)
        return sum(entry.size for entry in entries if entry.name == name)

    def _report(self, inputs: Sequence[PartName], rows: int, size: int) -> None:
        done = self._done
        done.folders += 1
        done.parts_before += len(inputs)
        done.parts_after += 1
        done.rows_before += self._rows_read
        done.rows_after += rows
        done.retries += self._retries
        done.bytes_before += sum(part.size for part in inputs)
        done.bytes_after += size
        _LOG.info("%s: %d parts to one of %d rows", self._folder.name, len(inputs), rows)
