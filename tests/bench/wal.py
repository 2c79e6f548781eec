"""What it costs to bring requests to the disk and to read them back, past the page cache or not.

    python tests/bench/wal.py [FOLDER]

Bodies of 666 KB, eight to a group, as under load; CPU seconds a million spans of 1.3 KB, on the file
system of FOLDER. Where that has no direct writes, ``direct`` is ``buffered`` once more.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import xxhash

from toolverdict.collector.durable import sync_file
from toolverdict.collector.segment import (
    SegmentId,
    new_segment_id,
    pack_frame,
    pack_header,
    pack_padding,
)
from toolverdict.collector.segment_file import Stage, begin_file, read_file
from toolverdict.collector.signals import Signal

BODY = os.urandom(666_000)
SPANS_A_BODY = 512
GROUP = 8
GROUPS = 40


def _frames(segment: SegmentId) -> list[bytes]:
    return [piece for _ in range(GROUP) for piece in pack_frame(segment, Signal.TRACES, 1, BODY)]


def _written(path: Path, stage: Stage | None, synced: bool) -> None:
    segment = new_segment_id(0)
    padding = partial(pack_padding, segment)
    file, _ = begin_file(path, pack_header(segment.created_unix_nano), stage, padding)
    for _ in range(GROUPS):
        file.write(_frames(segment))
        if synced:
            sync_file(file.descriptor)
    os.close(file.descriptor)


def direct(path: Path) -> None:
    """Past the page cache: what the collector does where the file system takes it."""
    _written(path, Stage(), synced=True)


def buffered(path: Path) -> None:
    """Through the page cache: what it does elsewhere."""
    _written(path, None, synced=True)


def unsynced(path: Path) -> None:
    """What ``--fsync off`` does."""
    _written(path, None, synced=False)


def checksums(_: Path) -> None:
    """What the checksums alone are of all of these."""
    for _number in range(GROUPS * GROUP):
        xxhash.xxh3_64_intdigest(BODY)


def main(folder: Path) -> None:
    ways: list[Callable[[Path], None]] = [checksums, unsynced, buffered, direct]
    for way in ways:
        path = folder / "segment"
        started_s, started_cpu_s = time.perf_counter(), time.process_time()
        way(path)
        cpu_s, wall_s = time.process_time() - started_cpu_s, time.perf_counter() - started_s
        started_cpu_s = time.process_time()
        size = len(read_file(path)) if path.exists() else 0
        read_cpu_s = time.process_time() - started_cpu_s
        path.unlink(missing_ok=True)
        spans = GROUPS * GROUP * SPANS_A_BODY
        cost = cpu_s / spans * 1e6
        megabytes = GROUPS * GROUP * len(BODY) / 1e6
        read = f"; {read_cpu_s / spans * 1e6:.2f} to read it" if size else ""
        print(
            f"{way.__name__:10}{cost:6.2f} CPU s a million spans{megabytes / wall_s:8.0f} MB/s{read}"
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
