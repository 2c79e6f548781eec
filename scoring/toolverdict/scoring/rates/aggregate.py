"""Rates of any number of trajectories, by any dimension: counted from columns, adding up.

The aggregates of parts add up to those of the whole, in any order, as long as no trajectory is in
two of them. That is exact while a dimension has no more than 10,000 groups; of more, the largest
of what was there at each addition have a group of their own.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.scoring.intervals import Moments
from toolverdict.scoring.rates.clusters import (
    KEYS,
    MARK_SUMS,
    MARKS,
    NO_CODE,
    UNITS,
    Rows,
)
from toolverdict.scoring.rates.definitions import BASES, CALL_RATE_DEFINITIONS, EVERY
from toolverdict.scoring.rates.dimensions import MOST_GROUPS, OTHER, WHOLE, largest
from toolverdict.scoring.rates.latency import Latency, latency
from toolverdict.scoring.rates.over_calls import DURATIONS, OverCalls
from toolverdict.scoring.rates.over_trajectories import OverTrajectories

HOUR: Final = 3600

CALL_COLUMNS: Final = (
    *("trajectory_id", "index", "weight", "tool", "agent", "labels", "schema_version", "model"),
    *("service_version", "start_time", "start_time_unix_nano", "end_time_unix_nano", "executed"),
    *("outcome", "error_type", "forbidden", "compliant", "needs_approval", "approval_missing"),
    *("repeat", "handling", "policy_decision", "policy_reason_code", "approval_status"),
)
"""What is read of a table of calls."""

VERDICT_COLUMNS: Final = (
    *("trajectory_id", "weight", "agent", "model", "service_version", "start_time"),
    *("passed", "safety", "shares", "parts"),
)
"""What is read of a table of verdicts."""

_RATES_OF: Final = {
    base: [name for name, rate in CALL_RATE_DEFINITIONS.items() if rate.base == base]
    for base in BASES
}
_UNMARKED: Final = dict.fromkeys(MARK_SUMS, 0.0)


@dataclass(frozen=True)
class Aggregates:
    """Sums from which every rate of every group follows; ``bucket_s`` is how long a time is."""

    units: pa.Table
    marks: pa.Table
    durations: pa.Table
    bucket_s: int = HOUR

    @classmethod
    def nothing(cls, bucket_s: int = HOUR) -> "Aggregates":
        """The aggregates of no trajectory."""
        return cls(UNITS.empty_table(), MARKS.empty_table(), DURATIONS.empty_table(), bucket_s)

    @classmethod
    def of(cls, calls: pa.Table, verdicts: pa.Table, bucket_s: int = HOUR) -> "Aggregates":
        """The aggregates of whole trajectories, whatever the order of rows.

        Args:
            calls: a table with ``CALL_COLUMNS`` of :data:`toolverdict.scoring.tables.CALLS`.
            verdicts: one with ``VERDICT_COLUMNS`` of :data:`toolverdict.scoring.tables.VERDICTS`.
            bucket_s: how many seconds are one group in time.

        Raises:
            InputError: a column is missing, since an older version wrote the tables.
        """
        over_calls = OverCalls(calls, bucket_s)
        over_trajectories = OverTrajectories(verdicts, bucket_s)
        counted = [
            *over_calls.counted(),
            *over_trajectories.counted(),
            *over_trajectories.parts(over_calls),
        ]
        return cls(
            _table(UNITS, (rows for rows, _ in counted)),
            _table(MARKS, (rows for _, rows in counted)),
            _table(DURATIONS, over_calls.durations()),
            bucket_s,
        )._bounded()

    def __add__(self, other: "Aggregates") -> "Aggregates":
        """The aggregates of both; they share no trajectory."""
        return total((self, other))

    def _added_up(self) -> "Aggregates":
        """One row for each key."""
        return Aggregates(
            _summed(self.units), _summed(self.marks), _summed(self.durations), self.bucket_s
        )

    def _bounded(self) -> "Aggregates":
        """The same in the order of keys, with no more groups and codes than are kept."""
        kept = _kept(self.units)
        marks = _with_few_codes(_regrouped(self.marks, kept))
        return Aggregates(
            _sorted(_regrouped(self.units, kept)),
            _sorted(marks if marks is self.marks else _summed(marks)),
            _sorted(_regrouped(self.durations, kept)),
            self.bucket_s,
        )

    def rates(self, dimension: str = WHOLE) -> dict[str, dict[str, Moments]]:
        """The moments of each rate by group; a rate of which there is nothing is left out."""
        marks = {
            (row["group"], row["rate"]): row
            for row in _rows(self.marks, dimension)
            if row["code"] == NO_CODE
        }
        found: dict[str, dict[str, Moments]] = defaultdict(dict)
        for units in _rows(self.units, dimension):
            group = units["group"]
            for rate in _RATES_OF.get(units["base"], (units["base"],)):
                found[group][rate] = _moments(rate, units, marks.get((group, rate), _UNMARKED))
        return dict(found)

    def errors(self, dimension: str = WHOLE) -> dict[str, dict[tuple[str, str], Moments]]:
        """How often calls failed, by kind of failure and code of the error, in each group.

        Only of the whole and of tools.
        """
        of = {row["group"]: row for row in _rows(self.units, dimension) if row["base"] == EVERY}
        found: dict[str, dict[tuple[str, str], Moments]] = defaultdict(dict)
        for row in _rows(self.marks, dimension):
            if row["code"] != NO_CODE:
                kind = row["rate"].removesuffix("_rate")
                moments = _moments(row["rate"], of[row["group"]], row)
                found[row["group"]][kind, row["code"]] = moments
        return dict(found)

    def latency(self, dimension: str = WHOLE) -> dict[str, Latency]:
        """How long calls took, in each group: of the whole, of tools, agents and models."""
        bins: dict[str, dict[int, float]] = defaultdict(dict)
        calls: dict[str, float] = defaultdict(float)
        for row in _rows(self.durations, dimension):
            bins[row["group"]][row["bin"]] = row["weight"]
            calls[row["group"]] += row["calls"]
        return {group: latency(weights, int(calls[group])) for group, weights in bins.items()}


def total(parts: Iterable[Aggregates]) -> Aggregates:
    """The aggregates of all parts together.

    Raises:
        ValueError: there is none, or their groups in time are of different lengths.
    """
    parts = list(parts)
    lengths = {part.bucket_s for part in parts}
    if len(lengths) != 1:
        raise ValueError(f"aggregates of times of {sorted(lengths)} seconds do not add up")
    return (
        Aggregates(
            pa.concat_tables([part.units for part in parts]),
            pa.concat_tables([part.marks for part in parts]),
            pa.concat_tables([part.durations for part in parts]),
            lengths.pop(),
        )
        ._added_up()
        ._bounded()
    )


def _moments(rate: str, units: Mapping[str, Any], marks: Mapping[str, Any]) -> Moments:
    """The sums of a rate: of its hits, where the misses were marked all but these."""
    marked, squared, cross = marks["marked"], marks["marked_squared"], marks["cross"]
    any_hit, any_miss = marks["any_clusters"], units["clusters"] - marks["all_clusters"]
    definition = CALL_RATE_DEFINITIONS.get(rate)
    if definition is not None and definition.misses:
        marked = units["of"] - marked
        squared += units["of_squared"] - 2 * cross
        cross = units["of_squared"] - cross
        any_hit, any_miss = any_miss, any_hit
    return Moments(
        clusters=units["clusters"],
        hits=marked,
        of=units["of"],
        unseen=units["unseen"],
        hits_squared=squared,
        cross=cross,
        of_squared=units["of_squared"],
        unit_squares=units["unit_squares"],
        hit_clusters=any_hit,
        miss_clusters=any_miss,
    )


def _rows(table: pa.Table, dimension: str) -> list[dict[str, Any]]:
    return table.filter(_is(table["dimension"], dimension)).to_pylist()


def _table(schema: pa.Schema, parts: Iterable[Rows]) -> pa.Table:
    return pa.concat_tables(
        [schema.empty_table(), *(pa.table(part, schema=schema) for part in parts)]
    )


def _keys(table: pa.Table) -> list[str]:
    return [one.name for one in table.schema if one.type != pa.float64()]


def _summed(table: pa.Table) -> pa.Table:
    """One row for each key of a table of sums."""
    keys, schema = _keys(table), table.schema
    values = [one for one in schema.names if one not in keys]
    summed = table.group_by(keys, use_threads=False).aggregate([(one, "sum") for one in values])
    named = summed.rename_columns([name.removesuffix("_sum") for name in summed.column_names])
    return named.select(schema.names).cast(schema)


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by([(key, "ascending") for key in _keys(table)]).combine_chunks()


def _kept(units: pa.Table) -> dict[str, list[str]]:
    """The groups that are kept, of each dimension that has too many."""
    if units.num_rows <= MOST_GROUPS:
        return {}
    every = _is(units["base"], EVERY)
    size = pc.if_else(every, pc.add(units["of"], units["unseen"]), 0.0)
    sizes = pa.table({**{key: units[key] for key in KEYS}, "size": size})
    by_group = sizes.group_by(list(KEYS), use_threads=False).aggregate([("size", "sum")])
    found = {}
    for dimension in set(by_group["dimension"].to_pylist()):
        mine = _rows(by_group, str(dimension))
        if len(mine) > MOST_GROUPS:
            sizes_of = [row["size_sum"] for row in mine]
            found[str(dimension)] = largest([row["group"] for row in mine], sizes_of)
    return found


def _regrouped(table: pa.Table, kept: Mapping[str, list[str]]) -> pa.Table:
    for dimension, names in kept.items():
        moved = pc.and_(
            _is(table["dimension"], dimension),
            pc.invert(pc.is_in(table["group"], value_set=pa.array(names, pa.string()))),
        )
        table = _replaced(table, "group", pc.if_else(moved, pa.scalar(OTHER), table["group"]))
    return _summed(table) if kept else table


def _with_few_codes(marks: pa.Table) -> pa.Table:
    """The rarest codes of errors as one where there are too many: these come from traces, too."""
    plain = _is(marks["code"], NO_CODE)
    coded = marks.filter(pc.invert(plain))
    if coded.num_rows <= MOST_GROUPS:
        return marks
    by_size = coded.sort_by(
        [("marked", "descending"), *((key, "ascending") for key in (*KEYS, "rate", "code"))]
    )
    rest = by_size.slice(MOST_GROUPS)
    others = _replaced(rest, "code", pa.repeat(pa.scalar(OTHER, pa.string()), rest.num_rows))
    return pa.concat_tables([marks.filter(plain), by_size.slice(0, MOST_GROUPS), others])


def _is(column: "pa.ChunkedArray[Any]", text: str) -> Any:
    return pc.equal(column, pa.scalar(text))


def _replaced(table: pa.Table, name: str, values: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, values)
