"""Was a tool needed, and was one called: one decision per case, as a cell of the confusion matrix."""

from typing import Literal

from toolverdict.instrument.names import exactly_tool, same_tool
from toolverdict.scoring.cases.model import Case, Extra
from toolverdict.scoring.model import Placed

Cell = Literal["tp", "fp", "fn", "tn"]
Treatment = Literal["penalise", "allow", "forbid"]


def need(case: Case, counted: bool) -> Cell | None:
    """``tp`` needed and called, ``fn`` needed and not called, ``fp`` called for nothing, ``tn``.

    None where the case leaves it to the agent. ``counted``: whether a call was made, but for those
    that the case allows beside what it expects.
    """
    needed = case.needs_tools
    if needed is None:
        return None
    if needed:
        return "tp" if counted else "fn"
    return "fp" if counted else "tn"


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
