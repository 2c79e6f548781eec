"""JSON requests by native code: the same messages as by the official protobuf, or left to it."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from toolverdict.collector.errors import DecodeError
from toolverdict.collector.otlp_json import _plan_of, protobuf_of_tree

_decode = pytest.importorskip("toolverdict.collector._decode")

ID = st.sampled_from(["", "5b8efff798038103d269b633813fc60c", "EEE19b7ec3c1b174", "no hex", "abc"])
INTEGERS = st.sampled_from([0, 1, -1, 127, 128, 2**31 - 1, 2**31, -(2**31), 2**32, 2**63 - 1])
INTEGERS |= st.sampled_from([2**63, 2**64 - 1, -(2**63)]) | st.integers(-(2**63), 2**64 - 1)
SCALARS = st.one_of(
    INTEGERS, INTEGERS.map(str), st.floats(allow_nan=False, allow_infinity=False), st.booleans(),
    st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=200), ID,
    st.sampled_from(["-0", "+1", " 1", "1.0", "1e3", "007", "9" * 21, "NaN", "AAEC", "A?"]),
)  # fmt: skip


def _trees(message: Any, depth: int) -> st.SearchStrategy[dict[str, Any]]:
    """Objects whose fields have values of their type now and then."""
    return st.lists(
        st.sampled_from([*message.fields, *message.fields]).flatmap(
            lambda field: st.tuples(
                st.sampled_from([field.name, field.json_name]), _values(field, depth)
            )
        ),
        max_size=5,
    ).map(dict)


def _values(field: Any, depth: int) -> st.SearchStrategy[Any]:
    one: st.SearchStrategy[Any] = SCALARS
    if field.message_type is not None and depth:
        one = st.deferred(lambda: _trees(field.message_type, depth - 1)) | st.none()
    elif field.name in ("trace_id", "span_id", "parent_span_id"):
        one = ID
    return st.lists(one, max_size=3) if field.is_repeated else one


MESSAGES = [ExportTraceServiceRequest, ExportLogsServiceRequest]


@pytest.mark.parametrize("message", MESSAGES)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_native_code_reads_is_what_protobuf_reads(message: Any, data: st.DataObject) -> None:
    tree = data.draw(_trees(message.DESCRIPTOR, 9))
    wire = _decode.protobuf_of_tree(tree, _plan_of(message.DESCRIPTOR))
    if wire is None:
        return
    assert message.FromString(wire) == message.FromString(protobuf_of_tree(tree, message))


VALUE: dict[str, dict[str, Any]] = {
    "text": {"stringValue": "é€\U0001f600\x00"},
    "a long text": {"stringValue": "x" * 20_000},
    "an integer": {"intValue": "-9223372036854775808"},
    "a number": {"intValue": 5},
    "a double": {"doubleValue": 1.5},
    "true": {"boolValue": True},
    "an array": {"arrayValue": {"values": [{"intValue": 1}, None, {}]}},
    "pairs": {"kvlistValue": {"values": [{"key": "k", "value": {"stringValue": "v"}}]}},
    "the last of two": {"stringValue": "a", "intValue": 0},
}


def _request(value: dict[str, Any]) -> dict[str, Any]:
    span = {
        "traceId": "5B8EFFF798038103d269b633813fc60c",
        "span_id": "eee19b7ec3c1b174",
        "kind": 3,
        "flags": 257,
        "startTimeUnixNano": "1796000000000000000",
        "unknown": {"to": ["us"]},
        "droppedAttributesCount": 4294967295,
        "attributes": [{"key": "k", "value": value}] * 3,
        "events": [{"timeUnixNano": 1, "name": "e", "attributes": []}],
        "links": [None],
        "status": {"code": 2},
    }
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": [span] * 2}]}]}


@pytest.mark.parametrize("value", VALUE.values(), ids=VALUE.keys())
def test_what_clients_send_is_not_left_to_python(value: dict[str, Any]) -> None:
    tree = _request(value)
    plan = _plan_of(ExportTraceServiceRequest.DESCRIPTOR)
    wire = _decode.protobuf_of_tree(tree, plan)
    assert wire is not None
    expected = protobuf_of_tree(tree, ExportTraceServiceRequest)
    assert ExportTraceServiceRequest.FromString(wire) == ExportTraceServiceRequest.FromString(
        expected
    )


@pytest.mark.parametrize(
    "value",
    [{"bytesValue": "AAEC"}, {"intValue": 1.0}, {"intValue": 2**63}, {"intValue": True},
     {"doubleValue": "NaN"}, {"stringValue": 1}, {"boolValue": 1}, {"arrayValue": []}],
    ids=json.dumps,
)  # fmt: skip
def test_what_is_rare_or_wrong_is_left_to_python(value: dict[str, Any]) -> None:
    plan = _plan_of(ExportTraceServiceRequest.DESCRIPTOR)
    assert _decode.protobuf_of_tree(_request(value), plan) is None


@pytest.mark.parametrize("values", [20, 60])
def test_depth_is_limited_alike(values: int) -> None:
    value: dict[str, Any] = {}
    for _ in range(values):
        value = {"arrayValue": {"values": [value]}}
    plan = _plan_of(ExportTraceServiceRequest.DESCRIPTOR)
    wire = _decode.protobuf_of_tree(_request(value), plan)
    try:
        protobuf_of_tree(_request(value), ExportTraceServiceRequest)
    except DecodeError:
        assert wire is None
    else:
        assert wire is not None
