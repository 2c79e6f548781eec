"""By what rates are grouped: tool, agent, label, definition of the tool, model, version, time.

The number of groups is bounded: names come from traces, and a hostile one names a new tool in each
call. The largest are kept, ties by name, and all others are one group.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import orjson

from toolverdict.scoring.rates.columns import Codes, Columns, Mask, Numbers, numbered
from toolverdict.scoring.rates.sums import summed

OTHER: Final = "(other)"
"""The group of what has no group of its own, since there were too many."""

MOST_GROUPS: Final = 10_000
"""Of one dimension."""

WHOLE, TOOL, AGENT, LABEL = "whole", "tool", "agent", "label"
SCHEMA_VERSION, MODEL, SERVICE_VERSION, TIME = "schema_version", "model", "service_version", "time"

CALL_DIMENSIONS: Final = (
    *(WHOLE, TOOL, AGENT, LABEL, SCHEMA_VERSION, MODEL, SERVICE_VERSION, TIME),
)
TRAJECTORY_DIMENSIONS: Final = (WHOLE, AGENT, MODEL, SERVICE_VERSION, TIME)
"""What a trajectory has one of; the time is that of its beginning."""

_MAX_LABELS = 32  # of one call
_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows in groups: row ``rows[i]`` is in group ``codes[i]`` of ``names``.

    ``rows`` ascend; a row is in several groups, one, or none. ``complete``: each is in one.
    """

    names: list[str]
    rows: Codes
    codes: Codes
    complete: bool = False

    @classmethod
    def of_all(cls, names: list[str], codes: Codes) -> "Groups":
        """Every row in one group."""
        return cls(names, np.arange(len(codes)), codes, complete=True)

    def of_rows(self, values: Any) -> Any:
        """Values by row, as values by member of a group."""
        return values if self.complete else values[self.rows]

    def members(self, rows: Codes) -> tuple[Codes, Codes]:
        """The members that rows are, each row as often as it is in a group.

        Returns:
            The members, and for each the place in ``rows`` of its row.
        """
        if self.complete:
            return rows, np.arange(len(rows))
        first = np.searchsorted(self.rows, rows, "left")
        often = np.searchsorted(self.rows, rows, "right") - first
        of = np.repeat(np.arange(len(rows)), often)
        within = np.arange(len(of)) - np.repeat(np.cumsum(often) - often, often)
        return first[of] + within, of


def groups_of(dimension: str, columns: Columns, weights: Numbers, bucket_s: int) -> Groups:
    """The groups of calls or trajectories in a dimension; of ``TIME``, ``bucket_s`` seconds long."""
    if dimension == WHOLE:
        return Groups.of_all([""], np.zeros(columns.rows, np.int64))
    if dimension == LABEL:
        found = _labels(columns)
    elif dimension == SCHEMA_VERSION:
        found = _schema_versions(columns)
    elif dimension == TIME:
        found = _times(columns, bucket_s)
    else:
        codes, names = columns.words(dimension)
        found = _members(names, codes >= 0, codes[codes >= 0])
    return bounded(found, weights)


def _members(names: list[str], there: Mask, codes: Codes) -> Groups:
    """The rows that are ``there``, each in one group."""
    return Groups(names, np.flatnonzero(there), codes, complete=len(codes) == len(there))


def _labels(columns: Columns) -> Groups:
    """Labels are a JSON list in each row, of which few differ."""
    texts, lists = columns.words("labels")
    number: dict[str, int] = {}
    members = [
        [number.setdefault(label, len(number)) for label in dict.fromkeys(_parsed(text))]
        for text in lists
    ]
    many = np.array([*(len(labels) for labels in members), 0])
    first = np.concatenate(([0], np.cumsum(many[:-1])))
    flat = np.array([label for labels in members for label in labels], np.int64)
    per_row = many[texts]
    rows = np.repeat(np.arange(len(texts)), per_row)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(per_row) - per_row, per_row)
    return Groups(list(number), rows, flat[first[texts[rows]] + within])


def _parsed(text: str) -> list[str]:
    labels = orjson.loads(text)
    return [str(label) for label in labels[:_MAX_LABELS]] if isinstance(labels, list) else []


def _schema_versions(columns: Columns) -> Groups:
    """``tool@version`` of the calls that say with which definition of the tool they were made."""
    tools, tool_names = columns.words("tool")
    versions, version_names = columns.words("schema_version")
    said = np.array([*(bool(name) for name in version_names), False])
    there = said[versions] & (tools >= 0)
    width = max(len(version_names), 1)
    codes, pairs = numbered((tools * width + versions)[there], len(tool_names) * width)
    names = [f"{tool_names[pair // width]}@{version_names[pair % width]}" for pair in pairs]
    number = {name: code for code, name in enumerate(dict.fromkeys(names))}
    one_of_a_name = np.array([number[name] for name in names], np.int64)  # a@b at c, a at b@c
    return _members(list(number), there, one_of_a_name[codes])


def _times(columns: Columns, bucket_s: int) -> Groups:
    starts, known = columns.integers("start_time")
    codes, buckets = numbered(starts[known] // (bucket_s * _US))
    seconds = (buckets * bucket_s).astype("datetime64[s]")
    return _members(np.datetime_as_string(seconds, timezone="UTC").tolist(), known, codes)


def bounded(groups: Groups, weights: Numbers) -> Groups:
    """The same groups, the smaller ones as one where there are too many; ``weights`` are by row."""
    if len(groups.names) <= MOST_GROUPS:
        return groups
    sizes = summed(groups.codes, len(groups.names), weights[groups.rows])
    kept = largest(groups.names, sizes.tolist())
    number = {name: code for code, name in enumerate(kept)}
    other = number.setdefault(OTHER, len(number))
    moved = np.array([number.get(name, other) for name in groups.names])
    return replace(groups, names=list(number), codes=moved[groups.codes])


def largest(names: list[str], sizes: list[float]) -> list[str]:
    """The names of the largest groups, as many as are kept."""
    by_size = sorted(zip(names, sizes, strict=True), key=lambda one: (-one[1], one[0]))
    return [name for name, _ in by_size if name != OTHER][:MOST_GROUPS]
