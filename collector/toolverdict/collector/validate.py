"""Which spans and log records are stored: the one predicate of intake and decoding.

Intake counts with it what it rejects, and :mod:`toolverdict.collector.decode` leaves out with it
the very same records, so an acknowledgement and the lake can never disagree. A reason names the
field and the rule, never a value. The native decoder has the same predicate in ``otlp.h`` and names
a reason by its place in the tuples below.
"""

from collections import Counter
from typing import Final, NamedTuple

from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from toolverdict.collector.limits import LIMIT_REASONS, Over

TRACE_ID_BYTES: Final = 16
SPAN_ID_BYTES: Final = 8
MAX_TIME_UNIX_NANO: Final = 2**63 - 1
"""The last time an int64 of nanoseconds can hold: 2262-04-11."""

_NO_TRACE_ID: Final = bytes(TRACE_ID_BYTES)
_NO_SPAN_ID: Final = bytes(SPAN_ID_BYTES)


SPAN_FAULTS: Final = (
    "trace_id must be 16 bytes (32 hex characters in JSON) and not all zero",
    "span_id must be 8 bytes (16 hex characters in JSON) and not all zero",
    "parent_span_id must be empty or 8 bytes (16 hex characters in JSON)",
    "start_time_unix_nano must be below 2^63",
    "end_time_unix_nano must be below 2^63",
    "events.time_unix_nano must be below 2^63",
    "links.trace_id must be empty or 16 bytes (32 hex characters in JSON)",
    "links.span_id must be empty or 8 bytes (16 hex characters in JSON)",
)
"""Why a span cannot be stored, in the order in which that is looked for."""

LOG_FAULTS: Final = (
    "time_unix_nano must be below 2^63",
    "observed_time_unix_nano must be below 2^63",
)
"""Why a log record cannot be stored."""

LOG_WARNINGS: Final = (
    "trace_id is neither empty nor 16 bytes (32 hex characters in JSON) and was left out",
    "span_id is neither empty nor 8 bytes (16 hex characters in JSON) and was left out",
)
"""What is lost of a log record that is stored."""


REASONS: Final = tuple(
    dict.fromkeys(
        [text.partition(" ")[0] for text in (*SPAN_FAULTS, *LOG_FAULTS)] + list(LIMIT_REASONS)
    )
)
"""The first word of every reason, which names the field: labels of the metric."""


class Judgement(NamedTuple):
    """What is said of a request before anything is stored."""

    accepted: int
    rejected: Counter[str]
    """Records that cannot be stored, by reason, in the order in which the reasons were met."""
    warnings: Counter[str]
    """Records that are stored without something, by reason."""
    over: Over = Over()
    """What must not reach the log: see :func:`toolverdict.collector.otlp_wire.without`."""


def span_fault(span: Span) -> str | None:
    """Why a span cannot be stored, or None when it can.

    Ids follow opentelemetry-proto 1.9, trace.proto: a trace id has 16 bytes, a span id 8, and an
    id of zeros is invalid. A parent id of zeros is what some clients send for a root and means
    none. A span that ends before it starts is kept: clocks do that, and times are never rewritten.
    """
    trace_id = span.trace_id
    if len(trace_id) != TRACE_ID_BYTES or trace_id == _NO_TRACE_ID:
        return SPAN_FAULTS[0]
    span_id = span.span_id
    if len(span_id) != SPAN_ID_BYTES or span_id == _NO_SPAN_ID:
        return SPAN_FAULTS[1]
    if len(span.parent_span_id) not in (0, SPAN_ID_BYTES):
        return SPAN_FAULTS[2]
    if span.start_time_unix_nano > MAX_TIME_UNIX_NANO:
        return SPAN_FAULTS[3]
    if span.end_time_unix_nano > MAX_TIME_UNIX_NANO:
        return SPAN_FAULTS[4]
    for event in span.events:
        if event.time_unix_nano > MAX_TIME_UNIX_NANO:
            return SPAN_FAULTS[5]
    for link in span.links:
        if len(link.trace_id) not in (0, TRACE_ID_BYTES):
            return SPAN_FAULTS[6]
        if len(link.span_id) not in (0, SPAN_ID_BYTES):
            return SPAN_FAULTS[7]
    return None


def log_fault(record: LogRecord) -> str | None:
    """Why a log record cannot be stored, or None when it can.

    Ids are no reason: see :func:`log_warning`.
    """
    if record.time_unix_nano > MAX_TIME_UNIX_NANO:
        return LOG_FAULTS[0]
    if record.observed_time_unix_nano > MAX_TIME_UNIX_NANO:
        return LOG_FAULTS[1]
    return None


def fault_of(record: Span | LogRecord) -> str | None:
    """Why a span or a log record cannot be stored, or None when it can."""
    return span_fault(record) if isinstance(record, Span) else log_fault(record)


def log_warning(record: LogRecord) -> str | None:
    """What is lost of a log record that is stored, or None.

    "The receivers SHOULD assume that the log record is not associated with a trace if [...] the
    field contains an invalid value" (opentelemetry-proto 1.9, logs.proto), so such an id is stored
    as null and the client is told.
    """
    if len(record.trace_id) not in (0, TRACE_ID_BYTES):
        return LOG_WARNINGS[0]
    if len(record.span_id) not in (0, SPAN_ID_BYTES):
        return LOG_WARNINGS[1]
    return None


def hex_or_none(identifier: bytes, length: int) -> str | None:
    """An id in lower-case hex, or None when it is absent, of another length or all zero."""
    if len(identifier) != length or not any(identifier):
        return None
    return identifier.hex()
