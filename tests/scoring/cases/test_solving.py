"""Assignment problems of several criteria, against every assignment that there is."""

from collections.abc import Iterator
from random import Random

import numpy as np
import pytest

from toolverdict.scoring.cases.solving import Weights, few, solve, solve_few

Pairs = list[tuple[int, int]]


def problem(random: Random, rows: int, columns: int, criteria: int = 3) -> list[Weights]:
    """Whole numbers, the first criterion past all others; a fifth of the pairs are impossible."""
    grids = [
        np.array([[float(random.randint(0, 3)) for _ in range(columns)] for _ in range(rows)])
        for _ in range(criteria)
    ]
    grids[0] += 5.0
    for row in range(rows):
        for column in range(columns):
            if random.random() < 0.2:
                grids[0][row, column] = -np.inf
    return grids


def every(possible: Weights, row: int = 0, used: frozenset[int] = frozenset()) -> Iterator[Pairs]:
    if row == len(possible):
        yield []
        return
    yield from every(possible, row + 1, used)
    for column, worth in enumerate(possible[row]):
        if column not in used and not np.isneginf(worth):
            for rest in every(possible, row + 1, used | {column}):
                yield [(row, column), *rest]


def sums(pairs: Pairs, grids: list[Weights]) -> tuple[float, ...]:
    return tuple(sum(float(grid[pair]) for pair in pairs) for grid in grids)


def as_worth(grids: list[Weights]) -> list[list[tuple[int, ...] | None]]:
    rows, columns = grids[0].shape
    return [
        [
            None if np.isneginf(grids[0][i, j]) else tuple(int(grid[i, j]) for grid in grids)
            for j in range(columns)
        ]
        for i in range(rows)
    ]


SHAPES = [(1, 1), (1, 6), (6, 1), (2, 2), (2, 4), (2, 5), (4, 2), (5, 2), (3, 3), (3, 7), (4, 4)]


@pytest.mark.parametrize(("rows", "columns"), SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_no_assignment_is_better(rows: int, columns: int, seed: int) -> None:
    grids = problem(Random(seed * 100 + rows * 10 + columns), rows, columns)
    best = max(sums(pairs, grids) for pairs in every(grids[0]))
    for found in (solve(grids), solve_few(as_worth(grids))):
        assert sums(found, grids) == best
        assert found == sorted(found)
        assert len({row for row, _ in found}) == len({column for _, column in found}) == len(found)


@pytest.mark.parametrize(("rows", "columns"), [(2, 9), (9, 2), (3, 12), (12, 3)], ids=str)
def test_of_many_columns_those_worth_having_are_enough(rows: int, columns: int) -> None:
    for seed in range(10):
        grids = problem(Random(seed), rows, columns)
        assert sums(solve(grids), grids) == sums(solve_few(as_worth(grids)), grids)


def test_a_later_criterion_never_outweighs_an_earlier_one() -> None:
    first = np.array([[1.0, 0.0], [0.0, 1.0]])
    against = np.array([[0.0, 1e9], [1e9, 0.0]])
    assert solve([first, against]) == [(0, 0), (1, 1)]
    assert solve([np.ones((2, 2)), against]) == [(0, 1), (1, 0)]
    assert solve([np.ones((2, 2)), np.ones((2, 2)), against]) == [(0, 1), (1, 0)]


def test_sums_that_differ_by_rounding_alone_are_equal() -> None:
    """0.1 + 0.2 is 0.3: the second criterion decides."""
    first = np.array([[0.1, 0.3], [0.0, 0.2]])
    assert first[0, 0] + first[1, 1] != first[0, 1] + first[1, 0]
    second = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert solve([first, second]) == [(0, 1), (1, 0)]
    apart = np.array([[0.1, 0.3], [0.0, 0.2 + 1e-6]])
    assert solve([apart, second]) == [(0, 0), (1, 1)]


def test_a_long_chain_of_exchanges_is_followed() -> None:
    """Every row may take its own column or the next: only all together can move."""
    size = 12
    first = np.full((size, size), -np.inf)
    for row in range(size):
        first[row, row] = first[row, (row + 1) % size] = 1.0
    second = np.zeros((size, size))
    second[0, 1] = 1.0
    assert solve([first, second]) == [(row, (row + 1) % size) for row in range(size)]


def test_what_may_not_be_a_pair_is_none() -> None:
    grids = [np.full((2, 3), -np.inf), np.ones((2, 3))]
    assert solve(grids) == []
    assert solve_few([[None] * 3] * 2) == []
    assert solve_few([]) == []
    one = np.array([[-np.inf, 1.0], [-np.inf, 1.0]])
    assert solve([one, np.array([[9.0, 1.0], [9.0, 2.0]])]) == [(1, 1)]


def test_a_pair_worth_nothing_is_made_only_where_it_is_possible() -> None:
    grids = [np.array([[0.0, -np.inf], [-np.inf, -np.inf]])]
    assert solve(grids) == [(0, 0)]


@pytest.mark.parametrize(
    ("rows", "columns", "quick"),
    [(1, 50, True), (1, 51, False), (50, 1, True), (2, 12, True), (2, 13, False), (13, 2, False)],
)
def test_few_are_tried_and_many_are_solved(rows: int, columns: int, quick: bool) -> None:
    """Columns times two to the number of rows, times the rows: a hundred steps."""
    assert few(rows, columns) is quick


def test_every_possible_pair_is_made_though_it_is_worth_nothing_more() -> None:
    grids = [np.ones((3, 3)), np.zeros((3, 3))]
    assert len(solve(grids)) == len(solve_few(as_worth(grids))) == 3
