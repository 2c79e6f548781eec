"""Rows of many parts as tables of whole traces, in the order of the lake and in bounded memory.

What fits is sorted at once. What does not is first divided by ranges of trace ids into temporary
files, each of which fits. At most so much is in memory: :data:`CHUNK_BYTES` of rows (as Arrow about
twice that), the copy that sorting makes, one row group of one part; and the largest trace, should
that be more.
"""

import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from toolverdict.collector.lake.part_file import concat, read_groups, read_info, read_part, sort
from toolverdict.collector.lake.store import Store
from toolverdict.collector.signals import Signal

CHUNK_BYTES: Final = 64 * 1024 * 1024
"""Bytes of columns, as Parquet counts them before compression, that are sorted at once."""

_SAMPLES: Final = 10_000
"""Trace ids from which the borders between ranges are taken."""

_AFTER_ALL: Final = "~"
"""Sorts behind every hex digit: where records without a trace id are."""


def whole_traces(
    store: Store,
    signal: Signal,
    names: Sequence[str],
    schema: pa.Schema,
    scratch: Path | None = None,
) -> Iterator[pa.Table]:
    """All rows of these parts; no trace is in two tables, and a table sorts behind the last one.

    Every part has been read when the first table comes.

    Args:
        store: where the parts are.
        signal: what they hold.
        names: the parts, in the order of arrival, which equal rows keep.
        schema: the columns; null where a part lacks one.
        scratch: the folder for temporary files, None for the system's.

    Raises:
        LakeError: when a part is damaged or has a newer schema.
        PartGoneError: when a part is not there any more.
    """
    infos = [read_info(store, name) for name in names]
    chunks = -(-sum(info.raw_bytes for info in infos) // CHUNK_BYTES)
    if chunks <= 1:
        groups = (group for name in names for group in read_groups(store, name, schema))
        yield sort(signal, concat(groups, schema))
        return
    borders = _borders(store, names, chunks, sum(info.rows for info in infos))
    with tempfile.TemporaryDirectory(prefix="toolverdict-", dir=scratch) as folder:
        files = [Path(folder) / f"{number}.arrow" for number in range(len(borders) + 1)]
        _divide(store, names, schema, borders, files)
        for file in files:
            with pa.OSFile(str(file), "rb") as source, pa.ipc.open_stream(source) as stream:
                table = stream.read_all()
            file.unlink()
            if table.num_rows:
                yield sort(signal, concat([table], schema))


def _borders(store: Store, names: Sequence[str], chunks: int, rows: int) -> list[str]:
    """Trace ids that divide the rows into about equal ranges; each begins the range behind it."""
    step = max(1, rows // _SAMPLES)
    sampled: list[str] = []
    schema = pa.schema([pa.field("trace_id", pa.string())])
    for name in names:
        ids = read_part(store, name, schema).column("trace_id")
        chosen = ids.take(pa.array(range(step // 2, len(ids), step), pa.int64()))
        sampled += [_AFTER_ALL if found is None else found for found in chosen.to_pylist()]
    sampled.sort()
    borders = {sampled[len(sampled) * number // chunks] for number in range(1, chunks)}
    return sorted(borders)


def _divide(
    store: Store,
    names: Sequence[str],
    schema: pa.Schema,
    borders: Sequence[str],
    files: Sequence[Path],
) -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with ExitStack() as opened:
        writers = [
            opened.enter_context(
                pa.ipc.new_stream(
                    opened.enter_context(pa.OSFile(str(file), "wb")), schema, options=options
                )
            )
            for file in files
        ]
        for name in names:
            for group in read_groups(store, name, schema):
                cuts = [0, *(_first_row(group, border) for border in borders), group.num_rows]
                for writer, begin, end in zip(writers, cuts, cuts[1:], strict=False):
                    if begin < end:
                        writer.write_table(group.slice(begin, end - begin))


def _first_row(table: pa.Table, border: str) -> int:
    """The first row of a sorted table whose trace id is not before the border."""
    ids: Any = table.column("trace_id")
    return bisect_left(ids, border, key=lambda found: found.as_py() or _AFTER_ALL)


def trace_ids(table: pa.Table) -> Any:
    """The different trace ids of a table as one array, null left out."""
    ids: Any = table.column("trace_id").combine_chunks()
    return ids.unique().drop_null()
