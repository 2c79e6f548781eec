"""Asking a human: what the approver sees, and the only answer that lets a call run."""

import inspect
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, get_args

from toolverdict.instrument import guard
from toolverdict.instrument.arguments import Arguments
from toolverdict.instrument.likeness import folded

ApprovalStatus = Literal["requested", "approved", "rejected", "expired", "cancelled"]

_STATUSES: Final = get_args(ApprovalStatus)


@dataclass(frozen=True, slots=True)
class Approval:
    """The answer to an approval request.

    Args:
        id: Names the approval; the same id on a later attempt says that it is the same one.
        status: Only ``approved`` lets the call run; ``rejected`` denies it; with anything else it
            keeps waiting.
        approver: Who answered, by a name that may be recorded.
        args_hash: The ``ApprovalRequest.args_hash`` that the answer is for. An approval with an id
            of its own needs it, or nothing says what was approved; ``request.approve()`` does not,
            since it answers by the request's id.
        failure: The class of what an approver raised instead of answering; set by toolverdict.
    """

    id: str
    status: ApprovalStatus
    approver: str | None = None
    args_hash: str | None = None
    failure: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise ValueError("id must be a text that is not empty")
        if self.status not in _STATUSES:
            raise ValueError(f"status must be one of {', '.join(_STATUSES)}")


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What an approver is asked.

    Args:
        id: Names the request; an approval takes it over unless it has an id of its own, and then
            it needs ``args_hash``.
        tool: The tool that wants to run.
        arguments: What it wants to run with. An approval holds for these and no others.
        args_hash: The hash of these arguments.
        labels: The tool's labels.
        agent: The agent that calls.
        conversation_id: The conversation that it calls in.
        call_id: The id of the call in the model's request.
        policy_id: The policy that asks for approval.
        policy_digest: The digest of that policy.
        rule_ids: The rules that ask for it.
        reason: Why, in the policy's words.
        schema_version: The version of the tool's parameters.
        args_hash_key_id: The id of the key that ``args_hash`` was made with.
        approvers: Who may say yes; None is whoever is asked.
        ttl_s: How many seconds from now the policy lets the request, and a yes to it, be good for;
            None is as long as whoever keeps it says.
    """

    id: str
    tool: str
    arguments: Arguments
    args_hash: str
    labels: tuple[str, ...]
    agent: str | None
    conversation_id: str | None
    call_id: str
    policy_id: str
    policy_digest: str
    rule_ids: tuple[str, ...]
    reason: str
    schema_version: str = ""
    args_hash_key_id: str = ""
    approvers: frozenset[str] | None = None
    ttl_s: float | None = None

    def may_be_approved_by(self, approver: str | None) -> bool:
        """Whether the policy lets somebody say yes; neither case nor width makes another name."""
        if self.approvers is None:
            return True
        return approver is not None and folded(approver) in map(folded, self.approvers)

    def approve(self, approver: str | None = None) -> Approval:
        """Yes to exactly this request."""
        return Approval(self.id, "approved", approver)

    def reject(self, approver: str | None = None) -> Approval:
        """No to this request."""
        return Approval(self.id, "rejected", approver)


def is_for(approval: Approval, request: ApprovalRequest) -> bool:
    """Whether an approval is for this request: by the arguments it names, else by its id."""
    if approval.args_hash is not None:
        return approval.args_hash == request.args_hash
    return approval.id == request.id


Approver = Callable[[ApprovalRequest], "Approval | Awaitable[Approval | None] | None"]
"""Answers a request: at once, with an awaitable for async tools, or with None for not yet."""


class PatientApprover(Protocol):
    """An approver that waits for its answer, in a way of its own for async tools."""

    def __call__(self, request: ApprovalRequest) -> Approval | None:
        """Answer; a sync tool's thread may wait."""

    async def ask_async(self, request: ApprovalRequest) -> Approval | None:
        """Answer, and let the event loop go on meanwhile."""


def new_approval_id() -> str:
    """An id for a request that nobody has seen yet."""
    return f"appr_{secrets.token_hex(12)}"


def ask(approver: Approver | None, request: ApprovalRequest) -> Approval:
    """Ask, and take no for an answer unless it is certainly a yes."""
    if approver is None:
        return _unanswered(request)
    try:
        answer: object = approver(request)
    except Exception as error:  # noqa: BLE001 - an approver that fails has not approved
        return _failed(request, error)
    if inspect.isawaitable(answer):
        if inspect.iscoroutine(answer):
            answer.close()
        guard.note("approver", "the approver of tool %s is async and the tool is not", request.tool)
        return _unanswered(request)
    return _taken(answer, request)


async def ask_async(approver: Approver | None, request: ApprovalRequest) -> Approval:
    """Ask, and wait for the answer if it is awaitable."""
    if approver is None:
        return _unanswered(request)
    try:
        # Looked up on the class: a mock has every attribute, and promises nothing by it.
        patient = getattr(type(approver), "ask_async", None)
        answer: object = approver(request) if patient is None else patient(approver, request)
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception as error:  # noqa: BLE001 - an approver that fails has not approved
        return _failed(request, error)
    return _taken(answer, request)


def _taken(answer: object, request: ApprovalRequest) -> Approval:
    # Exactly this class: {"approved": False}, True and a mock are all truthy and none is a yes.
    if type(answer) is Approval:
        return answer
    if answer is not None:
        guard.note(
            "approver",
            "the approver of tool %s returned a %s; only an Approval counts",
            request.tool,
            type(answer).__name__,
        )
    return _unanswered(request)


def _unanswered(request: ApprovalRequest) -> Approval:
    return Approval(request.id, "requested")


def _failed(request: ApprovalRequest, error: Exception) -> Approval:
    new = guard.note_once(
        "approver",
        "the approver of tool %s failed (%s); the call is not approved",
        request.tool,
        type(error).__name__,
    )
    if new:
        guard.where(error)
    return replace(_unanswered(request), failure=type(error).__name__)
