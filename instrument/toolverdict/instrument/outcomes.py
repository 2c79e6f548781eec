"""How a tool call ended: the outcomes, and how exceptions and results become one.

Nothing is ever inferred from the text of a message or a result.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
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

OutcomeHook = Callable[[object], "Outcome | None"]
"""Given by a tool's author: looks at a result and names the outcome, or None to leave it to us."""

_BY_CLASS: Final[tuple[tuple[type[BaseException], Outcome], ...]] = (
    (errors.ToolDenied, Outcome.DENIED),
    (errors.ApprovalRequired, Outcome.PENDING_APPROVAL),
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


def outcome_of_exception(error: BaseException) -> Outcome:
    """Name what an exception leaving a tool means.

    A class decides where there is one (the first that fits in this module's table); else the HTTP
    status that the exception carries as ``.response.status_code``, ``.status_code`` or
    ``.status``; else it is ``error``.
    """
    for known, outcome in _BY_CLASS:
        if isinstance(error, known):
            return outcome
    for module, name, outcome in _BY_LOADED_CLASS:
        loaded = getattr(sys.modules.get(module), name, None)
        if isinstance(loaded, type) and isinstance(error, loaded):
            return outcome
    status = _http_status(error)
    if status is None:
        return Outcome.ERROR
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return Outcome.UPSTREAM_ERROR if 500 <= status <= 599 else Outcome.ERROR


def outcome_of_result(result: object, *, returns_none: bool = False) -> Outcome:
    """Name what a returned value means.

    Args:
        result: What the tool returned.
        returns_none: Whether the tool is declared to return nothing (``-> None``), so that
            nothing is what was asked for.
    """
    if result is None:
        return Outcome.OK if returns_none else Outcome.EMPTY
    if isinstance(result, Mapping):
        if result.get("isError") is True or result.get("error"):
            return Outcome.ERROR
    elif getattr(result, "isError", None) is True:
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
