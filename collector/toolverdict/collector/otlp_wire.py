"""A request on the wire: where its resources, scopes and records are, and a copy without some.

No object is made of what a record holds, as two bytes may be a whole one. Less strict than a
parser, which has the last word on whether bytes are a request.
"""

import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from toolverdict.collector.limits import Over

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_START_GROUP: Final = 3
_END_GROUP: Final = 4
_FIXED32: Final = 5

_RESOURCES: Final = 1
"""Field of a request."""
_INNER: Final = 2
"""Field of ResourceSpans and ResourceLogs with a scope, and of ScopeSpans and ScopeLogs with a
record."""
_INNER_TAG: Final = _INNER << 3 | _BYTES
_OWN: Final = (1, 3)
"""Fields of the same messages with the resource or scope, and the URL of its schema."""
_TEXTS: Final = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


class ScopePlace(NamedTuple):
    """A scope with its records, in bytes of the request."""

    own: list[bytes]
    """What it says of itself: its messages and URLs of its schema."""
    records: list[bytes]


class ResourcePlace(NamedTuple):
    """A resource with its scopes."""

    own: list[bytes]
    scopes: list[ScopePlace]


class Field(NamedTuple):
    """A field of a message, somewhere in the request."""

    number: int
    is_bytes: bool
    """Whether it has a length: is a message, text or bytes."""
    start: int
    """Where the tag is."""
    content: int
    """Where the message, text or bytes begin."""
    end: int


class BrokenError(Exception):
    """The bytes are no protobuf."""


def fields(body: bytes, start: int, end: int) -> Iterator[Field]:
    """The fields of the message at a place, groups as one field.

    Raises:
        BrokenError: when there is no message.
    """
    position = start
    while position < end:
        tag, content = varint(body, position)
        after = _after(body, tag, content)
        if tag & 7 == _BYTES:
            content, after = after, after + varint(body, content)[0]
        if after > end:
            raise BrokenError
        yield Field(tag >> 3, tag & 7 == _BYTES, position, content, after)
        position = after


def _after(body: bytes, tag: int, position: int) -> int:
    """Where the value of a field ends; of one with a length, where that ends."""
    wire_type = tag & 7
    if wire_type in (_VARINT, _BYTES):
        return varint(body, position)[1]
    if wire_type in (_FIXED64, _FIXED32):
        return position + (8 if wire_type == _FIXED64 else 4)
    if wire_type != _START_GROUP:
        raise BrokenError
    depth = 1
    while depth:
        tag, position = varint(body, position)
        wire_type = tag & 7
        if wire_type == _BYTES:
            length, position = varint(body, position)
            position += length
        elif wire_type in (_START_GROUP, _END_GROUP):
            depth += 1 if wire_type == _START_GROUP else -1
        else:
            position = _after(body, tag, position)
    return position


def varint(body: bytes, position: int) -> tuple[int, int]:
    """A number and the position after it.

    Raises:
        BrokenError: when it does not end.
    """
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
    raise BrokenError


def places(body: bytes, max_records: int = sys.maxsize) -> list[ResourcePlace] | None:
    """All resources, scopes and records of a request; None when there are too many records.

    Raises:
        BrokenError: when the bytes are no protobuf.
    """
    found: list[ResourcePlace] = []
    left = max_records
    for group in fields(body, 0, len(body)):
        if not (group.is_bytes and group.number == _RESOURCES):
            continue
        resource = ResourcePlace([], [])
        found.append(resource)
        for field in fields(body, group.content, group.end):
            if field.is_bytes and field.number == _INNER:
                scope = _scope(body, field.content, field.end, left)
                if scope is None:
                    return None
                resource.scopes.append(scope)
                left -= len(scope.records)
            elif field.is_bytes and field.number in _OWN:
                resource.own.append(body[field.content : field.end])
    return found


def _scope(body: bytes, start: int, end: int, max_records: int) -> ScopePlace | None:
    """The scope at a place; None when it has too many records."""
    scope = ScopePlace([], [])
    records = scope.records
    position = start
    while position < end:
        if body[position] == _INNER_TAG:  # all but a few fields: the quick way
            length, content = varint(body, position + 1)
            position = content + length
            if position > end:
                raise BrokenError
            if len(records) == max_records:
                return None
            records.append(body[content:position])
            continue
        field = next(fields(body, position, end))
        piece = body[field.content : field.end]
        if field.is_bytes and field.number == _INNER:
            if len(records) == max_records:
                return None
            records.append(piece)
        elif field.is_bytes and field.number in _OWN:
            scope.own.append(piece)
        position = field.end
    return scope


def longest_field(descriptor: Descriptor, message: bytes) -> int:
    """The size of the longest text or bytes in a message that a parser has taken."""
    longest = 0
    for field in fields(message, 0, len(message)):
        known = descriptor.fields_by_number.get(field.number) if field.is_bytes else None
        if known is None:
            continue
        if known.message_type is not None:
            content = message[field.content : field.end]
            longest = max(longest, longest_field(known.message_type, content))
        elif known.type in _TEXTS:
            longest = max(longest, field.end - field.content)
    return longest


def without(body: bytes, over: Over) -> bytes:
    """A request that a parser has taken, without what is over a limit."""
    return _Filter(over).request(body)


class _Filter:
    """Copies a request, counting resources, scopes and records."""

    def __init__(self, over: Over) -> None:
        self._over = over
        self._resources = self._scopes = self._records = -1

    def request(self, body: bytes) -> bytes:
        pieces: list[bytes] = []
        for field in fields(body, 0, len(body)):
            if field.is_bytes and field.number == _RESOURCES:
                self._resources += 1
                resource = self._resource(body[field.content : field.end])
                if self._resources not in self._over.resources:
                    pieces.append(_packed(_RESOURCES, resource))
            else:
                pieces.append(body[field.start : field.end])
        return b"".join(pieces)

    def _resource(self, body: bytes) -> bytes:
        pieces: list[bytes] = []
        for field in fields(body, 0, len(body)):
            if field.is_bytes and field.number == _INNER:
                self._scopes += 1
                scope = self._scope(body[field.content : field.end])
                if self._scopes not in self._over.scopes:
                    pieces.append(_packed(_INNER, scope))
            else:
                pieces.append(body[field.start : field.end])
        return b"".join(pieces)

    def _scope(self, body: bytes) -> bytes:
        pieces: list[bytes] = []
        for field in fields(body, 0, len(body)):
            if field.is_bytes and field.number == _INNER:
                self._records += 1
                if self._records in self._over.records:
                    continue
            pieces.append(body[field.start : field.end])
        return b"".join(pieces)


def _packed(number: int, message: bytes) -> bytes:
    """A message as a field."""
    return bytes([number << 3 | _BYTES]) + _varint_of(len(message)) + message


def _varint_of(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
