"""The decoder in pure Python: the protobuf bytes of one export request to rows of the lake.

It serves where the native one (:mod:`toolverdict.collector.native`) was not built, and is its
referee everywhere: both take, refuse and yield the same.

A row is a list of cells in the order of :data:`~toolverdict.collector.schema.SPANS` or
:data:`~toolverdict.collector.schema.LOGS`. Records that
:mod:`toolverdict.collector.validate` faults are left out, as intake already told the client.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import pyarrow as pa
from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from toolverdict.collector.arrange import arrange
from toolverdict.collector.bounds import check_protobuf, malformed
from toolverdict.collector.schema import PROMOTED, SCHEMAS
from toolverdict.collector.signals import WIRE, Request, Signal
from toolverdict.collector.typed_json import (
    dump_text,
    tree_of_attributes,
    tree_of_pairs,
    tree_of_value,
)
from toolverdict.collector.validate import (
    SPAN_ID_BYTES,
    TRACE_ID_BYTES,
    Judgement,
    hex_or_none,
    log_fault,
    log_warning,
    span_fault,
)
from toolverdict.instrument import semconv

Row: TypeAlias = list[Any]

_SPAN_INDEX: Final = {name: index for index, name in enumerate(SCHEMAS[Signal.TRACES].names)}
_LOG_INDEX: Final = {name: index for index, name in enumerate(SCHEMAS[Signal.LOGS].names)}
_PROMOTED_INDEX: Final = {key: _SPAN_INDEX[key] for key in PROMOTED}


def parse(signal: Signal, body: bytes) -> Request:
    """Parse an export request.

    Raises:
        DecodeError: when the bytes are not that message (or nest more than 100 deep).
    """
    try:
        return WIRE[signal].request.FromString(body)
    except ProtobufError as error:
        raise malformed(signal) from error


class PythonDecoder:
    """Judges requests and builds tables of their rows, as a ``Decoder``."""

    name: Final = "python"

    def judge(self, signal: Signal, body: bytes, max_records: int, max_messages: int) -> Judgement:
        """See :meth:`toolverdict.collector.decoders.Decoder.judge`."""
        check_protobuf(signal, body, max_records, max_messages)
        accepted = 0
        rejected: Counter[str] = Counter()
        warnings: Counter[str] = Counter()
        for fault, warning in _judge(parse(signal, body)):
            if fault is not None:
                rejected[fault] += 1
                continue
            accepted += 1
            if warning is not None:
                warnings[warning] += 1
        return Judgement(accepted, rejected, warnings)

    def rows(self, signal: Signal) -> "PythonRowBuilder":
        """A builder for the rows of one signal."""
        return PythonRowBuilder(signal)


class PythonRowBuilder:
    """Rows of requests, until they are taken as a table, as a ``RowBuilder``."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal
        self._rows: list[Row] = []

    @property
    def num_rows(self) -> int:
        """Rows that were not taken yet."""
        return len(self._rows)

    def feed(self, body: bytes | memoryview, received_unix_nano: int) -> None:
        """See :meth:`toolverdict.collector.decoders.RowBuilder.feed`."""
        self._rows += decode(self._signal, bytes(body), received_unix_nano)

    def take(self) -> pa.Table:
        """See :meth:`toolverdict.collector.decoders.RowBuilder.take`."""
        rows, self._rows = self._rows, []
        return table_of(self._signal, rows)

    def take_sorted(self, rows: int, buckets: int) -> list[tuple[int, pa.Table]]:
        """See :meth:`toolverdict.collector.decoders.RowBuilder.take_sorted`."""
        taken, self._rows = self._rows[:rows], self._rows[rows:]
        return arrange(self._signal, table_of(self._signal, taken), buckets)


def decode(signal: Signal, body: bytes, received_unix_nano: int) -> list[Row]:
    """All rows of one export request: see :func:`iter_rows`."""
    return list(iter_rows(signal, body, received_unix_nano))


def iter_rows(signal: Signal, body: bytes, received_unix_nano: int) -> Iterable[Row]:
    """The rows of one export request, in the order they were sent, made one at a time.

    Args:
        signal: what the body holds.
        body: protobuf bytes.
        received_unix_nano: when the request arrived, in nanoseconds since 1970 UTC.

    Raises:
        DecodeError: when the bytes are not that message.
    """
    request = parse(signal, body)
    if isinstance(request, ExportTraceServiceRequest):
        return _span_rows(request, received_unix_nano)
    return _log_rows(request, received_unix_nano)


def table_of(signal: Signal, rows: Sequence[Row]) -> pa.Table:
    """Rows as an Arrow table with the signal's schema."""
    schema = SCHEMAS[signal]
    if not rows:
        return schema.empty_table()
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(list(cells), type=field.type) for cells, field in zip(columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def _judge(request: Request) -> Iterator[tuple[str | None, str | None]]:
    """Fault and warning of every record."""
    if isinstance(request, ExportTraceServiceRequest):
        for resource_spans in request.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    yield span_fault(span), None
    else:
        for resource_logs in request.resource_logs:
            for scope_logs in resource_logs.scope_logs:
                for record in scope_logs.log_records:
                    yield log_fault(record), log_warning(record)


def _span_rows(request: ExportTraceServiceRequest, received_unix_nano: int) -> Iterable[Row]:
    for resource_spans in request.resource_spans:
        resource = _resource_cells(resource_spans.resource, resource_spans.schema_url)
        for scope_spans in resource_spans.scope_spans:
            base: Row = [None] * len(_SPAN_INDEX)
            cells = resource | _scope_cells(scope_spans.scope, scope_spans.schema_url)
            cells["received_time_unix_nano"] = received_unix_nano
            for name, cell in cells.items():
                base[_SPAN_INDEX[name]] = cell
            for span in scope_spans.spans:
                if span_fault(span) is None:
                    yield _span_row(span, base)


def _span_row(span: Span, base: Row) -> Row:
    row = base.copy()
    row[: _SPAN_INDEX["dropped_links_count"] + 1] = (
        span.trace_id.hex(),
        span.span_id.hex(),
        hex_or_none(span.parent_span_id, SPAN_ID_BYTES),
        span.trace_state,
        span.flags,
        span.name,
        span.kind,
        _microseconds(span.start_time_unix_nano),
        _microseconds(span.end_time_unix_nano),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code,
        span.status.message,
        _promote(span.attributes, row),
        span.dropped_attributes_count,
        dump_text([_event(event) for event in span.events]) if span.events else None,
        span.dropped_events_count,
        dump_text([_link(link) for link in span.links]) if span.links else None,
        span.dropped_links_count,
    )
    return row


def _promote(attributes: Iterable[KeyValue], row: Row) -> str:
    """Put promoted attributes into their cells; the JSON text of the others."""
    pairs = [(item.key, tree_of_value(item.value)) for item in attributes]
    if len({key for key, _ in pairs}) != len(pairs):
        return dump_text(tree_of_pairs(pairs))
    rest: list[tuple[str, object]] = []
    for key, tree in pairs:
        index = _PROMOTED_INDEX.get(key)
        if index is not None and isinstance(tree, str):
            row[index] = tree
        else:
            rest.append((key, tree))
    return dump_text(tree_of_pairs(rest))


def _log_rows(request: ExportLogsServiceRequest, received_unix_nano: int) -> Iterable[Row]:
    for resource_logs in request.resource_logs:
        resource = _resource_cells(resource_logs.resource, resource_logs.schema_url)
        for scope_logs in resource_logs.scope_logs:
            base: Row = [None] * len(_LOG_INDEX)
            cells = resource | _scope_cells(scope_logs.scope, scope_logs.schema_url)
            cells["received_time_unix_nano"] = received_unix_nano
            for name, cell in cells.items():
                base[_LOG_INDEX[name]] = cell
            for record in scope_logs.log_records:
                if log_fault(record) is None:
                    yield _log_row(record, base)


def _log_row(record: LogRecord, base: Row) -> Row:
    row = base.copy()
    row[: _LOG_INDEX["flags"] + 1] = (
        hex_or_none(record.trace_id, TRACE_ID_BYTES),
        hex_or_none(record.span_id, SPAN_ID_BYTES),
        _microseconds(record.time_unix_nano),
        _microseconds(record.observed_time_unix_nano),
        record.time_unix_nano,
        record.observed_time_unix_nano,
        record.severity_number,
        record.severity_text,
        record.event_name,
        dump_text(tree_of_value(record.body)) if record.HasField("body") else None,
        dump_text(tree_of_attributes(record.attributes)),
        record.dropped_attributes_count,
        record.flags,
    )
    return row


def _resource_cells(resource: Resource, schema_url: str) -> dict[str, Any]:
    tree = tree_of_attributes(resource.attributes)
    service_name = tree.get(semconv.SERVICE_NAME)
    return {
        "resource_attributes": dump_text(tree),
        "resource_dropped_attributes_count": resource.dropped_attributes_count,
        "resource_entity_refs": _entity_refs(resource),
        "resource_schema_url": schema_url,
        "service_name": service_name if isinstance(service_name, str) else None,
    }


def _entity_refs(resource: Resource) -> str | None:
    if not resource.entity_refs:
        return None
    return dump_text(
        [
            {
                "schema_url": entity.schema_url,
                "type": entity.type,
                "id_keys": list(entity.id_keys),
                "description_keys": list(entity.description_keys),
            }
            for entity in resource.entity_refs
        ]
    )


def _scope_cells(scope: InstrumentationScope, schema_url: str) -> dict[str, Any]:
    return {
        "scope_name": scope.name,
        "scope_version": scope.version,
        "scope_attributes": dump_text(tree_of_attributes(scope.attributes)),
        "scope_dropped_attributes_count": scope.dropped_attributes_count,
        "scope_schema_url": schema_url,
    }


def _event(event: Span.Event) -> dict[str, object]:
    return {
        "time_unix_nano": event.time_unix_nano,
        "name": event.name,
        "attributes": tree_of_attributes(event.attributes),
        "dropped_attributes_count": event.dropped_attributes_count,
    }


def _link(link: Span.Link) -> dict[str, object]:
    return {
        "trace_id": link.trace_id.hex(),
        "span_id": link.span_id.hex(),
        "trace_state": link.trace_state,
        "attributes": tree_of_attributes(link.attributes),
        "dropped_attributes_count": link.dropped_attributes_count,
        "flags": link.flags,
    }


def _microseconds(unix_nano: int) -> int | None:
    """Whole microseconds for a timestamp column; None for 0, which in OTLP means "not set"."""
    return unix_nano // 1000 if unix_nano else None
