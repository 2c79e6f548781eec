"""Rates over calls, and how long calls took, from the table of calls alone."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.rates.clusters import (
    KEY_FIELDS,
    NO_CODE,
    Clusters,
    Counted,
    Kinds,
    Rows,
    named_by,
)
from toolverdict.scoring.rates.columns import Codes, Columns, Mask, integers, numbered
from toolverdict.scoring.rates.definitions import BASES, CALL_RATE_DEFINITIONS
from toolverdict.scoring.rates.dimensions import (
    AGENT,
    CALL_DIMENSIONS,
    MODEL,
    TOOL,
    WHOLE,
    Groups,
    bounded,
    groups_of,
)
from toolverdict.scoring.rates.latency import timed
from toolverdict.scoring.rates.sums import on_grid, summed

UNNAMED: Final = "(none)"
"""The code of an error that has none."""

DURATIONS: Final = pa.schema(
    [
        *KEY_FIELDS,
        ("bin", pa.int64()),
        ("calls", pa.float64()),
        ("weight", pa.float64()),
    ]
)
"""Histograms of durations; ``calls`` were recorded, and stand for ``weight``."""

_CODED: Final = (WHOLE, TOOL)
_TIMED: Final = (WHOLE, TOOL, AGENT, MODEL)


class OverCalls:
    """A table of calls, looked at once; rows may be in any order."""

    def __init__(self, table: pa.Table, bucket_s: int) -> None:
        self._columns = Columns(table)
        self.count = table.num_rows
        self._bucket_s = bucket_s
        self._weight, self._known = self._columns.numbers("weight")
        self._standing_for = np.where(self._known, self._weight, 1.0)
        self._squares = on_grid(self._weight * self._weight)
        ids = self._columns.column("trajectory_id").combine_chunks().dictionary_encode()
        self._ids: pa.Array[Any] = ids.dictionary
        self.trajectories: Codes = integers(ids.indices, -1)
        self._bases = CallBases(self._columns, self._known)

    def groups(self, dimension: str) -> Groups:
        """The groups of the calls; they are not kept, since there are as many as calls."""
        return groups_of(dimension, self._columns, self._standing_for, self._bucket_s)

    def trajectories_named(self, ids: "pa.ChunkedArray[Any]") -> Codes:
        """The numbers of trajectories by id; -1 of one without calls."""
        return integers(pc.index_in(ids, value_set=self._ids), -1)

    def rows_at(self, trajectories: Codes, indices: Codes) -> Codes:
        """The row of the call with this index in this trajectory; -1 where there is none."""
        index, _ = self._columns.integers("index")
        rows = np.flatnonzero(np.isin(self.trajectories, trajectories))
        width = int(max(index.max(initial=0), indices.max(initial=0))) + 1
        keys = self.trajectories[rows] * width + index[rows]
        order = np.argsort(keys, kind="stable")
        keys, rows = np.append(keys[order], -1), np.append(rows[order], -1)
        sought = np.where((trajectories < 0) | (indices < 0), -1, trajectories * width + indices)
        place = np.searchsorted(keys[:-1], sought)
        return np.where(keys[place] == sought, rows[place], -1)

    def counted(self) -> Iterator[tuple[Rows, Rows]]:
        """What rates are of and what they marked, in each dimension."""
        plain, marks = self._marks()
        coded, coded_marks = self._marks_with_codes(plain, marks)
        for dimension in CALL_DIMENSIONS:
            clusters = Clusters(dimension, self.groups(dimension), self.trajectories)
            kinds, (rows, marked_as) = (
                (coded, coded_marks) if dimension in _CODED else (plain, marks)
            )
            yield self._counted(clusters, kinds, rows, marked_as)

    def _counted(
        self, clusters: Clusters, kinds: Kinds, rows: Codes, marked_as: Codes
    ) -> tuple[Rows, Rows]:
        groups, count = clusters.groups, len(clusters.groups.names)
        weights, squares = groups.of_rows(self._weight), groups.of_rows(self._squares)
        units, sizes = [], []
        sums = {}
        for base in self._bases.distinct:
            here = groups.of_rows(self._bases.of[base])
            units_of = slice(None) if here.all() else np.flatnonzero(here)
            sizes.append(clusters.sizes(units_of, weights[units_of]))
            sums[base] = summed(groups.codes[units_of], count, squares[units_of])
        for base, same in self._bases.same.items():
            unseen, of = groups.members(self._bases.unseen[base])
            units.append(
                Counted(
                    base,
                    sizes[self._bases.distinct.index(same)],
                    sums[same],
                    summed(
                        groups.codes[unseen],
                        count,
                        self._standing_for[self._bases.unseen[base][of]],
                    ),
                )
            )
        members, of = groups.members(rows)
        base_of = np.array(
            [
                self._bases.distinct.index(self._bases.same[CALL_RATE_DEFINITIONS[rate].base])
                for rate in kinds.rates
            ]
        )
        stacked = np.stack(sizes)
        return clusters.unit_rows(units), clusters.mark_rows(
            kinds,
            members,
            marked_as[of],
            weights[members],
            lambda kind, cluster: stacked[base_of[kind], cluster],
        )

    def _marks(self) -> tuple[Kinds, tuple[Codes, Codes]]:
        """The rows that each rate marks, and as what; a row may be marked by several."""
        found = list(self._bases.marked(self._columns).values())
        kinds = np.repeat(np.arange(len(found)), [len(rows) for rows in found])
        rates = list(CALL_RATE_DEFINITIONS)
        return Kinds(rates, [NO_CODE] * len(rates)), (np.concatenate(found), kinds)

    def _marks_with_codes(
        self, plain: Kinds, marks: tuple[Codes, Codes]
    ) -> tuple[Kinds, tuple[Codes, Codes]]:
        """The same, and each failed call once more under the code of its error."""
        outcomes, outcome_names = self._columns.words("outcome")
        types, type_names = self._columns.words("error_type")
        failed = self._columns.is_word("outcome", (one for one in Outcome if one.failed))
        rows = np.flatnonzero(failed & self._known)
        codes = np.where(types[rows] < 0, len(type_names), types[rows])
        named = bounded(Groups([*type_names, UNNAMED], rows, codes), self._weight)
        width = len(named.names)
        kinds, pairs = numbered(outcomes[rows] * width + named.codes)
        both = Kinds(
            [*plain.rates, *(f"{outcome_names[pair // width]}_rate" for pair in pairs)],
            [*plain.codes, *(named.names[pair % width] for pair in pairs)],
        )
        return both, (
            np.concatenate((marks[0], rows)),
            np.concatenate((marks[1], kinds + len(plain.rates))),
        )

    def durations(self) -> Iterator[Rows]:
        """Columns of ``DURATIONS``, by dimension."""
        bins, there = timed(self._columns)
        there &= self._known
        width = int(bins.max(initial=0)) + 1
        for dimension in _TIMED:
            groups = self.groups(dimension)
            members = np.flatnonzero(groups.of_rows(there))
            rows = groups.rows[members]
            cells, pairs = numbered(
                groups.codes[members] * width + bins[rows], len(groups.names) * width
            )
            yield {
                "dimension": pa.repeat(pa.scalar(dimension, pa.string()), len(pairs)),
                "group": named_by(groups.names, pairs // width),
                "bin": pairs % width,
                "calls": summed(cells, len(pairs)),
                "weight": summed(cells, len(pairs), self._weight[rows]),
            }


class CallBases:
    """Which calls belong to which denominator; ``known`` are those that stand for a known number.

    ``same`` names for each base the first one that holds the same calls, which is usually that of
    every call; ``distinct`` are those.
    """

    def __init__(self, columns: Columns, known: Mask) -> None:
        self.of: dict[str, Mask] = {}
        self.unseen: dict[str, Codes] = {}
        self.same: dict[str, str] = {}
        for name, base in BASES.items():
            of = base.of(columns)
            unseen = of & ~known
            if base.unseen is not None:
                unseen |= base.unseen(columns)
            of = of & known
            self.same[name] = next(
                (one for one, mask in self.of.items() if np.array_equal(mask, of)), name
            )
            self.of[name], self.unseen[name] = of, np.flatnonzero(unseen)
        self.distinct = list(dict.fromkeys(self.same.values()))

    def marked(self, columns: Columns) -> dict[str, Codes]:
        """The rows that each rate marks."""
        return {
            name: np.flatnonzero(rate.marked(columns) & self.of[rate.base])
            for name, rate in CALL_RATE_DEFINITIONS.items()
        }
