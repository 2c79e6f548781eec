"""Every error of the collector, grouped by what the caller does next.

::

    CollectorError
    ├─ ConfigError            stop; a person has to change something            exit 2
    │  └─ LakeError           the folder is no lake, or a newer or damaged one  exit 2
    ├─ PermanentError         never send the same bytes again
    │  ├─ DecodeError         not OTLP                                          400  INVALID_ARGUMENT
    │  ├─ TooLargeError       over the body limit                               413  RESOURCE_EXHAUSTED
    │  ├─ UnauthorizedError   no bearer token, or one we do not know            401  UNAUTHENTICATED
    │  └─ UnsupportedMediaError  unknown media type or content coding           415  INVALID_ARGUMENT
    └─ TransientError         send the same bytes again later                   503  UNAVAILABLE
       ├─ StorageError        the log could not be written
       ├─ SlowBodyError       the body did not come in time                     408  UNAVAILABLE
       └─ OverloadedError     too much is waiting already
          └─ FairShareError   this client holds its share already                429  RESOURCE_EXHAUSTED

By the OTLP specification ``RESOURCE_EXHAUSTED`` is retried if and only if it comes with
``RetryInfo``: a body that is too large comes without. Everything transient comes with a delay.
"""

from http import HTTPStatus
from typing import ClassVar, Final, NamedTuple

import grpc

RETRY_AFTER_S = 1
"""Seconds a client is asked to wait after a :class:`TransientError`."""


class CollectorError(Exception):
    """Base of all errors of this package; the message says what, where and what to do."""

    exit_code: ClassVar[int] = 1


class ConfigError(CollectorError):
    """The collector cannot start as it was asked to."""

    exit_code: ClassVar[int] = 2


class LakeError(ConfigError):
    """A folder cannot be read as a lake: missing, not a lake, damaged or too new."""


class PermanentError(CollectorError):
    """The request can never be accepted; sending it again is useless."""


class DecodeError(PermanentError):
    """The bytes are not what their media type or content coding says."""


class TooLargeError(PermanentError):
    """The body, as sent or inflated, is over the limit."""


class UnauthorizedError(PermanentError):
    """The client did not say who it is, or with a token that is not, or no longer, ours."""


class UnsupportedMediaError(PermanentError):
    """The media type or content coding is not one the collector speaks."""


class TransientError(CollectorError):
    """The request was not stored; the same request may succeed later."""


class StorageError(TransientError):
    """The write-ahead log could not be written or synced."""


class SlowBodyError(TransientError):
    """The body did not arrive in time."""


class OverloadedError(TransientError):
    """More bytes are waiting than the limits allow."""


class FairShareError(OverloadedError):
    """One client holds as much as it may while others wait."""


def printable(text: str) -> str:
    """A message on one line: what would steer a terminal, as names of files may, is escaped."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


class ErrorStatus(NamedTuple):
    """What one error looks like on the wire."""

    http: HTTPStatus
    grpc: grpc.StatusCode
    retry_after_s: int | None
    """Seconds until a retry makes sense, None when it never does."""


def status_of(error: Exception) -> ErrorStatus:
    """The one place that maps an error to HTTP and gRPC statuses.

    OTLP specification 1.9, "Failures": 400 and INVALID_ARGUMENT are permanent, 503 with
    Retry-After and UNAVAILABLE are retried by every exporter. An error that is not ours is a fault
    of the collector, and the client keeps its data: 503.
    """
    match error:
        case TooLargeError():
            return ErrorStatus(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, grpc.StatusCode.RESOURCE_EXHAUSTED, None
            )
        case UnauthorizedError():
            return ErrorStatus(HTTPStatus.UNAUTHORIZED, grpc.StatusCode.UNAUTHENTICATED, None)
        case UnsupportedMediaError():
            return ErrorStatus(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, grpc.StatusCode.INVALID_ARGUMENT, None
            )
        case SlowBodyError():
            return ErrorStatus(
                HTTPStatus.REQUEST_TIMEOUT, grpc.StatusCode.UNAVAILABLE, RETRY_AFTER_S
            )
        case FairShareError():
            return ErrorStatus(
                HTTPStatus.TOO_MANY_REQUESTS, grpc.StatusCode.RESOURCE_EXHAUSTED, RETRY_AFTER_S
            )
        case PermanentError():
            return ErrorStatus(HTTPStatus.BAD_REQUEST, grpc.StatusCode.INVALID_ARGUMENT, None)
        case _:
            return ErrorStatus(
                HTTPStatus.SERVICE_UNAVAILABLE, grpc.StatusCode.UNAVAILABLE, RETRY_AFTER_S
            )


_ALL: Final = (
    TooLargeError,
    UnauthorizedError,
    UnsupportedMediaError,
    SlowBodyError,
    FairShareError,
    DecodeError,
    StorageError,
)

CODES: Final = tuple(
    sorted(
        {"200", "OK"}
        | {str(status_of(kind()).http.value) for kind in _ALL}
        | {status_of(kind()).grpc.name for kind in _ALL}
    )
)
"""Every status an export can be answered with, as HTTP and gRPC name it."""
