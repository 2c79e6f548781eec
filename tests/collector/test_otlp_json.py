"""OTLP/JSON: what is read, and that nothing but DecodeError ever comes out."""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from toolverdict.collector.decode import parse
from toolverdict.collector.errors import DecodeError
from toolverdict.collector.otlp_json import protobuf_of_json
from toolverdict.collector.signals import Signal
from toolverdict.collector.validate import span_fault

TRACE_ID = "7107c8eba8a1cfadeb13a99aaaed4de3"
SPAN_ID = "eee19b7ec3c1b174"


def _span(**fields: Any) -> Span:
    tree = {"traceId": TRACE_ID, "spanId": SPAN_ID, **fields}
    body = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [tree]}]}]})
    request = ExportTraceServiceRequest.FromString(
        protobuf_of_json(body.encode(), ExportTraceServiceRequest)
    )
    return request.resource_spans[0].scope_spans[0].spans[0]


def _value(tree: Any) -> AnyValue:
    return _span(attributes=[{"key": "k", "value": tree}]).attributes[0].value


@pytest.mark.parametrize("number", [25, -1, 2**53 + 1, 9223372036854775807, -(2**63)])
@pytest.mark.parametrize("as_string", [True, False])
def test_integers_as_strings_and_as_numbers(number: int, as_string: bool) -> None:
    """B56, B58: both spellings are stored, with all 64 bits."""
    assert _value({"intValue": str(number) if as_string else number}).int_value == number


def test_an_integer_with_an_empty_fraction_is_an_integer() -> None:
    assert _value({"intValue": 25.0}).int_value == 25


@pytest.mark.parametrize(
    "wrong", [True, "x", "1_0", " 1", "", 1.5, 2.0**60, [], {}, str(2**63), 2**63, "9" * 5000]
)
def test_an_integer_that_is_none_names_its_field(wrong: object) -> None:
    with pytest.raises(DecodeError, match="int_value"):
        _value({"intValue": wrong})


def test_a_base64_id_is_never_stored_as_hex() -> None:
    """B59: the span is rejected by name of the field; 24 bytes are not a trace id."""
    fault = span_fault(_span(traceId="cgXI6uihz643E6Zqq7Nl4w=="))
    assert fault is not None
    assert fault.startswith("trace_id")


@pytest.mark.parametrize(
    "spelling", [f"{TRACE_ID[:16]}  {TRACE_ID[16:30]}", "é" * 32, 5, TRACE_ID[:-1]]
)
def test_an_id_that_only_looks_like_hex_is_rejected(spelling: object) -> None:
    assert span_fault(_span(traceId=spelling)) is not None


def test_sixteen_letters_are_no_trace_id() -> None:
    """Text of exactly the length of the binary id must not slip through as bytes."""
    assert span_fault(_span(traceId="abcdefghijklmnop")) is not None
    assert span_fault(_span(spanId="zzzzzzzz")) is not None


def test_upper_case_ids_are_the_same_ids() -> None:
    """B62"""
    assert _span(traceId=TRACE_ID.upper()).trace_id.hex() == TRACE_ID


@pytest.mark.parametrize("kind", range(6))
def test_kinds_by_number_and_by_name(kind: int) -> None:
    """B64: 0 to 5 map exactly, and names, which OTLP does not write, are read all the same."""
    name = Span.SpanKind.Name(Span.SpanKind.ValueType(kind))
    assert _span(kind=kind).kind == _span(kind=name).kind == kind


def test_an_unknown_kind_keeps_its_number() -> None:
    """B64"""
    assert _span(kind=99).kind == 99
    with pytest.raises(DecodeError, match="kind must be a number or a name"):
        _span(kind="SPAN_KIND_NONSENSE")


@pytest.mark.parametrize("body", ["[]", "null", "1", '"x"', "{", "", "\ufeff{}", '{"a":1e999}'])
def test_what_is_not_an_object_is_an_error(body: str) -> None:
    """B65"""
    with pytest.raises(DecodeError):
        protobuf_of_json(body.encode(), ExportTraceServiceRequest)


@pytest.mark.parametrize("body", [{}, {"hello": 1}, {"resourceSpans": []}, {"resourceSpans": None}])
def test_unknown_fields_are_ignored(body: dict[str, Any]) -> None:
    """B65"""
    assert protobuf_of_json(json.dumps(body).encode(), ExportTraceServiceRequest) == b""


def test_both_spellings_of_field_names() -> None:
    body = {"resource_spans": [{"scope_spans": [{"spans": [{"trace_id": TRACE_ID}]}]}]}
    assert bytes.fromhex(TRACE_ID) in protobuf_of_json(
        json.dumps(body).encode(), ExportTraceServiceRequest
    )


@pytest.mark.parametrize(
    ("tree", "number"),
    [(1, 1.0), (0.5, 0.5), ("1.5", 1.5), ("Infinity", math.inf), ("-Infinity", -math.inf)],
)
def test_doubles(tree: object, number: float) -> None:
    assert _value({"doubleValue": tree}).double_value == number


def test_nan() -> None:
    assert math.isnan(_value({"doubleValue": "NaN"}).double_value)


def test_nested_values_bytes_and_nulls() -> None:
    value = _value(
        {
            "kvlistValue": {
                "values": [
                    {"key": "b", "value": {"bytesValue": "_-8"}},
                    {"key": "n", "value": None},
                    {"key": "a", "value": {"arrayValue": {"values": [{"boolValue": True}, None]}}},
                    {"key": "e", "value": {}},
                ]
            }
        }
    )
    pairs = {item.key: item.value for item in value.kvlist_value.values}
    assert pairs["b"].bytes_value == b"\xff\xef"
    assert pairs["n"] == pairs["e"] == AnyValue()
    assert list(pairs["a"].array_value.values) == [AnyValue(bool_value=True), AnyValue()]


def test_an_empty_string_is_not_the_same_as_nothing() -> None:
    assert _value({"stringValue": ""}).WhichOneof("value") == "string_value"
    assert _value({"arrayValue": {}}).WhichOneof("value") == "array_value"


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("name", 5),
        ("attributes", {}),
        ("attributes", [1]),
        ("status", "OK"),
        ("startTimeUnixNano", "soon"),
        ("startTimeUnixNano", -1),
        ("flags", 2**32),
        ("droppedEventsCount", 0.5),
    ],
)
def test_wrong_types_name_the_field_and_not_the_value(field: str, wrong: object) -> None:
    with pytest.raises(DecodeError) as caught:
        _span(**{field: wrong})
    message = str(caught.value).replace("_", "").lower()
    assert field.lower() in message
    assert "soon" not in message


@pytest.mark.parametrize(
    "wrong", [{"boolValue": 1}, {"bytesValue": 5}, {"bytesValue": "a"}, {"doubleValue": "much"}]
)
def test_wrong_values_name_their_kind(wrong: dict[str, Any]) -> None:
    with pytest.raises(DecodeError, match=r"(bool|bytes|double)_value must be"):
        _value(wrong)


def test_lists_of_text() -> None:
    """Entity references hold the only lists of plain strings."""
    resource = {"entityRefs": [{"type": "service", "idKeys": ["service.name"]}]}
    body = json.dumps({"resourceSpans": [{"resource": resource}]}).encode()
    encoded = protobuf_of_json(body, ExportTraceServiceRequest)
    found = ExportTraceServiceRequest.FromString(encoded).resource_spans[0].resource
    assert list(found.entity_refs[0].id_keys) == ["service.name"]


def _nested(depth: int) -> bytes:
    inner = b'{"arrayValue":{"values":[' * depth + b'{"stringValue":"x"}' + b"]}}" * depth
    return (
        b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"key":"k","value":'
        + inner
        + b"}]}]}]}]}"
    )


@pytest.mark.parametrize("depth", range(44, 52))
def test_json_may_nest_as_deep_as_protobuf(depth: int) -> None:
    """Both ways in take 47 arrays in one another, and refuse 48."""
    value = b"\x08\x01"
    for _ in range(depth):
        value = _field(5, _field(1, value))
    body = _field(1, _field(2, _field(2, _field(9, _field(2, value)))))

    def accepts(read: Callable[[], object]) -> bool:
        try:
            read()
        except DecodeError:
            return False
        return True

    by_protobuf = accepts(lambda: parse(Signal.TRACES, body))
    by_json = accepts(lambda: protobuf_of_json(_nested(depth), ExportTraceServiceRequest))
    assert by_protobuf is by_json is (depth <= 47)


def _field(number: int, content: bytes) -> bytes:
    low, high = len(content) & 0x7F | 0x80, len(content) >> 7
    return bytes([number << 3 | 2, low, high]) + content


@pytest.mark.parametrize("depth", [100, 300, 100_000])
def test_nesting_is_limited(depth: int) -> None:
    with pytest.raises(DecodeError):
        protobuf_of_json(_nested(depth), ExportTraceServiceRequest)


def test_what_the_json_limit_allows_protobuf_parses() -> None:
    encoded = protobuf_of_json(_nested(40), ExportTraceServiceRequest)
    assert ExportTraceServiceRequest.FromString(encoded)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "resourceSpans",
                    "scopeSpans",
                    "spans",
                    "resourceLogs",
                    "scopeLogs",
                    "logRecords",
                    "resource",
                    "scope",
                    "key",
                    "value",
                    "attributes",
                    "traceId",
                    "kind",
                    "status",
                    "code",
                    "body",
                    "intValue",
                    "doubleValue",
                    "bytesValue",
                    "arrayValue",
                    "kvlistValue",
                    "values",
                    "boolValue",
                    "events",
                    "links",
                    "timeUnixNano",
                    "entityRefs",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
)


@given(JSON)
def test_any_json_is_read_or_is_a_decode_error(tree: object) -> None:
    for message_type in (ExportTraceServiceRequest, ExportLogsServiceRequest):
        with suppress(DecodeError):
            message_type.FromString(protobuf_of_json(json.dumps(tree).encode(), message_type))


@given(st.binary())
def test_any_bytes_are_read_or_are_a_decode_error(body: bytes) -> None:
    with suppress(DecodeError):
        protobuf_of_json(body, ExportTraceServiceRequest)


@pytest.mark.parametrize("text", ["9007199254740992.0", "9007199254740993.0", "-1e16", "1e18"])
def test_a_float_that_may_have_been_rounded_is_no_integer(text: str) -> None:
    body = _nested(0).replace(b'"stringValue":"x"', f'"intValue":{text}'.encode())
    with pytest.raises(DecodeError, match="int_value must be an integer"):
        protobuf_of_json(body, ExportTraceServiceRequest)


@pytest.mark.parametrize(
    "text", ["1_0", " 5", "5 ", "nan", "inf", "infinity", "0x1p3", "+1", "", "1."]
)
def test_the_text_of_a_double_is_a_number_of_json(text: str) -> None:
    with pytest.raises(DecodeError, match="double_value must be a number"):
        _value({"doubleValue": text})
