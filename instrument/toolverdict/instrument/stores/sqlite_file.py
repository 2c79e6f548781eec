"""One SQLite file that several processes and threads write: open, transact, fail in one way.

Approvals, idempotency keys and audit records may share a file; each has its table, and a version of
it in ``toolverdict_schema``. An older version is brought up to date, a newer one refused.

A file is used only while it is the one that was opened: one that was deleted or replaced under a
process takes nothing more, since nobody else would ever read it.
"""

import asyncio
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TypeVar

from toolverdict.instrument import guard
from toolverdict.instrument.errors import StoreError
from toolverdict.instrument.stores import postponing

BUSY_S: Final = 5.0
"""How long a writer waits for another one."""

_POLL_S: Final = 0.01
_OTHERS: Final = stat.S_IRWXO

_VERSIONS: Final = (
    "CREATE TABLE IF NOT EXISTS toolverdict_schema"
    " (part TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT"
)

T = TypeVar("T")


class Busy(StoreError):
    """Somebody else is writing the file."""


class _Manner(threading.local):
    patience_s = BUSY_S


_manner = _Manner()


class _Mine(threading.local):
    turn: object = None
    """The turn of this thread, which may be over and may not have left yet."""


class _Handle:
    """A connection, the process that may use it, and the file that it is to."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.pid = os.getpid()
        # A thread takes it once; it is one that knows by whom it was taken.
        self.lock = threading.RLock()
        self.connection = connection
        self.mine = _Mine()
        self.patience_s = BUSY_S
        self.file = _identity(path)

    def enter(self, turn: object, patience_s: float) -> bool:
        """Take the connection for a turn; whether nobody else had it for too long."""
        if self.lock._is_owned():  # type: ignore[attr-defined]
            # A turn of this thread was interrupted before it could leave, and is over.
            self._release()
        self.mine.turn = turn
        if not self.lock.acquire(timeout=patience_s):
            return False
        # What an interruption left open would lock the file for everybody.
        _roll_back(self.connection)
        return True

    def leave(self, turn: object) -> None:
        """Leave no transaction and no lock of a turn behind; does nothing the second time."""
        if self.mine.turn is turn and self.lock._is_owned():  # type: ignore[attr-defined]
            self._release()

    def _release(self) -> None:
        try:
            _roll_back(self.connection)
        finally:
            while self.lock._is_owned():  # type: ignore[attr-defined]
                self.lock.release()


class SqliteFile:
    """A file, opened; one connection per process, and one thread in it at a time.

    Args:
        path: The file; made, readable by its owner only, if it is not there.
        part: Names the table of ours that is used.
        schema: The statements that made version 1 of it, 2, and so on.
        create: Whether a file or table that is not there is made.

    Raises:
        StoreError: It cannot be opened, or a newer toolverdict has written it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        part: str,
        schema: Sequence[Sequence[str]],
        *,
        create: bool = True,
    ) -> None:
        self.path = Path(path).absolute()  # the working directory may change
        self._part = part
        self._schema = schema
        self._create = create
        self._inherited: list[_Handle] = []
        self._closed = False
        self._mine = _Handle(self._open(), self.path)

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction that excludes other writers from its first statement on.

        Args:
            durable: Whether it must be on the disk before it counts; without, it survives the end
                of the process, but perhaps not that of the machine.

        Raises:
            StoreError: The file cannot be used; nothing was changed. ``Busy`` if that is because
                of somebody else who uses it.
        """
        with self._transaction("BEGIN IMMEDIATE", durable=durable) as connection:
            yield connection
            connection.execute("COMMIT")

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view.

        Raises:
            StoreError: The file cannot be used.
        """
        with self._transaction("BEGIN", durable=False) as connection:
            yield connection

    @contextmanager
    def _transaction(self, begin: str, *, durable: bool) -> Iterator[sqlite3.Connection]:
        if postponing.is_busy():
            raise StoreError(f"{self.path}: this thread is in the middle of a transaction")
        with postponing.busy():
            handle, turn, patience_s = self._handle(), object(), _manner.patience_s
            connection = handle.connection
            try:
                if not handle.enter(turn, patience_s):
                    raise Busy(f"{self.path}: another thread uses it")
                self._check(handle)
                if handle.patience_s != patience_s:
                    connection.execute(f"PRAGMA busy_timeout={int(patience_s * 1000)}")
                    handle.patience_s = patience_s
                connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
                connection.execute(begin)
                yield connection
            except sqlite3.Error as error:
                raise self._error(error) from error
            finally:
                try:
                    handle.leave(turn)
                finally:
                    handle.leave(turn)  # a signal may have come before the first had begun

    def _check(self, handle: _Handle) -> None:
        if handle.file is None or _identity(self.path) != handle.file:
            # For good: what came in its place may have taken away the log that goes with it.
            handle.file = None
            raise StoreError(
                f"{self.path}: it was deleted or replaced while it was open; what is in it now is"
                " not what this process knows: look into it, then start the process anew"
            )

    def close(self) -> None:
        """Close it for good."""
        self._closed = True
        if self._mine.pid == os.getpid():
            with self._mine.lock:
                self._mine.connection.close()

    def _handle(self) -> _Handle:
        if self._closed:
            raise StoreError(f"{self.path}: it has been closed")
        mine = self._mine
        if mine.pid != os.getpid():
            # A forked process must neither use nor close the connection of its parent.
            self._inherited.append(mine)
            mine = self._mine = _Handle(self._open(), self.path)
        return mine

    def _open(self) -> sqlite3.Connection:
        with self._explained():
            if self._create:
                self._make()
            elif not self.path.is_file():
                problem = "it is no file" if self.path.exists() else "there is no such file"
                raise StoreError(f"{self.path}: {problem}")
            connection = sqlite3.connect(
                self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            try:
                connection.row_factory = sqlite3.Row
                # Somebody else's row may hold anything, and must not hide all the others.
                connection.text_factory = _text
                if self._create:
                    _patiently(lambda: self._to_wal(connection))
                self._migrate(connection)
            except BaseException:
                connection.close()
                raise
            return connection

    def _make(self) -> None:
        """Make the file if it is not there; SQLite gives its side files the mode of this one."""
        if self.path.is_symlink():
            raise StoreError(f"{self.path}: it is a symbolic link; give the file itself")
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(self.path, flags, 0o600)
        try:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if os.name == "posix" and mode & _OTHERS:
                self._tighten(descriptor, mode)
        finally:
            os.close(descriptor)

    def _tighten(self, descriptor: int, mode: int) -> None:
        try:
            os.fchmod(descriptor, mode & ~_OTHERS)
        except OSError:
            if mode & stat.S_IWOTH:
                raise StoreError(
                    f"{self.path}: everybody may write it, and this process cannot change that;"
                    f" let its owner run: chmod o= {self.path}"
                ) from None
            return
        guard.note("store", "%s was open to everybody, and is no longer", self.path)

    def _to_wal(self, connection: sqlite3.Connection) -> None:
        mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
        if mode != "wal":
            raise StoreError(f"{self.path}: the file system cannot keep a write-ahead log")

    def _migrate(self, connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN IMMEDIATE" if self._create else "BEGIN")
        try:
            if self._create:
                connection.execute(_VERSIONS)
            version = self._version(connection)
            if version > len(self._schema):
                raise StoreError(
                    f"{self.path}: its {self._part} table has version {version} and this toolverdict"
                    f" knows {len(self._schema)}; use a newer toolverdict"
                )
            if version == 0 and not self._create:
                raise StoreError(f"{self.path}: it holds no {self._part} table")
            if version < len(self._schema):
                for statements in self._schema[version:]:
                    for statement in statements:
                        connection.execute(statement)
                connection.execute(
                    "INSERT OR REPLACE INTO toolverdict_schema VALUES (?, ?)",
                    (self._part, len(self._schema)),
                )
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _version(self, connection: sqlite3.Connection) -> int:
        known = connection.execute(
            "SELECT 1 FROM sqlite_schema WHERE name = 'toolverdict_schema'"
        ).fetchone()
        if known is None:
            return 0
        row = connection.execute(
            "SELECT version FROM toolverdict_schema WHERE part = ?", (self._part,)
        ).fetchone()
        return 0 if row is None else int(row[0])

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._error(error) from error
        except OSError as error:
            raise StoreError(f"{self.path}: {error.strerror or type(error).__name__}") from error

    def _error(self, error: sqlite3.Error) -> StoreError:
        # SQLite's messages name tables and columns, never values.
        code = getattr(error, "sqlite_errorcode", None)
        busy = code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        return (Busy if busy else StoreError)(f"{self.path}: {error}")


async def without_blocking(act: Callable[[], T]) -> T:
    """What is done with a file, while the event loop goes on if somebody else uses it.

    Args:
        act: Does it; done anew, from its begin, as long as the file is in use.

    Raises:
        Busy: It was in use for ``BUSY_S``.
    """
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            return _at_once(act)
        except Busy:
            if time.monotonic() >= deadline:
                raise
        await asyncio.sleep(_POLL_S)


def at_the_end(act: Callable[[], None], failed: Callable[[Exception], None]) -> None:
    """Write something of a call that is over, wherever that was noticed; never raises.

    At once; but in the middle of another transaction of this thread, which garbage collection may
    have interrupted, after that; and where an event loop would have to wait, in another thread.

    Args:
        act: Writes it.
        failed: Is told what that raised.
    """

    def write() -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - the call is over, and nothing may touch it
            failed(error)

    def end() -> None:
        if not _in_event_loop():
            write()
            return
        try:
            _at_once(act)
        except Busy:
            try:
                threading.Thread(target=write, name="toolverdict-store").start()
            except RuntimeError:  # the interpreter is about to end
                write()
        except Exception as error:  # noqa: BLE001 - as above
            failed(error)

    postponing.when_free(end)


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _at_once(act: Callable[[], T]) -> T:
    before = _manner.patience_s
    try:
        _manner.patience_s = 0.0
        return act()
    finally:
        _manner.patience_s = before


def _roll_back(connection: sqlite3.Connection) -> None:
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def _patiently(act: Callable[[], None]) -> None:
    """Changing to a write-ahead log does not wait for others as statements do."""
    deadline = time.monotonic() + BUSY_S
    while True:
        try:
            return act()
        except sqlite3.OperationalError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
