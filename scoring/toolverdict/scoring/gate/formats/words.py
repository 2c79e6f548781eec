"""A culprit in words, the same in every format."""

from toolverdict.scoring.gate.evidence import Culprit
from toolverdict.scoring.terminal import plain

MOST_LISTED = 50
"""Of one check; the JSON document has them all."""


def where(one: Culprit) -> str:
    """The trajectory and the span, in printable characters."""
    case = f"case {plain(one.case_id, 80)}, " if one.case_id is not None else ""
    span = f"span {plain(one.span_id)}" if one.span_id is not None else "no span"
    trace = "" if one.trace_id == one.trajectory_id else f", trace {plain(one.trace_id)}"
    return f"{case}trajectory {plain(one.trajectory_id)}{trace}, {span}"


def sentence(one: Culprit) -> str:
    """Where it was and what was wrong, in printable characters."""
    return f"{where(one)}: {plain(one.message)}"


def and_more(count: int) -> str | None:
    """What stands below a list that was cut."""
    return f"and {count - MOST_LISTED} more in the JSON report" if count > MOST_LISTED else None
