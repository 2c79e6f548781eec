"""Pure: rows of the lake back to an export request, the same in meaning as what came in.

Rows are grouped by resource and scope again. What may differ from the bytes a client sent: the
order of attributes, the order of groups, and anything OTLP says is the same as "not set" (an empty
status, a parent id of zeros, a resource that holds no record).
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    EntityRef,
    InstrumentationScope,
    KeyValue,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from toolverdict.collector.schema import PROMOTED
from toolverdict.collector.typed_json import (
    attributes_of_text,
    attributes_of_tree,
    value_of_text,
)

_RESOURCE_KEY: Final = (
    "resource_attributes",
    "resource_dropped_attributes_count",
    "resource_entity_refs",
    "resource_schema_url",
)
_SCOPE_KEY: Final = (
    "scope_name",
    "scope_version",
    "scope_attributes",
    "scope_dropped_attributes_count",
    "scope_schema_url",
)


def encode_spans(rows: Iterable[Mapping[str, Any]]) -> ExportTraceServiceRequest:
    """Span rows (all columns, as of ``Table.to_pylist()``) as one trace export request."""
    request = ExportTraceServiceRequest()
    resources: dict[tuple[Any, ...], ResourceSpans] = {}
    scopes: dict[tuple[Any, ...], ScopeSpans] = {}
    for row in rows:
        resource_key, scope_key = _group_keys(row)
        if resource_key not in resources:
            resources[resource_key] = request.resource_spans.add(
                resource=_resource(row), schema_url=row["resource_schema_url"]
            )
        if scope_key not in scopes:
            scopes[scope_key] = resources[resource_key].scope_spans.add(
                scope=_scope(row), schema_url=row["scope_schema_url"]
            )
        scopes[scope_key].spans.append(_span(row))
    return request


def encode_logs(rows: Iterable[Mapping[str, Any]]) -> ExportLogsServiceRequest:
    """Log rows (all columns, as of ``Table.to_pylist()``) as one logs export request."""
    request = ExportLogsServiceRequest()
    resources: dict[tuple[Any, ...], ResourceLogs] = {}
    scopes: dict[tuple[Any, ...], ScopeLogs] = {}
    for row in rows:
        resource_key, scope_key = _group_keys(row)
        if resource_key not in resources:
            resources[resource_key] = request.resource_logs.add(
                resource=_resource(row), schema_url=row["resource_schema_url"]
            )
        if scope_key not in scopes:
            scopes[scope_key] = resources[resource_key].scope_logs.add(
                scope=_scope(row), schema_url=row["scope_schema_url"]
            )
        scopes[scope_key].log_records.append(_log_record(row))
    return request


def _group_keys(row: Mapping[str, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    resource_key = tuple(row[name] for name in _RESOURCE_KEY)
    return resource_key, resource_key + tuple(row[name] for name in _SCOPE_KEY)


def _resource(row: Mapping[str, Any]) -> Resource:
    entity_refs = row["resource_entity_refs"]
    return Resource(
        attributes=attributes_of_text(row["resource_attributes"]),
        dropped_attributes_count=row["resource_dropped_attributes_count"],
        entity_refs=[EntityRef(**entity) for entity in orjson.loads(entity_refs or "[]")],
    )


def _scope(row: Mapping[str, Any]) -> InstrumentationScope:
    return InstrumentationScope(
        name=row["scope_name"],
        version=row["scope_version"],
        attributes=attributes_of_text(row["scope_attributes"]),
        dropped_attributes_count=row["scope_dropped_attributes_count"],
    )


def _span(row: Mapping[str, Any]) -> Span:
    promoted = [
        KeyValue(key=key, value=AnyValue(string_value=row[key]))
        for key in PROMOTED
        if row[key] is not None
    ]
    return Span(
        trace_id=bytes.fromhex(row["trace_id"]),
        span_id=bytes.fromhex(row["span_id"]),
        parent_span_id=bytes.fromhex(row["parent_span_id"] or ""),
        trace_state=row["trace_state"],
        flags=row["flags"],
        name=row["name"],
        kind=row["kind"],
        start_time_unix_nano=row["start_time_unix_nano"],
        end_time_unix_nano=row["end_time_unix_nano"],
        status=_status(row),
        attributes=promoted + attributes_of_text(row["attributes"]),
        dropped_attributes_count=row["dropped_attributes_count"],
        events=[_event(tree) for tree in orjson.loads(row["events"] or "[]")],
        dropped_events_count=row["dropped_events_count"],
        links=[_link(tree) for tree in orjson.loads(row["links"] or "[]")],
        dropped_links_count=row["dropped_links_count"],
    )


def _status(row: Mapping[str, Any]) -> Status | None:
    if not row["status_code"] and not row["status_message"]:
        return None
    return Status(code=row["status_code"], message=row["status_message"])


def _event(tree: Mapping[str, Any]) -> Span.Event:
    return Span.Event(
        time_unix_nano=tree["time_unix_nano"],
        name=tree["name"],
        attributes=attributes_of_tree(tree["attributes"]),
        dropped_attributes_count=tree["dropped_attributes_count"],
    )


def _link(tree: Mapping[str, Any]) -> Span.Link:
    return Span.Link(
        trace_id=bytes.fromhex(tree["trace_id"]),
        span_id=bytes.fromhex(tree["span_id"]),
        trace_state=tree["trace_state"],
        attributes=attributes_of_tree(tree["attributes"]),
        dropped_attributes_count=tree["dropped_attributes_count"],
        flags=tree["flags"],
    )


def _log_record(row: Mapping[str, Any]) -> LogRecord:
    body = row["body"]
    return LogRecord(
        trace_id=bytes.fromhex(row["trace_id"] or ""),
        span_id=bytes.fromhex(row["span_id"] or ""),
        time_unix_nano=row["time_unix_nano"],
        observed_time_unix_nano=row["observed_time_unix_nano"],
        severity_number=row["severity_number"],
        severity_text=row["severity_text"],
        event_name=row["event_name"],
        body=None if body is None else value_of_text(body),
        attributes=attributes_of_text(row["attributes"]),
        dropped_attributes_count=row["dropped_attributes_count"],
        flags=row["flags"],
    )
