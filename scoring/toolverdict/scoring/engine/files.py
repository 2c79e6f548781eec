"""What units leave behind, under ``OUT/.units``: files that are there whole or not at all.

A file's name holds the digest of all that it depends on, so a file that is there need not be made
again, and one that is made twice at once is the same. The account of a unit is written last and
says how long the others are: nothing is synced to the disk, and what a power cut took is made again.
"""

import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from toolverdict.collector.durable import replace_durably

TABLES: Final = ("calls", "findings", "verdicts")
LATE: Final = "late"
ACROSS: Final = "across"
ACCOUNTS: Final = "accounts"
INDEX: Final = "index"
_KINDS: Final = (
    *TABLES,
    *(f"{stage}-{signal}" for stage in (LATE, ACROSS) for signal in ("spans", "logs")),
    ACCOUNTS,
    INDEX,
)
_ROWS_AT_ONCE: Final = 65_536
"""Rows that are gathered before they are written as a row group."""


class UnitFiles:
    """The folder ``.units`` of an ``OUT``."""

    def __init__(self, out: Path) -> None:
        self.root: Final = out / ".units"

    def make(self) -> None:
        """Make the folders, and remove what a crash left half written."""
        for kind in _KINDS:
            folder = self.root / kind
            folder.mkdir(parents=True, exist_ok=True)
            for path in folder.glob(".*.tmp"):
                path.unlink(missing_ok=True)

    def folder(self, kind: str) -> Path:
        """Where files of a kind are."""
        return self.root / kind

    def path(self, kind: str, file: str) -> Path:
        """Where one is; ``file`` has no suffix."""
        return self.root / kind / f"{file}{'.account' if kind == ACCOUNTS else '.parquet'}"

    def sizes(self, file: str) -> dict[str, int]:
        """Bytes of each file of a unit but its account, by kind."""
        paths = {kind: self.path(kind, file) for kind in _KINDS[:-2]}
        return {kind: path.stat().st_size for kind, path in paths.items() if path.exists()}

    def remove_all_but(self, files: frozenset[str]) -> None:
        """Delete what other units than these left; what is not ours stays."""
        for kind in _KINDS[:-1]:
            for path in self.folder(kind).glob("unit-*"):
                if path.stem not in files:
                    path.unlink(missing_ok=True)


class TableFile:
    """Tables of one schema on their way to a Parquet file; a file without rows is one, too."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.rows = 0
        self._path = path
        self._temporary = _temporary(path)
        self._schema = schema
        self._gathered: list[pa.Table] = []
        self._waiting = 0
        self._writer = pq.ParquetWriter(os.fspath(self._temporary), schema, compression="zstd")

    def add(self, table: pa.Table) -> None:
        """Add rows."""
        self.rows += table.num_rows
        self._waiting += table.num_rows
        self._gathered.append(table)
        if self._waiting >= _ROWS_AT_ONCE:
            self._flush()

    def finish(self) -> None:
        """Give the file its name."""
        self._flush()
        self._writer.close()
        self._temporary.replace(self._path)

    def abandon(self) -> None:
        """Remove it, if it has no name yet."""
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._temporary.unlink(missing_ok=True)

    def _flush(self) -> None:
        if self._waiting:
            whole = pa.concat_tables(self._gathered).unify_dictionaries().combine_chunks()
            self._writer.write_table(whole, row_group_size=max(1, whole.num_rows))
        self._gathered, self._waiting = [], 0


def write_whole(path: Path, fill: Callable[[IO[bytes]], object], durably: bool = False) -> None:
    """Make or replace a file; readers see the old one until the new one is whole."""
    temporary = _temporary(path)
    try:
        with temporary.open("wb") as sink:
            fill(sink)
        if durably:
            replace_durably(temporary, path)
        else:
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _temporary(path: Path) -> Path:
    """A name of nobody else's: two machines may be making the same file."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
