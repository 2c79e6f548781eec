"""OTLP attribute values as JSON text and back, without loss and without ambiguity.

==================  =====================================================================
AnyValue            JSON
==================  =====================================================================
string, bool        string, true or false
int                 a number without fraction or exponent, all 64 bits exact
double              a number that always has a fraction or exponent: ``5.0``, ``1e+16``
NaN, +/-Infinity    ``{"$double": "NaN"}``, ``"Infinity"``, ``"-Infinity"``
nothing set         null
bytes               ``{"$bytes": "<base64>"}``
array               array
kvlist              object, keys in their order
kvlist (see below)  ``{"$pairs": [[key, value], ...]}``
==================  =====================================================================

A key-value list with a repeated key, or with a key that starts with ``$``, is written as pairs, so
no key that a client chooses can be taken for one of the ``$`` forms. Kinds of value newer than this
code, and ``string_value_strindex`` (which belongs to the profiling signal; a receiver of another
signal treats it as absent, opentelemetry-proto 1.9), read as "nothing set".
"""

import base64
import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

_BYTES: Final = "$bytes"
_DOUBLE: Final = "$double"
_PAIRS: Final = "$pairs"
_NON_FINITE: Final[dict[str, float]] = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}


def dump_text(tree: object) -> str:
    """JSON text of a tree that :func:`tree_of_value` or :func:`tree_of_pairs` made."""
    return orjson.dumps(tree).decode()


def tree_of_value(value: AnyValue) -> object:
    """An OTLP value as a tree for :func:`dump_text`."""
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "int_value":
            return value.int_value
        case "bool_value":
            return value.bool_value
        case "double_value":
            return _tree_of_double(value.double_value)
        case "array_value":
            return [tree_of_value(item) for item in value.array_value.values]
        case "kvlist_value":
            return tree_of_attributes(value.kvlist_value.values)
        case "bytes_value":
            return {_BYTES: base64.b64encode(value.bytes_value).decode()}
        case _:
            return None


def tree_of_attributes(attributes: Iterable[KeyValue]) -> dict[str, object]:
    """Attributes, or any key-value list, as a tree for :func:`dump_text`."""
    return tree_of_pairs([(item.key, tree_of_value(item.value)) for item in attributes])


def tree_of_pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Keys with trees as one tree: an object, or pairs where an object would be ambiguous."""
    tree = dict(pairs)
    if len(tree) != len(pairs) or any(key.startswith("$") for key in tree):
        return {_PAIRS: [[key, value] for key, value in pairs]}
    return tree


def load_text(text: str) -> Any:
    """JSON text as plain Python values.

    Bytes come back as ``bytes``, NaN and the infinities as ``float``, key-value lists as ``dict``;
    of a repeated key the last value stays.
    """
    return _python_of_tree(orjson.loads(text))


def load_attributes(text: str) -> dict[str, Any]:
    """The JSON text of attributes as a dict of plain Python values, like :func:`load_text`."""
    attributes: dict[str, Any] = load_text(text)
    return attributes


def attributes_of_text(text: str) -> list[KeyValue]:
    """The JSON text of attributes as OTLP key-value pairs: nothing is lost."""
    return attributes_of_tree(orjson.loads(text))


def attributes_of_tree(tree: Mapping[str, Any]) -> list[KeyValue]:
    """A tree of attributes as OTLP key-value pairs."""
    return [KeyValue(key=key, value=value_of_tree(item)) for key, item in _pairs_of_tree(tree)]


def value_of_text(text: str) -> AnyValue:
    """JSON text of one value as an OTLP value: the way back of :func:`tree_of_value`."""
    return value_of_tree(orjson.loads(text))


def value_of_tree(tree: Any) -> AnyValue:
    """A tree as an OTLP value."""
    value = AnyValue()
    match tree:
        case None:
            pass
        case bool():
            value.bool_value = tree
        case int():
            value.int_value = tree
        case float():
            value.double_value = tree
        case str():
            value.string_value = tree
        case list():
            value.array_value.SetInParent()
            value.array_value.values.extend(value_of_tree(item) for item in tree)
        case {"$bytes": encoded}:
            value.bytes_value = base64.b64decode(encoded)
        case {"$double": name}:
            value.double_value = _NON_FINITE[name]
        case _:
            value.kvlist_value.SetInParent()
            value.kvlist_value.values.extend(attributes_of_tree(tree))
    return value


def _tree_of_double(number: float) -> object:
    if math.isfinite(number):
        return number
    if math.isnan(number):
        return {_DOUBLE: "NaN"}
    return {_DOUBLE: "Infinity" if number > 0 else "-Infinity"}


def _pairs_of_tree(tree: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    return tree[_PAIRS] if _PAIRS in tree else tree.items()


def _python_of_tree(tree: Any) -> Any:
    match tree:
        case list():
            return [_python_of_tree(item) for item in tree]
        case {"$bytes": encoded}:
            return base64.b64decode(encoded)
        case {"$double": name}:
            return _NON_FINITE[name]
        case dict():
            return {key: _python_of_tree(item) for key, item in _pairs_of_tree(tree)}
        case _:
            return tree
