"""Tables of one segment to Parquet parts: sorted, cut at trace borders, whole or not there."""

import pyarrow as pa

from toolverdict.collector.lake.layout import (
    FOLDERS,
    PartFolder,
    hour_of,
    is_compacted_file,
    unfinished_file,
)
from toolverdict.collector.lake.part_file import PartWriter, sort
from toolverdict.collector.lake.reading import Lake
from toolverdict.collector.segment import SegmentId
from toolverdict.collector.signals import Signal


def write_part(
    lake: Lake, segment: SegmentId, signal: Signal, bucket: int, table: pa.Table, number: int = 0
) -> str:
    """Write rows of one segment that belong to one bucket.

    The name depends on the segment and the number alone, so doing it again after a crash replaces
    the same file, also one that is there but cut short. In an object store the part is there when
    this returns.

    Returns:
        The path of the part below the lake.

    Raises:
        OSError: when the disk does not take it; no part is there then, or the old one.
    """
    folder = PartFolder(signal, hour_of(segment.created_unix_nano), bucket)
    name = f"{folder.name}/part-{segment.text}-{number}.parquet"
    in_order = sort(signal, table)

    def fill(sink: pa.NativeFile) -> None:
        writer = PartWriter(sink, signal, in_order.schema)
        writer.write(in_order)
        writer.close()

    lake.store.write(name, fill)
    return name


def remove_unfinished(lake: Lake) -> int:
    """Delete temporary files that a crash of the collector left; returns how many there were.

    Those of a compaction are left to the next one: it may be at work.
    """
    files = [entry.name for folder in FOLDERS.values() for entry in lake.store.list(folder)]
    unfinished = [name for name in files if _is_collectors(name.rpartition("/")[2])]
    lake.store.delete(unfinished)
    return len(unfinished)


def _is_collectors(file: str) -> bool:
    part = unfinished_file(file)
    return part is not None and not is_compacted_file(part)
