"""The pairs of one tool: which of its calls answers which of its expectations.

They are solved exactly, by the criteria that :mod:`toolverdict.scoring.cases.assignment` lists.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from toolverdict.instrument.names import bare_name
from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.cases.arguments import Comparison
from toolverdict.scoring.cases.model import Expectation
from toolverdict.scoring.cases.references import Answers
from toolverdict.scoring.cases.solving import few, solve, solve_few
from toolverdict.scoring.model import Captured, Placed, ToolCall

# Bounds of the work on hostile traces: how many calls of one tool compete for what is expected, and
# with how many slots an expectation that takes any number of calls competes for them.
_MOST_COLUMNS = 1_000
_MOST_SLOTS = 200

_NEAR = 1e-9  # scores that differ by less are the same

Liked: TypeAlias = Mapping[int, Sequence[int]]
"""By expectation, how much each column is liked, of those that are equally right."""

_Index = TypeVar("_Index", int, NDArray[np.float64])


@dataclass(frozen=True, slots=True)
class Pair:
    """An expected call and the one that answers it; ``comparison`` None: nothing to compare."""

    expected: int
    call: Placed
    comparison: Comparison | None


class _Slot(NamedTuple):
    """One call that an expectation stands for."""

    expected: int
    required: bool


class _Cell(NamedTuple):
    """What a possible pair is worth; None in its place: the two may not pair."""

    score: float
    wholly: bool
    ended: bool


_PERFECT = _Cell(1.0, True, True)


def compare(expectation: Expectation, place: Placed, answers: Answers) -> Comparison | None:
    """The arguments of a call against an expectation; None where they were not captured.

    None as well where the expectation names no arguments.
    """
    plan = expectation.plan
    if plan is None or place.call.arguments_state is not Captured.CAPTURED:
        return None
    return plan.compare(place.call.arguments, answers.context(place))


class ToolPairs:
    """The expectations of one tool, its calls, and the pairs of them that are best."""

    def __init__(
        self,
        indexes: Sequence[int],
        expected: Sequence[Expectation],
        columns: Sequence[Placed],
        answers: Answers,
    ) -> None:
        """Solves it.

        Args:
            indexes: the expectations of the tool, in their order.
            expected: all expectations.
            columns: the calls of the tool, in time order.
            answers: what references stand for.
        """
        self.indexes = indexes
        self.columns = columns
        self.slots = [s for i in indexes for s in _slots(i, expected[i], len(columns))]
        self._grid = _Grid(expected, columns, answers)
        self._unlimited = [index for index in indexes if expected[index].count.max is None]
        self.found = _best(self.slots, self._grid)

    @property
    def has_choice(self) -> bool:
        """Whether other pairs may be as good."""
        return bool(self.found) and (len(self.slots) > 1 or len(self.columns) > 1)

    @property
    def settled(self) -> bool:
        """Whether no other pairs are as good, as far as rows or columns show it one by one."""
        rows, columns = range(len(self.slots)), range(len(self.columns))
        if len(self.found) == len(self.slots):
            rivals = ((at, [(at[0], column) for column in columns]) for at in self.found)
        elif len(self.found) == len(self.columns):
            rivals = ((at, [(row, at[1]) for row in rows]) for at in self.found)
        else:
            return False
        return all(
            self._worth(*other) < self._worth(*at)
            for at, others in rivals
            for other in others
            if other != at
        )

    def _worth(self, row: int, column: int) -> tuple[float, ...]:
        """What a pair is worth, to be compared with others; the least where there may be none."""
        slot = self.slots[row]
        cell = self._grid.cell(slot.expected, column)
        if cell is None:
            return ()
        return round(cell.score / _NEAR), slot.required, cell.wholly, cell.ended

    @property
    def pairs(self) -> list[Pair]:
        """The pairs, as many of an expectation as its count allows."""
        return [self._grid.pair(self.slots[row].expected, column) for row, column in self.found]

    @property
    def missing(self) -> list[int]:
        """The expectations that lack a required call, once for each call."""
        answered = {row for row, _ in self.found}
        return [
            s.expected for row, s in enumerate(self.slots) if s.required and row not in answered
        ]

    def beyond(self) -> Iterator[Pair]:
        """Calls that are left over, as answers to an expectation that takes any number of them."""
        taken = {column for _, column in self.found}
        for column in range(len(self.columns)):
            cells = [
                (cell, -index)
                for index in self._unlimited
                if column not in taken and (cell := self._grid.cell(index, column))
            ]
            if cells:
                yield self._grid.pair(-max(cells)[1], column)

    def nearest(self, index: int) -> list[int]:
        """The columns that answer an expectation best."""
        cells = [self._grid.cell(index, column) for column in range(len(self.columns))]
        best = max((cell for cell in cells if cell is not None), default=None)
        return [] if best is None else [at for at, cell in enumerate(cells) if cell == best]

    def choose(self, liked: Liked) -> bool:
        """Takes, of the pairs that are equally good, those that are liked; whether that changed any."""
        before, self.found = self.found, _best(self.slots, self._grid, liked)
        return self.found != before


def best_pairs(
    rows: Sequence[int],
    expected: Sequence[Expectation],
    columns: Sequence[Placed],
    answers: Answers,
) -> list[Pair]:
    """The best pairs of some expectations, each as often as it is in ``rows``, and some calls."""
    slots = [_Slot(index, True) for index in rows]
    grid = _Grid(expected, columns, answers)
    return [grid.pair(slots[row].expected, column) for row, column in _best(slots, grid)]


def ended_as_expected(expectation: Expectation, call: ToolCall) -> bool | None:
    """Whether a call ended as the case wants; None where nothing shows how it ended."""
    if expectation.outcome == "success" and call.outcome.succeeded:
        return True
    if expectation.outcome == "any" or expectation.reactions_to(call.outcome) is not None:
        return True
    if not call.outcome.succeeded and not call.outcome.failed:
        return None if call.outcome is Outcome.UNKNOWN else False
    return call.outcome.succeeded == (expectation.outcome == "success")


def tool_of(name: str) -> str:
    """The name without its server; at once where it can have none."""
    return name if name.isidentifier() and "__" not in name else bare_name(name)


def _server(name: str) -> str | None:
    """The server in front of a tool's name: ``my_srv`` of ``mcp__my_srv__search``."""
    bare = tool_of(name)
    if bare == name:
        return None
    server = name.removesuffix(bare).removeprefix("mcp__").rstrip("./:_")
    return server or None


class _Grid:
    """The possible pairs of one tool's expectations and calls, each compared when it is asked for."""

    def __init__(
        self, expected: Sequence[Expectation], columns: Sequence[Placed], answers: Answers
    ) -> None:
        self.columns = columns
        self._expected = expected
        self._answers = answers
        self._comparisons: dict[tuple[int, int], Comparison | None] = {}

    def pair(self, index: int, column: int) -> Pair:
        """The pair of an expectation, by its index, and the call in a column."""
        return Pair(index, self.columns[column], self._comparison(index, column))

    def cell(self, index: int, column: int) -> _Cell | None:
        """What a pair is worth; what cannot be compared may be right."""
        expectation, call = self._expected[index], self.columns[column].call
        if not may_pair(expectation, call):
            return None
        ended = ended_as_expected(expectation, call) is not False
        comparison = self._comparison(index, column)
        if comparison is None:
            return _Cell(1.0, True, ended)
        return _Cell(comparison.score, comparison.wholly_right, ended)

    def _comparison(self, index: int, column: int) -> Comparison | None:
        key = index, column
        if key not in self._comparisons:
            self._comparisons[key] = compare(
                self._expected[index], self.columns[column], self._answers
            )
        return self._comparisons[key]


def _slots(index: int, expectation: Expectation, available: int) -> list[_Slot]:
    """The calls that an expectation may take: the required ones, and as many more as there are."""
    least, most = expectation.count.min, expectation.count.max
    most = max(least, min(available, _MOST_SLOTS if most is None else most))
    return [_Slot(index, n < least and not expectation.optional) for n in range(most)]


def may_pair(expectation: Expectation, call: ToolCall) -> bool:
    """Whether the servers agree; where one of the two names none, they do."""
    wanted = _server(expectation.tool)
    if wanted is None:
        return True
    got = call.tool_server or _server(call.known_as)
    return got is None or got == wanted


def _best(slots: Sequence[_Slot], grid: _Grid, liked: Liked | None = None) -> list[tuple[int, int]]:
    """The best pairs of slots and columns.

    Args:
        slots: the calls that are expected, in their order.
        grid: what each pair is worth.
        liked: the last criterion but for the listed order.
    """
    n = len(slots)
    m = min(len(grid.columns), max(_MOST_COLUMNS, 2 * n))
    if (
        liked is None
        and n == m
        and all(grid.cell(s.expected, at) == _PERFECT for at, s in enumerate(slots))
    ):
        return [(at, at) for at in range(n)]  # nothing can be better, nor more in order
    cells = [[grid.cell(slot.expected, at) for at in range(m)] for slot in slots]
    if few(n, m):
        return solve_few(
            [
                [
                    None
                    if cell is None
                    else (
                        1,
                        round(cell.score / _NEAR),
                        slot.required,
                        cell.wholly,
                        cell.ended,
                        0 if liked is None else liked[slot.expected][column],
                        -_apart(row, column, n, m),
                    )
                    for column, cell in enumerate(line)
                ]
                for row, (slot, line) in enumerate(zip(slots, cells, strict=True))
            ]
        )
    possible = np.array([[cell is not None for cell in row] for row in cells])
    score = np.array([[0.0 if cell is None else cell.score for cell in row] for row in cells])
    wholly = np.array([[cell is not None and cell.wholly for cell in row] for row in cells])
    ended = np.array([[cell is not None and cell.ended for cell in row] for row in cells])
    required = np.array([slot.required for slot in slots])[:, None]
    past = float(max(n, m) + 1)  # more than any count of pairs
    i, j = np.indices((n, m), dtype=np.float64)
    also = [] if liked is None else [np.array([liked[s.expected][:m] for s in slots], float)]
    return solve(
        [
            np.where(possible, past + score, -np.inf),
            (required * past + wholly) * past + ended,
            *also,
            # Of all assignments the order-keeping one has the least sum of squared distances.
            -_apart(i, j, n, m),
        ]
    )


def _apart(row: _Index, column: _Index, rows: int, columns: int) -> _Index:
    """How far apart the two stand in their lists; of one list's only member, how far from the first."""
    return (row * max(1, columns - 1) - column * max(1, rows - 1)) ** 2
