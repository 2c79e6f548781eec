"""``OUT/manifest.json``: which run the results are of, and of which units.

Replaced as a whole, last of all that a run writes. What is reused of an earlier run does not depend
on it, but on the digests in the names of files; it tells whose results these are.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from toolverdict.scoring.engine.files import write_whole
from toolverdict.scoring.errors import InputError

NAME: Final = "manifest.json"
_FORMAT: Final = "toolverdict-results"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Manifest:
    """A finished run. ``open_traces`` waited, ``until_ns`` is the time that they were judged by."""

    lake: str
    rules: str
    """Digest of policy, cases, their map and thresholds."""
    code: str
    """Digest of the sources."""
    since: str | None
    until: str | None
    quiet_since_ns: int | None
    open_traces: int
    units: tuple[str, ...]
    """The files of each kind, without their suffix."""

    def write(self, out: Path) -> None:
        """Put it in place."""
        document = {"format": _FORMAT, "version": _VERSION, **asdict(self)}
        text = orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"
        write_whole(out / NAME, lambda sink: sink.write(text), durably=True)


def read_manifest(out: Path) -> Manifest | None:
    """The manifest of the last finished run, None when there was none.

    Raises:
        InputError: it is damaged, is not ours, or is of a newer version.
    """
    path = out / NAME
    try:
        document: Any = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _damaged(path) from error
    if not isinstance(document, dict) or document.pop("format", None) != _FORMAT:
        raise InputError(f"{path}: is not an earlier run's; name another --out")
    version = document.pop("version", None)
    if not isinstance(version, int) or version > _VERSION:
        raise InputError(
            f"{path}: is of version {version!s:.20}, and this toolverdict reads up to {_VERSION}; "
            "update toolverdict, or name another --out"
        )
    try:
        found = Manifest(**{**document, "units": tuple(document["units"])})
    except (TypeError, KeyError) as error:
        raise _damaged(path) from error
    if not _are_texts(found.units) or not isinstance(found.lake, str):
        raise _damaged(path)
    return found


def _are_texts(values: Sequence[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _damaged(path: Path) -> InputError:
    return InputError(f"{path}: is damaged; delete it, and the results are put in place anew")
