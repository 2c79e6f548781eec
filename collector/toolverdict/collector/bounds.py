"""How many objects a request would become, counted before any parser makes them.

Two bytes on the wire, and far less under gzip, are a whole empty message in memory. A body is
walked once over its wire format: no object is made, and only what lies in fields that hold messages
is looked into. Bodies too small to be over a limit are not walked at all.
"""

from functools import cache
from typing import Final

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
_FIXED32: Final = 5


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
    if len(body) > _MIN_FIELD_BYTES * max_records:
        _walk(descriptor, body, max_records, WIRE[signal].noun, records_only=True)
    if len(body) > _MIN_FIELD_BYTES * max_messages:
        _walk(descriptor, body, max_messages, "messages (spans, events, attributes, values)")


def check_json(body: bytes, max_messages: int) -> None:
    """Refuse JSON that would become too many objects, arrays and messages.

    Raises:
        DecodeError: when there are more; braces inside strings count, too.
    """
    if len(body) > max_messages and sum(map(body.count, (b"{", b"[", b"null"))) > max_messages:
        raise _too_many(max_messages, "objects and arrays")


@cache
def _children(descriptor: Descriptor) -> dict[int, Descriptor | None]:
    """The fields of a message that become objects; with a type for those to be looked into."""
    return {
        field.number: field.message_type
        for field in descriptor.fields
        if field.type == FieldDescriptor.TYPE_MESSAGE or field.is_repeated
    }


def _walk(
    descriptor: Descriptor, body: bytes, limit: int, noun: str, *, records_only: bool = False
) -> None:
    """Count the messages in a body, or only its records, of which nothing is looked into."""
    count = 0
    position, end, children = 0, len(body), _children(descriptor)
    outer: list[tuple[int, dict[int, Descriptor | None]]] = []
    try:
        while True:
            if position == end:
                if not outer:
                    return
                end, children = outer.pop()
                continue
            tag, position = _varint(body, position)
            wire_type = tag & 7
            if wire_type == _BYTES:
                length, position = _varint(body, position)
                if position + length > end:
                    raise _broken()
                number = tag >> 3
                if number not in children:
                    position += length
                    continue
                child = children[number]
                is_record = child is not None and child.name in _RECORD_TYPES
                if is_record or not records_only:
                    count += 1
                    if count > limit:
                        raise _too_many(limit, noun)
                if child is None or (is_record and records_only):
                    position += length
                elif len(outer) == _MAX_DEPTH:
                    raise _broken()
                else:
                    outer.append((end, children))
                    end, children = position + length, _children(child)
            elif wire_type == _VARINT:
                _, position = _varint(body, position)
            elif wire_type in (_FIXED64, _FIXED32):
                position += 8 if wire_type == _FIXED64 else 4
            else:
                raise _broken()
            if position > end:
                raise _broken()
    except IndexError:
        raise _broken() from None


def _varint(body: bytes, position: int) -> tuple[int, int]:
    """A number and the position after it."""
    byte = body[position]
    if byte < 0x80:
        return byte, position + 1
    value = shift = 0
    while byte >= 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 63:
            raise _broken()
        position += 1
        byte = body[position]
    return value | byte << shift, position + 1


def _too_many(limit: int, noun: str) -> DecodeError:
    return DecodeError(f"the request holds more than {limit} {noun}; send smaller batches")


def _broken() -> DecodeError:
    return DecodeError("the body is not a valid export request in protobuf")
