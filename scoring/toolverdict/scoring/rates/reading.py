"""Aggregates of an ``OUT``, counted file by file: the memory that takes is that of one file."""

from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from toolverdict.scoring import tables
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.rates.aggregate import (
    CALL_COLUMNS,
    HOUR,
    VERDICT_COLUMNS,
    Aggregates,
    total,
)

_VERSION_KEY: Final = b"toolverdict.results.version"


def read_aggregates(out: Path, bucket_s: int = HOUR) -> Aggregates:
    """The aggregates of what ``toolverdict score`` left in ``out``.

    Raises:
        InputError: it is missing or damaged, or of another version than this one writes.
    """
    calls, verdicts = files_of(out, "calls"), files_of(out, "verdicts")
    parts = [
        Aggregates.of(
            _read(calls.get(name), tables.CALLS, CALL_COLUMNS),
            _read(verdicts.get(name), tables.VERDICTS, VERDICT_COLUMNS),
            bucket_s,
        )
        for name in sorted(calls.keys() | verdicts.keys())
    ]
    return total(parts or [Aggregates.nothing(bucket_s)])


def files_of(out: Path, kind: str) -> dict[str, Path]:
    """The files of a kind (``calls``) by name; one unit's have the same name in each.

    Raises:
        InputError: there are none.
    """
    folder = out / kind
    if not folder.is_dir():
        raise InputError(
            f"{out}: holds no results: {kind}/ is missing; "
            "write them with: toolverdict score LAKE --out OUT"
        )
    return {str(path.relative_to(folder)): path for path in folder.rglob("*.parquet")}


def _read(path: Path | None, schema: pa.Schema, columns: tuple[str, ...]) -> pa.Table:
    if path is None:
        return schema.empty_table()
    try:
        with pq.ParquetFile(path) as file:
            there = file.schema_arrow
            version = (there.metadata or {}).get(_VERSION_KEY, b"")
            missing = [name for name in columns if name not in there.names]
            if not missing and version == str(tables.VERSION).encode():
                return file.read(columns=list(columns))
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet; score again") from error
    why = f"the column {missing[0]} is missing" if missing else "it is of another version"
    raise InputError(f"{path}: {why}; score again")
