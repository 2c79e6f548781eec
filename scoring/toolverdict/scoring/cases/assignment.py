"""Which actual call answers which expected one.

Only equal names may pair, so the problem splits by tool. Within a tool the assignment maximises,
in this order: the number of pairs, the sum of argument scores, the pairs wholly right, the pairs
whose call succeeded, and calls in their listed order. It is solved exactly (Hungarian method), so
that the order in which either side is listed changes no score, duplicates are one to one, and of a
failed and a successful call the successful one is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from toolverdict.instrument.names import bare_name
from toolverdict.scoring.cases.arguments import Comparison, compare_arguments
from toolverdict.scoring.cases.model import Expectation
from toolverdict.scoring.model import Captured, Placed


@dataclass(frozen=True, slots=True)
class Pair:
    """An expected call and the one that answers it; ``comparison`` None: nothing to compare."""

    expected: int
    call: Placed
    comparison: Comparison | None


@dataclass(frozen=True, slots=True)
class Assignment:
    """Pairs by the order of expectation; expected indexes and calls that stay alone."""

    pairs: tuple[Pair, ...]
    missing: tuple[int, ...]
    extra: tuple[Placed, ...]


def assign(expected: Sequence[Expectation], calls: Sequence[Placed]) -> Assignment:
    """Pairs expected with actual calls, each at most once."""
    pairs: list[Pair] = []
    for rows, columns in _by_tool(expected, calls):
        cells = [[_cell(expected[row], call) for call in columns] for row in rows]
        for i, j in _solve(cells, columns):
            expectation, call = expected[rows[i]], columns[j]
            pairs.append(Pair(rows[i], call, compare(expectation, call)))
    pairs.sort(key=lambda pair: pair.expected)
    answered = {pair.expected for pair in pairs}
    used = {pair.call.index for pair in pairs}
    return Assignment(
        tuple(pairs),
        tuple(index for index in range(len(expected)) if index not in answered),
        tuple(call for call in calls if call.index not in used),
    )


def compare(expectation: Expectation, place: Placed) -> Comparison | None:
    """The arguments of a call against an expectation; None where they were not captured.

    None as well where the expectation names no arguments.
    """
    if expectation.arguments is None or place.call.arguments_state is not Captured.CAPTURED:
        return None
    exact = expectation.match == "exact"
    return compare_arguments(expectation.arguments, place.call.arguments, exact=exact)


def _by_tool(
    expected: Sequence[Expectation], calls: Sequence[Placed]
) -> list[tuple[list[int], list[Placed]]]:
    """Per tool, the indexes of its expectations and its calls; a server prefix is an alias."""
    rows: dict[str, list[int]] = {}
    for index, expectation in enumerate(expected):
        rows.setdefault(bare_name(expectation.tool), []).append(index)
    columns: dict[str, list[Placed]] = {}
    for call in calls:
        columns.setdefault(bare_name(call.call.tool), []).append(call)
    return [(rows[tool], columns[tool]) for tool in rows if tool in columns]


def _solve(
    cells: Sequence[Sequence[tuple[float, bool]]], columns: Sequence[Placed]
) -> list[tuple[int, int]]:
    """The best pairs. Each criterion is scaled past all that the next ones can add up to."""
    n, m = len(cells), len(columns)
    size = max(n, m)
    i, j = np.indices((n, m), dtype=np.float64)
    # Of all assignments the order-keeping one has the least sum of squared distances.
    distance = i / max(1, n - 1) - j / max(1, m - 1)
    closeness = (1.0 - distance**2) * size**2
    succeeded = np.array([not call.call.outcome.failed for call in columns], dtype=np.float64)
    wholly = np.array([[whole for _, whole in row] for row in cells], dtype=np.float64)
    score = np.array([[score for score, _ in row] for row in cells], dtype=np.float64)
    one_success = size * size**2 + 1.0
    one_whole = size * one_success + 1.0
    one_score = (size * one_whole + 1.0) * 1e4  # sums of scores differ by about 1e-4 or not at all
    weight = score * one_score + wholly * one_whole + succeeded * one_success + closeness
    rows, cols = linear_sum_assignment(weight, maximize=True)
    return list(zip(rows.tolist(), cols.tolist(), strict=True))


def _cell(expectation: Expectation, place: Placed) -> tuple[float, bool]:
    """Score of a possible pair and whether it is wholly right; what cannot be compared is."""
    comparison = compare(expectation, place)
    return (1.0, True) if comparison is None else (comparison.score, comparison.wholly_right)
