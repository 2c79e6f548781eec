"""Asking the policy about a call: with what is known of it, and counting what is let through."""

import time
from collections.abc import Sequence

from toolverdict.instrument import guard, semconv
from toolverdict.instrument.arguments import Arguments
from toolverdict.instrument.decisions import (
    NO_POLICY,
    Call,
    Decider,
    Decision,
    Earlier,
    Effect,
    Mode,
    ReasonCode,
)
from toolverdict.instrument.tools import ToolSpec
from toolverdict.instrument.trajectories import Trajectory
from toolverdict.instrument.trust import TrustedInput

Noted = dict[str, str | bool | int | float | Sequence[str]]
"""What is noted about a call, to be put on its span."""


def ask(
    policy: Decider | None,
    spec: ToolSpec,
    trajectory: Trajectory | None,
    arguments: Arguments | None,
    *,
    has_key: bool | None,
    noted: Noted,
) -> tuple[Decision, Earlier | None]:
    """Ask the policy about a call; one that it lets through counts for the next.

    Args:
        policy: The policy; None allows everything.
        spec: The tool.
        trajectory: The trajectory that the call is in.
        arguments: The snapshot of its arguments; None when there is none.
        has_key: Whether it has an idempotency key; None when nobody knows.
        noted: Takes what a span says about the policy.

    Returns:
        The decision, and the call as the trajectory counts it; None when it was not let through,
        is in no trajectory, or nothing counts it.
    """
    if policy is None:
        return NO_POLICY, None
    if trajectory is None:
        call = Call(
            tool=spec.name,
            labels=spec.label_set,
            arguments=arguments,
            idempotency_key=has_key,
            schema_version=spec.schema_version,
        )
        return _ask(policy, call, noted), None
    history, at_s = trajectory.history, time.monotonic()
    with history.lock:
        history.settle()
        call = Call(
            tool=spec.name,
            labels=spec.label_set,
            agent=trajectory.agent,
            succeeded=trajectory.succeeded,
            arguments=arguments,
            session=trajectory.session,
            earlier=history.let_through,
            at_s=at_s,
            idempotency_key=has_key,
            schema_version=spec.schema_version,
            is_trusted=None if history.trusted is None else history.trusted.is_trusted,
        )
        decision = _ask(policy, call, noted)
        if decision.effect is Effect.DENY and decision.enforced:
            return decision, None
        labels = decision.labels or call.labels
        if not _counts(policy, spec.name, labels):
            return decision, None  # or a trajectory that lasts would grow with each of its calls
        counted = Earlier(spec.name, labels, at_s)
        history.let_through.append(counted)
    return decision, counted


def _ask(policy: Decider, call: Call, noted: Noted) -> Decision:
    """Ask the policy; a policy that cannot be asked denies."""
    try:
        decision = policy.decide(call)
        if not (
            isinstance(decision, Decision)
            and isinstance(decision.effect, Effect)
            and isinstance(decision.reason_code, ReasonCode)
        ):
            raise TypeError("a policy decides with a Decision")
        noted[semconv.POLICY_ID] = policy.id
        noted[semconv.POLICY_DIGEST] = policy.digest
        return decision
    except Exception as error:  # noqa: BLE001 - a policy that cannot be asked allows nothing
        guard.note("policy", "the policy failed (%s); calls are denied", type(error).__name__)
        reason = f"the policy could not be asked ({type(error).__name__})"
        mode: Mode = "shadow" if getattr(policy, "mode", None) == "shadow" else "enforce"
        return Decision(Effect.DENY, (), ReasonCode.POLICY_ERROR, reason, mode)


def _counts(policy: Decider, tool: str, labels: frozenset[str]) -> bool:
    """Whether a policy ever looks back at the calls of a tool; one that cannot say may."""
    watches = getattr(policy, "watches", None)
    return watches is None or bool(watches(tool, labels))


def listener(policy: Decider | None, spec: ToolSpec, trajectory: Trajectory) -> TrustedInput | None:
    """What takes note of a tool's results, if a policy asks for trust and trusts the tool."""
    outsiders = getattr(policy, "is_untrusted_source", None)
    if outsiders is None or outsiders(spec.name, spec.label_set):
        return None
    return trajectory.history.trusted


def note(decision: Decision, spec: ToolSpec, noted: Noted) -> None:
    """Note what a span says about a decision, besides what it says about the tool anyway."""
    # The plain text of a member of an enum: its value is looked up by a function of Python's.
    noted[semconv.POLICY_DECISION] = str.__str__(decision.effect)
    noted[semconv.POLICY_REASON_CODE] = str.__str__(decision.reason_code)
    if decision.rule_ids:
        noted[semconv.POLICY_RULE_IDS] = decision.rule_ids
    if decision.mode != "enforce":
        noted[semconv.POLICY_MODE], noted[semconv.POLICY_ENFORCED] = decision.mode, False
    if decision.labels and decision.labels != spec.label_set:
        noted[semconv.TOOL_LABELS] = tuple(sorted(decision.labels))
