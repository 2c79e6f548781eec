"""The columns of the lake: one Arrow schema for spans, one for log records.

Everything OTLP can say has a column, so what came in can be sent out again
(:mod:`toolverdict.collector.encode`). Conventions:

* ids are lower-case hex strings, null when absent;
* a time is an exact int64 of nanoseconds (0 when not set, as OTLP has it) beside a
  ``timestamp[us, UTC]`` for people and engines (null when not set);
* enums (``kind``, ``status_code``, ``severity_number``) are the numbers of OTLP, unknown ones too;
* structured values are JSON text as :mod:`toolverdict.collector.typed_json` defines it;
* a *promoted* attribute has a column named exactly like its key. The column holds the value when
  that is a string, and then ``attributes`` does not repeat it; a value of any other type, or a key
  that a span carries twice, stays in ``attributes``. :func:`attributes_of` puts both together.
"""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from toolverdict.collector.errors import LakeError
from toolverdict.collector.signals import Signal
from toolverdict.collector.typed_json import load_text
from toolverdict.instrument import semconv

SCHEMA_VERSION: Final = 1
"""Goes up when a column changes its meaning; new columns alone do not change it."""

VERSION_KEY: Final = b"toolverdict.schema_version"

_TEXT = pa.string()
# Columns of long text: Arrow's 32-bit offsets end at 2 GiB of one column in one table.
_LONG = pa.large_string()
_WORD = pa.dictionary(pa.int32(), pa.string())
_TIME = pa.timestamp("us", tz="UTC")

_PROMOTED_TYPES: Final[dict[str, pa.DataType]] = {
    semconv.TOOL_NAME: _WORD,
    semconv.TOOL_ARGS_HASH: _TEXT,
    semconv.TOOL_ARGS_HASH_KEY_ID: _WORD,
    semconv.TOOL_SCHEMA_VERSION: _WORD,
    semconv.TOOL_OUTCOME: _WORD,
    semconv.POLICY_DECISION: _WORD,
    semconv.POLICY_ID: _WORD,
    semconv.POLICY_REASON_CODE: _WORD,
    semconv.APPROVAL_ID: _TEXT,
    semconv.APPROVAL_STATUS: _WORD,
    semconv.IDEMPOTENCY_KEY_HASH: _TEXT,
    semconv.GEN_AI_TOOL_NAME: _WORD,
    semconv.GEN_AI_OPERATION_NAME: _WORD,
    semconv.GEN_AI_TOOL_CALL_ID: _TEXT,
    semconv.GEN_AI_TOOL_CALL_ARGUMENTS: _LONG,
    semconv.GEN_AI_TOOL_CALL_RESULT: _LONG,
    semconv.GEN_AI_AGENT_NAME: _WORD,
    semconv.GEN_AI_CONVERSATION_ID: _TEXT,
    semconv.GEN_AI_REQUEST_MODEL: _WORD,
    semconv.GEN_AI_RESPONSE_MODEL: _WORD,
    semconv.GEN_AI_INPUT_MESSAGES: _LONG,
    semconv.GEN_AI_OUTPUT_MESSAGES: _LONG,
    semconv.ERROR_TYPE: _WORD,
    semconv.TEST_CASE_NAME: _WORD,
    semconv.SESSION_ID: _TEXT,
    semconv.OPENINFERENCE_SPAN_KIND: _WORD,
    semconv.INPUT_VALUE: _LONG,
    semconv.OUTPUT_VALUE: _LONG,
}

PROMOTED: Final[tuple[str, ...]] = tuple(_PROMOTED_TYPES)
"""Span attributes with a column of their own."""


def _fields(types: Mapping[str, pa.DataType], required: frozenset[str]) -> "list[pa.Field[Any]]":
    return [pa.field(name, type_, nullable=name not in required) for name, type_ in types.items()]


_RESOURCE_AND_SCOPE: Final[dict[str, pa.DataType]] = {
    "resource_attributes": _WORD,
    "resource_dropped_attributes_count": pa.uint32(),
    "resource_entity_refs": _WORD,  # JSON array of EntityRef, null when there are none
    "resource_schema_url": _WORD,
    "scope_name": _WORD,
    "scope_version": _WORD,
    "scope_attributes": _WORD,
    "scope_dropped_attributes_count": pa.uint32(),
    "scope_schema_url": _WORD,
    "service_name": _WORD,  # derived: the resource attribute service.name when it is a string
    "received_time_unix_nano": pa.int64(),  # the collector's clock when the request arrived
}

_SPAN_TYPES: Final[dict[str, pa.DataType]] = {
    "trace_id": _TEXT,
    "span_id": _TEXT,
    "parent_span_id": _TEXT,
    "trace_state": _WORD,
    "flags": pa.uint32(),
    "name": _WORD,
    "kind": pa.int32(),
    "start_time": _TIME,
    "end_time": _TIME,
    "start_time_unix_nano": pa.int64(),
    "end_time_unix_nano": pa.int64(),
    "status_code": pa.int32(),
    "status_message": _TEXT,
    "attributes": _LONG,
    "dropped_attributes_count": pa.uint32(),
    "events": _LONG,  # JSON array of objects with the fields of Span.Event, null when none
    "dropped_events_count": pa.uint32(),
    "links": _LONG,  # JSON array of objects with the fields of Span.Link, null when none
    "dropped_links_count": pa.uint32(),
    **_RESOURCE_AND_SCOPE,
    **_PROMOTED_TYPES,
}

_LOG_TYPES: Final[dict[str, pa.DataType]] = {
    "trace_id": _TEXT,
    "span_id": _TEXT,
    "time": _TIME,
    "observed_time": _TIME,
    "time_unix_nano": pa.int64(),
    "observed_time_unix_nano": pa.int64(),
    "severity_number": pa.int32(),
    "severity_text": _WORD,
    "event_name": _WORD,
    "body": _LONG,  # JSON text of the value, null when the record has no body
    "attributes": _LONG,
    "dropped_attributes_count": pa.uint32(),
    "flags": pa.uint32(),
    **_RESOURCE_AND_SCOPE,
}

_METADATA: Final[dict[bytes | str, bytes | str]] = {VERSION_KEY: str(SCHEMA_VERSION).encode()}

_ALWAYS: Final = frozenset({"attributes", "received_time_unix_nano"})

SPANS: Final = pa.schema(
    _fields(
        _SPAN_TYPES,
        _ALWAYS | {"trace_id", "span_id", "start_time_unix_nano", "end_time_unix_nano"},
    ),
    metadata=_METADATA,
)
"""One row per span that a client sent; the key is (trace_id, span_id)."""

LOGS: Final = pa.schema(
    _fields(_LOG_TYPES, _ALWAYS | {"time_unix_nano", "observed_time_unix_nano"}),
    metadata=_METADATA,
)
"""One row per log record; ``trace_id`` and ``span_id`` are null when it belongs to no span."""

SCHEMAS: Final[dict[Signal, pa.Schema]] = {Signal.TRACES: SPANS, Signal.LOGS: LOGS}

SORT_KEYS: Final[dict[Signal, tuple[str, ...]]] = {
    Signal.TRACES: ("trace_id", "start_time_unix_nano", "span_id"),
    Signal.LOGS: ("trace_id", "time_unix_nano"),
}
"""How the rows of every part and of every table that is read are sorted, ascending, nulls last."""


def attributes_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """All attributes of one row as Python values: promoted columns and JSON together.

    Args:
        row: one item of ``Table.to_pylist()``. Promoted columns that were not read are left out;
            ``attributes`` itself has to be there.

    Raises:
        LakeError: when the JSON text is damaged; so do the other functions of this module.
    """
    attributes = _attributes(row, "attributes")
    for key in PROMOTED:
        value = row.get(key)
        if value is not None:
            attributes[key] = value
    return attributes


def resource_attributes_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The resource attributes of one row as Python values."""
    return _attributes(row, "resource_attributes")


def events_of(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The events of one span row.

    Each has ``time_unix_nano``, ``name``, ``attributes`` (Python values) and
    ``dropped_attributes_count``.
    """
    return _list_of(row, "events")


def links_of(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The links of one span row.

    Each has ``trace_id``, ``span_id``, ``trace_state``, ``attributes`` (Python values),
    ``dropped_attributes_count`` and ``flags``.
    """
    return _list_of(row, "links")


def body_of(row: Mapping[str, Any]) -> Any:
    """The body of one log row as a Python value, None when it has none."""
    return None if row["body"] is None else _loaded(row, "body", object)


def _attributes(row: Mapping[str, Any], column: str) -> dict[str, Any]:
    attributes: dict[str, Any] = _loaded(row, column, dict)
    return attributes


def _list_of(row: Mapping[str, Any], column: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = [] if row[column] is None else _loaded(row, column, list)
    return items


def _loaded(row: Mapping[str, Any], column: str, kind: type) -> Any:
    try:
        value = load_text(row[column])
    except (ValueError, TypeError, KeyError) as error:
        raise _damaged(row, column) from error
    if not isinstance(value, kind):
        raise _damaged(row, column)
    return value


def _damaged(row: Mapping[str, Any], column: str) -> LakeError:
    return LakeError(
        f"the JSON text in column {column} of the record with trace_id {row.get('trace_id')}, "
        f"span_id {row.get('span_id')} is damaged; restore its part from a copy or move it away"
    )
