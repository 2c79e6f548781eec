"""OTLP/protobuf to OTLP/JSON: the way back of :mod:`toolverdict.collector.otlp_json`.

Ids in hex, enums as numbers (OTLP specification 1.9, "JSON Protobuf Encoding"); protobuf's own
``json_format`` would write ids as base64.
"""

import base64
import json
import math
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message


def otlp_json_of(message: Message, *, integers_as_strings: bool = True) -> bytes:
    """A message in the JSON of OTLP: ids in hex, enums as numbers.

    Args:
        message: an export request.
        integers_as_strings: 64-bit integers as strings, as the specification writes them, or as
            numbers, as several SDKs do.
    """
    return json.dumps(_json_tree(message, integers_as_strings)).encode()


def _json_tree(message: Message, as_strings: bool) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for field, value in message.ListFields():
        if field.is_repeated:
            tree[field.json_name] = [_json_value(field, item, as_strings) for item in value]
        else:
            tree[field.json_name] = _json_value(field, value, as_strings)
    return tree


def _json_value(field: FieldDescriptor, value: Any, as_strings: bool) -> Any:
    if field.message_type is not None:
        return _json_tree(value, as_strings)
    if field.type == FieldDescriptor.TYPE_BYTES:
        is_id = field.name in ("trace_id", "span_id", "parent_span_id")
        return value.hex() if is_id else base64.b64encode(value).decode()
    if field.type in (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_FIXED64) and as_strings:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value
