"""What it costs to bring requests to the disk: the log as it is, and direct I/O beside it.

    python tests/bench/wal.py [FOLDER]

Bodies of 666 KB, eight to a group, as under load; CPU seconds a million spans of 1.3 KB. Direct I/O
(``O_DIRECT|O_DSYNC``) needs one copy into an aligned buffer and spares the page cache.
"""

import mmap
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import xxhash

from toolverdict.collector.durable import sync_file, write_all
from toolverdict.collector.segment import new_segment_id, pack_frame
from toolverdict.collector.signals import Signal

BODY = os.urandom(666_000)
SPANS_A_BODY = 512
GROUP = 8
GROUPS = 40
BLOCK = 4096


def _frames() -> list[bytes]:
    segment = new_segment_id(0)
    return [piece for _ in range(GROUP) for piece in pack_frame(segment, Signal.TRACES, 1, BODY)]


def buffered(path: Path) -> None:
    """``writev``, then ``fdatasync``: what the collector does."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for _ in range(GROUPS):
        write_all(descriptor, _frames())
        sync_file(descriptor)
    os.close(descriptor)


def unsynced(path: Path) -> None:
    """``writev`` alone: what ``--fsync off`` does."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for _ in range(GROUPS):
        write_all(descriptor, _frames())
    os.close(descriptor)


def direct(path: Path) -> None:
    """One aligned copy, then one write past the page cache into space made beforehand."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT | os.O_DSYNC
    descriptor = os.open(path, flags)
    size = -(-sum(map(len, _frames())) // BLOCK) * BLOCK
    os.posix_fallocate(descriptor, 0, size * GROUPS)
    buffer = mmap.mmap(-1, size)
    for _ in range(GROUPS):
        position = 0
        for piece in _frames():
            buffer[position : position + len(piece)] = piece
            position += len(piece)
        os.write(descriptor, buffer)
    os.close(descriptor)


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
        path.unlink(missing_ok=True)
        cost = cpu_s / (GROUPS * GROUP * SPANS_A_BODY) * 1e6
        megabytes = GROUPS * GROUP * len(BODY) / 1e6
        print(f"{way.__name__:10}{cost:6.2f} CPU s a million spans{megabytes / wall_s:8.0f} MB/s")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as made:
            main(Path(made))
