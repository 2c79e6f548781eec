"""Every error of the collector, grouped by what the caller does next.

::

    CollectorError
    ├─ ConfigError            stop; a person has to change something            exit 2
    │  └─ LakeError           the folder is no lake, or a newer or damaged one  exit 2
    ├─ PermanentError         never send the same bytes again
    │  ├─ DecodeError         not OTLP                                          400  INVALID_ARGUMENT
    │  ├─ TooLargeError       over the body limit                               413  RESOURCE_EXHAUSTED
    │  └─ UnsupportedMediaError  unknown media type or content coding           415  INVALID_ARGUMENT
    └─ TransientError         send the same bytes again later                   503  UNAVAILABLE
       ├─ StorageError        the log could not be written
       ├─ SlowBodyError       the body did not come in time                     408  UNAVAILABLE
       └─ OverloadedError     too much is waiting already

``RESOURCE_EXHAUSTED`` is sent without ``RetryInfo``, which by the OTLP specification tells clients
not to retry; ``UNAVAILABLE`` and 503 always come with a delay.
"""

from http import HTTPStatus
from typing import ClassVar, NamedTuple

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
        case UnsupportedMediaError():
            return ErrorStatus(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, grpc.StatusCode.INVALID_ARGUMENT, None
            )
        case SlowBodyError():
            return ErrorStatus(
                HTTPStatus.REQUEST_TIMEOUT, grpc.StatusCode.UNAVAILABLE, RETRY_AFTER_S
            )
        case PermanentError():
            return ErrorStatus(HTTPStatus.BAD_REQUEST, grpc.StatusCode.INVALID_ARGUMENT, None)
        case _:
            return ErrorStatus(
                HTTPStatus.SERVICE_UNAVAILABLE, grpc.StatusCode.UNAVAILABLE, RETRY_AFTER_S
            )
