"""The data folder as this collector's own: locked, and still the folder that was locked."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from toolverdict.collector.durable import sync_folder
from toolverdict.collector.errors import ConfigError, StorageError

_LOCK_FILE: Final = "LOCK"


class Claim:
    """A data folder and a log folder in it, which nobody else may use."""

    def __init__(self, folder: Path, wal_folder: Path, locked: dict[Path, int]) -> None:
        """Remember which folders and which lock files these are; use :func:`claim`."""
        self.wal_folder: Final = wal_folder
        self._folder = folder
        self._locked = locked
        paths = {folder, folder / "wal", wal_folder, *locked}
        self._identities = {path: _identity(path) for path in paths}

    def check(self) -> None:
        """Make sure that the names still lead to what was locked.

        Raises:
            StorageError: when a folder or the lock was deleted or replaced, so that another
                collector may be at work there, or nobody would ever find what is written.
        """
        for path, identity in self._identities.items():
            if _identity(path) != identity:
                raise StorageError(
                    f"{path} was deleted or replaced while the collector ran; start it again"
                )

    def share(self) -> None:
        """Let workers of ours in, and still nobody else.

        Raises:
            ConfigError: when another collector took the moment between two locks.
        """
        for descriptor in self._locked.values():
            _lock(descriptor, self._folder, fcntl.LOCK_SH)


@contextmanager
def claim(folder: Path, worker: int | None = None) -> Iterator[Claim]:
    """Make and lock a data folder; the kernel ends the lock with the process, however that ends.

    The folder itself is locked beside a file in it: a deleted file would lock nobody out. A worker
    shares both with its siblings and has ``wal/worker-N`` for itself.

    Raises:
        ConfigError: when another collector has it, or it cannot be written.
    """
    wal_folder = folder / "wal" if worker is None else folder / "wal" / f"worker-{worker}"
    kind = fcntl.LOCK_EX if worker is None else fcntl.LOCK_SH
    wanted = {folder: kind, folder / "wal" / _LOCK_FILE: kind}
    if worker is not None:
        wanted[wal_folder / _LOCK_FILE] = fcntl.LOCK_EX
    with ExitStack() as held:
        try:
            wal_folder.mkdir(parents=True, exist_ok=True)
            # The log is only as durable as the names of the folders it is in.
            sync_folder(folder)
            sync_folder(folder / "wal")
            with suppress(PermissionError):
                sync_folder(folder.absolute().parent)
            locked: dict[Path, int] = {}
            for path, lock in wanted.items():
                flags = os.O_RDONLY | os.O_DIRECTORY if path == folder else os.O_RDWR | os.O_CREAT
                locked[path] = os.open(path, flags, 0o640)
                held.callback(os.close, locked[path])
                _lock(locked[path], folder, lock)
            claimed = Claim(folder, wal_folder, locked)
        except OSError as error:
            raise cannot_write(folder, error) from error
        yield claimed


def cannot_write(folder: Path, error: OSError) -> ConfigError:
    """The one sentence about a folder that the disk or its rights refuse."""
    return ConfigError(
        f"cannot write to {folder} ({error.strerror}); give --data a folder this user can write"
    )


def _lock(descriptor: int, folder: Path, kind: int) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(
            f"another collector uses {folder}; stop it, or give --data another folder"
        ) from error


def _identity(path: Path) -> tuple[int, int] | None:
    """What a name leads to, None for nothing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
