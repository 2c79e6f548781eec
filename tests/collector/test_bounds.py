"""A few bytes on the wire must not become a heap of objects."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from toolverdict.collector.bounds import check_json, check_protobuf
from toolverdict.collector.decode import parse
from toolverdict.collector.decoders import decoder
from toolverdict.collector.errors import DecodeError
from toolverdict.collector.limits import Limits
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_request, make_span

pytestmark = pytest.mark.usefixtures("each_decoder")

ANY = 10**9


def _check(body: bytes, records: int = ANY, messages: int = ANY) -> None:
    decoder().judge(Signal.TRACES, body, Limits(records, messages))


@pytest.mark.parametrize("spans", [1, 5, 50])
def test_spans_are_counted(spans: int) -> None:
    body = make_request(*map(make_span, range(spans))).SerializeToString()
    _check(body, records=spans)
    _check(body, messages=spans + 3)  # and resource, scope spans, scope
    with pytest.raises(DecodeError, match=f"more than {spans - 1} spans"):
        _check(body, records=spans - 1)
    with pytest.raises(DecodeError, match=f"more than {spans + 2} messages"):
        _check(body, messages=spans + 2)


def test_log_records_are_counted() -> None:
    logs = ScopeLogs(log_records=[LogRecord()] * 9)
    request = ExportLogsServiceRequest(resource_logs=[ResourceLogs(scope_logs=[logs])])
    body = request.SerializeToString()
    decoder().judge(Signal.LOGS, body, Limits(9, ANY))
    with pytest.raises(DecodeError, match="more than 8 log records"):
        decoder().judge(Signal.LOGS, body, Limits(8, ANY))


def test_attributes_and_values_are_counted_however_deep() -> None:
    value = AnyValue(string_value="x")
    for _ in range(40):
        value = AnyValue(array_value=ArrayValue(values=[value]))
    span = make_span(1, attributes=[KeyValue(key="k", value=value)] * 10)
    body = make_request(span).SerializeToString()
    messages = 3 + 1 + 10 * (1 + 1 + 40 * 2)
    _check(body, messages=messages)
    with pytest.raises(DecodeError, match="messages"):
        _check(body, messages=messages - 1)


def test_text_is_not_looked_into() -> None:
    """A string of what would be messages is one string."""
    span = make_span(1, name="\x12\x00" * 1000)
    _check(make_request(span).SerializeToString(), records=10, messages=10)


@given(st.binary(max_size=60))
def test_what_protobuf_reads_is_never_called_broken(body: bytes) -> None:
    try:
        check_protobuf(Signal.TRACES, body, Limits(1, 1))
    except DecodeError as error:
        if "more than" not in str(error):
            with pytest.raises(DecodeError):
                parse(Signal.TRACES, body)


@pytest.mark.parametrize("padding", [0, 100], ids=["small", "large"])
def test_groups_are_skipped_whatever_the_size(padding: int) -> None:
    """OTLP has none; protobuf takes them as unknown fields, in small bodies and in large ones."""
    group = b"\x9b\x06\x0a\x00\x9b\x06\x9c\x06\x9c\x06"
    span = make_span(1, name="x" * padding).SerializeToString() + group
    body = make_request(Span.FromString(span)).SerializeToString()
    assert group in body
    _check(body, records=1, messages=4)
    with pytest.raises(DecodeError, match="more than 3 messages"):
        _check(body, messages=3)
    with pytest.raises(DecodeError, match="not a valid"):
        _check(body + b"\x9b\x06", records=1, messages=4)


def test_json_is_counted_without_reading_it() -> None:
    body = b'{"resourceSpans":[{},{},null,{}]}'
    check_json(body, 8)
    with pytest.raises(DecodeError, match="more than 7 JSON values"):
        check_json(body, 7)


@pytest.mark.parametrize("item", [b'"x"', b"1", b"null", b"true", b"[]"])
def test_json_values_of_every_kind_are_counted(item: bytes) -> None:
    """A few kB of gzip hold millions of them."""
    with pytest.raises(DecodeError, match="JSON values"):
        check_json(b'{"x":[' + b",".join([item] * 1000) + b"]}", 1000)
