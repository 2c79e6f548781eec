"""Was a tool needed, and was one called: a decision per case or user turn, in a confusion matrix."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal

from toolverdict.instrument.names import exactly_tool, same_tool
from toolverdict.scoring.cases.evidence import Evidence
from toolverdict.scoring.cases.model import Case, Extra
from toolverdict.scoring.model import Category, Finding, Placed, Trajectory

Cell = Literal["tp", "fp", "fn", "tn"]
UNKNOWN: Final[Literal["unknown"]] = "unknown"
"""In place of a cell where nothing shows which it is."""
Treatment = Literal["penalise", "allow", "forbid"]


def need(needed: bool | None, counted: bool) -> Cell | None:
    """``tp`` needed and called, ``fn`` needed and not called, ``fp`` called for nothing, ``tn``.

    None where the case leaves it to the agent. ``counted``: whether a call was made, but for those
    that the case allows beside what it expects.
    """
    if needed is None:
        return None
    if needed:
        return "tp" if counted else "fn"
    return "fp" if counted else "tn"


def needs(
    case: Case, trajectory: Trajectory, counted: Iterable[Placed]
) -> tuple[Cell | Literal["unknown"] | None, ...]:
    """A cell for each decision of a case: its user turns, else the case as a whole.

    None where the case leaves it to the agent.

    Args:
        case: what says where a tool is needed.
        trajectory: where the calls were made.
        counted: the calls that were made, but for those that the case allows beside what it expects.
    """
    counted = list(counted)
    if not case.turns:
        return (need(case.needs_tools, bool(counted)),)
    turn_of = user_turns(trajectory)
    if turn_of is None or turn_of[-1] + 1 != len(case.turns):
        return (UNKNOWN,) * len(case.turns)
    called = {turn_of[place.turn] for place in counted if place.turn is not None}
    return tuple(need(needed, at in called) for at, needed in enumerate(case.needs_by_turn))


def user_turns(trajectory: Trajectory) -> Sequence[int] | None:
    """For each request to the model the user turn that it is in, counted from 0.

    A model that asks for no tool answers the user, whose turn is next. None where requests are not
    seen, or not those that asked for each call.
    """
    asking = {place.turn for place in trajectory.calls}
    if not trajectory.turns or None in asking:
        return None
    turns, current = [], 0
    for index in range(len(trajectory.turns)):
        turns.append(current)
        current += index not in asking
    return turns


def whole(cells: Iterable[str | None]) -> Cell | None:
    """One cell for all decisions of a trajectory: a wrong one if there is any."""
    cells = set(cells)
    return next((cell for cell in _MOST_TELLING if cell in cells), None)


_MOST_TELLING: Sequence[Cell] = ("fn", "fp", "tp", "tn")


def need_findings(
    case: Case, evidence: Evidence, cells: Sequence[str | None], counted: Sequence[Placed]
) -> Iterable[Finding]:
    """What is wrong with the need of a tool, and is no missing or extra call already."""
    if case.turns:
        yield from _turn_findings(case, evidence, cells, counted)
    elif cells == ("fn",) and not any(e.least for e in evidence.way.expected):
        # A tool was needed, the case does not say which, and none was called.
        yield _unmet(evidence.trajectory, len(evidence.trajectory.turns) - 1, "")


def _turn_findings(
    case: Case, evidence: Evidence, cells: Sequence[str | None], counted: Sequence[Placed]
) -> Iterable[Finding]:
    """Calls that were made in another user turn than the one that needs them."""
    turn_of = user_turns(evidence.trajectory) or ()
    first = 0
    for number, (turn, cell) in enumerate(zip(case.turns, cells, strict=True)):
        expected = range(first, first + turn.calls)
        first += turn.calls
        if cell == "fn" and not any(index in expected for index in evidence.assignment.missing):
            last = max(at for at, one in enumerate(turn_of) if one == number)
            yield _unmet(evidence.trajectory, last, f" in user turn {number + 1}")
        elif cell == "fp":
            for place in counted:
                at = None if place.turn is None else turn_of[place.turn]
                if at == number and place not in evidence.assignment.extra:
                    yield Finding.at_call(
                        place,
                        Category.NEED_UNMET,
                        f"{place.call.tool} was called in user turn {number + 1}, which needs no tool",
                        expected="no tool call",
                        actual=place.call.tool,
                    )


def _unmet(trajectory: Trajectory, at: int, when: str) -> Finding:
    """No tool was called where one was needed: at the model's turn, else at the root."""
    turn = trajectory.turns[at] if trajectory.turns else None
    return Finding(
        Category.NEED_UNMET,
        turn.span_id if turn is not None else trajectory.root_span_id,
        f"a tool had to be called{when}, and none was",
        at_ns=turn.start_ns if turn is not None else 0,
        expected="a tool call",
    )


def treatment(extra: Extra, place: Placed) -> Treatment:
    """What becomes of a call that is not expected. Forbidding errs to matching, allowing does not."""
    name = place.call.known_as
    if any(same_tool(pattern, name) for pattern in extra.forbid):
        return "forbid"
    if extra.failed == "allow" and place.call.outcome.failed:
        return "forbid" if extra.default == "forbid" else "allow"
    if any(same_tool(pattern, name) for pattern in extra.penalise):
        return "penalise"
    if any(exactly_tool(pattern, name) for pattern in extra.allow):
        return "allow"
    return extra.default
