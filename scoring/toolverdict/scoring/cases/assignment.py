"""Which actual call answers which expected one.

Only equal names may pair, so the problem splits by tool. Within a tool the assignment maximises, in
this order: the number of pairs, the sum of argument scores, the pairs that are required and not only
optional, the pairs wholly right, the pairs that ended as expected, the case's order between tools,
and calls in their listed order. All but the order between tools is solved exactly, so that the order
in which either side is listed changes no score, duplicates are one to one, and of a failed and a
successful call the successful one is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from toolverdict.scoring.cases.keeping_order import keep_order
from toolverdict.scoring.cases.model import Expectation
from toolverdict.scoring.cases.order import Precedence
from toolverdict.scoring.cases.pairing import Pair, ToolPairs, best_pairs, tool_of
from toolverdict.scoring.cases.references import Answers
from toolverdict.scoring.model import Placed


@dataclass(frozen=True, slots=True)
class Assignment:
    """Pairs in the order of expectation, and what stays alone on either side.

    ``missing`` are required expectations, once for each call that is missing.
    """

    pairs: tuple[Pair, ...]
    missing: tuple[int, ...]
    extra: tuple[Placed, ...]


def assign(
    expected: Sequence[Expectation],
    precedes: Precedence,
    calls: Sequence[Placed],
    all_calls: Sequence[Placed],
) -> tuple[Assignment, Answers]:
    """Pairs expected with actual calls, each at most once; and what references then stand for.

    Args:
        expected: the expectations of one way to do the task.
        precedes: which of them come before which.
        calls: the calls that may answer them, the last attempt of each.
        all_calls: every call of the trajectory, each at its own index.

    Where expectations refer to results of other calls, the pairs decide what is expected: it is
    assigned again until nothing changes, at most as often as references can build on each other.
    """
    answers = Answers(all_calls)
    found = _assigned(expected, precedes, calls, answers)
    if not any(e.plan is not None and e.plan.refers for e in expected):
        return found, answers
    for _ in range(len(expected) + 1):
        answers = Answers.of(expected, _answering(found), all_calls)
        again = _assigned(expected, precedes, calls, answers)
        settled = _answering(again) == _answering(found)
        found = again
        if settled:
            break
    return found, answers


def _assigned(
    expected: Sequence[Expectation],
    precedes: Precedence,
    calls: Sequence[Placed],
    answers: Answers,
) -> Assignment:
    by_tool: dict[str, list[Placed]] = {}
    for call in calls:
        by_tool.setdefault(tool_of(call.call.tool), []).append(call)
    tools = [
        ToolPairs(indexes, expected, by_tool.get(tool, []), answers)
        for tool, indexes in _by_name(expected, precedes).items()
    ]
    keep_order(tools, precedes)
    pairs = [pair for tool in tools for pair in (*tool.pairs, *tool.beyond())]
    missing = sorted(index for tool in tools for index in tool.missing)
    pairs.sort(key=lambda pair: (pair.expected, pair.call.index))
    used = {pair.call.index for pair in pairs}
    extra = tuple(call for call in calls if call.index not in used)
    return Assignment(tuple(pairs), tuple(missing), extra)


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
        rows = [pair.expected for pair in of_tool]
        first += best_pairs(rows, expected, columns, answers)
    return first


def _by_name(expected: Sequence[Expectation], precedes: Precedence) -> dict[str, list[int]]:
    """The expectations of each tool in their order, by its bare name: a server may be left out."""
    rows: dict[str, list[int]] = {}
    for index in sorted(range(len(expected)), key=precedes.rank):
        rows.setdefault(tool_of(expected[index].tool), []).append(index)
    return rows


def _answering(assignment: Assignment) -> dict[int, int]:
    """Which call answers each expectation; of several the first."""
    return {pair.expected: pair.call.index for pair in reversed(assignment.pairs)}
