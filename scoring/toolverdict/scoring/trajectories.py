"""From the spans of a trace to its trajectories: who called what, in which order and turn.

One trace is one trajectory, unless several conversations or cases share it: then it is split by
them, since two runs under one trace id are two tasks. Several traces are one trajectory only where
the later one goes on with a call that the earlier one left open: see :mod:`conversations`.
"""

from collections.abc import Iterable, Sequence

from toolverdict.scoring.attempts import place_attempts
from toolverdict.scoring.joining import join
from toolverdict.scoring.model import Trajectory
from toolverdict.scoring.part import Part
from toolverdict.scoring.reading import read_trace
from toolverdict.scoring.spans import LogRecord, Span


def trajectories(spans: Sequence[Span], logs: Sequence[LogRecord] = ()) -> list[Trajectory]:
    """The trajectories of one trace, in time order.

    Args:
        spans: all spans of one trace, deduplicated, in any order.
        logs: the log records of the trace.
    """
    return [trajectory_of([part]) for part in read_trace(spans, logs)]


def trajectory_of(parts: Sequence[Part]) -> Trajectory:
    """The trajectory of one part, or of several that are one conversation, in time order."""
    first = parts[0]
    turns = tuple(
        sorted(
            (turn for part in parts for turn in part.turns),
            key=lambda turn: (turn.start_ns, turn.span_id),
        )
    )
    joined = join(parts, turns)
    said: dict[str, dict[str, None]] = {}
    for part in parts:
        for role, texts in part.said.items():
            said.setdefault(role, {}).update(texts)
    whole = first.parts == 1
    return Trajectory(
        trajectory_id=first.name
        or (first.trace_id if whole else f"{first.trace_id}/{first.number}"),
        trace_id=first.trace_id,
        root_span_id=first.root_span_id,
        calls=place_attempts(joined.calls),
        turns=turns,
        conversation_id=_either(part.conversation_id for part in parts),
        case_id=_either(part.case_id for part in parts),
        user_id=_either(part.user_id for part in parts),
        agent=_either(part.agent for part in parts),
        model=_either(part.model for part in parts),
        service_version=_either(part.version for part in parts),
        root_failed=parts[-1].root_failed,
        user_texts=tuple(said.get("user", ())),
        system_texts=(*said.get("system", ()), *said.get("developer", ())),
        gaps=(*(gap for part in parts for gap in part.gaps), *joined.gaps),
        weight=first.weight,
        user_atoms=next((part.user_atoms for part in parts if part.user_atoms), None),
        tool_definitions=tuple(one for part in parts for one in part.tool_definitions),
    )


def _either(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value), None)
