"""A failed trajectory as a conversation, for failures that no call shows.

Where all that failed is the run as a whole, the turn that the signs in what was said point to is
named, if they point to one: a suspicion with its probability, beside the failure and before it.
"""

from collections.abc import Sequence

from toolverdict.scoring.attribution.turns import LEAST_PROBABILITY, Step, suspects
from toolverdict.scoring.model import Captured, Category, Finding, Severity, Trajectory
from toolverdict.scoring.values import as_text


def suspected_turn(trajectory: Trajectory, failing: Sequence[Finding]) -> Finding | None:
    """The turn that is to be blamed for a failure of the whole run; None where nothing tells."""
    if not any(turn.text for turn in trajectory.turns):
        return None
    if any(finding.span_id != trajectory.root_span_id for finding in failing):
        return None
    steps = steps_of(trajectory)
    likeliest = suspects([step for _, step in steps])[0]
    at_ns, step = next(one for one in steps if one[1].span_id == likeliest.span_id)
    if likeliest.probability < LEAST_PROBABILITY or step.is_result:
        return None
    signs = "; ".join(likeliest.signs) or "nothing else stands out"
    return Finding(
        Category.TURN_SUSPECTED,
        likeliest.span_id,
        f"this turn is the likeliest to have led to the failure: {signs}",
        severity=Severity.WARNING,
        at_ns=at_ns,
        grade="suspect",
        confidence=likeliest.probability,
    )


def steps_of(trajectory: Trajectory) -> list[tuple[int, Step]]:
    """The turns with a text and the results of calls, in time order, each with its start."""
    asking = {place.turn for place in trajectory.calls}
    said = [
        (turn.start_ns, Step(turn.span_id, turn.text, asks_for_tool=number in asking))
        for number, turn in enumerate(trajectory.turns)
        if turn.text
    ]
    returned = [
        (
            place.call.end_ns or place.call.start_ns,
            Step(
                place.call.span_id,
                _text(place.call.result) if place.call.result_state is Captured.CAPTURED else "",
                is_result=True,
                failed=place.call.outcome.failed,
            ),
        )
        for place in trajectory.calls
    ]
    return sorted((*said, *returned), key=lambda one: (one[0], one[1].span_id))


def _text(result: object) -> str:
    return result if isinstance(result, str) else as_text(result)
