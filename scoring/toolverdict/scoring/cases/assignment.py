"""Which actual call answers which expected one.

Only equal names may pair, so the problem splits by tool. Within a tool the assignment maximises, in
this order: the number of pairs, the sum of argument scores, the pairs that are required and not only
optional, the pairs wholly right, the pairs that ended as expected, and calls in their listed order.
It is solved exactly, so that the order in which either side is listed changes no score, duplicates
are one to one, and of a failed and a successful call the successful one is taken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

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

_Index = TypeVar("_Index", int, NDArray[np.float64])


@dataclass(frozen=True, slots=True)
class Pair:
    """An expected call and the one that answers it; ``comparison`` None: nothing to compare."""

    expected: int
    call: Placed
    comparison: Comparison | None


@dataclass(frozen=True, slots=True)
class Assignment:
    """Pairs in the order of expectation, and what stays alone on either side.

    ``missing`` are required expectations, once for each call that is missing.
    """

    pairs: tuple[Pair, ...]
    missing: tuple[int, ...]
    extra: tuple[Placed, ...]


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


def assign(
    expected: Sequence[Expectation], calls: Sequence[Placed], all_calls: Sequence[Placed]
) -> tuple[Assignment, Answers]:
    """Pairs expected with actual calls, each at most once; and what references then stand for.

    Args:
        expected: the expectations of one way to do the task.
        calls: the calls that may answer them, the last attempt of each.
        all_calls: every call of the trajectory, each at its own index.

    Where expectations refer to results of other calls, the pairs decide what is expected: it is
    assigned again until nothing changes, at most as often as references can build on each other.
    """
    answers = Answers(all_calls)
    found = _assigned(expected, calls, answers)
    if not any(e.plan is not None and e.plan.refers for e in expected):
        return found, answers
    for _ in range(len(expected) + 1):
        answers = Answers.of(expected, _answering(found), all_calls)
        again = _assigned(expected, calls, answers)
        settled = _answering(again) == _answering(found)
        found = again
        if settled:
            break
    return found, answers


def compare(expectation: Expectation, place: Placed, answers: Answers) -> Comparison | None:
    """The arguments of a call against an expectation; None where they were not captured.

    None as well where the expectation names no arguments.
    """
    plan = expectation.plan
    if plan is None or place.call.arguments_state is not Captured.CAPTURED:
        return None
    return plan.compare(place.call.arguments, answers.context(place))


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
        if not _may_pair(expectation, call):
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


def _assigned(
    expected: Sequence[Expectation], calls: Sequence[Placed], answers: Answers
) -> Assignment:
    pairs: list[Pair] = []
    missing: list[int] = []
    by_tool: dict[str, list[Placed]] = {}
    for call in calls:
        by_tool.setdefault(tool_of(call.call.tool), []).append(call)
    for tool, indexes in _by_name(expected).items():
        columns = by_tool.get(tool, [])
        slots = [slot for index in indexes for slot in _slots(index, expected[index], len(columns))]
        grid = _Grid(expected, columns, answers)
        found = _best(slots, grid)
        answered = {row for row, _ in found}
        pairs += [grid.pair(slots[row].expected, column) for row, column in found]
        taken = {column for _, column in found}
        rest = [column for column in range(len(columns)) if column not in taken]
        pairs += _beyond([i for i in indexes if expected[i].count.max is None], rest, grid)
        missing += [s.expected for row, s in enumerate(slots) if s.required and row not in answered]
    pairs.sort(key=lambda pair: (pair.expected, pair.call.index))
    used = {pair.call.index for pair in pairs}
    extra = tuple(call for call in calls if call.index not in used)
    return Assignment(tuple(pairs), tuple(sorted(missing)), extra)


def first_tries(
    expected: Sequence[Expectation],
    pairs: Sequence[Pair],
    tries: Sequence[Placed],
    answers: Answers,
) -> list[Pair]:
    """The pairs again, with as many of each tool's first tries in place of what answered in the end.

    A wrong first try stays visible this way, whether it failed and was repeated, or succeeded and
    was made good by another call.
    """
    first: list[Pair] = []
    by_tool: dict[str, list[Pair]] = {}
    for pair in pairs:
        by_tool.setdefault(tool_of(pair.call.call.tool), []).append(pair)
    for tool, of_tool in by_tool.items():
        columns = [place for place in tries if tool_of(place.call.tool) == tool][: len(of_tool)]
        if {place.index for place in columns} == {pair.call.index for pair in of_tool}:
            first += of_tool
            continue
        slots = [_Slot(pair.expected, True) for pair in of_tool]
        grid = _Grid(expected, columns, answers)
        first += [grid.pair(slots[row].expected, at) for row, at in _best(slots, grid)]
    return first


def _by_name(expected: Sequence[Expectation]) -> dict[str, list[int]]:
    """The expectations of each tool, by its bare name: a server prefix may be left out."""
    rows: dict[str, list[int]] = {}
    for index, expectation in enumerate(expected):
        rows.setdefault(tool_of(expectation.tool), []).append(index)
    return rows


def _slots(index: int, expectation: Expectation, available: int) -> list[_Slot]:
    """The calls that an expectation may take: the required ones, and as many more as there are."""
    least, most = expectation.count.min, expectation.count.max
    most = max(least, min(available, _MOST_SLOTS if most is None else most))
    return [_Slot(index, n < least and not expectation.optional) for n in range(most)]


def _may_pair(expectation: Expectation, call: ToolCall) -> bool:
    """Whether the servers agree; where one of the two names none, they do."""
    wanted = _server(expectation.tool)
    if wanted is None:
        return True
    got = call.tool_server or _server(call.known_as)
    return got is None or got == wanted


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


def _best(slots: Sequence[_Slot], grid: _Grid) -> list[tuple[int, int]]:
    """The best pairs of slots and columns."""
    n = len(slots)
    m = min(len(grid.columns), max(_MOST_COLUMNS, 2 * n))
    if n == m and all(grid.cell(s.expected, at) == _PERFECT for at, s in enumerate(slots)):
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
    return solve(
        (
            np.where(possible, past + score, -np.inf),
            (required * past + wholly) * past + ended,
            # Of all assignments the order-keeping one has the least sum of squared distances.
            -_apart(i, j, n, m),
        )
    )


def _beyond(unlimited: Sequence[int], columns: Sequence[int], grid: _Grid) -> Iterator[Pair]:
    """Calls that are left over, as answers to an expectation that takes any number of them."""
    for column in columns:
        cells = [(cell, -index) for index in unlimited if (cell := grid.cell(index, column))]
        if cells:
            yield grid.pair(-max(cells)[1], column)


def _apart(row: _Index, column: _Index, rows: int, columns: int) -> _Index:
    """How far apart the two stand in their lists; of one list's only member, how far from the first."""
    return (row * max(1, columns - 1) - column * max(1, rows - 1)) ** 2


def ended_as_expected(expectation: Expectation, call: ToolCall) -> bool | None:
    """Whether a call ended as the case wants; None where nothing shows how it ended."""
    if expectation.outcome == "success" and call.outcome.succeeded:
        return True
    if expectation.outcome == "any" or expectation.reactions_to(call.outcome) is not None:
        return True
    if not call.outcome.succeeded and not call.outcome.failed:
        return None if call.outcome is Outcome.UNKNOWN else False
    return call.outcome.succeeded == (expectation.outcome == "success")


def _answering(assignment: Assignment) -> dict[int, int]:
    """Which call answers each expectation; of several the first."""
    return {pair.expected: pair.call.index for pair in reversed(assignment.pairs)}
