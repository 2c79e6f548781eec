"""Sealed segments to Parquet: the same road in normal running and after a crash.

A segment is deleted only when all its parts have their names and the folders are synced. Until
then doing it all again gives the same files, so a crash at any moment, also while replaying, costs
nothing and adds nothing to the log.
"""

import logging
import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from toolverdict.collector.decoders import decoder
from toolverdict.collector.durable import sync_folder
from toolverdict.collector.errors import DecodeError
from toolverdict.collector.lake import Lake
from toolverdict.collector.lake.store import LocalStore
from toolverdict.collector.limits import MIB
from toolverdict.collector.parts import write_part
from toolverdict.collector.segment import Frame, SegmentId, read_segment, segment_id_of
from toolverdict.collector.signals import WIRE, Signal

_LOG = logging.getLogger(__name__)

MAX_PART_ROWS: Final = 100_000
MAX_PART_WEIGHT: Final = 128 * MIB
"""A part of a segment ends at so many rows, or with the row that makes it weigh so much.

As columns its rows take no more than that: :mod:`toolverdict.collector.weights`. Part of the format
of the log: a segment that an earlier run had half written must be cut alike.
"""

RETRY_S: Final = 5.0
"""Seconds until a segment is tried again that the disk did not take."""


MAX_DEATHS: Final = 10
"""A segment that so many processes did not survive is set aside without another try. Each has to
end in the few milliseconds to seconds of its flush, which other reasons seldom do ten times."""

MAX_SHORTAGES: Final = 3
"""A segment for which memory did not suffice so often is set aside."""

DEATHS_SUFFIX: Final = ".deaths"
"""Ends the name of a file beside a segment with a byte for each process that began to flush it and
has not come to an end."""


_EXPANDED: Final = threading.Semaphore(1)
"""A segment in memory is many times its size: one at a time, however many lakes are written."""


class Flushed(NamedTuple):
    """What became of one segment."""

    counts: Counter[Signal]
    """Spans and log records it held."""
    damage: str | None
    """Why it was set aside, None when all of it is Parquet."""


def flush_segment(lake: Lake, path: Path) -> Flushed:
    """Turn one segment into parts, then delete it, or set it aside when it is damaged.

    A damaged segment gives every frame that can still be read and is moved to ``wal/quarantine``,
    where a person can look at it; it is never deleted.

    Raises:
        OSError: when the disk does not take the parts; the segment stays and can be tried again.
    """
    content = read_segment(path)
    damage = content.damage
    segment = segment_id_of(path)
    counts: Counter[Signal] = Counter()
    if segment is not None:
        try:
            counts = _write_parts(lake, segment, content.frames)
        except DecodeError:
            # Intake would not have logged it, so this is a fault of ours. Frame by frame tells
            # which one it is; the parts that are there already become the same once more.
            counts, unreadable = _write_sound_parts(lake, segment, content.frames)
            if unreadable:
                damage = damage or "a frame cannot be decoded"
    if damage is None:
        path.unlink()
        sync_folder(path.parent)
    else:
        quarantine(path, damage, counts)
    if content.torn_bytes:
        _LOG.info(
            "%s: %d bytes of an unfinished write, never acknowledged, are left out",
            path.name,
            content.torn_bytes,
        )
    return Flushed(counts, damage)


def _write_parts(lake: Lake, segment: SegmentId, frames: Sequence[Frame]) -> Counter[Signal]:
    """Write frames of which each was judged before it was logged.

    Raises:
        DecodeError: when one of them cannot be decoded; some parts may be there then.
    """
    writer = _PartWriter(lake, segment, judged=True)
    for frame in frames:
        writer.add(frame)
    return writer.close()


def _write_sound_parts(
    lake: Lake, segment: SegmentId, frames: Sequence[Frame]
) -> tuple[Counter[Signal], int]:
    """Write the frames that can be decoded; returns also how many cannot."""
    writer = _PartWriter(lake, segment, judged=False)
    unreadable = 0
    for frame in frames:
        try:
            writer.add(frame)
        except DecodeError:
            unreadable += 1
    return writer.close(), unreadable


class Attempt:
    """One try to flush a segment, of which the file beside it tells when the process dies."""

    def __init__(self, path: Path) -> None:
        """Note that it begins."""
        self._file = path.with_suffix(DEATHS_SUFFIX)
        self.deaths = 0
        """Of earlier processes that tried."""
        with suppress(OSError):  # on a full disk it goes without
            descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
            try:
                self.deaths = os.fstat(descriptor).st_size
                os.write(descriptor, b".")
            finally:
                os.close(descriptor)

    def survived(self) -> None:
        """Note that it came to an end, whatever that was."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)


def quarantine(path: Path, damage: str, counts: Counter[Signal]) -> None:
    """Move a segment out of the way for good and say so."""
    folder = path.parent / "quarantine"
    folder.mkdir(exist_ok=True)
    path.rename(folder / path.name)
    sync_folder(folder)
    sync_folder(path.parent)
    kept = ", ".join(f"{counts[signal]} {WIRE[signal].noun}" for signal in Signal)
    _LOG.error("%s: %s; kept %s and moved the file to %s", path.name, damage, kept, folder)


class _PartWriter:
    """Rows of one segment to parts, so many at a time that they fit in memory.

    Where a part ends depends on the frames alone, so doing it again gives the same parts.
    """

    def __init__(self, lake: Lake, segment: SegmentId, *, judged: bool) -> None:
        self._lake = lake
        self._segment = segment
        self._builders = {signal: decoder().rows(signal, judged=judged) for signal in Signal}
        self._next_part: Counter[Signal] = Counter()
        self._counts: Counter[Signal] = Counter()

    def add(self, frame: Frame) -> None:
        """Take the rows of a frame.

        Raises:
            DecodeError: when it cannot be decoded; none of its rows is taken. Of frames that were
                judged it may be an earlier one, and the writer is of no use then.
        """
        builder = self._builders[frame.signal]
        builder.feed(frame.body, frame.received_unix_nano)
        while rows := builder.full_part(MAX_PART_ROWS, MAX_PART_WEIGHT):
            self._write(frame.signal, rows)

    def close(self) -> Counter[Signal]:
        """Write what is left; returns how many rows there were."""
        for signal, builder in self._builders.items():
            if builder.num_rows:
                self._write(signal, builder.num_rows)
        return self._counts

    def _write(self, signal: Signal, rows: int) -> None:
        """Write the next rows: a part of every bucket that has any of them."""
        number = self._next_part[signal]
        for bucket, table in self._builders[signal].take_sorted(rows, self._lake.buckets):
            write_part(self._lake, self._segment, signal, bucket, table, number)
        self._counts[signal] += rows
        self._next_part[signal] += 1


class Flusher:
    """One thread that flushes segments as they are sealed."""

    def __init__(self, lake: Lake, on_flush: Callable[[float], None] = lambda _: None) -> None:
        """Start the thread.

        Args:
            lake: Where the parts go.
            on_flush: Told after each try how many seconds it took.
        """
        self._lake = lake
        self._on_flush = on_flush
        self._segments: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._sizes: dict[Path, int] = {}
        self._stop = threading.Event()
        self._failed: list[Path] = []
        self._shortages: Counter[Path] = Counter()
        self.stored: Counter[Signal] = Counter()
        """Spans and log records written to Parquet by this process."""
        self.set_aside = 0
        """Segments moved to the quarantine by this process."""
        self.taken_away = 0
        """Segments that someone else removed before they were Parquet."""
        self._thread = threading.Thread(target=self._run, name="flusher", daemon=True)
        self._thread.start()

    @property
    def backlog_bytes(self) -> int:
        """Bytes of sealed segments that are not Parquet yet."""
        with self._lock:
            return sum(self._sizes.values())

    def submit(self, path: Path, size: int) -> None:
        """Queue a sealed segment of so many bytes; may be called from any thread."""
        with self._lock:
            self._sizes[path] = size
        self._segments.put(path)

    def close(self) -> list[Path]:
        """Flush what is queued, once, and stop; returns the segments the disk did not take."""
        self._stop.set()
        self._segments.put(None)
        self._thread.join()
        return self._failed

    def _run(self) -> None:
        while (path := self._segments.get()) is not None:
            is_last = self._stop.is_set()
            if self._is_in_vain():
                self._failed.append(path)
            elif self._flush(path):
                self._done(path)
            elif not self._stop.wait(RETRY_S):
                self._segments.put(path)  # behind the others, which may fare better
            elif not is_last and self._flush(path):  # the disk may be well by now
                self._done(path)
            else:
                self._failed.append(path)

    def _done(self, path: Path) -> None:
        with self._lock:
            del self._sizes[path]

    def _is_in_vain(self) -> bool:
        """Whether we are to end and an object store did not answer: it takes seconds each time."""
        is_remote = not isinstance(self._lake.store, LocalStore)
        return is_remote and self._stop.is_set() and bool(self._failed)

    def _flush(self, path: Path) -> bool:
        """Whether a segment is done with: stored or set aside."""
        started_s = time.monotonic()
        try:
            return self._stored_or_set_aside(path)
        finally:
            self._on_flush(time.monotonic() - started_s)

    def _stored_or_set_aside(self, path: Path) -> bool:
        attempt = Attempt(path)
        try:
            if attempt.deaths >= MAX_DEATHS:
                return self._set_aside(path, f"{attempt.deaths} processes ended while they read it")
            with _EXPANDED:
                flushed = flush_segment(self._lake, path)
            self.stored.update(flushed.counts)
            self.set_aside += flushed.damage is not None
        except MemoryError:
            self._shortages[path] += 1
            if self._shortages[path] >= MAX_SHORTAGES:
                return self._set_aside(path, "there is not enough memory to turn it into Parquet")
            _LOG.error("there is not enough memory for %s; it is tried again", path.name)
            return False
        except OSError as error:
            if not os.path.lexists(path):
                self.taken_away += 1
                _LOG.error("%s was taken away from the log by someone else", path.name)
                return True
            reason = str(error).partition("\n")[0]
            _LOG.error(
                "%s could not be written as Parquet and stays in the log: %s", path.name, reason
            )
            return False
        except Exception:  # noqa: BLE001 - one bad segment must not stop those after it
            _LOG.exception("%s cannot be turned into Parquet", path.name)
            return self._set_aside(path, "it cannot be turned into Parquet")
        finally:
            attempt.survived()
        return True

    def _set_aside(self, path: Path, reason: str) -> bool:
        """Move a segment to the quarantine, where it waits for a person; False when that fails."""
        try:
            quarantine(path, reason, Counter())
        except OSError:
            _LOG.exception("%s could not be moved and stays in the log", path.name)
            return False
        self.set_aside += 1
        return True
