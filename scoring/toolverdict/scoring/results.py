"""Writes ``OUT``: Parquet per kind and ``summary.json``, all of a run or nothing of it.

A run writes beside the final names and swaps them in at its end, so that a reader sees the last
finished run and never half of one. Files that are not ours are left alone.
"""

import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from toolverdict.scoring.errors import InputError
from toolverdict.scoring.summary import Summary
from toolverdict.scoring.unit import UnitResult

KINDS = ("calls", "findings", "verdicts")
SUMMARY = "summary.json"


class ResultWriter:
    """A run's results on their way to ``out``; leave the ``with`` block early and nothing changes.

    Raises:
        InputError: ``out`` cannot be made or written; the message says why.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        try:
            out.mkdir(parents=True, exist_ok=True)
            self._draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=out))
        except OSError as error:
            raise InputError(
                f"{out}: results cannot be written there: {error.strerror}; name another --out"
            ) from error
        for kind in KINDS:
            (self._draft / kind).mkdir()

    def __enter__(self) -> "ResultWriter":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Removes the draft, whatever is left in it."""
        shutil.rmtree(self._draft, ignore_errors=True)

    def write(self, name: str, result: UnitResult) -> None:
        """Writes the rows of one unit; ``name`` is the unit's and makes the file names."""
        for kind in KINDS:
            table: pa.Table = getattr(result, kind)
            pq.write_table(table, self._draft / kind / f"{name}.parquet", compression="zstd")

    def finish(self, summary: Summary) -> None:
        """Writes the summary and swaps this run's results in."""
        text = orjson.dumps(summary.document, option=orjson.OPT_INDENT_2)
        (self._draft / SUMMARY).write_bytes(text + b"\n")
        for kind in KINDS:
            final = self._out / kind
            if final.exists():
                os.replace(final, self._draft / f"{kind}.old")
            os.replace(self._draft / kind, final)
        os.replace(self._draft / SUMMARY, self._out / SUMMARY)
