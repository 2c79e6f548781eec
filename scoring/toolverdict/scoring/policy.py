"""The recorded calls of a trajectory, decided again under a policy.

With a policy file, its rules decide, with the calls that had succeeded before each; without one,
the decision that the agent's own policy recorded on the span stands. Without either nothing is
known, and nothing is claimed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from toolverdict.instrument.decisions import Call, Effect, ReasonCode
from toolverdict.instrument.names import same_tool
from toolverdict.instrument.outcomes import Outcome
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.model import Placed, ToolCall, Trajectory

_EFFECTS = frozenset(effect.value for effect in Effect)
_GRANTED, _REJECTED = "approved", "rejected"


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the policy says of one call. None: neither policy nor recorded decision says."""

    forbidden: bool | None
    needs_approval: bool | None
    requirement_unmet: bool | None
    approval_missing: bool | None
    rule_ids: tuple[str, ...] = ()

    @property
    def violated(self) -> bool | None:
        """Whether anything was broken; None where nothing could be decided."""
        parts = (self.forbidden, self.requirement_unmet, self.approval_missing)
        if any(part is True for part in parts):
            return True
        return None if any(part is None for part in parts) else False


def rulings(trajectory: Trajectory, policy: Policy | None) -> list[Ruling]:
    """One ruling per call, in the order of calls."""
    if policy is None:
        return [_recorded(place.call) for place in trajectory.calls]
    required = frozenset(name for rule in policy.rules for name in rule.requires or ())
    before = _succeeded_before(trajectory.calls, required)
    return [
        _decided(place.call, policy, place.call.agent or trajectory.agent, succeeded)
        for place, succeeded in zip(trajectory.calls, before, strict=True)
    ]


def _recorded(call: ToolCall) -> Ruling:
    """What the agent's own policy decided at the time, read from the span."""
    decision = call.policy_decision
    if decision not in _EFFECTS or call.policy_reason_code == ReasonCode.NO_POLICY:
        # None recorded, a word that nobody here understands, or "allowed" since nobody decided.
        return Ruling(None, None, None, None)
    unmet = decision == Effect.DENY and call.policy_reason_code == ReasonCode.REQUIRES_UNMET
    asks = decision == Effect.REQUIRE_APPROVAL
    return Ruling(
        forbidden=decision == Effect.DENY and not unmet,
        needs_approval=asks,
        requirement_unmet=unmet,
        approval_missing=asks and _lacks_approval(call),
    )


def _decided(
    call: ToolCall, policy: Policy, agent: str | None, succeeded: frozenset[str]
) -> Ruling:
    decision = policy.decide(
        Call(tool=call.tool, labels=frozenset(call.labels), agent=agent, succeeded=succeeded)
    )
    unmet = decision.effect is Effect.DENY and decision.reason_code == ReasonCode.REQUIRES_UNMET
    asks = decision.effect is Effect.REQUIRE_APPROVAL
    return Ruling(
        forbidden=decision.effect is Effect.DENY and not unmet,
        needs_approval=asks,
        requirement_unmet=unmet,
        approval_missing=asks and _lacks_approval(call),
        rule_ids=tuple(decision.rule_ids),
    )


def _succeeded_before(
    calls: Sequence[Placed], required: frozenset[str]
) -> Iterator[frozenset[str]]:
    """For each call, the required tools with a call that had succeeded and ended when it began.

    An empty answer is no success here: an identity that was not found is not verified.
    """
    ended = sorted(
        (max(place.call.start_ns, place.call.end_ns), place.call.tool)
        for place in calls
        if place.call.end_ns is not None
        and place.call.outcome is Outcome.OK
        and any(same_tool(pattern, place.call.tool) for pattern in required)
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
    stopped = call.approval_status == _REJECTED and call.executed is False
    return call.approval_status != _GRANTED and not stopped
