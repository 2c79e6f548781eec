"""Forbidden calls, by policy and by case: attempted, blocked, executed, or not known which.

A policy forbids what it would deny; with no policy file the decision recorded on the span stands.
Only a call whose body is proven not to have run counts as blocked.
"""

from collections.abc import Iterator

from toolverdict.instrument.names import exactly_tool, same_tool
from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.cases.model import Case, Forbidden
from toolverdict.scoring.model import (
    Captured,
    Category,
    Finding,
    ForbiddenState,
    Placed,
    Trajectory,
)
from toolverdict.scoring.policy import Ruling


def forbidden_calls(
    trajectory: Trajectory,
    rulings: list[Ruling],
    case: Case | None,
    unexpected: frozenset[int] = frozenset(),
) -> dict[int, ForbiddenState | None]:
    """What became of each forbidden call, by call index.

    A call that a rule might forbid but whose arguments were not captured is None: not evaluable,
    which is neither forbidden nor allowed. ``unexpected`` are calls beside the expected ones, of a
    case that forbids any.
    """
    states: dict[int, ForbiddenState | None] = {}
    rules = _rules(case)
    for place, ruling in zip(trajectory.calls, rulings, strict=True):
        # Where nobody decided, the policy forbids nothing; where it could not decide, that is unknown.
        undecidable = ruling.unknown and ruling.forbidden is None
        ruled = None if undecidable else ruling.forbidden is True
        if not rules and not unexpected:
            if ruled is not False:
                states[place.index] = _state(place) if ruled else None
            continue
        hits = [
            ruled,
            place.index in unexpected,
            *(_forbids(rule, place, trajectory) for rule in rules),
        ]
        if any(hit is True for hit in hits):
            states[place.index] = _state(place)
        elif any(hit is None for hit in hits):
            states[place.index] = None
    return states


def forbidden_findings(
    trajectory: Trajectory,
    states: dict[int, ForbiddenState | None],
    case: Case | None,
    unexpected: frozenset[int] = frozenset(),
) -> Iterator[Finding]:
    """A finding for each forbidden call, blocked or not: the attempt itself is the failure."""
    for place in trajectory.calls:
        state = states.get(place.index)
        if state is None:
            continue
        rule = next((r for r in _rules(case) if _forbids(r, place, trajectory)), None)
        why = f": {rule.reason}" if rule is not None and rule.reason else ""
        if rule is not None and rule.unless_after:
            why = f" before {' and '.join(rule.unless_after)} had succeeded{why}"
        by = "the policy"
        if rule is not None or place.index in unexpected:
            by = "this case"
        yield Finding.at_call(
            place,
            Category.FORBIDDEN_CALL,
            f"{place.call.tool} is forbidden by {by} and was {_WHAT_HAPPENED[state]}{why}",
            actual=state.value,
        )


_WHAT_HAPPENED = {
    ForbiddenState.EXECUTED: "executed",
    ForbiddenState.BLOCKED: "attempted but blocked",
    ForbiddenState.UNKNOWN: "attempted; whether it was blocked is not known",
}


def _rules(case: Case | None) -> tuple[Forbidden, ...]:
    return case.forbidden if case is not None else ()


def _forbids(rule: Forbidden, place: Placed, trajectory: Trajectory) -> bool | None:
    call = place.call
    if not same_tool(rule.tool, call.known_as):
        return False
    if rule.unless_after and all(
        _had_succeeded(tool, place, trajectory) for tool in rule.unless_after
    ):
        return False
    if rule.plan is None:
        return True
    if call.arguments_state is not Captured.CAPTURED:
        return None
    found = rule.plan.compare(call.arguments)
    if found.unreadable or not found.decided:
        return None  # nothing that can be read as arguments, or nothing that tells
    return found.wholly_right


def _had_succeeded(tool: str, place: Placed, trajectory: Trajectory) -> bool:
    """Whether a call of exactly this tool had succeeded, with an answer, when the other began."""
    return any(
        earlier.call.outcome is Outcome.OK
        and earlier.call.end_ns is not None
        and earlier.call.end_ns <= place.call.start_ns
        and exactly_tool(tool, earlier.call.known_as)
        for earlier in trajectory.calls[: place.index]
    )


def _state(place: Placed) -> ForbiddenState:
    if place.call.executed is None:
        return ForbiddenState.UNKNOWN
    return ForbiddenState.EXECUTED if place.call.executed else ForbiddenState.BLOCKED
