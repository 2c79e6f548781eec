"""Writes ``OUT``: Parquet per kind and ``summary.json``, all of a run or nothing of it.

A run writes beside the final names and swaps them in at its end, so that a reader sees the last
finished run and never half of one. Files that are not ours are left alone.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
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
_PREFIX = "unit-"


class ResultWriter:
    """A run's results on their way to ``out``; leave the ``with`` block early and nothing changes.

    Raises:
        InputError: ``out`` cannot be written, or holds something that is not an earlier run's;
            also from :meth:`write` and :meth:`finish`. The message says what.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        with _writing(out):
            out.mkdir(parents=True, exist_ok=True)
            _refuse_foreign(out)
            self._draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=out))
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
        with _writing(self._out):
            for kind in KINDS:
                table: pa.Table = getattr(result, kind)
                path = self._draft / kind / f"{_PREFIX}{name}.parquet"
                pq.write_table(table, path, compression="zstd")

    def finish(self, summary: Summary) -> None:
        """Writes the summary and swaps this run's results in, the summary last."""
        text = orjson.dumps(summary.document, option=orjson.OPT_INDENT_2)
        with _writing(self._out):
            (self._draft / SUMMARY).write_bytes(text + b"\n")
            for kind in KINDS:
                final = self._out / kind
                if final.exists():
                    os.replace(final, self._draft / f"{kind}.old")
                os.replace(self._draft / kind, final)
            os.replace(self._draft / SUMMARY, self._out / SUMMARY)


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(
            f"{out}: results cannot be written there: {reason}; make room or name another --out"
        ) from error


def _refuse_foreign(out: Path) -> None:
    """What stands under our names must be an earlier run's: it will be replaced."""
    if (out / "lake.json").exists():
        raise InputError(f"{out}: is a lake; name another --out for the results")
    for kind in KINDS:
        folder = out / kind
        foreign = [folder] if folder.exists() and not folder.is_dir() else []
        if folder.is_dir():
            foreign = [p for p in folder.iterdir() if not p.name.startswith(_PREFIX)]
        if foreign:
            raise InputError(f"{foreign[0]}: is not an earlier run's; name another --out")
    if (out / SUMMARY).is_dir():
        raise InputError(f"{out / SUMMARY}: is a folder; name another --out")
