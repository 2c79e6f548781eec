"""Where the bytes of a lake are: a folder, or a bucket of an object store.

A file is there whole or not at all: a folder gives it its name when it is synced, an object store
shows an object when its upload is complete.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from toolverdict.collector.durable import make_folder, replace_durably, sync_folder
from toolverdict.collector.errors import LakeError
from toolverdict.collector.lake.layout import is_bucket_folder, temporary_name

_UPKEEP_LOCK: Final = ".upkeep.lock"
_SCRATCH: Final = ".scratch"
_DELETED: Final = ".deleted-"


class Entry(NamedTuple):
    """One file below a lake."""

    name: str
    """The path below the lake, with ``/``."""
    size: int
    """Bytes."""


class Store(Protocol):
    """What a lake needs of the place it is in. Every operation may raise OSError."""

    @property
    def location(self) -> str:
        """The folder or URL, for messages."""

    @property
    def scratch(self) -> Path | None:
        """Where files of hundreds of megabytes may lie during upkeep; None for the system's place."""

    def list(self, folder: str, bucket: str | None = None) -> list[Entry]:
        """Files below a folder, sorted by name; none when there is no such folder.

        Args:
            folder: below the lake.
            bucket: the name of a bucket's folder, to leave out those of the others.
        """

    def read(self, name: str) -> bytes:
        """The content of a small file."""

    def open(self, name: str) -> pa.NativeFile:
        """A file for reading anywhere in it."""

    def write(self, name: str, fill: Callable[[pa.NativeFile], object]) -> None:
        """Make or replace a file durably; readers see the old one until the new one is whole."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete files durably; those that are gone already are no error."""

    def delete_folder(self, folder: str) -> None:
        """Delete a folder of parts with all below it, for readers at once where that can be."""

    def upkeep(self) -> AbstractContextManager[None]:
        """A context in which nobody else compacts or deletes in this lake.

        Raises:
            LakeError: when somebody does.
        """


class LocalStore:
    """A lake in a folder."""

    def __init__(self, root: Path) -> None:
        """Use an existing folder."""
        self.root: Final = root

    @property
    def location(self) -> str:
        """The folder."""
        return str(self.root)

    @property
    def scratch(self) -> Path:
        """A folder on the disk of the lake: the system's own may be in memory."""
        return self.root / _SCRATCH

    def list(self, folder: str, bucket: str | None = None) -> list[Entry]:
        """Files below a folder, sorted by name; none when there is no such folder."""
        entries = []
        for path, folders, files in os.walk(self.root / folder, onerror=_unless_gone):
            if bucket is not None:
                folders[:] = [
                    name for name in folders if name == bucket or not is_bucket_folder(name)
                ]
            below = Path(path).relative_to(self.root).as_posix()
            for file in files:
                with suppress(FileNotFoundError):
                    size = os.stat(os.path.join(path, file)).st_size
                    entries.append(Entry(f"{below}/{file}", size))
        return sorted(entries)

    def read(self, name: str) -> bytes:
        """The content of a small file."""
        return (self.root / name).read_bytes()

    def open(self, name: str) -> pa.NativeFile:
        """A file for reading anywhere in it."""
        # As bytes: a folder's name need not be UTF-8. Arrow's own file, as it frees the GIL.
        return pa.OSFile(os.fsencode(self.root / name), "rb")  # type: ignore[arg-type]

    def write(self, name: str, fill: Callable[[pa.NativeFile], object]) -> None:
        """Make or replace a file, whole or not at all."""
        final = self.root / name
        temporary = final.with_name(temporary_name(final.name))
        make_folder(final.parent, self.root)
        try:
            with pa.OSFile(os.fsencode(temporary), "wb") as sink:  # type: ignore[arg-type]
                fill(sink)
            replace_durably(temporary, final)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise

    def delete(self, names: Iterable[str]) -> None:
        """Delete files; those that are gone already are no error."""
        folders = set()
        for name in names:
            path = self.root / name
            path.unlink(missing_ok=True)
            folders.add(path.parent)
        for folder in folders:
            with suppress(FileNotFoundError):
                sync_folder(folder)

    def delete_folder(self, folder: str) -> None:
        """Delete a folder of parts with all below it, for readers at once."""
        path = self.root / folder
        # A name with a dot, at once, takes all of it from readers, whatever happens after.
        doomed = path.with_name(_DELETED + path.name)
        shutil.rmtree(doomed, ignore_errors=True)
        with suppress(FileNotFoundError):
            path.rename(doomed)
            sync_folder(path.parent)
        shutil.rmtree(doomed, ignore_errors=True)
        with suppress(OSError):  # the day goes with its last hour
            path.parent.rmdir()

    @contextmanager
    def upkeep(self) -> Iterator[None]:
        """Lock the lake; the kernel ends the lock with the process, however that ends."""
        descriptor = os.open(self.root / _UPKEEP_LOCK, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise busy(self.location) from error
            for doomed in (self.scratch, *self.root.glob(f"*/date=*/{_DELETED}*")):
                shutil.rmtree(doomed, ignore_errors=True)  # left by a crash
            self.scratch.mkdir()
            try:
                yield
            finally:
                shutil.rmtree(self.scratch, ignore_errors=True)
        finally:
            os.close(descriptor)


def busy(location: str) -> LakeError:
    """The one sentence about a lake that is being compacted or cleared already."""
    return LakeError(f"another compaction or retention is at work on {location}; wait for it")


def _unless_gone(error: OSError) -> None:
    if error.errno not in (errno.ENOENT, errno.ENOTDIR):
        raise error
