"""Every exception of this package, grouped by who raises it and what the reader does next.

::

    ToolverdictError
    ├─ ConfigurationError(ValueError)    configure() was given something it cannot use
    │  └─ PolicyError                    the policy file cannot be read or is not a policy
    ├─ Unhashable(ValueError)            arguments have no canonical form, so nothing can be bound to them
    ├─ ToolDenied                        the call did not run, and repeating it will not help
    ├─ ApprovalRequired                  the call did not run; it may after a human says yes
    ├─ IdempotencyError                  the call did not run, because of an earlier one with its key
    │  ├─ IdempotencyConflict            the earlier one had other arguments
    │  ├─ CallInProgress                 the earlier one is still running
    │  ├─ OutcomeUnknown                 nobody knows what the earlier one did
    │  └─ AlreadyDone                    the earlier one succeeded; its result was not kept
    ├─ TransitionRefused                 an approval is not in a state, or not for the action, asked for
    ├─ StoreError                        a database of ours cannot be used
    └─ AuditFailed                       the call did not run, because it could not be put on record

    ToolError                            raised by the author of a tool to say what went wrong
    ├─ InvalidArguments(ValueError)
    ├─ PermissionDenied(PermissionError)
    ├─ Refused
    ├─ RateLimited
    ├─ UpstreamError
    └─ ToolTimeout(TimeoutError)

No message holds an argument value: messages travel to logs, models and span exporters.
"""

from collections.abc import Sequence


class ToolverdictError(Exception):
    """Anything that toolverdict itself raises."""


class ConfigurationError(ToolverdictError, ValueError):
    """A setting cannot be used; the message says which one and what to do."""


class PolicyError(ConfigurationError):
    """A policy file cannot be read or does not say what a policy must say.

    Args:
        source: The file, or what stands for it.
        where: The line and key path at fault; empty for the file as a whole.
        problem: What is wrong and what was expected.
    """

    def __init__(self, source: str, where: str, problem: str) -> None:
        super().__init__(source, where, problem)
        self.source = source
        self.where = where
        self.problem = problem

    def __str__(self) -> str:
        """One line: file, place, problem."""
        return ": ".join(part for part in (self.source, self.where, self.problem) if part)


class Unhashable(ToolverdictError, ValueError):
    """A value has no canonical form.

    Args:
        reason: A short code for the span: ``too_deep``, ``too_large``, ``cycle``,
            ``not_finite``, ``lone_surrogate``, ``unsupported_type`` or ``failed``.
        detail: The type at fault, where there is one; never the value.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        """The reason, and the type at fault."""
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


class ToolDenied(ToolverdictError):
    """A tool call was stopped before its body ran, and repeating it will not help.

    Args:
        tool: The name of the tool.
        reason_code: Why, in one of a few words (see ``decisions.ReasonCode``).
        rule_ids: The policy rules that decided.
        reason: The sentence the policy gives for people and models to read.
    """

    def __init__(
        self, tool: str, reason_code: str, rule_ids: Sequence[str] = (), reason: str = ""
    ) -> None:
        super().__init__(tool, reason_code, tuple(rule_ids), reason)
        self.tool = tool
        self.reason_code = reason_code
        self.rule_ids = tuple(rule_ids)
        self.reason = reason

    def __str__(self) -> str:
        """What was denied, by which rules, and why."""
        by = f" by {', '.join(self.rule_ids)}" if self.rule_ids else ""
        why = f": {self.reason}" if self.reason else ""
        return f"tool {self.tool!r} was denied{by} ({self.reason_code}){why}"


class ApprovalRequired(ToolverdictError):
    """A tool call waits for an approval that it does not have; its body did not run.

    Args:
        tool: The name of the tool.
        approval_id: The approval to ask after.
        rule_ids: The policy rules that ask for it.
        reason: The sentence the policy gives.
        failure: The class of what the approver raised instead of answering; empty if it did not.
    """

    def __init__(
        self,
        tool: str,
        approval_id: str,
        rule_ids: Sequence[str] = (),
        reason: str = "",
        failure: str = "",
    ) -> None:
        super().__init__(tool, approval_id, tuple(rule_ids), reason, failure)
        self.tool = tool
        self.approval_id = approval_id
        self.rule_ids = tuple(rule_ids)
        self.reason = reason
        self.failure = failure

    def __str__(self) -> str:
        """What waits, for which approval, and why; and that the approver failed, if it did."""
        by = f" by {', '.join(self.rule_ids)}" if self.rule_ids else ""
        why = f": {self.reason}" if self.reason else ""
        failed = f"; the approver failed ({self.failure})" if self.failure else ""
        return f"tool {self.tool!r} needs approval {self.approval_id}, asked for{by}{why}{failed}"


class IdempotencyError(ToolverdictError):
    """A tool call was not run because of what is known about an earlier one with the same key."""


class IdempotencyConflict(IdempotencyError):
    """The key was used with other arguments; another action needs another key."""


class CallInProgress(IdempotencyError):
    """A call with this key is running; ask again when it has ended."""


class OutcomeUnknown(IdempotencyError):
    """A call with this key may or may not have had its effect; find out, then say so."""


class AlreadyDone(IdempotencyError):
    """A call with this key succeeded, and its result cannot be given back; do not repeat it."""


class TransitionRefused(ToolverdictError):
    """An approval cannot go where it was told to go; its state is what it was before."""


class StoreError(ToolverdictError):
    """A database of approvals, idempotency keys or audit records cannot be used."""


class AuditFailed(ToolverdictError):
    """A labelled tool was stopped before its body ran: its intent could not be recorded."""


class ToolError(Exception):
    """A tool failed in a way its author can name; raise one of the subclasses."""


class InvalidArguments(ToolError, ValueError):
    """The arguments make no sense to the tool."""


class PermissionDenied(ToolError, PermissionError):
    """The system behind the tool does not let this caller do it."""


class Refused(ToolError):
    """The tool understood, could, and will not."""


class RateLimited(ToolError):
    """Too many calls; the same call may work later."""


class UpstreamError(ToolError):
    """The system behind the tool failed."""


class ToolTimeout(ToolError, TimeoutError):
    """The tool, or what is behind it, took too long."""
