"""One SQLite file that several processes and threads write: open, transact, fail in one way.

Approvals, idempotency keys and audit records may share a file; each has its table, and a version of
it in ``toolverdict_schema``. An older version is read, a newer one refused.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from toolverdict.instrument.errors import StoreError

BUSY_S: Final = 5.0
"""How long a writer waits for another one."""

_VERSIONS: Final = (
    "CREATE TABLE IF NOT EXISTS toolverdict_schema"
    " (part TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT"
)


class _Handle:
    """A connection and the process that may use it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self.connection = connection


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
        self.path = Path(path)
        self._part = part
        self._schema = schema
        self._create = create
        self._inherited: list[_Handle] = []
        self._closed = False
        self._mine = _Handle(self._open())

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """A transaction that excludes other writers from its first statement on.

        Args:
            durable: Whether it must be on the disk before it counts; without, it survives the end
                of the process, but perhaps not that of the machine.

        Raises:
            StoreError: The file cannot be used; nothing was changed.
        """
        handle = self._handle()
        with handle.lock, self._explained():
            connection = handle.connection
            connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """One consistent view.

        Raises:
            StoreError: The file cannot be used.
        """
        handle = self._handle()
        with handle.lock, self._explained():
            handle.connection.execute("BEGIN")
            try:
                yield handle.connection
            finally:
                with suppress(sqlite3.Error):
                    handle.connection.execute("ROLLBACK")

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
            mine = self._mine = _Handle(self._open())
        return mine

    def _open(self) -> sqlite3.Connection:
        with self._explained():
            if self._create:
                # SQLite gives its side files the mode of this one.
                os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            elif not self.path.is_file():
                raise StoreError(f"{self.path}: there is no such file")
            connection = sqlite3.connect(
                self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            try:
                connection.row_factory = sqlite3.Row
                if self._create:
                    _patiently(lambda: self._to_wal(connection))
                self._migrate(connection)
            except BaseException:
                connection.close()
                raise
            return connection

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
            if self._create and version < len(self._schema):
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
        except (sqlite3.Error, OSError) as error:
            # SQLite's messages name tables and columns, never values.
            raise StoreError(f"{self.path}: {error}") from error


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
