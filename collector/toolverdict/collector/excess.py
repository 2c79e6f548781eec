"""Which records of a request are over a limit: the predicate of the decoder in Python.

The native decoder has the same in ``otlp.h``. Every record is looked at only as far as its size
leaves room for an excess.
"""

from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from toolverdict.collector.bounds import MIN_FIELD_BYTES, holds_at_most
from toolverdict.collector.limits import Limits, limit_faults
from toolverdict.collector.otlp_wire import longest_field
from toolverdict.collector.weights import (
    smallest_record,
    weight_of_context,
    weight_of_record,
)


class Excess:
    """Finds what is over one set of limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        texts = limit_faults(limits)
        (self._attributes, self._events, self._links, self._messages, self._value, self._record,
         self._scope, self._resource) = texts  # fmt: skip
        most_items = min(limits.attributes, limits.events, limits.links, limits.record_messages)
        self._small = min(
            MIN_FIELD_BYTES * most_items, limits.value_bytes, smallest_record(limits.record_bytes)
        )

    def of_record(self, record: Span | LogRecord, wire: bytes) -> str | None:
        """Why a record is over a limit, or None.

        Args:
            record: the record.
            wire: the bytes of which it was parsed.
        """
        if len(wire) <= self._small:
            return None
        limits = self._limits
        if _most_attributes(record) > limits.attributes:
            return self._attributes
        if isinstance(record, Span):
            if len(record.events) > limits.events:
                return self._events
            if len(record.links) > limits.links:
                return self._links
        if not holds_at_most(record.DESCRIPTOR, wire, limits.record_messages):
            return self._messages
        if len(wire) > limits.value_bytes and (
            longest_field(record.DESCRIPTOR, wire) > limits.value_bytes
        ):
            return self._value
        if weight_of_record(wire, items_of(record)) > limits.record_bytes:
            return self._record
        return None

    def of_scope(self, scope: InstrumentationScope, own: list[bytes]) -> str | None:
        """Why a scope is over a limit, or None; ``own`` is what it says of itself on the wire."""
        return self._scope if self._is_over(scope, own) else None

    def of_resource(self, resource: Resource, own: list[bytes]) -> str | None:
        """Why a resource is over a limit, or None."""
        return self._resource if self._is_over(resource, own) else None

    def _is_over(self, context: InstrumentationScope | Resource, own: list[bytes]) -> bool:
        limits = self._limits
        return (
            len(context.attributes) > limits.attributes
            or weight_of_context(own) > limits.context_bytes
        )


def items_of(record: Span | LogRecord) -> int:
    """How many events and links a record has."""
    return len(record.events) + len(record.links) if isinstance(record, Span) else 0


def _most_attributes(record: Span | LogRecord) -> int:
    """The attributes of the owner in a record that has most."""
    most = len(record.attributes)
    if isinstance(record, Span):
        for owners in (record.events, record.links):
            most = max(most, max((len(owner.attributes) for owner in owners), default=0))
    return most
