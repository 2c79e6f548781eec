"""Rows of sums over clusters, of which tables of any parts are made and added up.

A cluster is what one trajectory has in one group. Of every group there are rows of ``UNITS``, what
rates are of, and of ``MARKS``, what was marked among them. A rate without a mark has no row, so that
what never happens costs nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from toolverdict.scoring.rates.columns import Codes, Numbers, numbered
from toolverdict.scoring.rates.dimensions import Groups
from toolverdict.scoring.rates.sums import on_grid, summed

KEYS: Final = ("dimension", "group")
KEY_FIELDS: Final[list[tuple[str, pa.DataType]]] = [(name, pa.string()) for name in KEYS]

UNIT_SUMS: Final = ("clusters", "of", "of_squared", "unit_squares", "unseen")
UNITS: Final = pa.schema(
    [*KEY_FIELDS, ("base", pa.string()), *((name, pa.float64()) for name in UNIT_SUMS)]
)
"""What rates are of, weighted. ``of_squared`` sums over clusters, ``unit_squares`` over units."""

MARK_SUMS: Final = ("marked", "marked_squared", "cross", "any_clusters", "all_clusters")
MARKS: Final = pa.schema(
    [
        *KEY_FIELDS,
        ("rate", pa.string()),
        ("code", pa.string()),
        *((name, pa.float64()) for name in MARK_SUMS),
    ]
)
"""What was marked; ``cross`` is the sum of marked times ``of``; ``any_clusters`` have a mark, in
``all_clusters`` everything is marked. With a ``code``, what of it had this code of an error."""

NO_CODE: Final = ""

Rows: TypeAlias = dict[str, Any]
"""Columns of ``UNITS`` or ``MARKS``."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """What rows can be marked as: a rate, or a rate and the code of an error."""

    rates: list[str]
    codes: list[str]


class Counted(NamedTuple):
    """What was counted of one base: ``sizes`` by cluster, the others by group.

    These are the weight of its units, the sum of their squared weights, and the weight of what
    could not be evaluated.
    """

    base: str
    sizes: Numbers
    unit_squares: Numbers
    unseen: Numbers


class Clusters:
    """The members of the groups of a dimension, by cluster."""

    def __init__(self, dimension: str, groups: Groups, trajectories: Codes) -> None:
        """``trajectories`` says of each row of the table whose it is."""
        self.dimension = dimension
        self.groups = groups
        whose = groups.of_rows(trajectories)
        count = int(trajectories.max(initial=-1)) + 1
        group = np.zeros(count, np.int64)
        group[whose] = groups.codes
        if np.array_equal(group[whose], groups.codes):
            self.of_member, self._group = whose, group  # no trajectory is in two groups
        else:
            width = len(groups.names)
            self.of_member, pairs = numbered(whose * width + groups.codes, count * width)
            self._group = pairs % width

    def sizes(self, members: Codes | slice, weights: Numbers) -> Numbers:
        """The weight of some members in each cluster; ``weights`` are theirs."""
        return summed(self.of_member[members], len(self._group), weights)

    def unit_rows(self, counted: Sequence[Counted]) -> Rows:
        """What bases hold in each group, where they hold anything; no two have the same name."""
        sums: dict[int, tuple[Numbers, Numbers, Numbers]] = {}
        for one in counted:  # bases that hold the same share the array of their sizes
            if id(one.sizes) not in sums:
                sums[id(one.sizes)] = self._by_group(one.sizes)
        clusters, of, of_squared = (
            np.stack([sums[id(one.sizes)][place] for one in counted]) for place in range(3)
        )
        unit_squares = np.stack([one.unit_squares for one in counted])
        unseen = np.stack([one.unseen for one in counted])
        there = np.nonzero(clusters + unseen)
        return {
            **self._keys(there[1]),
            "base": named_by([one.base for one in counted], there[0]),
            "clusters": clusters[there],
            "of": of[there],
            "of_squared": of_squared[there],
            "unit_squares": unit_squares[there],
            "unseen": unseen[there],
        }

    def _by_group(self, sizes: Numbers) -> tuple[Numbers, Numbers, Numbers]:
        """How many clusters there are in each group, the sum of their sizes and of the squares."""
        count = len(self.groups.names)
        within = np.flatnonzero(sizes)
        group, of = self._group, sizes
        if len(within) < len(sizes):
            group, of = group[within], of[within]
        return (
            summed(group, count),
            summed(group, count, of),
            summed(group, count, on_grid(of * of)),
        )

    def mark_rows(
        self,
        kinds: Kinds,
        members: Codes,
        marked_as: Codes,
        weights: Numbers,
        sizes: Callable[[Codes, Codes], Numbers],
        *,
        alone: bool = False,
    ) -> Rows:
        """What was marked in each group, by kind.

        Args:
            kinds: what ``marked_as`` means.
            members: a member for each mark.
            marked_as: its kind.
            weights: how much of it is marked.
            sizes: what there is in a cluster to be marked: called with kinds and clusters.
            alone: whether no cluster has two marks of a kind.
        """
        width = len(kinds.rates)
        cluster, kind, marked = self.of_member[members], marked_as, weights
        if not alone:
            cells, pairs = numbered(cluster * width + kind)
            cluster, kind, marked = pairs // width, pairs % width, summed(cells, len(pairs), marked)
        of = sizes(kind, cluster)
        groups = len(self.groups.names)
        rows, named = numbered(self._group[cluster] * width + kind, groups * width)
        count = len(named)
        sums = (
            marked,
            on_grid(marked * marked),
            on_grid(marked * of),
            None,
            (marked >= of).astype(np.float64),
        )
        return {
            **self._keys(named // width),
            "rate": named_by(kinds.rates, named % width),
            "code": named_by(kinds.codes, named % width),
            **{
                name: summed(rows, count, values)
                for name, values in zip(MARK_SUMS, sums, strict=True)
            },
        }

    def _keys(self, groups: Codes) -> Rows:
        return {
            "dimension": pa.repeat(pa.scalar(self.dimension, pa.string()), len(groups)),
            "group": named_by(self.groups.names, groups),
        }


def named_by(names: Sequence[str], codes: Codes) -> "pa.Array[Any]":
    """The texts that codes stand for."""
    return pa.array(names, pa.string()).take(codes)
