"""Calls by the version of the definition that they were made under, and what a new one changed.

A version is judged by the calls that were made under it, never by its name. Of two versions the one
whose first call came later is the newer; rates before and after are those of the two newest, with a
difference that is robust to calls of one trajectory failing together.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.dataset as ds

from toolverdict.instrument.catalogue.definitions import Catalogue
from toolverdict.scoring.compare.differences import Difference, holm, live_difference
from toolverdict.scoring.intervals import Moments
from toolverdict.scoring.rates.dimensions import SCHEMA_VERSION
from toolverdict.scoring.rates.reading import files_of, read_aggregates

COMPARED: Final = (
    "invalid_arguments_rate",
    "error_rate",
    "timeout_rate",
    "retry_waste_rate",
    "empty_rate",
)
"""What a changed definition changes first."""

_CONFIDENCE: Final = 0.95


class State(StrEnum):
    """What the catalogue says about the version that calls were made under."""

    CURRENT = "current"
    """It is the one that the newest lock file pins."""
    CHANGED = "changed"
    """An older lock file pins it: the definition is another one today."""
    UNKNOWN = "unknown"
    """The tool is pinned, this version of it never was."""
    UNPINNED = "unpinned"
    """No lock file has the tool."""
    UNVERSIONED = "unversioned"
    """The calls do not say a version."""
    NOT_CHECKED = "not_checked"
    """No lock file was given."""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of one tool: its calls, and when the first and the last of them began (UTC)."""

    tool: str
    version: str | None
    state: State
    calls: int
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class Change:
    """A tool before and after: rates under the two newest versions."""

    tool: str
    before: str
    after: str
    differences: tuple[Difference, ...]


def versions(out: Path, catalogues: Sequence[Catalogue] = ()) -> list[Version]:
    """The versions of each tool that was called, the newest of each tool first.

    Args:
        out: what ``toolverdict score`` wrote.
        catalogues: lock files, from the oldest to the newest.

    Raises:
        InputError: there are no results in ``out``.
    """
    pinned = _pinned(catalogues)
    table = _calls(out)
    found = [
        Version(
            tool=row["tool"],
            version=row["schema_version"],
            state=_state(row["tool"], row["schema_version"], pinned, bool(catalogues)),
            calls=row["tool_count"],
            first=row["start_time_min"].isoformat(),
            last=row["start_time_max"].isoformat(),
        )
        for row in table.to_pylist()
    ]
    return sorted(found, key=lambda one: (one.tool, _reversed(one.first), one.version or ""))


def changes(out: Path, found: Iterable[Version]) -> list[Change]:
    """Rates before and after, for each tool that was called under two versions or more.

    Args:
        out: what ``toolverdict score`` wrote.
        found: what :func:`versions` found there.
    """
    by_tool: dict[str, list[str]] = {}
    for one in found:
        if one.version is not None:
            by_tool.setdefault(one.tool, []).append(one.version)
    moments = read_aggregates(out).rates(SCHEMA_VERSION)
    compared = []
    for tool, named in by_tool.items():
        if len(named) > 1:
            after, before = named[0], named[1]
            rates = [moments.get(f"{tool}@{version}", {}) for version in (before, after)]
            compared.append(Change(tool, before, after, _differences(*rates)))
    return _corrected(compared)


def _differences(
    before: Mapping[str, Moments], after: Mapping[str, Moments]
) -> tuple[Difference, ...]:
    return tuple(
        live_difference(rate, before[rate], after[rate], _CONFIDENCE)
        for rate in COMPARED
        if rate in before and rate in after
    )


def _corrected(compared: Sequence[Change]) -> list[Change]:
    """The same with p-values corrected for all that was compared, of all tools together."""
    corrected = iter(holm([one for change in compared for one in change.differences]))
    return [
        Change(c.tool, c.before, c.after, tuple(next(corrected) for _ in c.differences))
        for c in compared
    ]


def _pinned(catalogues: Iterable[Catalogue]) -> dict[str, list[str | None]]:
    """Per tool its pinned versions, the newest last."""
    pinned: dict[str, list[str | None]] = {}
    for catalogue in catalogues:
        for tool in catalogue.tools:
            pinned.setdefault(tool.name, []).append(tool.version)
    return pinned


def _state(
    tool: str, version: str | None, pinned: Mapping[str, Sequence[str | None]], checked: bool
) -> State:
    if version is None:
        return State.UNVERSIONED
    if not checked:
        return State.NOT_CHECKED
    known = pinned.get(tool)
    if known is None:
        return State.UNPINNED
    if version == known[-1]:
        return State.CURRENT
    return State.CHANGED if version in known else State.UNKNOWN


def _calls(out: Path) -> pa.Table:
    """Per tool and version: how many calls, when the first and the last began."""
    calls = ds.dataset([str(p) for p in files_of(out, "calls").values()], _PLAIN, format="parquet")
    parts = [_grouped(pa.Table.from_batches([batch])) for batch in calls.to_batches()]
    return _together([_grouped(_PLAIN.empty_table()), *parts])


_TYPES: Final[dict[str, pa.DataType]] = {
    "tool": pa.string(),
    "schema_version": pa.string(),
    "start_time": pa.timestamp("us", tz="UTC"),
}
_PLAIN: Final = pa.schema(_TYPES)


def _grouped(table: pa.Table) -> pa.Table:
    return table.group_by(["tool", "schema_version"]).aggregate(
        [("tool", "count"), ("start_time", "min"), ("start_time", "max")]
    )


def _together(parts: Sequence[pa.Table]) -> pa.Table:
    summed = (
        pa.concat_tables(parts)
        .group_by(["tool", "schema_version"])
        .aggregate([("tool_count", "sum"), ("start_time_min", "min"), ("start_time_max", "max")])
    )
    names = {
        "tool_count_sum": "tool_count",
        "start_time_min_min": "start_time_min",
        "start_time_max_max": "start_time_max",
    }
    return summed.rename_columns([names.get(name, name) for name in summed.column_names])


def _reversed(text: str) -> tuple[int, ...]:
    """Sorts texts of one form from the last to the first."""
    return tuple(-ord(character) for character in text)
