"""The recorded calls of a trajectory, decided again under a policy.

With a policy file, its rules decide, with the arguments and with what had been called before;
without one, the decision that the agent's own policy recorded on the span stands. Without either
nothing is known, and nothing is claimed.

A trace does not hold everything that the agent's own process knew. Where a rule looks at what was
not captured, the call is decided twice, against it and for it, and only what both agree on is said.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeAlias, cast

from toolverdict.instrument.decisions import Call, Decision, Earlier, Effect, ReasonCode
from toolverdict.instrument.names import same_tool
from toolverdict.instrument.outcomes import Outcome
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.approvals import (
    GRANTED,
    NO_APPROVALS,
    REJECTED,
    ApprovalFault,
    Approvals,
)
from toolverdict.scoring.captured import as_seen
from toolverdict.scoring.model import Captured, Placed, ToolCall, Trajectory
from toolverdict.scoring.remembering import for_the_last
from toolverdict.scoring.trust import TrustedSoFar

_EFFECTS = frozenset(effect.value for effect in Effect)
_OURS = "toolverdict"


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the policy says of one call. None: neither policy nor recorded decision says.

    ``unknown`` says that a rule looks at what the trace does not hold, such as arguments that were
    not captured, and that it makes a difference: neither compliance nor a violation. ``approval`` is
    what is wrong with the approval where one is missing.
    """

    forbidden: bool | None
    needs_approval: bool | None
    requirement_unmet: bool | None
    approval_missing: bool | None
    rule_ids: tuple[str, ...] = ()
    reason_code: str | None = None
    reason: str = ""
    unknown: bool = False
    approval: ApprovalFault | None = None

    @property
    def violated(self) -> bool | None:
        """Whether anything was broken; None where nothing could be decided."""
        forbidden, unmet, unapproved = (
            self.forbidden,
            self.requirement_unmet,
            self.approval_missing,
        )
        if forbidden or unmet or unapproved:
            return True
        return None if forbidden is None or unmet is None or unapproved is None else False


_NOT_DECIDED: Final = Ruling(None, None, None, None)


def rulings(
    trajectory: Trajectory, policy: Policy | None, approvals: Approvals = NO_APPROVALS
) -> list[Ruling]:
    """One ruling per call, in the order of calls.

    Args:
        trajectory: the calls.
        policy: decides them again; None takes what the agent's own policy decided.
        approvals: what is on record of approvals beside the spans.
    """
    return _with_approvals(trajectory, _ruled(trajectory, policy), approvals)


def asked_again(trajectory: Trajectory, policy: Policy) -> Iterator[Decision]:
    """What a policy says of each call, with what had been called before, as it would at the time."""
    succeeded = _succeeded_before(trajectory.calls, policy.prerequisites)
    trusted = TrustedSoFar(trajectory, policy) if policy.asks_for_trust else None
    earlier: list[Earlier] = []
    for place, done in zip(trajectory.calls, succeeded, strict=True):
        call = place.call
        asked = Call(
            tool=call.known_as,
            labels=frozenset(call.labels),
            agent=call.agent or trajectory.agent,
            succeeded=done,
            arguments=_arguments(call),
            earlier=earlier,
            at_s=call.start_ns / 1e9,
            idempotency_key=_has_key(call),
            schema_version=call.schema_version,
            is_trusted=trusted.asked() if trusted is not None else None,
        )
        yield policy.decide(asked)
        labels = policy.labels_of(call.known_as, asked.labels)
        if call.executed is not False and policy.watches(call.known_as, labels):
            earlier.append(Earlier(call.known_as, labels, asked.at_s))
        if trusted is not None:
            trusted.add(call)


def _ruled(trajectory: Trajectory, policy: Policy | None) -> list[Ruling]:
    calls = [place.call for place in trajectory.calls]
    if policy is None:
        return [_recorded(call) for call in calls]
    by_name = _by_name_under(policy)
    allowed = [by_name(one.known_as, one.labels, one.agent or trajectory.agent) for one in calls]
    if None not in allowed:
        return cast("list[Ruling]", allowed)
    return [
        _ruling(decision, lacks_approval=_lacks_approval(call))
        for call, decision in zip(calls, asked_again(trajectory, policy), strict=True)
    ]


_ByName: TypeAlias = Callable[[str, tuple[str, ...], str | None], Ruling | None]
_LONGEST_REMEMBERED: Final = 512


@for_the_last
def _by_name_under(policy: Policy) -> _ByName:
    """What a policy says of a call that it allows by tool, labels and agent alone; else None."""

    @lru_cache(maxsize=4096)
    def remembered(tool: str, labels: tuple[str, ...], agent: str | None) -> Ruling | None:
        return settled(tool, labels, agent)

    def by_name(tool: str, labels: tuple[str, ...], agent: str | None) -> Ruling | None:
        # Names come from traces: only usual ones are remembered.
        usual = len(tool) + len(agent or "") + sum(map(len, labels)) <= _LONGEST_REMEMBERED
        return (remembered if usual else settled)(tool, labels, agent)

    def settled(tool: str, labels: tuple[str, ...], agent: str | None) -> Ruling | None:
        if not policy.allows_by_name(tool, frozenset(labels), agent):
            return None
        decision = policy.decide(Call(tool, frozenset(labels), agent))
        return _ruling(decision, lacks_approval=False)

    return by_name


def _with_approvals(
    trajectory: Trajectory, ruled: list[Ruling], approvals: Approvals
) -> list[Ruling]:
    """The same, with what is wrong with each approval that a call needed."""
    if not any(ruling.needs_approval for ruling in ruled):
        return ruled
    faults = approvals.faults(trajectory)
    return [
        replace(ruling, approval=fault, approval_missing=True)
        if ruling.needs_approval and (fault := faults.get(index)) is not None
        else ruling
        for index, ruling in enumerate(ruled)
    ]


def _arguments(call: ToolCall) -> dict[str, object] | None:
    """The arguments as the policy saw them; None where the trace does not tell."""
    if call.arguments_state is not Captured.CAPTURED or not isinstance(call.arguments, dict):
        return None
    return as_seen(call.arguments)


def _has_key(call: ToolCall) -> bool | None:
    """Whether the call had an idempotency key; only our own spans say that there was none."""
    if call.idempotency_key_hash is not None:
        return True
    return False if call.dialect == _OURS else None


def _recorded(call: ToolCall) -> Ruling:
    """What the agent's own policy decided at the time, read from the span."""
    decision = call.policy_decision
    if decision not in _EFFECTS:
        return _NOT_DECIDED  # none recorded, or a word that nobody here understands
    return _ruled_then(
        Effect(decision),
        call.policy_reason_code,
        decision != Effect.ALLOW and _lacks_approval(call),
    )


@lru_cache(maxsize=256)
def _ruled_then(effect: Effect, code: str | None, lacks_approval: bool) -> Ruling:
    if code == ReasonCode.NO_POLICY:
        return _NOT_DECIDED  # "allowed" since nobody decided
    unmet = effect is Effect.DENY and code == ReasonCode.REQUIRES_UNMET
    asks = effect is Effect.REQUIRE_APPROVAL
    return Ruling(
        forbidden=effect is Effect.DENY and not unmet,
        needs_approval=asks,
        requirement_unmet=unmet,
        approval_missing=asks and lacks_approval,
    )


def _ruling(decision: Decision, *, lacks_approval: bool) -> Ruling:
    """What is certain: where the decision depends on what is not known, both ends must agree."""
    best = decision.at_best
    forbidden, asks, unmet = _parts(decision) if best is None else _agreed(decision, best)
    return Ruling(
        forbidden=forbidden,
        needs_approval=asks,
        requirement_unmet=unmet,
        approval_missing=(None if lacks_approval else False)
        if asks is None
        else asks and lacks_approval,
        rule_ids=tuple(decision.rule_ids),
        reason_code=decision.reason_code.value,
        reason=decision.reason,
        unknown=decision.unknown,
    )


def _parts(decision: Decision) -> tuple[bool, bool, bool]:
    """Whether it is forbidden, needs an approval, and comes before what it requires."""
    denied = decision.effect is Effect.DENY
    unmet = denied and decision.reason_code is ReasonCode.REQUIRES_UNMET
    return denied and not unmet, decision.effect is Effect.REQUIRE_APPROVAL, unmet


def _agreed(worst: Decision, best: Decision) -> tuple[bool | None, bool | None, bool | None]:
    """The same, as far as it holds for every decision from the strictest to the mildest."""
    if worst.effect is not Effect.DENY:
        return False, None, False
    if best.effect is not Effect.DENY:
        return None, None, None
    unmet = _parts(worst)[2] and _parts(best)[2]
    return not unmet, False, unmet


def _succeeded_before(
    calls: Sequence[Placed], required: frozenset[str]
) -> Iterator[frozenset[str]]:
    """For each call, the required tools with a call that had succeeded and ended when it began.

    An empty answer is no success here: an identity that was not found is not verified.
    """
    ended = sorted(
        (max(place.call.start_ns, place.call.end_ns), place.call.known_as)
        for place in calls
        if place.call.end_ns is not None
        and place.call.outcome is Outcome.OK
        and any(same_tool(pattern, place.call.known_as) for pattern in required)
    )
    succeeded: frozenset[str] = frozenset()
    waiting = iter(ended)
    following = next(waiting, None)
    for place in calls:
        while following is not None and following[0] <= place.call.start_ns:
            if following[1] not in succeeded:
                succeeded |= {following[1]}
            following = next(waiting, None)
        yield succeeded


def _lacks_approval(call: ToolCall) -> bool:
    """Whether nobody granted the approval; a call that a person stopped broke no rule."""
    stopped = call.approval_status == REJECTED and call.executed is False
    return call.approval_status not in GRANTED and not stopped
