"""What of a request is over a limit is refused, told, and never reaches the log."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span
from tests.collector.conftest import Serve

from toolverdict.collector import intake, otlp_wire
from toolverdict.collector.content import MediaType
from toolverdict.collector.decoders import decoder
from toolverdict.collector.intake import prepare
from toolverdict.collector.limits import LIMIT_REASONS, Limits, Over, limit_faults
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_request, make_span, post

pytestmark = pytest.mark.usefixtures("each_decoder")

ROW, ITEM = 512, 100


def _pairs(count: int) -> list[KeyValue]:
    return [KeyValue(key=f"k{n}", value=AnyValue(int_value=n)) for n in range(count)]


def _reasons(signal: Signal, body: bytes, limits: Limits) -> dict[str, int]:
    rejected = decoder().judge(signal, body, limits).rejected
    return {reason.partition(" ")[0]: count for reason, count in rejected.items()}


SPANS: dict[str, tuple[Limits, Callable[[int], Span], str]] = {
    "attributes of a span": (
        Limits(attributes=7), lambda n: make_span(1, attributes=_pairs(n)), "attributes"
    ),
    "attributes of an event": (
        Limits(attributes=7),
        lambda n: make_span(1, events=[Span.Event(), Span.Event(attributes=_pairs(n))]),
        "attributes",
    ),
    "attributes of a link": (
        Limits(attributes=7),
        lambda n: make_span(1, links=[Span.Link(attributes=_pairs(n)), Span.Link()]),
        "attributes",
    ),
    "events": (Limits(events=7), lambda n: make_span(1, events=[Span.Event()] * n), "events"),
    "links": (Limits(links=7), lambda n: make_span(1, links=[Span.Link()] * n), "links"),
    "values": (
        Limits(record_messages=10),
        lambda n: make_span(
            1,
            attributes=[
                KeyValue(value=AnyValue(array_value=ArrayValue(values=[AnyValue()] * n)))
            ],
        ),
        "values",
    ),
    "a name": (Limits(value_bytes=16 + 7), lambda n: make_span(1, name="n" * (16 + n)), "value"),
    "bytes": (
        Limits(value_bytes=16 + 7),
        lambda n: make_span(
            1, attributes=[KeyValue(value=AnyValue(bytes_value=b"n" * (16 + n)))]
        ),
        "value",
    ),
    "a value in an event": (
        Limits(value_bytes=16 + 7),
        lambda n: make_span(
            1,
            events=[
                Span.Event(attributes=[KeyValue(value=AnyValue(string_value="x" * (16 + n)))])
            ],
        ),
        "value",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("limits", "make", "reason"), SPANS.values(), ids=SPANS.keys())
def test_a_span_over_a_limit_is_refused_by_itself(
    limits: Limits, make: Callable[[int], Span], reason: str
) -> None:
    """Exactly at the limit it is taken, one above it is not; its neighbours always are."""
    for number, refused in ((7, {}), (8, {reason: 1})):
        body = make_request(make_span(2), make(number), make_span(3)).SerializeToString()
        assert _reasons(Signal.TRACES, body, limits) == refused
        judgement = decoder().judge(Signal.TRACES, body, limits)
        assert judgement.accepted == 3 - len(refused)
        assert judgement.over.records == ({1} if refused else set())


def test_log_records_have_limits_too() -> None:
    logs = [
        LogRecord(attributes=_pairs(8)),
        LogRecord(body=AnyValue(string_value="x" * 300)),
        LogRecord(),
    ]
    request = ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(scope_logs=[ScopeLogs(log_records=logs)])]
    )
    body = request.SerializeToString()
    limits = Limits(attributes=7, value_bytes=299)
    assert _reasons(Signal.LOGS, body, limits) == {"attributes": 1, "value": 1}


@pytest.mark.parametrize("char", ["x", "\x01"])
def test_a_span_may_not_weigh_too_much(char: str) -> None:
    """Control characters take six characters each as JSON."""
    span = make_span(1, name=char * 1000, events=[Span.Event()] * 3)
    wire = span.SerializeToString()
    weight = ROW + 3 * ITEM + 2 * len(wire) + 6 * sum(byte < 0x20 for byte in wire)
    body = make_request(span).SerializeToString()
    assert _reasons(Signal.TRACES, body, Limits(record_bytes=weight)) == {}
    assert _reasons(Signal.TRACES, body, Limits(record_bytes=weight - 1)) == {"record": 1}


def _group(first: int, resource: Resource, scope: InstrumentationScope) -> ResourceSpans:
    sound = [make_span(first), make_span(first + 1), Span()]
    return ResourceSpans(
        resource=resource,
        scope_spans=[
            ScopeSpans(scope=scope, spans=sound),
            ScopeSpans(spans=[make_span(first + 3)]),
        ],
    )


def test_records_go_with_their_resource_or_scope() -> None:
    """And no others: a gateway sends those of many applications in one request."""
    none, many = Resource(), Resource(attributes=_pairs(8))
    scope, large = InstrumentationScope(), InstrumentationScope(attributes=_pairs(8))
    request = ExportTraceServiceRequest(
        resource_spans=[
            _group(1, none, scope),
            _group(5, many, scope),
            _group(9, none, large),
            ResourceSpans(resource=many),
        ]
    )
    body = request.SerializeToString()
    judgement = decoder().judge(Signal.TRACES, body, Limits(attributes=7))
    assert _reasons(Signal.TRACES, body, Limits(attributes=7)) == {
        "trace_id": 3,
        "resource": 3,
        "scope": 2,
    }
    assert judgement.accepted == 3 + 1
    assert list(map(set, judgement.over)) == [set(), {4}, {1, 3}]


def test_a_resource_may_not_weigh_too_much() -> None:
    text = AnyValue(string_value="x" * 1000)
    resource = Resource(attributes=[KeyValue(key="k", value=text)])
    body = ExportTraceServiceRequest(
        resource_spans=[_group(1, resource, InstrumentationScope())]
    ).SerializeToString()
    wire = resource.SerializeToString()
    weight = 256 + 2 * len(wire) + 6 * sum(byte < 0x20 for byte in wire)
    assert "resource" not in _reasons(Signal.TRACES, body, Limits(context_bytes=weight))
    assert _reasons(Signal.TRACES, body, Limits(context_bytes=weight - 1))["resource"] == 3


def test_what_was_refused_is_not_in_the_log() -> None:
    """Otherwise its two bytes an event would become Parquet all the same."""
    over = make_span(2, events=[Span.Event()] * 8)
    scope = InstrumentationScope(name="s", attributes=_pairs(3))
    kept = [make_span(1), make_span(3)]
    many = ResourceSpans(
        resource=Resource(attributes=_pairs(8)), scope_spans=[ScopeSpans(spans=[make_span(4)])]
    )
    settings = CollectorSettings(data_dir=Path("x"), max_events=7, max_attributes=7)

    def request(spans: list[Span], *more: ResourceSpans) -> ExportTraceServiceRequest:
        group = ResourceSpans(
            resource=Resource(attributes=_pairs(2)),
            scope_spans=[ScopeSpans(scope=scope, spans=spans, schema_url="u")],
            schema_url="v",
        )
        return ExportTraceServiceRequest(resource_spans=[group, *more])

    body = request([kept[0], over, kept[1]], many).SerializeToString()
    prepared = prepare(Signal.TRACES, MediaType.PROTOBUF, body, settings)
    assert (prepared.accepted, prepared.rejected.total()) == (2, 2)
    assert ExportTraceServiceRequest.FromString(prepared.body) == request(kept)


async def test_a_large_request_is_stripped_beside_the_event_loop(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte of small spans takes half a second to copy span by span; others are served."""
    threads: list[threading.Thread] = []

    def noting(body: bytes, over: Over) -> bytes:
        threads.append(threading.current_thread())
        return otlp_wire.without(body, over)

    monkeypatch.setattr(intake, "without", noting)
    over = make_span(1, events=[Span.Event()] * 8)
    small = make_request(over, make_span(2)).SerializeToString()
    large = make_request(over, *map(make_span, range(2, 3000))).SerializeToString()
    assert intake.INLINE_BYTES < len(large) < intake.NATIVE_INLINE_BYTES
    async with serve(max_events=7) as collector:
        for body in (small, large):
            answer = await asyncio.to_thread(post, f"{collector.http}/v1/traces", body)
            told = ExportTraceServiceResponse.FromString(answer.body)
            assert told.partial_success.rejected_spans == 1
    here = threading.current_thread()
    assert [thread is here for thread in threads] == [True, False]


def test_the_first_word_of_a_reason_is_its_label() -> None:
    words = [text.partition(" ")[0] for text in limit_faults(Limits())]
    assert tuple(words) == LIMIT_REASONS
