"""How many objects a request would become, counted before any parser makes them.

Two bytes on the wire, and far less under gzip, are a whole empty message in memory. A body is
walked once over its wire format: no object is made, and only what lies in fields that hold messages
is looked into. Bodies too small to be over a limit are not walked at all.
"""

from functools import cache
from typing import Final, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from toolverdict.collector.errors import DecodeError
from toolverdict.collector.signals import WIRE, Signal

_MIN_FIELD_BYTES: Final = 2
_RECORD_TYPES: Final = frozenset({"Span", "LogRecord"})
_MAX_DEPTH: Final = 100
"""Protobuf parsers refuse what nests deeper."""

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_START_GROUP: Final = 3
_END_GROUP: Final = 4
_FIXED32: Final = 5

MESSAGES: Final = "messages (spans, events, attributes, values)"

_Fields: TypeAlias = dict[int, Descriptor | None]
_GROUP: Final[_Fields] = {}
"""What is looked into in a group, which OTLP has never had, and parsers skip: nothing."""


def check_protobuf(signal: Signal, body: bytes, max_records: int, max_messages: int) -> None:
    """Refuse a request that would become too many objects.

    Args:
        signal: what the body holds.
        body: protobuf bytes.
        max_records: spans or log records, valid or not.
        max_messages: messages of any kind (each attribute is two) and items of lists of strings.

    Raises:
        DecodeError: when there are more, or the bytes are no protobuf.
    """
    descriptor = WIRE[signal].request.DESCRIPTOR
    try:
        if len(body) > _MIN_FIELD_BYTES * max_records and not _holds_at_most(
            descriptor, body, max_records, records_only=True
        ):
            raise too_many(max_records, WIRE[signal].noun)
        if len(body) > _MIN_FIELD_BYTES * max_messages and not _holds_at_most(
            descriptor, body, max_messages
        ):
            raise too_many(max_messages, MESSAGES)
    except _BrokenError:
        raise malformed(signal) from None


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


class _BrokenError(Exception):
    """The bytes are no protobuf."""


@cache
def _children(descriptor: Descriptor) -> _Fields:
    """The fields of a message that become objects; with a type for those to be looked into."""
    return {
        field.number: field.message_type
        for field in descriptor.fields
        if field.type == FieldDescriptor.TYPE_MESSAGE or field.is_repeated
    }


def _holds_at_most(
    descriptor: Descriptor, body: bytes, limit: int, *, records_only: bool = False
) -> bool:
    """Count the messages in a body, or only its records, of which nothing is looked into.

    Raises:
        _BrokenError: when the bytes are no protobuf.
    """
    count = 0
    position, end, children = 0, len(body), _children(descriptor)
    outer: list[tuple[int, _Fields]] = []
    while True:
        if position == end:
            if children is _GROUP:
                raise _BrokenError
            if not outer:
                return True
            end, children = outer.pop()
            continue
        tag, position = _varint(body, position)
        wire_type = tag & 7
        if wire_type == _BYTES:
            length, position = _varint(body, position)
            if position + length > end:
                raise _BrokenError
            number = tag >> 3
            if number not in children:
                position += length
                continue
            child = children[number]
            is_record = child is not None and child.name in _RECORD_TYPES
            if is_record or not records_only:
                count += 1
                if count > limit:
                    return False
            if child is None or (is_record and records_only):
                position += length
                continue
            _go_deeper(outer, end, children)
            end, children = position + length, _children(child)
        elif wire_type == _VARINT:
            _, position = _varint(body, position)
        elif wire_type in (_FIXED64, _FIXED32):
            position += 8 if wire_type == _FIXED64 else 4
        elif wire_type == _START_GROUP:
            _go_deeper(outer, end, children)
            children = _GROUP
        elif wire_type == _END_GROUP and children is _GROUP:
            end, children = outer.pop()
        else:
            raise _BrokenError
        if position > end:
            raise _BrokenError


def _go_deeper(outer: list[tuple[int, _Fields]], end: int, children: _Fields) -> None:
    if len(outer) == _MAX_DEPTH:
        raise _BrokenError
    outer.append((end, children))


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """A number and the position after it."""
    value = shift = 0
    while position < len(body):
        byte = body[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            break
    raise _BrokenError
