"""How many objects a request would become, counted before any parser makes them.

Two bytes on the wire, and far less under gzip, are a whole empty message in memory. A body is
walked over its wire format: no object is made of what a record holds, and only what lies in fields
that hold messages is looked into. What is too small to be over a limit is not walked at all.
"""

from functools import cache
from typing import Final, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from toolverdict.collector.errors import DecodeError
from toolverdict.collector.limits import Limits
from toolverdict.collector.otlp_wire import BrokenError, ResourcePlace, fields, places
from toolverdict.collector.signals import WIRE, Signal

MIN_FIELD_BYTES: Final = 2
_MAX_DEPTH: Final = 100
"""Protobuf parsers refuse what nests deeper."""

MESSAGES: Final = "messages (spans, events, attributes, values)"

_Fields: TypeAlias = dict[int, Descriptor | None]


def check_protobuf(signal: Signal, body: bytes, limits: Limits) -> list[ResourcePlace]:
    """Refuse a request that would become too many objects; returns where its records are.

    Args:
        signal: what the body holds.
        body: protobuf bytes.
        limits: of which those of a request are looked at.

    Raises:
        DecodeError: when there are more, or the bytes are no protobuf.
    """
    try:
        found = places(body, limits.records)
        if found is None:
            raise too_many(limits.records, WIRE[signal].noun)
        if not holds_at_most(WIRE[signal].request.DESCRIPTOR, body, limits.messages):
            raise too_many(limits.messages, MESSAGES)
    except BrokenError:
        raise malformed(signal) from None
    return found


def check_json(body: bytes, max_messages: int) -> None:
    """Refuse JSON that would become too many values: objects, arrays, and what commas part in them.

    Raises:
        DecodeError: when there are more; what stands inside strings counts, too.
    """
    if len(body) > max_messages and sum(map(body.count, (b"{", b"[", b","))) > max_messages:
        raise too_many(max_messages, "JSON values")


def too_many(limit: int, noun: str) -> DecodeError:
    """A request holds more than it may."""
    return DecodeError(f"the request holds more than {limit} {noun}; send smaller batches")


def malformed(signal: Signal) -> DecodeError:
    """A body is not what its signal demands."""
    name = WIRE[signal].request.DESCRIPTOR.name
    return DecodeError(f"the body is not a valid {name} in protobuf")


@cache
def _children(descriptor: Descriptor) -> _Fields:
    """The fields of a message that become objects; with a type for those to be looked into."""
    return {
        field.number: field.message_type
        for field in descriptor.fields
        if field.type == FieldDescriptor.TYPE_MESSAGE or field.is_repeated
    }


def holds_at_most(descriptor: Descriptor, body: bytes, limit: int) -> bool:
    """Whether a message has no more messages in it, however deep, than a limit.

    Raises:
        BrokenError: when the bytes are no protobuf.
    """
    if len(body) <= MIN_FIELD_BYTES * limit:
        return True
    count = 0
    within = [(fields(body, 0, len(body)), _children(descriptor))]
    while within:
        siblings, children = within[-1]
        field = next(siblings, None)
        if field is None:
            within.pop()
        elif field.is_bytes and field.number in children:
            count += 1
            if count > limit:
                return False
            child = children[field.number]
            if child is not None:
                if len(within) > _MAX_DEPTH:
                    raise BrokenError
                within.append((fields(body, field.content, field.end), _children(child)))
    return True
