"""The decoder in pure Python: the protobuf bytes of one export request to rows of the lake.

It serves where the native one (:mod:`toolverdict.collector.native`) was not built, and is its
referee everywhere: both take, refuse and yield the same.

A row is a list of cells in the order of :data:`~toolverdict.collector.schema.SPANS` or
:data:`~toolverdict.collector.schema.LOGS`. Records that
:mod:`toolverdict.collector.validate` faults are left out, as intake already told the client.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, count
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from toolverdict.collector.arrange import arrange
from toolverdict.collector.bounds import check_protobuf, malformed
from toolverdict.collector.excess import Excess, items_of
from toolverdict.collector.limits import Limits, Over
from toolverdict.collector.otlp_wire import BrokenError, ResourcePlace, ScopePlace, places
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
    fault_of,
    hex_or_none,
    log_warning,
)
from toolverdict.collector.weights import weight_of_context, weight_of_record
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

    def judge(self, signal: Signal, body: bytes, limits: Limits) -> Judgement:
        """See :meth:`toolverdict.collector.decoders.Decoder.judge`."""
        found = check_protobuf(signal, body, limits)
        return _Judge(limits).judgement(parse(signal, body), found)

    def rows(self, signal: Signal, *, judged: bool = False) -> "PythonRowBuilder":
        """A builder for the rows of one signal; it looks at everything, judged or not."""
        return PythonRowBuilder(signal)


class _Waiting(NamedTuple):
    """A record that was not taken yet."""

    record: Span | LogRecord
    base: Row
    """The row as far as the resource and the scope make it."""
    weight: int


class PythonRowBuilder:
    """Rows of requests, until they are taken as a table, as a ``RowBuilder``."""

    def __init__(self, signal: Signal) -> None:
        self._signal = signal
        self._waiting: list[_Waiting] = []
        self._weight = 0

    @property
    def num_rows(self) -> int:
        """Rows that were not taken yet."""
        return len(self._waiting)

    def feed(self, body: bytes | memoryview, received_unix_nano: int) -> None:
        """See :meth:`toolverdict.collector.decoders.RowBuilder.feed`."""
        added = list(_records(self._signal, bytes(body), received_unix_nano))
        self._waiting += added
        self._weight += sum(waiting.weight for waiting in added)

    def full_part(self, max_rows: int, max_weight: int) -> int:
        """See :meth:`toolverdict.collector.decoders.RowBuilder.full_part`."""
        if len(self._waiting) < max_rows and self._weight < max_weight:
            return 0
        weights = accumulate(waiting.weight for waiting in self._waiting)
        return next(
            (
                rows
                for rows, weight in enumerate(weights, 1)
                if rows == max_rows or weight >= max_weight
            ),
            0,
        )

    def take(self) -> pa.Table:
        """See :meth:`toolverdict.collector.decoders.RowBuilder.take`."""
        return self._take(len(self._waiting))

    def take_sorted(self, rows: int, buckets: int) -> list[tuple[int, pa.Table]]:
        """See :meth:`toolverdict.collector.decoders.RowBuilder.take_sorted`."""
        return arrange(self._signal, self._take(rows), buckets)

    def _take(self, rows: int) -> pa.Table:
        taken, self._waiting = self._waiting[:rows], self._waiting[rows:]
        self._weight -= sum(waiting.weight for waiting in taken)
        return table_of(self._signal, [_row(waiting.record, waiting.base) for waiting in taken])


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
    records = _records(signal, body, received_unix_nano)
    return (_row(waiting.record, waiting.base) for waiting in records)


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


class _Tally(NamedTuple):
    """What may be stored of a scope, a resource or a request."""

    accepted: list[int]
    """Numbers of records."""
    warnings: Counter[str]

    def add(self, other: "_Tally") -> None:
        self.accepted.extend(other.accepted)
        self.warnings.update(other.warnings)


class _Judge:
    """Judges one request."""

    def __init__(self, limits: Limits) -> None:
        self._excess = Excess(limits)
        self._rejected: Counter[str] = Counter()
        self._over: tuple[set[int], set[int], set[int]] = (set(), set(), set())
        self._records, self._scopes = count(), count()

    def judgement(self, request: Request, found: Sequence[ResourcePlace]) -> Judgement:
        """Of the whole; ``found`` is where its parts are on the wire."""
        _, _, over_resources = self._over
        whole = _Tally([], Counter())
        for number, (group, place) in enumerate(zip(_groups(request), found, strict=True)):
            tally = self._resource(group, place)
            excess = self._excess.of_resource(group.resource, place.own)
            self._close(tally, whole, excess, over_resources, number)
        over = Over(*map(frozenset, self._over))
        return Judgement(len(whole.accepted), self._rejected, whole.warnings, over)

    def _resource(self, group: ResourceSpans | ResourceLogs, place: ResourcePlace) -> _Tally:
        _, over_scopes, _ = self._over
        whole = _Tally([], Counter())
        for scope, place_of_scope in zip(_scopes(group), place.scopes, strict=True):
            tally = self._scope(scope, place_of_scope)
            excess = self._excess.of_scope(scope.scope, place_of_scope.own)
            self._close(tally, whole, excess, over_scopes, next(self._scopes))
        return whole

    def _scope(self, scope: ScopeSpans | ScopeLogs, place: ScopePlace) -> _Tally:
        over_records, _, _ = self._over
        tally = _Tally([], Counter())
        for record, wire in zip(_records_of(scope), place.records, strict=True):
            number = next(self._records)
            if (fault := fault_of(record)) is not None:
                self._rejected[fault] += 1
            elif (excess := self._excess.of_record(record, wire)) is not None:
                self._rejected[excess] += 1
                over_records.add(number)
            else:
                tally.accepted.append(number)
                if isinstance(record, LogRecord) and (warning := log_warning(record)) is not None:
                    tally.warnings[warning] += 1
        return tally

    def _close(
        self, inner: _Tally, outer: _Tally, excess: str | None, over: set[int], number: int
    ) -> None:
        """Add what a scope or a resource holds, or reject it with its owner."""
        if excess is None:
            outer.add(inner)
            return
        over.add(number)
        if inner.accepted:
            self._rejected[excess] += len(inner.accepted)


def _groups(request: Request) -> Sequence[ResourceSpans | ResourceLogs]:
    if isinstance(request, ExportTraceServiceRequest):
        return request.resource_spans
    return request.resource_logs


def _scopes(group: ResourceSpans | ResourceLogs) -> Sequence[ScopeSpans | ScopeLogs]:
    return group.scope_spans if isinstance(group, ResourceSpans) else group.scope_logs


def _records_of(scope: ScopeSpans | ScopeLogs) -> Sequence[Span | LogRecord]:
    return scope.spans if isinstance(scope, ScopeSpans) else scope.log_records


def _records(signal: Signal, body: bytes, received_unix_nano: int) -> Iterator[_Waiting]:
    """The sound records of a request; the first of a resource or scope takes its weight, too."""
    request = parse(signal, body)
    try:
        found = places(body) or []
    except BrokenError:
        raise malformed(signal) from None
    index = _SPAN_INDEX if signal is Signal.TRACES else _LOG_INDEX
    for group, place in zip(_groups(request), found, strict=True):
        resource = _resource_cells(group.resource, group.schema_url)
        weight_of_resource = weight_of_context(place.own)
        for scope, place_of_scope in zip(_scopes(group), place.scopes, strict=True):
            base: Row = [None] * len(index)
            cells = resource | _scope_cells(scope.scope, scope.schema_url)
            cells["received_time_unix_nano"] = received_unix_nano
            for name, cell in cells.items():
                base[index[name]] = cell
            weight_of_scope = weight_of_context(place_of_scope.own)
            for record, wire in zip(_records_of(scope), place_of_scope.records, strict=True):
                if fault_of(record) is None:
                    weight = weight_of_record(wire, items_of(record))
                    yield _Waiting(record, base, weight + weight_of_scope + weight_of_resource)
                    weight_of_scope = weight_of_resource = 0


def _row(record: Span | LogRecord, base: Row) -> Row:
    return _span_row(record, base) if isinstance(record, Span) else _log_row(record, base)


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
