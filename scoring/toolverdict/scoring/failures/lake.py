"""What only the lake holds of a drawn trajectory: the requests to the model between the calls."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from toolverdict.collector import Lake
from toolverdict.scoring.failures.report import Drawn, Event, Report
from toolverdict.scoring.model import ModelTurn, Trajectory
from toolverdict.scoring.spans import COLUMNS, traces
from toolverdict.scoring.trajectories import trajectories

_MOST_SPANS: Final = 50_000  # of one trace; a larger one is told without its turns
_MOST_TURNS: Final = 200


def with_turns(report: Report, lake: Lake) -> Report:
    """The report with the requests to the model on each timeline, where the lake has them.

    Raises:
        LakeError: a part is damaged.
    """
    return replace(report, drawn=tuple(_with_turns(one, lake) for one in report.drawn))


def _with_turns(drawn: Drawn, lake: Lake) -> Drawn:
    spans = lake.read_trace(drawn.failure.trace_id, COLUMNS)
    if not 0 < spans.num_rows <= _MOST_SPANS:
        return drawn
    here = [one for trace in traces(spans) for one in trajectories(trace)]
    own = next((t for t in here if t.trajectory_id == drawn.failure.trajectory_id), None)
    if own is None or not own.turns:
        return drawn
    start = min((p.call.start_ns for p in own.calls), default=own.turns[0].start_ns)
    events = (*drawn.timeline, *_events(own, own.turns[:_MOST_TURNS], start))
    return replace(drawn, timeline=tuple(sorted(events, key=lambda e: (e.at_s, e.kind != "turn"))))


def _events(trajectory: Trajectory, turns: Iterable[ModelTurn], start_ns: int) -> Iterable[Event]:
    for number, turn in enumerate(turns):
        yield Event(
            kind="turn",
            span_id=turn.span_id,
            at_s=(turn.start_ns - start_ns) / 1e9,
            lasted_s=None if turn.end_ns is None else (turn.end_ns - turn.start_ns) / 1e9,
            turn=number,
            tokens=turn.tokens,
        )
