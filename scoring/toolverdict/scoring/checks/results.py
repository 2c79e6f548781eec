"""Result handling: was what came back understood? An empty result is not a success.

Deterministic part: after a call that returned nothing usable (empty, refused, timed out, 5xx, any
failure) and was not put right, the agent went on to a consequential call that shares a value with
it, as if the first had succeeded. Which values matter is not guessed: sharing one is enough, and
where arguments were not captured the handling is not evaluable.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from toolverdict.instrument.decisions import DANGEROUS_LABELS
from toolverdict.instrument.names import bare_name
from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.model import (
    Captured,
    Category,
    Finding,
    Json,
    Placed,
    Share,
    Trajectory,
)
from toolverdict.scoring.values import as_text, leaves

# What the agent's own side withheld was not a result to be misread.
_NOT_A_RESULT = frozenset({Outcome.DENIED, Outcome.PENDING_APPROVAL, Outcome.UNKNOWN})

_HORIZON = 100  # how many later calls may still build on it; bounds the work on hostile traces


@dataclass(frozen=True, slots=True)
class Handling:
    """Unusable results that were handled well over all of them, and those that were not."""

    share: Share
    findings: tuple[Finding, ...]


def result_handling(trajectory: Trajectory, repaired: frozenset[int]) -> Handling:
    """How the agent went on after each unusable result.

    Args:
        trajectory: the calls in order.
        repaired: indexes of failed calls that a later attempt put right.
    """
    good = unseen = 0
    findings = []
    values = cache(lambda index: frozenset(leaves(trajectory.calls[index].call.arguments)))
    for place in trajectory.calls:
        if not _unusable(place):
            continue
        if place.index in repaired:
            good += 1
        elif (misuse := next(_built_on(place, trajectory, values), None)) is not None:
            findings.append(_finding(place, *misuse))
        elif _seen(place) and all(_seen(later) for later in _consequential(place, trajectory)):
            good += 1
        else:
            unseen += 1
    total = good + len(findings)
    return Handling(Share(good, total, unseen), tuple(findings))


def _unusable(place: Placed) -> bool:
    outcome = place.call.outcome
    if outcome in _NOT_A_RESULT:
        return False
    return outcome.failed or outcome is Outcome.EMPTY


def _consequential(place: Placed, trajectory: Trajectory) -> Iterator[Placed]:
    """Later calls of other tools that change something, up to a good answer of the same tool."""
    own = bare_name(place.call.tool)
    for later in trajectory.calls[place.index + 1 : place.index + 1 + _HORIZON]:
        if bare_name(later.call.tool) == own:
            if later.call.outcome is Outcome.OK:
                return
        elif DANGEROUS_LABELS & set(later.call.labels):
            yield later


def _built_on(
    place: Placed, trajectory: Trajectory, values: Callable[[int], frozenset[Json]]
) -> Iterator[tuple[Placed, Json]]:
    """Later calls that carry a value of this one, and one such value, the same in every run."""
    for later in _consequential(place, trajectory):
        if not _seen(place) or not _seen(later):
            continue
        shared = values(place.index) & values(later.index)
        if shared:
            yield later, min(shared, key=as_text)


def _seen(place: Placed) -> bool:
    return place.call.arguments_state is Captured.CAPTURED


def _finding(unusable: Placed, later: Placed, shared: Json) -> Finding:
    return Finding.at_call(
        later,
        Category.UNUSABLE_RESULT_USED,
        f"{later.call.tool} went on as if {unusable.call.tool} had succeeded, which ended as "
        f"{unusable.call.outcome.value}",
        expected="a usable result, or another course",
        actual=shared,
    )
