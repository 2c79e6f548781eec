"""Assignment problems with several criteria, the earlier ones counting before all later ones.

Each criterion is solved exactly (Hungarian method). Of an optimal assignment the dual potentials
say which pairs any other optimal one can use: those whose reduced cost is 0. The next criterion
chooses among these alone, so that no weight has to be scaled past another and none is lost to
rounding.
"""

from collections.abc import Sequence
from operator import add

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

Weights = NDArray[np.float64]

_FEW = 100  # steps of a small problem, until arrays are quicker
_NEAR = 1e-7  # reduced costs below are 0: sums of scores differ by far more or not at all


def few(rows: int, columns: int) -> bool:
    """Whether :func:`solve_few` is the quicker one."""
    small, large = sorted((rows, columns))
    return (large * small << small) <= _FEW


def solve_few(worth: Sequence[Sequence[tuple[int, ...] | None]]) -> list[tuple[int, int]]:
    """The same for a few rows and columns, by trying every subset of the smaller side.

    Args:
        worth: what each pair is worth by each criterion, in whole numbers; None may not be a pair.
    """
    rows = len(worth)
    columns = len(worth[0]) if rows else 0
    if rows < columns:
        turned = solve_few([list(column) for column in zip(*worth, strict=True)])
        return sorted((row, column) for column, row in turned)
    # By the columns taken so far: the best sum, and how it is reached.
    best: dict[int, tuple[tuple[int, ...], tuple[tuple[int, int], ...]]] = {0: ((), ())}
    for row, line in enumerate(worth):
        following = dict(best)
        for taken, (total, pairs) in best.items():
            for column, gain in enumerate(line):
                if gain is None or taken >> column & 1:
                    continue
                reached = tuple(map(add, total, gain)) if total else gain
                key = taken | 1 << column
                if key not in following or reached > following[key][0]:
                    following[key] = reached, (*pairs, (row, column))
        best = following
    return list(max(best.values())[1])


def solve(criteria: Sequence[Weights]) -> list[tuple[int, int]]:
    """Pairs of rows and columns, each in at most one pair, that are best by the criteria in turn.

    Args:
        criteria: what each pair is worth, all of one shape; a pair that may not be is ``-inf`` in
            the first, and is worth 0 like one that is not made.
    """
    if criteria[0].shape[0] > criteria[0].shape[1]:
        return sorted((row, column) for column, row in solve([c.T for c in criteria]))
    kept = _worth_having(criteria)
    found = _solve([criterion[:, kept] for criterion in criteria])
    return [(row, int(kept[column])) for row, column in found]


def _worth_having(criteria: Sequence[Weights]) -> NDArray[np.intp]:
    """The columns that are among the best of some row, as many for each as there are rows.

    No others are needed: of so many, one is always free.
    """
    rows, columns = criteria[0].shape
    if columns <= rows * 2:
        return np.arange(columns)
    best = [
        np.lexsort([np.arange(columns), *(-criterion[row] for criterion in reversed(criteria))])
        for row in range(rows)
    ]
    return np.unique(np.concatenate([order[:rows] for order in best]))


def _solve(criteria: Sequence[Weights]) -> list[tuple[int, int]]:
    rows, columns = criteria[0].shape
    possible = ~np.isneginf(criteria[0])
    size = max(rows, columns)
    allowed = np.ones((size, size), dtype=np.bool_)
    chosen = np.arange(size)
    for number, criterion in enumerate(criteria):
        weight = np.zeros((size, size))
        weight[:rows, :columns] = np.where(possible, criterion, 0.0)
        weight[~allowed] = -np.inf
        _, chosen = linear_sum_assignment(np.where(allowed, -weight, np.inf))
        if number < len(criteria) - 1:
            allowed &= _tight(weight, chosen)
    return [
        (row, int(column))
        for row, column in enumerate(chosen.tolist()[:rows])
        if column < columns and possible[row, column]
    ]


def _tight(weight: Weights, chosen: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which pairs some optimal assignment uses.

    The potentials of the columns are longest paths in the graph of exchanges (Bellman-Ford), which
    has no profitable circle since ``chosen`` is optimal.
    """
    size = len(weight)
    own = weight[np.arange(size), chosen]
    gain = weight - own[:, None]  # what row i gains by taking column j instead of its own
    potential = np.zeros(size)
    for _ in range(size):
        reached = np.maximum(potential, (potential[chosen][:, None] + gain).max(axis=0))
        if np.all(reached - potential <= _NEAR / size):
            break
        potential = reached
    reduced = potential[None, :] - (potential[chosen][:, None] + gain)
    return np.asarray(reduced <= _NEAR, dtype=np.bool_)
