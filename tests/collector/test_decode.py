"""Requests to rows and back."""

import math
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from toolverdict.collector.content import MediaType
from toolverdict.collector.decoders import decoder
from toolverdict.collector.encode import encode_logs, encode_spans
from toolverdict.collector.errors import DecodeError
from toolverdict.collector.intake import prepare
from toolverdict.collector.schema import (
    LOGS,
    PROMOTED,
    SPANS,
    attributes_of,
    body_of,
    events_of,
    links_of,
    resource_attributes_of,
)
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_request, make_span, otlp_json_of

pytestmark = pytest.mark.usefixtures("each_decoder")

SETTINGS = CollectorSettings(data_dir=Path("unused"))


def _text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


def _rows(signal: Signal, body: bytes) -> list[dict[str, Any]]:
    builder = decoder().rows(signal)
    builder.feed(body, 1)
    return builder.take().to_pylist()


def _row(span: Span) -> dict[str, Any]:
    (row,) = _rows(Signal.TRACES, make_request(span).SerializeToString())
    return row


def _log_request(*records: LogRecord) -> ExportLogsServiceRequest:
    return ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(scope_logs=[ScopeLogs(log_records=records)])]
    )


def _fill(message: Message, depth: int = 0) -> None:
    """Set every field of a message, whatever fields there are."""
    for field in message.DESCRIPTOR.fields:
        if field.name.endswith("strindex") or (field.message_type and depth > 6):
            continue  # of the profiling signal
        lengths = {"trace_id": 16, "span_id": 8, "parent_span_id": 8}
        if field.is_repeated and field.message_type:
            _fill(getattr(message, field.name).add(), depth + 1)
        elif field.is_repeated:
            getattr(message, field.name).append("text")
        elif field.containing_oneof:
            message.CopyFrom(AnyValue(string_value="text"))
        elif field.message_type:
            _fill(getattr(message, field.name), depth + 1)
        elif field.type == FieldDescriptor.TYPE_BYTES:
            setattr(message, field.name, bytes(range(1, lengths[field.name] + 1)))
        elif field.type == FieldDescriptor.TYPE_STRING:
            setattr(message, field.name, field.full_name)
        else:
            setattr(message, field.name, 2)


def test_every_field_of_a_span_comes_back() -> None:
    """Also fields that a newer protocol adds: then this test fails and asks for a column."""
    request = ExportTraceServiceRequest()
    _fill(request)
    rows = _rows(Signal.TRACES, request.SerializeToString())
    assert encode_spans(rows) == request


def test_every_field_of_a_log_record_comes_back() -> None:
    request = ExportLogsServiceRequest()
    _fill(request)
    rows = _rows(Signal.LOGS, request.SerializeToString())
    assert encode_logs(rows) == request


def test_a_missing_body_is_not_an_empty_one() -> None:
    request = _log_request(LogRecord(), LogRecord(body=AnyValue()))
    rows = _rows(Signal.LOGS, request.SerializeToString())
    assert [row["body"] for row in rows] == [None, "null"]
    (scope_logs,) = encode_logs(rows).resource_logs[0].scope_logs
    assert scope_logs.log_records == request.resource_logs[0].scope_logs[0].log_records
    assert body_of(rows[0]) is None


def test_promoted_attributes_have_their_column_and_are_not_repeated() -> None:
    attributes = [_text(key, f"value of {key}") for key in PROMOTED]
    row = _row(make_span(1, attributes=[*attributes, _text("other", "x")]))
    assert row["gen_ai.tool.name"] == "value of gen_ai.tool.name"
    assert row["attributes"] == '{"other":"x"}'
    expected = {key: f"value of {key}" for key in PROMOTED} | {"other": "x"}
    assert attributes_of(row) == expected


@pytest.mark.parametrize(
    ("value", "python"),
    [
        (AnyValue(int_value=5), 5),
        (AnyValue(double_value=5), 5.0),
        (AnyValue(string_value="5"), "5"),
        (AnyValue(bool_value=True), True),
        (AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=5)])), [5]),
        (AnyValue(bytes_value=b"5"), b"5"),
        (AnyValue(), None),
    ],
    ids=["int", "double", "string", "bool", "array", "bytes", "nothing"],
)
@pytest.mark.parametrize("key", ["tool.name", "tool.args.limit"])
def test_one_key_with_many_types(key: str, value: AnyValue, python: object) -> None:
    """B97: no type of a value drops a row or changes into another type."""
    row = _row(make_span(1, attributes=[KeyValue(key=key, value=value)]))
    found = attributes_of(row)[key]
    assert (found, type(found)) == (python, type(python))
    assert (row["tool.name"] == "5") is (key == "tool.name" and python == "5")


def test_a_key_twice_is_not_promoted_and_not_lost() -> None:
    span = make_span(1, attributes=[_text("tool.name", "a"), _text("tool.name", "b")])
    row = _row(span)
    assert row["tool.name"] is None
    assert encode_spans([row]).resource_spans[0].scope_spans[0].spans[0] == span


def test_times_are_exact_and_unset_times_are_null() -> None:
    """B109: nanoseconds stay integers."""
    row = _row(make_span(1, start_time_unix_nano=2**63 - 1, end_time_unix_nano=0))
    assert row["start_time_unix_nano"] == 2**63 - 1
    assert row["start_time"].year == 2262
    assert (row["end_time_unix_nano"], row["end_time"]) == (0, None)


def test_a_span_that_ends_before_it_starts_is_kept_as_it_is() -> None:
    row = _row(make_span(1, start_time_unix_nano=10, end_time_unix_nano=5))
    assert (row["start_time_unix_nano"], row["end_time_unix_nano"]) == (10, 5)


def test_a_parent_of_zeros_is_no_parent() -> None:
    assert _row(make_span(1, parent_span_id=bytes(8)))["parent_span_id"] is None


def test_numbers_of_unknown_enums_are_kept() -> None:
    """B64"""
    row = _row(Span.FromString(make_span(1).SerializeToString() + b"\x30\xff\xff\xff\xff\x07"))
    assert row["kind"] == 2**31 - 1


def test_a_span_without_optional_fields_has_defaults() -> None:
    """B80"""
    row = _row(Span(trace_id=b"t" * 16, span_id=b"s" * 8, attributes=[KeyValue(key="k")]))
    assert (row["kind"], row["name"], row["status_code"], row["end_time"]) == (0, "", 0, None)
    assert attributes_of(row) == {"k": None}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"trace_id": b""}, "trace_id"),
        ({"trace_id": bytes(16)}, "trace_id"),
        ({"trace_id": b"x" * 24}, "trace_id"),
        ({"span_id": bytes(8)}, "span_id"),
        ({"span_id": b"x" * 16}, "span_id"),
        ({"parent_span_id": b"x"}, "parent_span_id"),
        ({"start_time_unix_nano": 2**63}, "start_time_unix_nano"),
        ({"end_time_unix_nano": 2**64 - 1}, "end_time_unix_nano"),
        ({"start_time_unix_nano": 16_725_225_600_000_000_000}, "start_time_unix_nano"),
        ({"events": [Span.Event(time_unix_nano=2**63)]}, "events.time_unix_nano"),
        ({"links": [Span.Link(trace_id=b"x")]}, "links.trace_id"),
        ({"links": [Span.Link(span_id=b"x")]}, "links.span_id"),
    ],
)
def test_invalid_spans_are_counted_and_left_out(fields: dict[str, Any], field: str) -> None:
    """B80, B110: the reason names the field, valid siblings are stored, both by one predicate."""
    body = make_request(make_span(1), make_span(2, **fields)).SerializeToString()
    prepared = prepare(Signal.TRACES, MediaType.PROTOBUF, body, SETTINGS)
    assert (prepared.accepted, prepared.rejected.total()) == (1, 1)
    assert next(iter(prepared.rejected)).startswith(f"{field} must be")
    assert len(_rows(Signal.TRACES, body)) == 1


def test_an_invalid_id_of_a_log_record_is_left_out_with_a_warning() -> None:
    """OTLP asks receivers to treat such a record as one of no trace."""
    record = LogRecord(trace_id=b"short", span_id=bytes(8), body=AnyValue(string_value="x"))
    body = _log_request(record, LogRecord(time_unix_nano=2**63)).SerializeToString()
    prepared = prepare(Signal.LOGS, MediaType.PROTOBUF, body, SETTINGS)
    assert (prepared.accepted, prepared.rejected.total()) == (1, 1)
    assert list(prepared.warnings) != []
    (row,) = _rows(Signal.LOGS, body)
    assert (row["trace_id"], row["span_id"], body_of(row)) == (None, None, "x")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"observed_time_unix_nano": 2**63}, "observed_time_unix_nano must be"),
        ({"time_unix_nano": 2**63}, "time_unix_nano must be"),
        ({"span_id": b"short"}, "span_id is neither"),
    ],
)
def test_reasons_of_log_records_name_the_field(fields: dict[str, Any], reason: str) -> None:
    body = _log_request(LogRecord(**fields)).SerializeToString()
    prepared = prepare(Signal.LOGS, MediaType.PROTOBUF, body, SETTINGS)
    assert next(iter(prepared.rejected + prepared.warnings)).startswith(reason)
    assert len(_rows(Signal.LOGS, body)) == prepared.accepted


def test_logs_sent_to_traces_are_not_stored_as_spans() -> None:
    """B65: the shapes of both messages are alike, the ids are not."""
    body = _log_request(LogRecord(time_unix_nano=1, severity_text="INFO")).SerializeToString()
    prepared = prepare(Signal.TRACES, MediaType.PROTOBUF, body, SETTINGS)
    assert (prepared.accepted, prepared.rejected.total()) == (0, 1)


@pytest.mark.parametrize("as_strings", [True, False], ids=["strings", "numbers"])
def test_all_encodings_are_the_same_rows(as_strings: bool) -> None:
    """B98: JSON with numbers, JSON with strings and protobuf."""
    request = ExportTraceServiceRequest()
    _fill(request)
    prepared = prepare(
        Signal.TRACES,
        MediaType.JSON,
        otlp_json_of(request, integers_as_strings=as_strings),
        SETTINGS,
    )
    expected = _rows(Signal.TRACES, request.SerializeToString())
    assert _rows(Signal.TRACES, prepared.body) == expected


def test_events_links_and_resource_of_a_row() -> None:
    request = ExportTraceServiceRequest()
    _fill(request)
    (row,) = _rows(Signal.TRACES, request.SerializeToString())
    assert events_of(row)[0]["time_unix_nano"] == 2
    assert links_of(row)[0]["trace_id"] == bytes(range(1, 17)).hex()
    assert len(resource_attributes_of(row)) == 1
    plain = _row(make_span(1))
    assert (events_of(plain), links_of(plain), plain["service_name"]) == ([], [], None)


@given(st.binary(max_size=200), st.sampled_from(Signal))
def test_any_bytes_decode_or_are_a_decode_error(body: bytes, signal: Signal) -> None:
    with suppress(DecodeError):
        _rows(signal, body)


@given(st.data())
def test_mutated_requests_decode_or_are_a_decode_error(data: st.DataObject) -> None:
    """What intake accepts of a damaged body is exactly what decoding stores."""
    request = ExportTraceServiceRequest()
    _fill(request)
    body = bytearray(request.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DecodeError):
        prepared = prepare(Signal.TRACES, MediaType.PROTOBUF, bytes(body), SETTINGS)
        rows = _rows(Signal.TRACES, bytes(body))
        assert len(rows) == prepared.accepted
        assert len(_rows(Signal.TRACES, _sent_again(rows))) == len(rows)


def _sent_again(rows: list[dict[str, Any]]) -> bytes:
    return encode_spans(rows).SerializeToString()


def test_no_rows_make_an_empty_table() -> None:
    assert decoder().rows(Signal.TRACES).take() == SPANS.empty_table()
    assert decoder().rows(Signal.LOGS).take() == LOGS.empty_table()


def test_double_attributes_keep_their_value() -> None:
    values = {"nan": math.nan, "inf": math.inf, "big": 1e300, "whole": 3.0}
    attributes = [KeyValue(key=k, value=AnyValue(double_value=v)) for k, v in values.items()]
    found = attributes_of(_row(make_span(1, attributes=attributes)))
    assert Counter(map(str, found.values())) == Counter(map(str, values.values()))


def test_promoted_names_come_from_the_agents_side() -> None:
    assert len(set(PROMOTED)) == len(PROMOTED)
    assert not set(PROMOTED) - set(SPANS.names)
