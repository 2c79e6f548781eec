"""Of pairs that are equally right, those that keep the case's order.

Each tool's pairs are best by themselves, and often others would be as good: of two equal payments
the one after the look-up is meant where the case says so. Which tool takes which call is chosen tool
by tool, each given the choice of the others, from two beginnings: what each had chosen by itself,
and the calls that would have come first in a run in perfect order. Two equal choices of one tool
need no such search, since they never cross.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from toolverdict.scoring.cases.order import Precedence, constraints
from toolverdict.scoring.cases.pairing import Liked, Pair, ToolPairs
from toolverdict.scoring.model import Placed

_MOST_ROUNDS = 8
_MOST_STEPS = 1_000_000  # expectations times calls; bounds the work on hostile traces


def keep_order(tools: Sequence[ToolPairs], precedes: Precedence) -> None:
    """Chooses again where that breaks fewer constraints; what is paired and its worth stay."""
    free = [tool for tool in tools if tool.has_choice]
    if len(tools) < 2 or not free or precedes.says_nothing:
        return
    fewest, best = _broken(tools, precedes), [tool.found for tool in tools]
    if not fewest or sum(len(tool.slots) * len(tool.columns) for tool in tools) > _MOST_STEPS:
        return
    free = [tool for tool in free if not tool.settled]
    if not free:
        return
    for from_first_calls in (False, True):
        if from_first_calls:
            _take_first_calls(free, tools, precedes)
        for _ in range(_MOST_ROUNDS):
            changed = [tool.choose(_harmless(tool, tools, precedes)) for tool in free]
            broken = _broken(tools, precedes)
            if broken < fewest:
                fewest, best = broken, [tool.found for tool in tools]
            if not fewest or not any(changed):
                break
        if not fewest:
            break
    for tool, found in zip(tools, best, strict=True):
        tool.found = found


def _broken(tools: Iterable[ToolPairs], precedes: Precedence) -> int:
    """How many constraints all pairs together break."""
    matched: dict[int, list[Placed]] = {}
    for tool in tools:
        for pair in tool.pairs:
            matched.setdefault(pair.expected, []).append(pair.call)
    return sum(one.held is False for one in constraints(matched, precedes.before))


def _harmless(tool: ToolPairs, tools: Iterable[ToolPairs], precedes: Precedence) -> Liked:
    """Calls by how few constraints with the other tools' pairs they break."""
    others = [pair for other in tools if other is not tool for pair in other.pairs]
    return {index: _kept(index, tool.columns, others, precedes) for index in tool.indexes}


def _kept(
    index: int, calls: Sequence[Placed], others: Sequence[Pair], precedes: Precedence
) -> list[int]:
    ends = sorted(_end(pair.call) for pair in others if precedes(pair.expected, index))
    starts = sorted(pair.call.call.start_ns for pair in others if precedes(index, pair.expected))
    return [
        bisect_right(ends, call.call.start_ns) - len(ends) - bisect_left(starts, _end(call))
        for call in calls
    ]


def _take_first_calls(
    free: Iterable[ToolPairs], tools: Iterable[ToolPairs], precedes: Precedence
) -> None:
    """Takes, in the order of the expectations, the first call after all that come before it."""
    of_expectation = {index: tool for tool in tools for index in tool.indexes}
    ended: dict[int, int] = {}
    taken: set[int] = set()
    liked: dict[int, list[int]] = {}
    followed = {i: sum(precedes(i, other) for other in of_expectation) for i in of_expectation}
    # Of those that may come next, the one that most others wait for.
    due_first = sorted(of_expectation, key=lambda i: (precedes.rank(i)[0], -followed[i], i))
    for index in due_first:
        columns = of_expectation[index].columns
        liked[index] = [0] * len(columns)
        due = max((end for one, end in ended.items() if precedes(one, index)), default=0)
        for _ in range(sum(slot.expected == index for slot in of_expectation[index].slots)):
            waiting = [
                at
                for at in of_expectation[index].nearest(index)
                if columns[at].call.start_ns >= due and columns[at].index not in taken
            ]
            if not waiting:
                break
            first = min(waiting, key=lambda at: _end(columns[at]))
            taken.add(columns[first].index)
            liked[index][first] = 1
            ended[index] = max(ended.get(index, 0), _end(columns[first]))
    for tool in free:
        tool.choose({index: liked[index] for index in tool.indexes})


def _end(place: Placed) -> int:
    """When a call ended; of one without an end nothing shows more than when it started."""
    end = place.call.end_ns
    return place.call.start_ns if end is None else end
