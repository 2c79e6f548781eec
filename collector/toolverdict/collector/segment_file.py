"""How the bytes of a segment get to the disk and back, past the page cache where that works.

A request is written once and read once, by the same process: a copy of it in the page cache costs
CPU time twice and pushes out what others read. So a log that is synced with every group is written
and read with ``O_DIRECT``, in whole blocks from memory that is aligned. File systems that refuse
that (``EINVAL``), and logs that are synced later, have it the usual way.
"""

import errno
import mmap
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from toolverdict.collector.durable import write_all

BLOCK_BYTES: Final = 4096
"""What the sizes, places and addresses of direct reads and writes are multiples of."""

_STAGE_BYTES: Final = 4 * 1024 * 1024
"""How much is written at a time; bounds the aligned memory of a log."""

_DIRECT: Final = getattr(os, "O_DIRECT", 0) if sys.platform.startswith("linux") else 0


class SegmentFile(Protocol):
    """A new file that is only appended to."""

    descriptor: int

    def write(self, pieces: Iterable[bytes]) -> int:
        """Append; returns by how many bytes the file grew.

        Raises:
            OSError: when the disk does not take it; then nothing must be appended any more.
        """


class BufferedFile:
    """Writes through the page cache."""

    def __init__(self, path: Path) -> None:
        """Make the file."""
        self.descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640)

    def write(self, pieces: Iterable[bytes]) -> int:
        """See :meth:`SegmentFile.write`."""
        listed = list(pieces)
        write_all(self.descriptor, listed)
        return sum(map(len, listed))


class Stage:
    """Aligned memory that is filled piece by piece; for one file at a time."""

    def __init__(self) -> None:
        self.memory: Final = memoryview(mmap.mmap(-1, _STAGE_BYTES))
        self.used = 0


class DirectFile:
    """Writes whole blocks past the page cache; what is missing to the last one is padded."""

    def __init__(self, path: Path, stage: Stage, padding: Callable[[int], bytes]) -> None:
        """Make the file.

        Args:
            path: of the file.
            stage: memory to write from; it need not be empty.
            padding: makes so many bytes that a reader passes over; any number that is at least
                as large as what ``padding(0)`` makes.

        Raises:
            OSError: EINVAL where the file system has no direct writes.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _DIRECT
        self.descriptor = os.open(path, flags, 0o640)
        self._stage = stage
        self._padding = padding
        self._least_padding = len(padding(0))

    def write(self, pieces: Iterable[bytes]) -> int:
        """See :meth:`SegmentFile.write`."""
        self._stage.used = 0
        size = 0
        for piece in pieces:
            size += self._put(piece)
        gap = -size % BLOCK_BYTES
        if gap:
            size += self._put(self._padding(gap + BLOCK_BYTES * (gap < self._least_padding)))
        self._flush()
        return size

    def _put(self, piece: bytes) -> int:
        stage, rest = self._stage, memoryview(piece)
        while rest:
            part = rest[: _STAGE_BYTES - stage.used]
            stage.memory[stage.used : stage.used + len(part)] = part
            stage.used += len(part)
            rest = rest[len(part) :]
            if stage.used == _STAGE_BYTES:
                self._flush()
        return len(piece)

    def _flush(self) -> None:
        # After a write that stopped inside a block the next one is refused: the group fails then.
        write_all(self.descriptor, [self._stage.memory[: self._stage.used]])
        self._stage.used = 0


def begin_file(
    path: Path, header: bytes, stage: Stage | None, padding: Callable[[int], bytes]
) -> tuple[SegmentFile, int]:
    """A new file that begins with these bytes, and how many it has.

    Args:
        path: of the file, which is not there.
        header: its first bytes.
        stage: memory to write from past the page cache; None to go through it.
        padding: see :class:`DirectFile`.

    Raises:
        OSError: when the disk does not take it; there is no file then.
    """
    if stage is not None and _DIRECT:
        try:
            return _begun(path, header, lambda: DirectFile(path, stage, padding))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    return _begun(path, header, lambda: BufferedFile(path))


def _begun(path: Path, header: bytes, make: Callable[[], SegmentFile]) -> tuple[SegmentFile, int]:
    file: SegmentFile | None = None
    try:
        file = make()
        return file, file.write([header])
    except BaseException:
        with suppress(OSError):
            if file is not None:
                os.close(file.descriptor)
            path.unlink(missing_ok=True)  # a refused open may have made it
        raise


def read_file(path: Path) -> memoryview:
    """All bytes of a file, as memory that cannot be written to.

    One of whole blocks was written past the page cache, most likely, and is read so.

    Raises:
        OSError: when it cannot be read.
    """
    size = path.stat().st_size
    if _DIRECT and size and size % BLOCK_BYTES == 0:
        try:
            return _read_direct(path, size)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
    return memoryview(path.read_bytes())


def _read_direct(path: Path, size: int) -> memoryview:
    # Memory of Arrow's pool: not cleared before, and used again for the columns.
    memory = pa.allocate_buffer(size + BLOCK_BYTES)
    start = -memory.address % BLOCK_BYTES
    whole = memoryview(memory).cast("B")[start : start + size]
    descriptor = os.open(path, os.O_RDONLY | _DIRECT)
    try:
        read = 0
        while read < size:
            count = os.readv(descriptor, [whole[read:]])
            if count == 0:
                break
            read += count
    finally:
        os.close(descriptor)
    return whole[:read].toreadonly()
