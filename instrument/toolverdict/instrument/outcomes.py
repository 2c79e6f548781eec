"""How a tool call ended: the outcomes, and how exceptions and results become one.

Nothing is ever inferred from the text of a message or a result.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from toolverdict.instrument import errors


class Outcome(StrEnum):
    """How a tool call ended. The values are what ``tool.outcome`` holds."""

    OK = "ok"
    EMPTY = "empty"
    """Succeeded and returned nothing usable."""
    INVALID_ARGUMENTS = "invalid_arguments"
    DENIED = "denied"
    """By policy, or by the person asked for approval."""
    PERMISSION_DENIED = "permission_denied"
    """By the system behind the tool."""
    REFUSED = "refused"
    """By the tool itself."""
    RATE_LIMITED = "rate_limited"
    TIMEOUT = "timeout"
    UPSTREAM_ERROR = "upstream_error"
    ERROR = "error"
    """Any other failure."""
    CANCELLED = "cancelled"
    """Given up by the caller before it ended."""
    PENDING_APPROVAL = "pending_approval"
    UNKNOWN = "unknown"

    @property
    def succeeded(self) -> bool:
        """The tool did what it was asked: ``ok`` and ``empty``."""
        return self in _SUCCEEDED

    @property
    def failed(self) -> bool:
        """The call went wrong: neither succeeded, nor cancelled, pending or unknown."""
        return self in _FAILED


_SUCCEEDED: Final = frozenset({Outcome.OK, Outcome.EMPTY})
_FAILED: Final = frozenset(Outcome) - {
    *_SUCCEEDED,
    Outcome.CANCELLED,
    Outcome.PENDING_APPROVAL,
    Outcome.UNKNOWN,
}

_SCALARS: Final = frozenset({bool, int, float, str})
"""Results that cannot say that they are an error."""

OutcomeHook = Callable[[object], "Outcome | None"]
"""Given by a tool's author: looks at a result and names the outcome, or None to leave it to us."""

_BY_CLASS: Final[tuple[tuple[type[BaseException], Outcome], ...]] = (
    (errors.ToolDenied, Outcome.DENIED),
    (errors.ApprovalRequired, Outcome.PENDING_APPROVAL),
    (errors.IdempotencyError, Outcome.DENIED),
    (errors.AuditFailed, Outcome.DENIED),
    (errors.StoreError, Outcome.DENIED),
    (errors.InvalidArguments, Outcome.INVALID_ARGUMENTS),
    (errors.PermissionDenied, Outcome.PERMISSION_DENIED),
    (errors.Refused, Outcome.REFUSED),
    (errors.RateLimited, Outcome.RATE_LIMITED),
    (errors.UpstreamError, Outcome.UPSTREAM_ERROR),
    (TimeoutError, Outcome.TIMEOUT),
    (PermissionError, Outcome.PERMISSION_DENIED),
    (ConnectionError, Outcome.UPSTREAM_ERROR),
    (asyncio.CancelledError, Outcome.CANCELLED),
    (GeneratorExit, Outcome.CANCELLED),
    (KeyboardInterrupt, Outcome.CANCELLED),
)

_BY_LOADED_CLASS: Final = (
    ("pydantic_core", "ValidationError", Outcome.INVALID_ARGUMENTS),
    ("httpx", "TimeoutException", Outcome.TIMEOUT),
    ("requests", "Timeout", Outcome.TIMEOUT),
    # How frameworks step out of a tool without anything having failed. A graph's ParentCommand is
    # the answer of a tool that hands over; whatever else bubbles up waits for somebody.
    ("langgraph.errors", "ParentCommand", Outcome.OK),
    ("langgraph.errors", "GraphBubbleUp", Outcome.PENDING_APPROVAL),
    ("langgraph.errors", "GraphInterrupt", Outcome.PENDING_APPROVAL),
    ("pydantic_ai.exceptions", "CallDeferred", Outcome.PENDING_APPROVAL),
    ("pydantic_ai.exceptions", "ApprovalRequired", Outcome.PENDING_APPROVAL),
    # The tool sends the model back to try again with other arguments.
    ("pydantic_ai.exceptions", "ModelRetry", Outcome.INVALID_ARGUMENTS),
)
"""Classes of packages we do not import: compared by identity once somebody else has."""

_BY_STATUS: Final = {
    400: Outcome.INVALID_ARGUMENTS,
    401: Outcome.PERMISSION_DENIED,
    403: Outcome.PERMISSION_DENIED,
    408: Outcome.TIMEOUT,
    422: Outcome.INVALID_ARGUMENTS,
    429: Outcome.RATE_LIMITED,
    504: Outcome.TIMEOUT,
}


Interrupt = type[BaseException] | str
"""A class of exceptions that pause a tool; a text is its module and qualified name."""


def outcome_of_exception(error: BaseException, interrupts: Sequence[Interrupt] = ()) -> Outcome:
    """Name what an exception leaving a tool means.

    A class decides where there is one (an interrupt, or the first that fits in this module's
    table); else the HTTP status that the exception carries as ``.response.status_code``,
    ``.status_code`` or ``.status``; else it is ``error``. A class is known by what it is and where
    it is from, never by its bare name.

    Args:
        error: The exception.
        interrupts: Classes whose exceptions only wait for somebody: ``pending_approval``.
    """
    kind = type(error)  # not what ``__class__`` says: a proxy's may raise, or tell another
    if interrupts and _is_interrupt(kind, interrupts):
        return Outcome.PENDING_APPROVAL
    for known, outcome in _BY_CLASS:
        if issubclass(kind, known):
            return outcome
    for module, name, outcome in _BY_LOADED_CLASS:
        loaded = getattr(sys.modules.get(module), name, None)
        if isinstance(loaded, type) and issubclass(kind, loaded):
            return outcome
    status = _http_status(error)
    if status is None:
        return Outcome.ERROR
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return Outcome.UPSTREAM_ERROR if 500 <= status <= 599 else Outcome.ERROR


def _is_interrupt(kind: type[BaseException], interrupts: Sequence[Interrupt]) -> bool:
    names = {f"{base.__module__}.{base.__qualname__}" for base in kind.__mro__}
    return any(
        known in names if isinstance(known, str) else issubclass(kind, known)
        for known in interrupts
    )


def outcome_of_result(result: object, *, returns_none: bool = False) -> Outcome:
    """Name what a returned value means.

    Args:
        result: What the tool returned.
        returns_none: Whether the tool is declared to return nothing (``-> None``), so that
            nothing is what was asked for.
    """
    if result is None:
        return Outcome.OK if returns_none else Outcome.EMPTY
    if type(result) in _SCALARS:
        return Outcome.EMPTY if result == "" else Outcome.OK
    if isinstance(result, Mapping):
        if result.get("isError") is True or result.get("is_error") is True or result.get("error"):
            return Outcome.ERROR
    # The Model Context Protocol's name of it, and that of its Python SDK since version 2.
    elif getattr(result, "isError", None) is True or getattr(result, "is_error", None) is True:
        return Outcome.ERROR
    if isinstance(result, str | list | dict | tuple) and len(result) == 0:
        return Outcome.EMPTY
    return Outcome.OK


def error_type(error: BaseException) -> str:
    """The qualified class name of an exception, as ``error.type`` wants it."""
    kind = type(error)
    if kind.__module__ == "builtins":
        return kind.__qualname__
    return f"{kind.__module__}.{kind.__qualname__}"


def _http_status(error: BaseException) -> int | None:
    response = _attribute(error, "response")
    for holder, name in ((response, "status_code"), (error, "status_code"), (error, "status")):
        value = _attribute(holder, name)
        if isinstance(value, int) and not isinstance(value, bool):
            return int(value)
    return None


def _attribute(holder: object, name: str) -> object:
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001 - a property of somebody's exception class may raise anything
        return None
