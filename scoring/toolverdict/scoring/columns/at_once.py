"""Which calls ran at once, for many trajectories in one go; see :mod:`toolverdict.scoring.parallel`."""

from typing import Final

import numpy as np

from toolverdict.scoring.columns.arrays import NONE, Rows
from toolverdict.scoring.parallel import Step, overlapping

_MOST: Final = 1 << 62


def at_once(trace: Rows, start: Rows, end: Rows, parent: Rows) -> Rows:
    """The group of each call, -1 for none.

    Args:
        trace: the trajectory of each call; those of one lie together, in order.
        start: when each began, in nanoseconds.
        end: when each ended.
        parent: the row of each call's parent.
    """
    group = np.full(len(trace), NONE)
    if not len(trace):
        return group
    first = np.flatnonzero(np.diff(trace, prepend=NONE))
    number = np.cumsum(np.diff(trace, prepend=trace[0]) != 0)
    length = end - start[first][number]
    span = int(length.max()) + 1
    under = parent == parent[first][number]
    simple = np.logical_and.reduceat(under, first)[number]
    if span * len(first) > _MOST:
        simple[:] = False
    # The latest end so far, of each trajectory: those before it are out of reach.
    latest = np.maximum.accumulate(np.where(simple, number * span + length, 0))
    begin = number * span + (start - start[first][number])
    overlaps = np.zeros(len(trace), dtype=np.bool_)
    overlaps[1:] = (np.diff(number) == 0) & (begin[1:] < latest[:-1])
    overlaps &= simple
    counted = np.cumsum(~overlaps, dtype=np.int64)
    steps = counted - counted[first][number]
    member = overlaps.copy()
    member[:-1] |= overlaps[1:]
    group[member] = steps[member]
    for one in np.unique(number[~simple]):
        begins, stop = np.searchsorted(number, (one, one + 1))
        rows = range(begins, stop)
        found = overlapping(Step(int(start[i]), int(end[i]), int(parent[i])) for i in rows)
        for index, step in found.items():
            group[begins + index] = step
    return group
