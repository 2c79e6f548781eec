"""OTLP/JSON to OTLP/protobuf, for every signal, driven by the protobuf descriptors.

The JSON of OTLP is not the JSON mapping of protobuf: trace and span ids are hex, enums are numbers,
and unknown fields are ignored (OTLP specification 1.9, "JSON Protobuf Encoding"). Protobuf's own
``json_format`` would read 32 hex digits as base64 and store a wrong id without a word.

What is taken beyond the letter, because clients send it: snake_case field names, enum names, 64-bit
integers as numbers or strings, null for "not set", ids in upper case, base64 without padding.
"""

import base64
import binascii
import gc
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from toolverdict.collector.decoders import decoder
from toolverdict.collector.errors import DecodeError

MAX_DEPTH: Final = 100
"""Deepest nesting of messages, which is also what protobuf parsers take."""

_ID_FIELDS: Final = frozenset({"trace_id", "span_id", "parent_span_id"})
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})*")
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|NaN|-?Infinity")
_NOT_HEX: Final = b"\x00"
"""Stands for an id that is not hex: no id has one byte, so validation rejects just that record."""

_EXACT_FLOAT: Final = 2.0**53
_F: Final = FieldDescriptor
_INTEGER_RANGES: Final[dict[int, tuple[int, int]]] = {
    _F.TYPE_INT32: (-(2**31), 2**31 - 1),
    _F.TYPE_SINT32: (-(2**31), 2**31 - 1),
    _F.TYPE_SFIXED32: (-(2**31), 2**31 - 1),
    _F.TYPE_UINT32: (0, 2**32 - 1),
    _F.TYPE_FIXED32: (0, 2**32 - 1),
    _F.TYPE_INT64: (-(2**63), 2**63 - 1),
    _F.TYPE_SINT64: (-(2**63), 2**63 - 1),
    _F.TYPE_SFIXED64: (-(2**63), 2**63 - 1),
    _F.TYPE_UINT64: (0, 2**64 - 1),
    _F.TYPE_FIXED64: (0, 2**64 - 1),
}


_KINDS: Final[dict[int, int]] = {
    _F.TYPE_MESSAGE: 1,
    _F.TYPE_STRING: 2,
    _F.TYPE_BOOL: 3,
    _F.TYPE_INT32: 4,
    _F.TYPE_ENUM: 4,
    _F.TYPE_INT64: 5,
    _F.TYPE_UINT32: 6,
    _F.TYPE_FIXED32: 7,
    _F.TYPE_FIXED64: 8,
    _F.TYPE_DOUBLE: 9,
}
_ID_KIND: Final = 10
"""How the native code reads a field: ``FieldKind`` in ``json_request.h``. All others it does not."""


class _Field(NamedTuple):
    name: str
    is_repeated: bool
    is_message: bool
    scalar: Callable[[Any], Any]


def protobuf_of_json(body: bytes, message_type: type[Message]) -> bytes:
    """OTLP/JSON as the protobuf bytes of the same message.

    Raises:
        DecodeError: when the body is not JSON, not an object, or a field has a value of a wrong
            type or out of range. The message names the field, never the value.
    """
    with _no_garbage_collection():
        try:
            tree = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise DecodeError(f"the body is not valid JSON: {error.msg} at {error.pos}") from error
        if not isinstance(tree, dict):
            raise DecodeError("the JSON body must be an object")
        if decoder().name == "native":
            from toolverdict.collector import _decode

            wire = _decode.protobuf_of_tree(tree, _plan_of(message_type.DESCRIPTOR))
            if wire is not None:
                return wire
        return protobuf_of_tree(tree, message_type)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Trees of JSON have no cycles, and looking for some took more than half of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def protobuf_of_tree(tree: dict[str, Any], message_type: type[Message]) -> bytes:
    """A tree of JSON as the protobuf bytes of the same message, without native code.

    Raises:
        DecodeError: as :func:`protobuf_of_json` does.
    """
    message = message_type()
    _fill(message, tree, "", 1)
    return message.SerializeToString()


_Plan: TypeAlias = dict[str, tuple[int, int, bool, Any]]


@cache
def _plan_of(descriptor: Descriptor) -> _Plan:
    """The fields of a message type, and of the messages in it, for the native code."""
    return _fill_plan(descriptor, {})


def _fill_plan(descriptor: Descriptor, plans: dict[str, _Plan]) -> _Plan:
    if descriptor.full_name in plans:  # values hold values
        return plans[descriptor.full_name]
    plan = plans[descriptor.full_name] = {}
    for field in descriptor.fields:
        kind = _KINDS.get(field.type, 0)
        if field.name in _ID_FIELDS:
            kind = _ID_KIND
        child = None
        if field.message_type is not None:
            child = _fill_plan(field.message_type, plans)
        plan[field.name] = plan[field.json_name] = (field.number, kind, field.is_repeated, child)
    return plan


def _fill(message: Message, tree: dict[str, Any], path: str, depth: int) -> None:
    """Set the fields of a message from an object; ``path`` is for error messages."""
    if depth > MAX_DEPTH:
        raise DecodeError(f"the JSON body is nested more than {MAX_DEPTH} messages deep")
    fields = _fields_of(message.DESCRIPTOR)
    for key, value in tree.items():
        field = fields.get(key)
        if field is None or value is None:
            continue
        here = f"{path}.{field.name}" if path else field.name
        try:
            if field.is_repeated:
                _fill_repeated(message, field, value, here, depth)
            elif field.is_message:
                child = getattr(message, field.name)
                child.SetInParent()
                _fill(child, _object(value), here, depth + 1)
            else:
                setattr(message, field.name, field.scalar(value))
        except _WrongValue as error:
            raise DecodeError(f"{_tail(here)} {error}") from None


def _fill_repeated(message: Message, field: _Field, value: Any, here: str, depth: int) -> None:
    if not isinstance(value, list):
        raise _WrongValue("must be an array")
    items = getattr(message, field.name)
    if field.is_message:
        for item in value:
            _fill(items.add(), {} if item is None else _object(item), here, depth + 1)
    else:
        items.extend(field.scalar(item) for item in value)


class _WrongValue(Exception):
    """A value does not fit its field; the message goes on after the name of the field."""


@cache
def _fields_of(descriptor: Descriptor) -> dict[str, _Field]:
    """The fields of a message type by both of their names."""
    fields: dict[str, _Field] = {}
    for field in descriptor.fields:
        entry = _Field(
            name=field.name,
            is_repeated=field.is_repeated,
            is_message=field.type == _F.TYPE_MESSAGE,
            scalar=_scalar_of(field),
        )
        fields[field.name] = entry
        fields[field.json_name] = entry
    return fields


def _scalar_of(field: FieldDescriptor) -> Callable[[Any], Any]:
    """The function that reads one scalar of a field."""
    if field.type in _INTEGER_RANGES:
        low, high = _INTEGER_RANGES[field.type]
        return lambda value: _integer(value, low, high)
    enum = field.enum_type
    if enum is not None:
        return lambda value: _enum(value, enum)
    if field.type == _F.TYPE_BYTES:
        return _identifier if field.name in _ID_FIELDS else _base64
    if field.type in (_F.TYPE_DOUBLE, _F.TYPE_FLOAT):
        return _double
    return _bool if field.type == _F.TYPE_BOOL else _string


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _WrongValue("must be an object")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _WrongValue("must be a string")
    return value


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _WrongValue("must be true or false")
    return value


def _integer(value: Any, low: int, high: int) -> int:
    match value:
        case bool():
            is_integer = False
        case str():
            is_integer = _INTEGER.fullmatch(value) is not None
        case float():
            # From there on it may stand for another number than the one that was written.
            is_integer = value.is_integer() and abs(value) < _EXACT_FLOAT
        case _:
            is_integer = isinstance(value, int)
    if not is_integer:
        raise _WrongValue("must be an integer, as a number or a string")
    number = int(value)
    if not low <= number <= high:
        raise _WrongValue("is out of range")
    return number


def _double(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return float(value)
    raise _WrongValue('must be a number, "NaN", "Infinity" or "-Infinity"')


def _enum(value: Any, enum: EnumDescriptor) -> int:
    if isinstance(value, str) and value in enum.values_by_name:
        return enum.values_by_name[value].number
    try:
        return _integer(value, *_INTEGER_RANGES[_F.TYPE_INT32])
    except _WrongValue:
        raise _WrongValue(f"must be a number or a name of {enum.name}") from None


def _identifier(value: Any) -> bytes:
    # bytes.fromhex alone would also take spaces.
    if isinstance(value, str) and _HEX.fullmatch(value):
        return bytes.fromhex(value)
    return _NOT_HEX


def _base64(value: Any) -> bytes:
    if not isinstance(value, str):
        raise _WrongValue("must be a base64 string")
    plain = value.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _WrongValue("must be a base64 string") from error


def _tail(path: str) -> str:
    """The last names of a path: enough to find the field, bounded however deep it is."""
    names = path.split(".")
    return ".".join(names[-4:])
