"""Requests on the wire: what is found there is what the parser finds, whatever stands between."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from toolverdict.collector.limits import Over
from toolverdict.collector.otlp_wire import BrokenError, fields, places, without
from toolverdict.collector.testing import make_span

UNKNOWN = [
    b"",
    b"\x98\x06\x05",  # a varint
    b"\x99\x06abcdefgh",
    b"\x9d\x06abcd",
    b"\x9a\x06\x03abc",
    b"\x9b\x06\x12\x02\x0a\x00\x9b\x06\x9c\x06\x9c\x06",  # a group with a group in it
    b"\x08\x05\x10\x05",  # fields 1 and 2 as numbers: unknown to everybody
]
URL = b"\x1a\x01u"


def _field(number: int, payload: bytes, padding: int) -> bytes:
    """A field whose length is longer than it has to be."""
    length = bytearray()
    size = len(payload)
    while size > 0x7F or padding:
        length.append(size & 0x7F | 0x80)
        size >>= 7
        padding = max(0, padding - 1)
    return bytes([number << 3 | 2]) + bytes([*length, size]) + payload


NOISE = st.sampled_from(UNKNOWN)
PADDING = st.integers(0, 2)


@st.composite
def requests(draw: st.DrawFn) -> tuple[bytes, list[list[list[bytes]]]]:
    """A request, and its records by resource and scope."""
    found: list[list[list[bytes]]] = []
    body = draw(NOISE)
    number = 0
    for _ in range(draw(st.integers(0, 3))):
        found.append([])
        group = draw(NOISE) + draw(st.sampled_from([b"", _field(1, b"", 0), URL]))
        for _ in range(draw(st.integers(0, 3))):
            found[-1].append([])
            scope = draw(NOISE)
            for _ in range(draw(st.integers(0, 3))):
                number += 1
                record = make_span(number).SerializeToString() + draw(NOISE)
                found[-1][-1].append(record)
                scope += _field(2, record, draw(PADDING)) + draw(NOISE)
            scope += draw(st.sampled_from([b"", _field(1, b"", 0), URL]))
            group += _field(2, scope, draw(PADDING)) + draw(NOISE)
        body += _field(1, group, draw(PADDING)) + draw(NOISE)
    return body, found


@given(requests())
def test_places(request: tuple[bytes, list[list[list[bytes]]]]) -> None:
    body, expected = request
    parsed = ExportTraceServiceRequest.FromString(body)
    assert [[len(s.spans) for s in r.scope_spans] for r in parsed.resource_spans] == [
        [len(scope) for scope in resource] for resource in expected
    ]
    found = places(body)
    assert found is not None
    assert [[scope.records for scope in resource.scopes] for resource in found] == expected
    records = sum(len(scope) for resource in expected for scope in resource)
    assert places(body, records) == found
    assert records == 0 or places(body, records - 1) is None


@given(requests(), st.data())
def test_without(request: tuple[bytes, list[list[list[bytes]]]], data: st.DataObject) -> None:
    """What is left is what was there, in its order; the parser is the referee."""
    body, _ = request
    numbers = st.frozensets(st.integers(0, 8), max_size=4)
    over = Over(data.draw(numbers), data.draw(numbers), data.draw(numbers))
    expected = ExportTraceServiceRequest.FromString(body)
    scopes = records = 0
    for group in expected.resource_spans:
        for scope in group.scope_spans:
            kept = [s for n, s in enumerate(scope.spans, records) if n not in over.records]
            records += len(scope.spans)
            del scope.spans[:]
            scope.spans.extend(kept)
        kept_scopes = [s for n, s in enumerate(group.scope_spans, scopes) if n not in over.scopes]
        scopes += len(group.scope_spans)
        del group.scope_spans[:]
        group.scope_spans.extend(kept_scopes)
    kept_groups = [g for n, g in enumerate(expected.resource_spans) if n not in over.resources]
    del expected.resource_spans[:]
    expected.resource_spans.extend(kept_groups)
    assert ExportTraceServiceRequest.FromString(without(body, over)) == expected


@pytest.mark.parametrize(
    "body",
    [b"\x0a", b"\x0a\x05", b"\x0a\x02\x12", b"\x0a\x04\x12\x02\x12\x05", b"\x0b", b"\x0c", b"\x0e",
     b"\xff" * 20, b"\x09abc"],
)  # fmt: skip
def test_what_ends_too_early_is_broken(body: bytes) -> None:
    with pytest.raises(BrokenError):
        places(body)


@given(st.binary(max_size=40))
def test_any_bytes_are_fields_or_broken(body: bytes) -> None:
    try:
        found = list(fields(body, 0, len(body)))
    except BrokenError:
        return
    ends = [field.end for field in found]
    assert [field.start for field in found] == [0, *ends[:-1]][: len(found)]
    assert ends[-1:] in ([], [len(body)])
