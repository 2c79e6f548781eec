"""Tables to Parquet parts: sorted, cut at trace borders, whole or not there at all."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from toolverdict.collector.durable import make_folder, replace_durably
from toolverdict.collector.lake import FOLDERS, Lake, bucket_folder
from toolverdict.collector.schema import SORT_KEYS
from toolverdict.collector.segment import SegmentId
from toolverdict.collector.signals import Signal

ROW_GROUP_ROWS: Final = 30_000
"""A row group ends at the first trace border after so many rows."""


def write_part(
    lake: Lake, segment: SegmentId, signal: Signal, bucket: int, table: pa.Table, number: int = 0
) -> Path:
    """Write rows of one segment that belong to one bucket.

    The name depends on the segment and the number alone, so doing it again after a crash replaces the same file,
    also one that is there but cut short.

    Raises:
        OSError: when the disk does not take it; no part is there then, or the old one.
    """
    hour = datetime.fromtimestamp(segment.created_unix_nano // 1_000_000_000, UTC)
    folder = (
        lake.path
        / FOLDERS[signal]
        / f"date={hour:%Y-%m-%d}"
        / f"hour={hour:%H}"
        / bucket_folder(bucket)
    )
    make_folder(folder, lake.path)
    final = folder / f"part-{segment.text}-{number}.parquet"
    temporary = folder / f".{final.name}.tmp"
    _write_file(temporary, table, SORT_KEYS[signal])
    replace_durably(temporary, final)
    return final


def remove_unfinished(lake: Lake) -> int:
    """Delete temporary files that a crash left; returns how many there were."""
    unfinished = [
        path for name in FOLDERS.values() for path in (lake.path / name).rglob(".part-*.tmp")
    ]
    for path in unfinished:
        path.unlink()
    return len(unfinished)


def _write_file(path: Path, table: pa.Table, keys: tuple[str, ...]) -> None:
    order: list[tuple[str, Literal["ascending", "descending"]]] = [
        (key, "ascending") for key in keys
    ]
    table = table.sort_by(order)  # stable: equal rows stay in the order of arrival
    words = [field.name for field in table.schema if pa.types.is_dictionary(field.type)]
    # Opened here: Arrow would take a name such as "lake:v1" for a URI.
    with (
        path.open("wb") as file,
        pq.ParquetWriter(
            file,
            table.schema,
            compression="zstd",
            compression_level=1,
            write_page_checksum=True,
            use_dictionary=words,  # type: ignore[arg-type]  # the stubs know bool only
            sorting_columns=pq.SortingColumn.from_ordering(table.schema, order),
        ) as writer,
    ):
        for group in _row_groups(table):
            writer.write_table(group, row_group_size=group.num_rows)


def _row_groups(table: pa.Table) -> Iterator[pa.Table]:
    """Cut a sorted table where one trace ends and the next begins."""
    trace_ids = table.column("trace_id").to_pylist()
    start = 0
    for row in range(ROW_GROUP_ROWS, len(trace_ids)):
        if row - start >= ROW_GROUP_ROWS and trace_ids[row] != trace_ids[row - 1]:
            yield table.slice(start, row - start)
            start = row
    yield table.slice(start)
