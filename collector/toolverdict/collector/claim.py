"""The data folder as this process's own: locked, and still the folder that was locked."""

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
    """A data folder and its log folder, held by this process alone."""

    def __init__(self, folder: Path) -> None:
        """Remember which folders and which lock file these are; use :func:`claim`."""
        self.wal_folder: Final = folder / "wal"
        self._paths = (folder, self.wal_folder, self.wal_folder / _LOCK_FILE)
        self._identities = [_identity(path) for path in self._paths]

    def check(self) -> None:
        """Make sure that the names still lead to what was locked.

        Raises:
            StorageError: when a folder or the lock was deleted or replaced, so that another
                collector may be at work there, or nobody would ever find what is written.
        """
        for path, identity in zip(self._paths, self._identities, strict=True):
            if _identity(path) != identity:
                raise StorageError(
                    f"{path} was deleted or replaced while the collector ran; start it again"
                )


@contextmanager
def claim(folder: Path) -> Iterator[Claim]:
    """Make and lock a data folder; the kernel ends the lock with the process, however that ends.

    The folder itself is locked beside a file in it: a deleted file would lock nobody out.

    Raises:
        ConfigError: when another collector has it, or it cannot be written.
    """
    wal_folder = folder / "wal"
    with ExitStack() as held:
        try:
            wal_folder.mkdir(parents=True, exist_ok=True)
            # The log is only as durable as the names of the folders it is in.
            sync_folder(folder)
            with suppress(PermissionError):
                sync_folder(folder.absolute().parent)
            for path, flags in (
                (folder, os.O_RDONLY | os.O_DIRECTORY),
                (wal_folder / _LOCK_FILE, os.O_RDWR | os.O_CREAT),
            ):
                descriptor = os.open(path, flags, 0o640)
                held.callback(os.close, descriptor)
                _lock(descriptor, folder)
            claimed = Claim(folder)
        except OSError as error:
            raise cannot_write(folder, error) from error
        yield claimed


def cannot_write(folder: Path, error: OSError) -> ConfigError:
    """The one sentence about a folder that the disk or its rights refuse."""
    return ConfigError(
        f"cannot write to {folder} ({error.strerror}); give --data a folder this user can write"
    )


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
