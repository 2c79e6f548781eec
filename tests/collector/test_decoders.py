"""Two decoders, one behaviour: what the native one takes, refuses and yields, the other does, too."""

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    EntityRef,
    InstrumentationScope,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from toolverdict.collector import decoders
from toolverdict.collector.decode import PythonDecoder
from toolverdict.collector.decoders import Decoder, decoder, decoder_in_use
from toolverdict.collector.errors import ConfigError, DecodeError
from toolverdict.collector.limits import Limits
from toolverdict.collector.schema import PROMOTED, SPANS
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_request, make_span

ROOT = Path(__file__).parents[2]
RECORDINGS = sorted((ROOT / "tests/data/recordings").glob("*/*.pb"))
ANY = 10**9
NO_LIMITS = Limits(*[ANY] * 9)

try:
    from toolverdict.collector.native import NativeDecoder
except ImportError:
    pytestmark = pytest.mark.skip("the native decoder was not built (no C++ compiler?)")


def _judged(which: Decoder, signal: Signal, body: bytes, limits: Limits) -> object:
    """The judgement with the order of its reasons, or what the client would be told."""
    try:
        accepted, rejected, warnings, over = which.judge(signal, body, limits)
    except DecodeError as error:
        return str(error)
    return accepted, list(rejected.items()), list(warnings.items()), over


def _decoded(
    which: Decoder, signal: Signal, body: bytes, *, judged: bool = False
) -> pa.Table | str:
    builder = which.rows(signal, judged=judged)
    try:
        builder.feed(body, 7)
    except DecodeError as error:
        return str(error)
    table = builder.take()
    table.validate(full=True)
    return table


def agree(signal: Signal, body: bytes, limits: Limits = NO_LIMITS) -> pa.Table | str:
    """Ask both decoders; returns the table or the message."""
    judged = [_judged(which, signal, body, limits) for which in (PythonDecoder(), NativeDecoder())]
    assert judged[0] == judged[1]
    tables = [_decoded(which, signal, body) for which in (PythonDecoder(), NativeDecoder())]
    assert tables[0] == tables[1]
    if not isinstance(tables[0], str):  # intake took it, so the flusher need not look again
        assert _decoded(NativeDecoder(), signal, body, judged=True) == tables[0]
    if limits == NO_LIMITS:
        assert isinstance(tables[0], str) == isinstance(judged[0], str)
    return tables[0]


def some_examples(count: int) -> settings:
    """Requests take long to draw, the longer the busier the machine is; that is no fault."""
    slow = [HealthCheck.too_slow]
    return settings(max_examples=count, deadline=None, suppress_health_check=slow)


# --- what clients send ----------------------------------------------------------------------------


def test_there_are_recordings() -> None:
    assert len(RECORDINGS) > 100


@pytest.mark.parametrize("signal", Signal)
def test_recordings(signal: Signal) -> None:
    """Also those of the other signal: what is no such request is refused or empty alike."""
    rows = 0
    for path in RECORDINGS:
        table = agree(signal, path.read_bytes())
        rows += 0 if isinstance(table, str) else table.num_rows
    assert rows > 100


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
KEYS = TEXT | st.sampled_from(["$bytes", "$", "service.name", *PROMOTED[:3], "a"])
DOUBLES = st.floats() | st.sampled_from([5.0, 1e15, 1e16, 1e-4, 1e-5, 1e-6, -0.0, 5e-324])
SCALARS = st.one_of(
    st.builds(AnyValue),
    st.builds(AnyValue, string_value=TEXT),
    st.builds(AnyValue, bool_value=st.booleans()),
    st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1)),
    st.builds(AnyValue, double_value=DOUBLES),
    st.builds(AnyValue, bytes_value=st.binary(max_size=7)),
)


def _containers(values: st.SearchStrategy[AnyValue]) -> st.SearchStrategy[AnyValue]:
    pairs = st.lists(st.builds(KeyValue, key=KEYS, value=values), max_size=4)
    arrays = st.builds(ArrayValue, values=st.lists(values, max_size=4))
    return st.builds(AnyValue, array_value=arrays) | st.builds(
        AnyValue, kvlist_value=st.builds(KeyValueList, values=pairs)
    )


VALUES = st.recursive(SCALARS, _containers, max_leaves=4)
PAIRS = st.lists(st.builds(KeyValue, key=KEYS, value=VALUES), max_size=3)
UINT32 = st.integers(0, 2**32 - 1)
TIMES = st.integers(0, 2**63 - 1) | st.sampled_from([0, 999, 2**63])


def _ids(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size) | st.sampled_from([b"", bytes(size), b"short"])


EVENTS = st.builds(Span.Event, time_unix_nano=TIMES, name=TEXT, attributes=PAIRS)
LINKS = st.builds(
    Span.Link, trace_id=_ids(16), span_id=_ids(8), trace_state=TEXT, attributes=PAIRS, flags=UINT32
)
SPAN = st.builds(
    Span,
    trace_id=st.binary(min_size=16, max_size=16) | _ids(16),
    span_id=st.binary(min_size=8, max_size=8) | _ids(8),
    parent_span_id=_ids(8),
    trace_state=TEXT,
    name=TEXT,
    start_time_unix_nano=TIMES,
    end_time_unix_nano=TIMES,
    attributes=PAIRS,
    events=st.lists(EVENTS, max_size=2),
    links=st.lists(LINKS, max_size=2),
    status=st.none() | st.builds(Status, message=TEXT),
    flags=UINT32,
    dropped_events_count=UINT32,
)
LOG_RECORD = st.builds(
    LogRecord,
    trace_id=_ids(16),
    span_id=_ids(8),
    time_unix_nano=TIMES,
    observed_time_unix_nano=TIMES,
    severity_text=TEXT,
    event_name=TEXT,
    body=st.none() | VALUES,
    attributes=PAIRS,
)
ENTITIES = st.builds(
    EntityRef, schema_url=TEXT, type=TEXT, id_keys=st.lists(TEXT, max_size=2),
    description_keys=st.lists(TEXT, max_size=2),
)  # fmt: skip
RESOURCE = st.none() | st.builds(
    Resource, attributes=PAIRS, entity_refs=st.lists(ENTITIES, max_size=2)
)
SCOPE = st.none() | st.builds(InstrumentationScope, name=TEXT, version=TEXT, attributes=PAIRS)


def _request(
    request: Callable[..., Any], field: str, resource: Callable[..., Any], scopes: str, inner: Any
) -> st.SearchStrategy[Any]:
    groups = st.builds(
        resource,
        resource=RESOURCE,
        schema_url=TEXT,
        **{scopes: st.lists(inner, max_size=2)},
    )
    return st.builds(request, **{field: st.lists(groups, max_size=2)})


TRACES = _request(
    ExportTraceServiceRequest,
    "resource_spans",
    ResourceSpans,
    "scope_spans",
    st.builds(ScopeSpans, scope=SCOPE, schema_url=TEXT, spans=st.lists(SPAN, max_size=2)),
)
LOGS = _request(
    ExportLogsServiceRequest,
    "resource_logs",
    ResourceLogs,
    "scope_logs",
    st.builds(
        ScopeLogs, scope=SCOPE, schema_url=TEXT, log_records=st.lists(LOG_RECORD, max_size=2)
    ),
)


@some_examples(40)
@given(TRACES)
def test_spans(request: ExportTraceServiceRequest) -> None:
    assert isinstance(agree(Signal.TRACES, request.SerializeToString()), pa.Table)


@some_examples(40)
@given(LOGS)
def test_log_records(request: ExportLogsServiceRequest) -> None:
    assert isinstance(agree(Signal.LOGS, request.SerializeToString()), pa.Table)


@some_examples(60)
@given(TRACES, st.data())
def test_spans_with_wrong_bytes(request: ExportTraceServiceRequest, data: st.DataObject) -> None:
    body = bytearray(request.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(body)))
        body[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    agree(Signal.TRACES, bytes(body))


@some_examples(100)
@given(st.lists(st.floats(width=64) | st.integers(-(2**63), 2**63).map(float), max_size=50))
def test_doubles(numbers: list[float]) -> None:
    values = [AnyValue(double_value=number) for number in numbers]
    span = make_span(1, attributes=[_pair("x", AnyValue(array_value=ArrayValue(values=values)))])
    agree(Signal.TRACES, make_request(span).SerializeToString())


def test_the_layout_of_doubles_is_that_of_the_json_library() -> None:
    """Every power of ten, as digits and point change places there."""
    values = [
        float(f"{digits}e{power}")
        for digits in ("1", "1.5", "123456789")
        for power in range(-320, 309)
    ]
    finite = [value for value in values if value not in (0, float("inf"))]
    array = ArrayValue(values=[AnyValue(double_value=value) for value in finite])
    span = make_span(1, attributes=[_pair("x", AnyValue(array_value=array))])
    table = agree(Signal.TRACES, make_request(span).SerializeToString())
    assert isinstance(table, pa.Table)
    assert orjson.loads(table["attributes"][0].as_py()) == {"x": finite}


# --- the wire format ------------------------------------------------------------------------------


def _pair(key: str, value: AnyValue) -> KeyValue:
    return KeyValue(key=key, value=value)


def _varint(number: int, size: int = 0) -> bytes:
    """A varint, made longer than it has to be with ``size``."""
    encoded = bytearray()
    while number > 0x7F or len(encoded) + 1 < size:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _body(span: bytes) -> bytes:
    """A request with a sound span and some more bytes in it."""
    sound = make_span(1).SerializeToString()
    return _field(1, _field(2, _field(2, sound + span)))


def _nested(levels: int, innermost: bytes = b"") -> bytes:
    """A span's attribute whose message nests so many levels below the request."""
    payload = innermost
    # Request, resource, scope, span and pair are above the values: levels 1 to 4.
    for level in range(levels, 5, -1):
        payload = _field(5 if level % 2 == 0 else 1, payload)
    return _field(9, _field(2, payload))


GROUP = b"\x9b\x06", b"\x9c\x06"  # field 99
TAKEN = {
    "nothing more": b"",
    "an unknown varint": b"\x98\x06\x05",
    "an unknown group": GROUP[0] + GROUP[1],
    "a group with anything in it": GROUP[0]
    + b"\x0a\x01\xff\x03\x04\x00\x00\x09abcdefgh"
    + GROUP[1],
    "a known field with another wire type": b"\x50\x05\x58\x05\x2d\x01\x02\x03\x04",
    "a name as a number": b"\x28\x05",
    "a tag of five bytes": _varint(3 << 3 | 2, 5) + b"\x01x",
    "a length of five bytes": b"\x1a" + _varint(1, 5) + b"x",
    "a number of ten bytes": b"\x30" + _varint(3, 10),
    "a number of more than 64 bits": b"\x30" + b"\x83" + b"\x80" * 8 + b"\x7f",
    "a count of more than 32 bits": b"\x50" + _varint(2**40 + 5),
    "the largest tag": b"\xf8\xff\xff\xff\x0f\x00",
    "the last of a field twice": b"\x2a\x01a\x2a\x01b\x3a\x00",
    "a status in two pieces": b"\x7a\x02\x18\x02\x7a\x03\x12\x01m",
    "an empty status": b"\x7a\x00",
    "an attribute without key and value": b"\x4a\x00",
    "a value in two pieces": _field(9, b"\x0a\x01k\x12\x03\x0a\x01a\x12\x02\x10\x01"),
    "an array in two pieces": _field(9, _field(2, _field(5, _field(1, b"\x18\x01"))) * 2),
    "an array, a string and an array": _field(
        9, _field(2, _field(5, _field(1, b"\x18\x01")) + b"\x0a\x01x" + _field(5, _field(1, b"")))
    ),
    "pairs and then an array": _field(9, _field(2, _field(6, _field(1, b"")) + _field(5, b""))),
    "a string index": _field(9, _field(2, b"\x0a\x01a\x40\x05")),
    "100 levels": _nested(100),
    "a group as the 100th level": _nested(99, GROUP[0] + GROUP[1]),
    "a string with a zero byte": b"\x2a\x01\x00",
    "the last code point": b"\x2a\x04\xf4\x8f\xbf\xbf",
}
REFUSED = {
    "field number 0": b"\x00\x00",
    "field number 0 in five bytes": b"\x80\x80\x80\x80\x00\x00",
    "wire type 6": b"\x9e\x06",
    "wire type 7": b"\x9f\x06",
    "an end of a group": GROUP[1],
    "a group without end": GROUP[0],
    "a group with the end of another": GROUP[0] + b"\xa4\x06",
    "a tag of six bytes": _varint(3 << 3 | 2, 6) + b"\x01x",
    "a tag of more than 32 bits": b"\xf8\xff\xff\xff\x1f\x00",
    "a length of six bytes": b"\x1a" + _varint(1, 6) + b"x",
    "a length beyond the end": b"\x2a\x02x",
    "a length of 2 GiB": b"\x2a" + _varint(2**31),
    "a number of eleven bytes": b"\x30" + _varint(3, 11),
    "a number without end": b"\x30\x80",
    "eight bytes cut short": b"\x39abcdefg",
    "four bytes cut short": b"\x85\x01abc",
    "an unknown field cut short": b"\x9d\x06abc",
    "101 levels": _nested(101),
    "a group as the 101st level": _nested(100, GROUP[0] + GROUP[1]),
    "half a character": b"\x2a\x01\xc3",
    "an overlong slash": b"\x2a\x02\xc0\xaf",
    "an overlong zero": b"\x2a\x03\xe0\x80\x80",
    "a surrogate": b"\x2a\x03\xed\xa0\x80",
    "beyond the last code point": b"\x2a\x04\xf4\x90\x80\x80",
    "a stray byte after eight letters": b"\x2a\x09abcdefgh\x80",
    "a stray byte among many": b"\x2a\x28" + b"x" * 20 + b"\xff" + b"y" * 19,
    "a key that is no text": b"\x4a\x03\x0a\x01\xff",
    "a value that is no text": _field(9, _field(2, b"\x0a\x01\xff")),
    "a name that was no text before": b"\x2a\x01\xff\x2a\x01a",
}


@pytest.mark.parametrize("more", TAKEN.values(), ids=TAKEN.keys())
def test_what_protobuf_takes(more: bytes) -> None:
    table = agree(Signal.TRACES, _body(more))
    assert isinstance(table, pa.Table)
    assert table.num_rows == 1


@pytest.mark.parametrize("more", REFUSED.values(), ids=REFUSED.keys())
def test_what_protobuf_refuses(more: bytes) -> None:
    message = agree(Signal.TRACES, _body(more))
    assert message == "the body is not a valid ExportTraceServiceRequest in protobuf"


def test_what_is_of_a_resource_may_stand_behind_its_records() -> None:
    """And in several pieces: fields have no order on the wire."""
    span = make_span(1).SerializeToString()
    pieces = [Resource(attributes=[_pair(key, AnyValue(int_value=1))]) for key in "ab"]
    first, second = (_field(1, piece.SerializeToString()) for piece in pieces)
    scope = _field(1, InstrumentationScope(name="late").SerializeToString())
    spans = _field(2, _field(2, span) + b"\x1a\x01u" + scope)
    table = agree(Signal.TRACES, _field(1, first + spans + spans + b"\x1a\x01v" + second))
    assert isinstance(table, pa.Table)
    names = ["resource_attributes", "resource_schema_url", "scope_name", "scope_schema_url"]
    assert table.select(names).to_pylist() == [
        dict(zip(names, ['{"a":1,"b":1}', "v", "late", "u"], strict=True))
    ] * 2  # fmt: skip


def test_the_reason_is_that_of_the_first_link_with_one() -> None:
    links = [Span.Link(span_id=b"bad"), Span.Link(trace_id=b"bad", span_id=b"bad"), Span.Link()]
    body = make_request(make_span(1, links=links)).SerializeToString()
    agree(Signal.TRACES, body)
    rejected = NativeDecoder().judge(Signal.TRACES, body, NO_LIMITS).rejected
    assert [reason.split()[0] for reason in rejected] == ["links.span_id"]


@some_examples(30)
@given(st.integers(1, 40), st.integers(1, 60), TRACES)
def test_limits(records: int, messages: int, request: ExportTraceServiceRequest) -> None:
    body = request.SerializeToString()
    verdicts = [
        _judged(which, Signal.TRACES, body, limits)
        for limits in (Limits(records, ANY), Limits(ANY, messages))
        for which in (PythonDecoder(), NativeDecoder())
    ]
    assert verdicts[0] == verdicts[1]
    assert verdicts[2] == verdicts[3]


SMALL = st.integers(0, 9)
RECORD_LIMITS = st.builds(
    Limits,
    records=st.just(ANY), messages=st.just(ANY),
    attributes=SMALL, events=SMALL, links=SMALL, record_messages=st.integers(0, 40),
    value_bytes=st.integers(0, 30), record_bytes=st.integers(500, 2500),
    context_bytes=st.integers(250, 700),
)  # fmt: skip


@some_examples(60)
@given(RECORD_LIMITS, TRACES)
def test_limits_of_spans(limits: Limits, request: ExportTraceServiceRequest) -> None:
    agree(Signal.TRACES, request.SerializeToString(), limits)


@some_examples(40)
@given(RECORD_LIMITS, LOGS)
def test_limits_of_log_records(limits: Limits, request: ExportLogsServiceRequest) -> None:
    agree(Signal.LOGS, request.SerializeToString(), limits)


@some_examples(60)
@given(RECORD_LIMITS, TRACES, st.data())
def test_limits_with_wrong_bytes(
    limits: Limits, request: ExportTraceServiceRequest, data: st.DataObject
) -> None:
    """Also fields that come twice, of which the parser keeps the last."""
    body = bytearray(request.SerializeToString())
    at = data.draw(st.integers(0, len(body)))
    body[at:at] = data.draw(st.sampled_from([b"\x2a\x01x\x2a\x00", b"\x4a\x00", b"\x5a\x00"]))
    for which in (Signal.TRACES, Signal.LOGS):
        verdicts = [
            _judged(decoder, which, bytes(body), limits)
            for decoder in (PythonDecoder(), NativeDecoder())
        ]
        assert verdicts[0] == verdicts[1]


@some_examples(60)
@given(TRACES, st.integers(1, 5), st.integers(1, 4000))
def test_parts_end_at_the_same_row(
    request: ExportTraceServiceRequest, rows: int, weight: int
) -> None:
    """After a crash another decoder may go on: it has to cut alike."""
    body = request.SerializeToString()
    cuts: list[list[int]] = []
    for which in _decoders():
        builder = which.rows(Signal.TRACES)
        cuts.append([])
        for _ in range(3):
            builder.feed(body, 1)
            while taken := builder.full_part(rows, weight):
                cuts[-1].append(taken)
                table = builder.take_sorted(taken, 1)[0][1]
                assert table.num_rows == taken
        cuts[-1].append(builder.num_rows)
    assert cuts[0] == cuts[1]


def _weight(which: Decoder, signal: Signal, body: bytes) -> int:
    """The weight of all rows, by asking whether they fill a part."""
    builder = which.rows(signal)
    builder.feed(body, 1)
    low, high = 0, 1 << 40
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if builder.full_part(ANY, middle) else (low, middle - 1)
    return low


EMPTY = {
    "events": _field(11, b""),
    "links": _field(13, b""),
    "attributes": _field(9, b""),
    "array": _field(9, _field(2, _field(5, _field(1, b"") * 50))),
    "pairs": _field(9, _field(2, _field(6, _field(1, b"") * 50))),
    "pairs in pairs": _field(9, _field(2, _field(6, _field(1, _field(2, _field(6, b""))) * 50))),
    "attributes of an event": _field(11, _field(3, b"") * 50),
    "attributes of a link": _field(13, _field(4, b"") * 2),
    "bytes": _field(9, _field(2, _field(7, b"\0"))),
    "infinity": _field(9, _field(2, b"\x21" + struct.pack("<d", float("-inf")))),
    "control": _field(9, _field(1, b"\x01" * 50)),
    "quotes": _field(9, _field(2, _field(1, b'"' * 50))),
    "a tool's name": _field(9, _field(1, b"tool.name") + _field(2, _field(1, b"\x01" * 99))),
    "largest numbers": _field(11, b"\x09" + b"\xff" * 7 + b"\x7f\x20" + _varint(2**32 - 1)),
}


@pytest.mark.parametrize("piece", EMPTY.values(), ids=EMPTY.keys())
def test_nothing_becomes_more_than_its_weight(piece: bytes) -> None:
    """What takes least on the wire for what it becomes."""
    body = _body(piece * 200)
    table = agree(Signal.TRACES, body)
    assert isinstance(table, pa.Table)
    weights = [_weight(which, Signal.TRACES, body) for which in _decoders()]
    assert weights[0] == weights[1]
    assert table.nbytes <= weights[0]
    assert weights[0] < 8 * len(body) + 200 * 60 * len(piece) + 2000


@some_examples(60)
@given(LOGS)
def test_log_records_become_no_more_than_their_weight(request: ExportLogsServiceRequest) -> None:
    body = request.SerializeToString()
    table = agree(Signal.LOGS, body)
    assert isinstance(table, pa.Table)
    overhead = 512  # Arrow has one offset more than rows in each column
    assert table.nbytes <= _weight(NativeDecoder(), Signal.LOGS, body) + overhead


def test_contexts_are_forgotten_with_their_rows() -> None:
    """Rows of a request are taken while others of it wait: each still has its own resource."""
    groups = [
        ResourceSpans(
            resource=Resource(attributes=[_pair("n", AnyValue(int_value=n))]),
            scope_spans=[
                ScopeSpans(scope=InstrumentationScope(name=f"s{n}"), spans=[make_span(n)] * 3)
            ],
        )
        for n in range(40)
    ]
    body = ExportTraceServiceRequest(resource_spans=groups).SerializeToString()
    taken: list[list[pa.Table]] = []
    for which in _decoders():
        builder = which.rows(Signal.TRACES)
        taken.append([])
        for _ in range(3):
            builder.feed(body, 1)
            taken[-1] += [table for _, table in builder.take_sorted(100, 1)]
        taken[-1].append(builder.take())
    assert taken[0] == taken[1]
    assert sum(table.num_rows for table in taken[1]) == 360


# --- builders -------------------------------------------------------------------------------------


def _decoders() -> list[Decoder]:
    return [PythonDecoder(), NativeDecoder()]


@pytest.mark.parametrize("bad_end", [b"\x00", b"\x2a\x01\xff"])
def test_a_bad_request_leaves_no_trace(bad_end: bytes) -> None:
    """Its rows, words and bytes are taken back, however far it got."""
    good = [make_request(make_span(n, name=f"n{n % 3}")).SerializeToString() for n in range(20)]
    tool = _pair("tool.name", AnyValue(string_value="unknown before"))
    bad = [make_span(n, name=f"bad {n}", attributes=[tool]) for n in range(100)]
    bad_body = make_request(*bad).SerializeToString() + _body(bad_end)
    tables = []
    for which in _decoders():
        builder = which.rows(Signal.TRACES)
        for body in good:
            builder.feed(body, 1)
            rows = builder.num_rows
            with pytest.raises(DecodeError):
                builder.feed(bad_body, 2)
            assert builder.num_rows == rows
        builder.feed(make_request(make_span(1, name="bad 7")).SerializeToString(), 3)
        tables.append(builder.take())
        assert builder.num_rows == 0
    tables[1].validate(full=True)
    assert tables[0] == tables[1]
    words: Any = tables[1]["name"].chunk(0)
    assert words.dictionary.to_pylist() == ["n0", "n1", "n2", "bad 7"]


def test_nulls_after_a_bad_request_are_null() -> None:
    """The bits of the rows that were taken back must not shine through."""
    named = [_pair("tool.name", AnyValue(string_value="x"))]
    bad = [make_span(n, attributes=named) for n in range(9)]
    for which in _decoders():
        builder = which.rows(Signal.TRACES)
        builder.feed(
            make_request(make_span(1), make_span(2, attributes=named)).SerializeToString(), 1
        )
        with pytest.raises(DecodeError):
            builder.feed(make_request(*bad).SerializeToString() + b"\x00", 1)
        later = make_request(make_span(3), make_span(4), make_span(5, attributes=named))
        builder.feed(later.SerializeToString(), 1)
        assert builder.take()["tool.name"].to_pylist() == [None, "x", None, None, "x"]


def test_a_builder_goes_on_after_its_rows_were_taken() -> None:
    for which in _decoders():
        builder = which.rows(Signal.TRACES)
        assert builder.take() == SPANS.empty_table()
        for number in range(3):
            builder.feed(make_request(make_span(number)).SerializeToString(), number)
            table = builder.take()
            table.validate(full=True)
            assert table["received_time_unix_nano"].to_pylist() == [number]
            assert table.schema.equals(SPANS, check_metadata=True)


def test_columns_that_begin_late_and_end_early() -> None:
    """More rows than a byte of a bitmap has bits, null before, between and behind."""
    spans = []
    for number in range(40):
        attributes = [_pair("tool.name", AnyValue(string_value=f"t{number}"))]
        spans.append(make_span(number, attributes=attributes if 9 <= number < 31 else []))
        if number == 17:
            spans.append(make_span(number, end_time_unix_nano=0))
    table = agree(Signal.TRACES, make_request(*spans).SerializeToString())
    assert isinstance(table, pa.Table)
    assert table["tool.name"].null_count == 19


def test_many_keys_and_long_ones() -> None:
    """More different keys than are remembered; one of them twice."""
    one = AnyValue(int_value=1)
    keys = [f"key {number}" for number in range(6000)] + ["x" * 1000, "key 5999"]
    once = make_span(1, attributes=[_pair(key, one) for key in keys[:-1]])
    twice = make_span(2, attributes=[_pair(key, one) for key in keys])
    table = agree(Signal.TRACES, make_request(once, twice, once).SerializeToString())
    assert isinstance(table, pa.Table)
    texts = [str(text) for text in table["attributes"].to_pylist()]
    assert [text.startswith('{"$pairs"') for text in texts] == [False, True, False]


def test_the_native_builder_checks_the_schema() -> None:
    """One for another schema must not fill the wrong columns, but say so."""
    from toolverdict.collector import _decode

    fewer = pa.schema([field for field in SPANS if field.name != "kind"])
    other = SPANS.set(SPANS.get_field_index("kind"), pa.field("kind", pa.int64()))
    unknown = SPANS.append(pa.field("new", pa.float32()))
    for schema, column in ((fewer, "kind"), (other, "kind"), (unknown, "new")):
        with pytest.raises(ValueError, match=f"column {column}"):
            _decode.RowBuilder(Signal.TRACES, False, schema.__arrow_c_schema__())
    with pytest.raises(ValueError, match="no such signal"):
        _decode.RowBuilder(3, False, SPANS.__arrow_c_schema__())


def test_the_native_decoder_takes_new_promoted_attributes_from_the_schema() -> None:
    from toolverdict.collector import _decode
    from toolverdict.collector.native import _Exported

    schema = SPANS.append(pa.field("brand.new", pa.string()))
    builder = _decode.RowBuilder(Signal.TRACES, False, schema.__arrow_c_schema__())
    span = make_span(1, attributes=[_pair("brand.new", AnyValue(string_value="v"))])
    builder.feed(make_request(span).SerializeToString(), 1)
    (row,) = pa.record_batch(_Exported(schema, builder.take())).to_pylist()
    assert (row["brand.new"], row["attributes"]) == ("v", "{}")


# --- which one serves -----------------------------------------------------------------------------


def test_the_native_decoder_serves_where_it_was_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(decoders.VARIABLE, raising=False)
    assert (decoder().name, decoder_in_use()) == ("native", "native")


def test_the_variable_insists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(decoders.VARIABLE, "python")
    assert decoder().name == "python"
    assert decoder_in_use() == "python (as TOOLVERDICT_DECODER says)"
    monkeypatch.setenv(decoders.VARIABLE, "fast")
    with pytest.raises(ConfigError, match="must be native or python"):
        decoder()


def test_without_the_native_decoder_python_serves() -> None:
    code = (
        "import sys; sys.modules['toolverdict.collector._decode'] = None\n"
        "import os; os.environ.pop('TOOLVERDICT_DECODER', None)\n"
        "from toolverdict.collector import decoders\n"
        "print(decoders.decoder_in_use())\n"
        "os.environ['TOOLVERDICT_DECODER'] = 'native'\n"
        "try:\n    decoders.decoder()\nexcept decoders.ConfigError as error:\n    print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    lines = result.stdout.splitlines()
    assert lines[0] == "python (the native decoder was not built)", result.stderr
    assert lines[1].startswith(
        "TOOLVERDICT_DECODER is native, but the native decoder was not built"
    )


def test_a_short_run_of_the_fuzzer() -> None:
    """The long one is run by hand and in CI: see the head of the script."""
    script = ROOT / "tests/fuzz/decoders.py"
    arguments = ["--count", "400", "--seconds", "60", "--seed", "1"]
    result = subprocess.run(
        [sys.executable, str(script), *arguments], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.startswith("400 bodies")


def test_doubles_keep_their_bits() -> None:
    """Shortest digits, also where neighbours are close: what is read again is the same double."""
    bits = [
        0x1,
        0xF_FFFF_FFFF_FFFF,
        0x10_0000_0000_0000,
        0x7FEF_FFFF_FFFF_FFFF,
        0x4340_0000_0000_0001,
    ]
    numbers = [struct.unpack("<d", struct.pack("<Q", value))[0] for value in bits]
    array = ArrayValue(values=[AnyValue(double_value=number) for number in numbers])
    span = make_span(1, attributes=[_pair("x", AnyValue(array_value=array))])
    table = agree(Signal.TRACES, make_request(span).SerializeToString())
    assert isinstance(table, pa.Table)
    assert orjson.loads(table["attributes"][0].as_py())["x"] == numbers
