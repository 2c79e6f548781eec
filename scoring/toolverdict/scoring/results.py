"""Puts the results of units into ``OUT``: Parquet per kind and ``summary.json``, all or nothing.

What units wrote is linked beside the final names and swapped in at the end, so that a reader sees
the last finished run and never half of one. Files that are not ours are left alone.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import orjson

from toolverdict.scoring.engine.files import TABLES, UnitFiles
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.summary import Summary

KINDS = TABLES
SUMMARY = "summary.json"
_PREFIX = "unit-"
_DRAFT = ".draft-"
_LOCK = ".lock"


@contextmanager
def opened(out: Path) -> Iterator[UnitFiles]:
    """Make ``out``, for one run at a time.

    Raises:
        InputError: ``out`` cannot be written, holds something that is not an earlier run's, or
            another run is at work on it; the message says what.
    """
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
        _refuse_foreign(out)
        descriptor = os.open(out / _LOCK, os.O_RDWR | os.O_CREAT, 0o640)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InputError(
                    f"{out}: another `toolverdict score` is at work on it; wait for it, or name "
                    "another --out"
                ) from error
            for left in out.glob(f"{_DRAFT}*"):
                shutil.rmtree(left, ignore_errors=True)
            files = UnitFiles(out)
            files.make()
            yield files
        finally:
            os.close(descriptor)


def put_in_place(out: Path, files: UnitFiles, units: Sequence[str], summary: Summary) -> None:
    """Make the results those of these units; nothing is touched where they are already.

    Args:
        out: the folder of the results.
        files: what units wrote.
        units: the names of their files.
        summary: written last.
    """
    text = orjson.dumps(summary.document, option=orjson.OPT_INDENT_2) + b"\n"
    if _is_in_place(out, units, text):
        return
    draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=out))
    try:
        for kind in KINDS:
            (draft / kind).mkdir()
            for unit in units:
                path = files.path(kind, unit)
                _link(path, draft / kind / path.name)
        (draft / SUMMARY).write_bytes(text)
        for kind in KINDS:
            if (out / kind).exists():
                os.replace(out / kind, draft / f"{kind}.old")
            os.replace(draft / kind, out / kind)
        os.replace(draft / SUMMARY, out / SUMMARY)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _is_in_place(out: Path, units: Sequence[str], summary: bytes) -> bool:
    wanted = {f"{unit}.parquet" for unit in units}
    try:
        there = all({path.name for path in (out / kind).iterdir()} == wanted for kind in KINDS)
        return there and (out / SUMMARY).read_bytes() == summary
    except OSError:
        return False


def _link(source: Path, target: Path) -> None:
    """The same file under another name; a copy where the file system knows no such thing."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


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
