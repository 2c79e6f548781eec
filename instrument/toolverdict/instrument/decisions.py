"""What a policy is asked and what it answers: plain values, so that asking needs no pydantic."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

DANGEROUS_LABELS: Final = frozenset({"write", "payment", "permission", "external_message"})
"""A tool with one of these runs only if something says that it may, and never on a doubt."""


class Effect(StrEnum):
    """What happens to a call. The values are what ``policy.decision`` holds."""

    ALLOW = "allow"
    DENY = "deny"
    REQUIRE_APPROVAL = "require_approval"


class ReasonCode(StrEnum):
    """Why, in few words. The values are what ``policy.reason_code`` holds."""

    NO_POLICY = "no_policy"
    """No policy is configured: every call is allowed."""
    NO_RULE = "no_rule"
    """No rule matches: denied for a dangerous label, allowed otherwise."""
    RULE = "rule"
    """The rules named in ``policy.rule_ids`` say so."""
    REQUIRES_UNMET = "requires_unmet"
    """A call that must have succeeded earlier in the trajectory has not."""
    POLICY_ERROR = "policy_error"
    """The policy could not be asked."""
    ARGS_UNHASHABLE = "args_unhashable"
    """Nothing can be bound to these arguments, and the call is one that must be."""
    ARGS_CHANGED = "args_changed"
    """The arguments are no longer the ones that were approved."""
    IDEMPOTENCY_KEY_ERROR = "idempotency_key_error"
    """The tool's idempotency key could not be computed, and the call is one that must have it."""
    APPROVAL_REJECTED = "approval_rejected"
    """The person asked said no."""
    APPROVAL_MISMATCH = "approval_mismatch"
    """The approval that came back is for another request and for other arguments."""


@dataclass(frozen=True, slots=True)
class Call:
    """One attempted call, as far as a policy looks at it.

    Args:
        tool: The tool's full name.
        labels: The tool's labels.
        agent: The agent that calls, None when unknown.
        succeeded: Names of the tools that already succeeded in this trajectory.
    """

    tool: str
    labels: frozenset[str] = frozenset()
    agent: str | None = None
    succeeded: frozenset[str] = frozenset()

    @property
    def dangerous(self) -> bool:
        """Whether a label says that this call can do harm."""
        return not DANGEROUS_LABELS.isdisjoint(self.labels)


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy says about one call.

    Args:
        effect: What happens to the call.
        rule_ids: The rules that decided, in the order of the policy.
        reason_code: Why, in one of a few words.
        reason: Why, in a sentence.
    """

    effect: Effect
    rule_ids: tuple[str, ...]
    reason_code: ReasonCode
    reason: str = ""


class Decider(Protocol):
    """What the pipeline needs of a policy; ``policy.Policy`` is one."""

    @property
    def id(self) -> str:
        """The name of the policy."""

    @property
    def digest(self) -> str:
        """A digest of everything that the policy says."""

    def decide(self, call: Call, /) -> Decision:
        """Say what happens to a call. Pure: the same call gets the same decision."""


NO_POLICY: Final = Decision(Effect.ALLOW, (), ReasonCode.NO_POLICY, "no policy is configured")
