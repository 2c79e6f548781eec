"""Approvals, requirements and arguments: what the policy asks of a call before it may run.

A refusal that the policy enforced at the time is a finding too: the agent tried. Nothing is found in
calls that the policy allows by their name alone.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

from toolverdict.instrument.decisions import Call, ReasonCode
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.policy.conditions import DOUBT, FAILS, HOLDS, compile_arguments
from toolverdict.instrument.policy.document import Condition, Rule
from toolverdict.instrument.policy.rules import CompiledRule
from toolverdict.scoring.approvals import ApprovalFault
from toolverdict.scoring.captured import as_seen
from toolverdict.scoring.dialects import ours
from toolverdict.scoring.model import (
    Captured,
    Category,
    Finding,
    Json,
    Placed,
    Severity,
    Trajectory,
)
from toolverdict.scoring.policy import Ruling
from toolverdict.scoring.remembering import for_the_last

_PAYMENT: Final = "payment"
_WRONG: Final = {
    ApprovalFault.DENIED: "its approval was refused",
    ApprovalFault.EXPIRED: "its approval had expired",
    ApprovalFault.REUSED: "its approval had been used before",
    ApprovalFault.MISMATCH: "its approval is for another call, or by whoever asked for it",
}


def rule_findings(
    trajectory: Trajectory, rulings: list[Ruling], policy: Policy | None = None
) -> Iterator[Finding]:
    """Calls made without the earlier call they require, a good approval, a key, or the right to."""
    ran = cache(lambda: Counter(_identity(p) for p in trajectory.calls if p.call.executed))
    for place, ruling in zip(trajectory.calls, rulings, strict=True):
        if ruling.requirement_unmet:
            rules = ", ".join(ruling.rule_ids)
            why = f" (rule {rules})" if rules else ""
            message = (
                f"{place.call.tool} {_tried(place)} before the call it requires had succeeded{why}"
            )
            yield Finding.at_call(place, Category.REQUIREMENT_UNMET, message)
        if ruling.approval_missing:
            yield _unapproved(place, ruling)
        if ruling.forbidden and policy is not None:
            yield from _unauthorised(place, trajectory, policy)
        if _PAYMENT in place.call.labels or ruling.reason_code == ReasonCode.IDEMPOTENCY_MISSING:
            yield from _keyless(place, ruling, ran)


def _tried(place: Placed) -> str:
    return "was called" if place.call.executed else "was attempted"


def _unapproved(place: Placed, ruling: Ruling) -> Finding:
    fault = ruling.approval or ApprovalFault.MISSING
    why = _WRONG.get(fault)
    if why is None:
        status = place.call.approval_status
        why = f"its approval is {status}" if status else "there is no approval"
    message = f"{place.call.tool} {_tried(place)} though {why}"
    return Finding.at_call(place, Category(fault.value), message)


def _identity(place: Placed) -> tuple[str, str] | None:
    return (place.call.tool, place.call.args_hash) if place.call.args_hash else None


def _keyless(
    place: Placed, ruling: Ruling, ran: Callable[[], Counter[tuple[str, str] | None]]
) -> Iterator[Finding]:
    """A payment, or what a rule asks it of, without an idempotency key: a retry may pay twice."""
    call = place.call
    if call.idempotency_key_hash is not None or call.executed is not True:
        return
    by_rule = ruling.reason_code == ReasonCode.IDEMPOTENCY_MISSING and not ruling.unknown
    if not by_rule and call.dialect != ours.NAME:
        return  # others' spans do not tell whether there was one
    identity = _identity(place)
    twice = identity is not None and ran()[identity] > 1
    yield Finding.at_call(
        place,
        Category.IDEMPOTENCY_MISSING,
        f"{call.tool} ran without an idempotency key"
        + (", and ran more than once with these arguments" if twice else ""),
        grade="proof" if by_rule else "strong" if twice else "suspect",
        severity=Severity.WARNING,
        code="by_rule" if by_rule else "payment",
    )


def _unauthorised(place: Placed, trajectory: Trajectory, policy: Policy) -> Iterator[Finding]:
    """Which arguments of a forbidden call broke which rule about them, by their paths (S37)."""
    call = place.call
    if call.arguments_state is not Captured.CAPTURED or not isinstance(call.arguments, dict):
        return
    labels = policy.labels_of(call.known_as, frozenset(call.labels))
    agent = call.agent or trajectory.agent
    asked = Call(call.known_as, labels, agent, arguments=as_seen(call.arguments))
    told: set[str] = set()
    for rule in _argument_rules(policy):
        if not rule.means.restricts(call.known_as, labels, agent):
            continue
        for path, grade in rule.broken(asked):
            if path not in told:
                told.add(path)
                yield Finding.at_call(
                    place,
                    Category.UNAUTHORISED_ARGUMENT,
                    f"{call.tool} carries a value in {path} that rule {rule.means.id} does not let it",
                    severity=Severity.VIOLATION if call.executed else Severity.WARNING,
                    grade=grade,
                    key_path=path,
                    expected=_said(rule.conditions[path]),
                    actual=_at(call.arguments, path),
                    code=rule.means.id,
                )


class _ArgumentRule:
    """A rule about arguments, each condition compiled by itself: so that one can be blamed."""

    def __init__(self, rule: Rule) -> None:
        self.means = CompiledRule(rule)
        self.conditions = rule.args or {}
        self._tests = {
            path: compile_arguments({path: one}) for path, one in self.conditions.items()
        }

    def broken(self, call: Call) -> Iterator[tuple[str, str]]:
        """Paths and grades of what denies and is fulfilled, or permits and is not."""
        states = {path: test(call) for path, test in self._tests.items()}
        denies = self.means.rule.effect == "deny"
        if denies and any(state & FAILS for state in states.values()):
            return  # one condition that does not hold, and the rule does not apply
        for path, state in states.items():
            if state == HOLDS if denies else state & FAILS:
                yield path, "proof"
            elif state & DOUBT:
                yield path, "suspect"


@for_the_last
def _argument_rules(policy: Policy) -> tuple[_ArgumentRule, ...]:
    return tuple(_ArgumentRule(rule) for rule in policy.rules if rule.args)


def _said(condition: Condition) -> Json:
    return condition.model_dump(mode="json", by_alias=True, exclude_none=True)


def _at(arguments: Json, path: str) -> Json:
    value = arguments
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
