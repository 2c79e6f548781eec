"""Were the calls made in their order: constraints between matched calls, and who is to blame.

A case's order is a partial order. Of matched calls x and y with x before y and nothing matched
between them, the constraint is ``inverted`` when y started before x started, ``premature`` when y
started before x ended (it cannot have used x's result), else satisfied; it is not evaluable while x
has no end.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from toolverdict.scoring.model import Placed

_MOST_CALLS = 2_000  # to look for the blamed among; bounds the work on hostile traces

_Relation = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Constraint:
    """``later`` should have waited for ``earlier``; ``held`` None: nothing shows whether it did."""

    earlier: Placed
    later: Placed
    broken: Literal["inverted", "premature"] | None
    held: bool | None


@dataclass(frozen=True, slots=True)
class Late:
    """A call to blame, and the call that it should have come after (or before)."""

    call: Placed
    other: Placed
    too_early: bool


def constraints(
    matched: Mapping[int, Sequence[Placed]], before: Sequence[Sequence[int]] | None
) -> list[Constraint]:
    """The constraints between matched calls that nothing matched stands between.

    Of several calls that answer the earlier expectation, the one that breaks the constraint worst
    stands for all: a later call has to wait for every one of them.

    Args:
        matched: by index of the expectation, the calls that answer it.
        before: for each expectation, those that come before it; None is the listed order.
    """
    return [
        constraint
        for i, j in _neighbours(sorted(matched), before)
        for constraint in _between(matched[i], matched[j])
    ]


def to_blame(
    matched: Mapping[int, Sequence[Placed]], before: Sequence[Sequence[int]] | None
) -> list[Late]:
    """The fewest calls that explain all inversions.

    "x comes before y, yet y started first" is itself a partial order of the calls, so the largest
    set without an inversion is a largest antichain of it (Dilworth, König), and the rest is to
    blame. Of a, b, c, d made as d, a, b, c only d is. Arguments as in :func:`constraints`.
    """
    indexes = sorted(matched)
    calls = [(index, call) for index in indexes for call in matched[index]][:_MOST_CALLS]
    starts = np.array([call.call.start_ns for _, call in calls], dtype=np.int64)
    precedes = _closure(indexes, before)
    position = {index: at for at, index in enumerate(indexes)}
    at = np.array([position[index] for index, _ in calls], dtype=np.intp)
    inverted = precedes[np.ix_(at, at)] & (starts[None, :] < starts[:, None])
    if not inverted.any():
        return []
    blamed = []
    for k in sorted(_cover(inverted.T), key=lambda k: (calls[k][1].call.start_ns, k)):
        too_early = bool(inverted[:, k].any())
        others = inverted[:, k] if too_early else inverted[k]
        other = calls[int(np.argmax(others))][1]
        blamed.append(Late(calls[k][1], other, too_early))
    return blamed


class Precedence:
    """Which of a way's expectations, by index, come before which, however far."""

    def __init__(self, before: Sequence[Sequence[int]] | None, count: int) -> None:
        """``before`` as in :func:`constraints`; ``count`` is how many expectations there are."""
        self.before = before
        self._all = (
            None if before is None else [predecessors(index, before) for index in range(count)]
        )

    def __call__(self, one: int, other: int) -> bool:
        """Whether ``one`` comes before ``other``."""
        return one < other if self._all is None else one in self._all[other]

    @property
    def says_nothing(self) -> bool:
        """Whether no expectation comes before another."""
        return self._all is not None and not any(self._all)

    def rank(self, index: int) -> tuple[int, int]:
        """By what to sort expectations so that none stands behind one that it comes before."""
        return (0 if self._all is None else len(self._all[index])), index


def predecessors(index: int, before: Sequence[Sequence[int]]) -> frozenset[int]:
    """Every expectation that comes before this one, however far."""
    found: set[int] = set()
    waiting = list(before[index])
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting.extend(before[one])
    return frozenset(found)


def _between(earlier: Sequence[Placed], later: Sequence[Placed]) -> Iterator[Constraint]:
    last = max(earlier, key=lambda place: place.call.start_ns)
    ends = [place for place in earlier if place.call.end_ns is not None]
    longest = max(ends, key=lambda place: place.call.end_ns or 0, default=last)
    unended = next((place for place in earlier if place.call.end_ns is None), None)
    for place in later:
        found = [_constraint(x, place) for x in (last, longest, unended) if x is not None]
        yield min(found, key=_worst_first)


def _worst_first(constraint: Constraint) -> int:
    worst = ("inverted", "premature", None)
    return worst.index(constraint.broken) * 2 + (constraint.held is True)


def _constraint(x: Placed, y: Placed) -> Constraint:
    if y.call.start_ns < x.call.start_ns:
        return Constraint(x, y, "inverted", False)
    if x.call.end_ns is None:
        return Constraint(x, y, None, None)
    if y.call.start_ns < x.call.end_ns:
        return Constraint(x, y, "premature", False)
    return Constraint(x, y, None, True)


def _neighbours(
    indexes: list[int], before: Sequence[Sequence[int]] | None
) -> list[tuple[int, int]]:
    """The transitive reduction of the order among these expectations."""
    if before is None:
        return list(pairwise(indexes))
    precedes = _closure(indexes, before)
    between = (precedes.astype(np.float32) @ precedes.astype(np.float32)) > 0
    return [(indexes[i], indexes[j]) for i, j in np.argwhere(precedes & ~between).tolist()]


def _closure(indexes: list[int], before: Sequence[Sequence[int]] | None) -> _Relation:
    """Which of these expectations come before which, through whatever lies between."""
    if before is None:
        return np.triu(np.ones((len(indexes), len(indexes)), dtype=np.bool_), k=1)
    column = {index: at for at, index in enumerate(indexes)}
    precedes = np.zeros((len(indexes), len(indexes)), dtype=np.bool_)
    for at, index in enumerate(indexes):
        for one in predecessors(index, before):
            if one in column:
                precedes[column[one], at] = True
    return precedes


def _cover(inverted: _Relation) -> set[int]:
    """A smallest set of calls that touches every inversion, by König's theorem."""
    graph = csr_array(inverted.astype(np.int8))
    right_of = maximum_bipartite_matching(graph, perm_type="column")
    left_of = {column: row for row, column in enumerate(right_of.tolist()) if column >= 0}
    left = {row for row, column in enumerate(right_of.tolist()) if column < 0}
    right: set[int] = set()
    waiting = sorted(left)
    while waiting:
        row = waiting.pop()
        for column in np.flatnonzero(inverted[row]).tolist():
            if column not in right:
                right.add(column)
                owner = left_of.get(column)
                if owner is not None and owner not in left:
                    left.add(owner)
                    waiting.append(owner)
    return {k for k in range(len(inverted)) if k not in left or k in right}
