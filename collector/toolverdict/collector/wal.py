"""The write-ahead log: what is acknowledged is on the disk, in groups for the price of one sync.

One thread takes everything that waits, writes it with one ``write``, syncs once, and only then
resolves the futures of the requests. A file that failed to write or sync is never written or
synced again: after a failed fsync the kernel may have dropped the very pages a second fsync would
report as safe. Its durable part goes on to Parquet; the next group tries a new file.

With :attr:`Fsync.INTERVAL` the futures resolve after the write, and the sync follows in time.
"""

import errno
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from toolverdict.collector.durable import sync_file, sync_folder
from toolverdict.collector.errors import OverloadedError, StorageError
from toolverdict.collector.segment import (
    SEAL,
    SegmentId,
    new_segment_id,
    pack_frame,
    pack_header,
    pack_padding,
)
from toolverdict.collector.segment_file import Stage, begin_file
from toolverdict.collector.settings import CollectorSettings, Fsync
from toolverdict.collector.signals import Signal

_LOG = logging.getLogger(__name__)

MAX_GROUP_BYTES: Final = 16 * 1024 * 1024
"""A group ends when it reaches this size, so no single write grows without limit."""

FAILING_S: Final = 10.0
"""Seconds for which a failed write makes the collector not ready."""

UNNAMED_SUFFIX: Final = ".new"
"""Ends the name of a segment whose header is being written; a crash may leave one."""


class _Pending(NamedTuple):
    signal: Signal
    body: bytes
    durable: Future[None]


class _ActiveSegment:
    """The one file that is being written."""

    def __init__(self, folder: Path, segment: SegmentId, stage: Stage | None) -> None:
        self.segment = segment
        self.path = folder / f"{segment.text}.log"
        self.sealed_at_s = 0.0
        self.sync_at_s: float | None = None
        """When what was acknowledged before its sync has to be on the disk."""
        # Named only when its header is on the disk: a segment without one is damaged, not new.
        unnamed = folder / f"{segment.text}{UNNAMED_SUFFIX}"
        header = pack_header(segment.created_unix_nano)
        self._file, self._begin = begin_file(
            unnamed, header, stage, lambda size: pack_padding(segment, size)
        )
        self.durable_bytes = self._begin
        try:
            self.sync()
            unnamed.rename(self.path)
            sync_folder(folder)
        except Exception:
            self.abandon()
            with suppress(OSError):
                unnamed.unlink(missing_ok=True)
            raise

    def append(self, pieces: list[bytes], *, sync: bool) -> None:
        """Write, and make sure that the next start would find it under its name.

        A file that was deleted or moved away takes every byte and keeps none.
        """
        before = self.durable_bytes
        try:
            self.durable_bytes += self._file.write(pieces)
            if sync:
                self.sync()
            if not os.path.samestat(os.fstat(self._file.descriptor), os.stat(self.path)):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path)
        except OSError:
            self.durable_bytes = before
            raise

    @property
    def is_empty(self) -> bool:
        """Whether nothing in it was acknowledged."""
        return self.durable_bytes <= self._begin

    def sync(self) -> None:
        """Wait for the disk."""
        self.sync_at_s = None
        sync_file(self._file.descriptor)

    def seal(self) -> None:
        """Close in order; the seal only helps to tell damage from a torn end, so no sync."""
        try:
            self._file.write(pack_frame(self.segment, SEAL, time.time_ns(), b""))
        except OSError:
            _LOG.warning("%s could not be sealed", self.path.name)
        self._close()

    def abandon(self) -> None:
        """Close after an error and cut off what was not acknowledged, as far as that works."""
        try:
            os.ftruncate(self._file.descriptor, self.durable_bytes)
        except OSError:
            _LOG.warning("%s failed and keeps a torn end", self.path.name)
        self._close()
        if self.is_empty:
            with suppress(OSError):
                self.path.unlink(missing_ok=True)

    def _close(self) -> None:
        # What matters was synced before; an error here cannot be told to anyone.
        with suppress(OSError):
            os.close(self._file.descriptor)


class WriteAheadLog:
    """Appends requests to segments and hands each segment on once it is sealed."""

    def __init__(
        self,
        folder: Path,
        settings: CollectorSettings,
        on_sealed: Callable[[Path, int], None],
        check_folder: Callable[[], None],
        observe_sync: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Start the writer thread.

        Args:
            folder: an existing folder for the segments.
            settings: limits and the flush interval.
            on_sealed: called in the writer's thread with path and size of each segment that will not
                grow any more.
            check_folder: called before each new segment; raises StorageError when the folder is
                no longer the one that this process has locked.
            observe_sync: called in the writer's thread with the seconds that a group took.
        """
        self._observe_sync = observe_sync
        self._check_folder = check_folder
        self._folder = folder
        self._settings = settings
        self._stage = Stage() if settings.fsync is Fsync.ALWAYS else None
        self._on_sealed = on_sealed
        self._pending: deque[_Pending] = deque()
        self._pending_bytes = 0
        self._changed = threading.Condition()
        self._closing = False
        self._active: _ActiveSegment | None = None
        self._last_created_unix_nano = 0
        self._failed_at_s: float | None = None
        self._thread = threading.Thread(target=self._run, name="wal-writer", daemon=True)
        self._thread.start()

    @property
    def is_failing(self) -> bool:
        """Whether a group could not be stored just now.

        It ends by itself after a while: a collector that is not ready gets no requests, and without
        a request it would never learn that the disk is well again.
        """
        try:
            self._check_folder()
        except StorageError:
            return True
        failed_at_s = self._failed_at_s
        return failed_at_s is not None and time.monotonic() - failed_at_s < FAILING_S

    def append(self, signal: Signal, body: bytes) -> Future[None]:
        """Queue a request; the future resolves once it is on the disk.

        The future fails with StorageError when it could not be stored.

        Raises:
            OverloadedError: when too many bytes wait to be written.
            StorageError: when the log is closed.
        """
        durable: Future[None] = Future()
        with self._changed:
            if self._closing:
                raise StorageError("the collector is stopping; send the request again later")
            if self._pending_bytes + len(body) > self._settings.max_inflight_bytes:
                raise OverloadedError("too many bytes wait for the disk; send the request later")
            self._pending.append(_Pending(signal, body, durable))
            self._pending_bytes += len(body)
            self._changed.notify()
        return durable

    def close(self) -> None:
        """Write what waits, seal the last segment and stop."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            group, closing = self._next_group()
            if group:
                self._commit(group)
            self._sync_in_time(closing)
            if self._active is not None and (closing or self._is_full(self._active)):
                self._seal(self._active)
            if closing and not group:
                return

    def _next_group(self) -> tuple[list[_Pending], bool]:
        """Wait for requests, for the flush interval to end, or for the close.

        ``closing`` is only reported once nothing waits any more.
        """
        with self._changed:
            while not self._pending and not self._closing:
                wait_s = None
                if self._active is not None:
                    due_s = min(self._active.sealed_at_s, self._active.sync_at_s or math.inf)
                    wait_s = due_s - time.monotonic()
                    if wait_s <= 0:
                        return [], False
                self._changed.wait(wait_s)
            group: list[_Pending] = []
            size = 0
            while self._pending and size < MAX_GROUP_BYTES:
                item = self._pending.popleft()
                size += len(item.body)
                group.append(item)
            return group, self._closing and not group

    def _commit(self, group: list[_Pending]) -> None:
        try:
            self._write(group)
        except Exception as error:  # noqa: BLE001 - every request that waits gets an answer
            if self._failed_at_s is None:  # once, not for every group
                _LOG.exception("the log cannot be written; nothing is acknowledged meanwhile")
            self._failed_at_s = time.monotonic()
            self._finish(
                group,
                f"the collector cannot write its log ({_reason_of(error)}); send the request again "
                "later",
            )
        else:
            if self._failed_at_s is not None:
                _LOG.warning("the log is written again")
            self._failed_at_s = None
            self._finish(group, None)

    def _write(self, group: list[_Pending]) -> None:
        if self._active is None:
            self._check_folder()
            segment = new_segment_id(self._last_created_unix_nano)
            self._last_created_unix_nano = segment.created_unix_nano
            self._active = _ActiveSegment(self._folder, segment, self._stage)
            self._active.sealed_at_s = time.monotonic() + self._settings.flush_interval_s
        active = self._active
        pieces: list[bytes] = []
        for item in group:
            pieces += pack_frame(active.segment, item.signal, time.time_ns(), item.body)
        started_s = time.monotonic()
        try:
            active.append(pieces, sync=self._settings.fsync is Fsync.ALWAYS)
        except Exception:
            self._give_up(active)
            raise
        self._observe_sync(time.monotonic() - started_s)
        if self._settings.fsync is Fsync.INTERVAL and active.sync_at_s is None:
            active.sync_at_s = started_s + self._settings.fsync_interval_s

    def _sync_in_time(self, closing: bool) -> None:
        """Bring to the disk what was acknowledged some time ago, and what is sealed now."""
        active = self._active
        if active is None or active.sync_at_s is None:
            return
        if not (closing or self._is_full(active) or time.monotonic() >= active.sync_at_s):
            return
        try:
            active.sync()
        except OSError as error:
            # Too late to refuse: the end of the power may now cost more than the interval.
            self._failed_at_s = time.monotonic()
            _LOG.error(
                "%s was acknowledged but could not be synced (%s)",
                active.path.name,
                error.strerror,
            )
            self._give_up(active)

    def _give_up(self, active: _ActiveSegment) -> None:
        """Never write to a file again that failed; what it holds goes on to Parquet."""
        self._active = None
        active.abandon()
        if not active.is_empty:
            self._on_sealed(active.path, active.durable_bytes)

    def _finish(self, group: list[_Pending], failure: str | None) -> None:
        with self._changed:
            self._pending_bytes -= sum(len(item.body) for item in group)
        for item in group:
            if not item.durable.set_running_or_notify_cancel():
                continue  # the client went away; the request is stored all the same
            if failure is None:
                item.durable.set_result(None)
            else:
                item.durable.set_exception(StorageError(failure))

    def _is_full(self, active: _ActiveSegment) -> bool:
        return (
            active.durable_bytes >= self._settings.max_segment_bytes
            or time.monotonic() >= active.sealed_at_s
        )

    def _seal(self, active: _ActiveSegment) -> None:
        self._active = None
        active.seal()
        self._on_sealed(active.path, active.durable_bytes)


def _reason_of(error: Exception) -> str | None:
    """Why the log was not written, without a path that clients have no business with."""
    if isinstance(error, StorageError):
        return "its folder was replaced"
    return error.strerror if isinstance(error, OSError) else type(error).__name__
