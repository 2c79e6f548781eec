"""What a policy is asked and what it answers: plain values, so that asking needs no pydantic."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, NamedTuple, Protocol

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
    STAGE = "stage"
    """A call that must not have been made yet has been."""
    LIMIT = "limit"
    """There have been as many such calls as a rule allows."""
    IDEMPOTENCY_MISSING = "idempotency_missing"
    """A rule requires an idempotency key, and the call has none."""
    SCHEMA_VERSION = "schema_version"
    """The tool has another schema version than the policy was written for."""
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


class Earlier(NamedTuple):
    """A call that was let through earlier in the trajectory; its body ran, or may have run."""

    tool: str
    labels: frozenset[str] = frozenset()
    at_s: float | None = None
    """When it was let through, in seconds by the clock of ``Call.at_s``."""


class Call(NamedTuple):
    """One attempted call, as far as a policy looks at it.

    What is None is not known. Whoever stops calls passes all that it knows, and what it does not
    know counts against the call; a scorer learns from ``Decision.unknown`` that it was missing.

    Args:
        tool: The tool's full name.
        labels: The tool's labels.
        agent: The agent that calls, None when unknown.
        succeeded: Names of the tools that already succeeded in this trajectory.
        arguments: The bound arguments by parameter name, defaults filled in, frozen.
        session: What is certain about the session (the user's own id), by key.
        earlier: The calls let through earlier in this trajectory.
        at_s: When the call is made, in seconds; only differences count.
        idempotency_key: Whether the call has an idempotency key.
        schema_version: The version of the tool's parameters.
        is_trusted: Whether a value stems from the user, the operator or a trusted result.
    """

    tool: str
    labels: frozenset[str] = frozenset()
    agent: str | None = None
    succeeded: frozenset[str] = frozenset()
    arguments: Mapping[str, object] | None = None
    session: Mapping[str, object] | None = None
    earlier: Sequence[Earlier] | None = None
    at_s: float | None = None
    idempotency_key: bool | None = None
    schema_version: str | None = None
    is_trusted: Callable[[object], bool | None] | None = None

    @property
    def dangerous(self) -> bool:
        """Whether a label says that this call can do harm."""
        return not DANGEROUS_LABELS.isdisjoint(self.labels)


Mode = Literal["enforce", "shadow"]


class ApprovalTerms(NamedTuple):
    """What an approval must be like, as all the rules that ask for it want it together."""

    ttl_s: float | None = None
    """How many seconds the request and the approval hold, from the request on; None is whatever
    the pipeline's own limit is."""
    approvers: frozenset[str] | None = None
    """Who may give it; None is whoever is asked."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy says about one call.

    Args:
        effect: What happens to the call.
        rule_ids: The rules that decided, in the order of the policy.
        reason_code: Why, in one of a few words.
        reason: Why, in a sentence.
        mode: ``shadow``: the decision is recorded and not enforced, and nobody is asked.
        labels: The labels of the tool, with those that the policy adds.
        approval: What the approval must be like, where one is needed.
        at_best: What would be decided if all that is not known spoke for the call; None when
            everything is known that the policy looks at, or it makes no difference.
    """

    effect: Effect
    rule_ids: tuple[str, ...]
    reason_code: ReasonCode
    reason: str = ""
    mode: Mode = "enforce"
    labels: frozenset[str] = frozenset()
    approval: ApprovalTerms | None = None
    at_best: "Decision | None" = None

    @property
    def enforced(self) -> bool:
        """Whether the decision is to be acted upon, as ``policy.enforced`` holds it."""
        return self.mode == "enforce"

    @property
    def unknown(self) -> bool:
        """Whether the decision might be another if more were known about the call."""
        return self.at_best is not None

    @property
    def dangerous(self) -> bool:
        """Whether a label of the tool, or one that the policy adds, says that it can do harm."""
        return not DANGEROUS_LABELS.isdisjoint(self.labels)


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
