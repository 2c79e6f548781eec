"""Export: OTLP again, whole, once, and with patience."""

import json
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from toolverdict.collector.errors import ConfigError, LakeError
from toolverdict.collector.lake import Lake, export_targets, regroup
from toolverdict.collector.lake.export import Selection, export
from toolverdict.collector.lake.export_targets import (
    ExportError,
    HttpTarget,
    file_target,
    retry_after_s,
)
from toolverdict.collector.signals import Request, Signal
from toolverdict.collector.testing import make_request, make_span, running_collector

Fill = Any

VALUES = {
    "int": AnyValue(int_value=2**63 - 1),
    "double": AnyValue(double_value=5.0),
    "bytes": AnyValue(bytes_value=b"\x00\xff"),
    "list": AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=5), AnyValue()])),
    "tool.name": AnyValue(string_value="refund"),
}


def rich_span(number: int, **fields: Any) -> Any:
    attributes = [KeyValue(key=key, value=value) for key, value in VALUES.items()]
    return make_span(number, attributes=attributes, **fields)


def by_name(request: ExportTraceServiceRequest) -> list[Any]:
    spans = []
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                span.attributes.sort(key=lambda item: item.key)
                spans.append(span)
    return sorted(spans, key=lambda span: span.span_id)


def collected(lake: Lake, **selection: Any) -> list[tuple[Signal, Request]]:
    found: list[tuple[Signal, Request]] = []
    export(lake, Selection(**selection), lambda signal, request: found.append((signal, request)))
    return found


def test_what_came_in_goes_out_once_with_its_types(fill: Fill) -> None:
    sent = [rich_span(number) for number in range(3)]
    fill.spans(*sent)
    fill.spans(*sent, hours=1)
    fill.logs(LogRecord(time_unix_nano=7, body=AnyValue(int_value=5)))
    (_, spans), (_, logs) = collected(fill.lake)
    assert isinstance(spans, ExportTraceServiceRequest)
    assert by_name(spans) == by_name(make_request(*sent))
    assert isinstance(logs, ExportLogsServiceRequest)
    assert logs.resource_logs[0].scope_logs[0].log_records[0].body.int_value == 5


def test_requests_are_of_bounded_size(fill: Fill) -> None:
    fill.spans(*(make_span(number) for number in range(1000)))
    sizes = [
        len(by_name(request))
        for _, request in collected(fill.lake)
        if isinstance(request, ExportTraceServiceRequest)
    ]
    assert sizes == [512, 488]


def test_a_time_range_and_a_trace_select(fill: Fill) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)

    def at(minutes: int) -> int:
        return int((begin + timedelta(minutes=minutes)).timestamp()) * 10**9

    fill.spans(*(make_span(number, start_time_unix_nano=at(number)) for number in range(10)))
    fill.logs(*(LogRecord(time_unix_nano=at(n), trace_id=(n + 1).to_bytes(16)) for n in range(10)))

    def numbers(**selection: Any) -> list[int]:
        spans = [
            span.span_id[-1] - 1
            for _, request in collected(fill.lake, **selection)
            if isinstance(request, ExportTraceServiceRequest)
            for span in by_name(request)
        ]
        logs = [
            record.trace_id[-1] - 1
            for _, request in collected(fill.lake, **selection)
            if isinstance(request, ExportLogsServiceRequest)
            for resource in request.resource_logs
            for record in resource.scope_logs[0].log_records
        ]
        assert spans == logs
        return spans

    assert numbers(since=begin + timedelta(minutes=2), until=begin + timedelta(minutes=5)) == [
        2,
        3,
        4,
    ]
    assert numbers(trace_id=f"{7:032x}") == [6]
    assert numbers(trace_id=f"{99:032x}") == []
    with pytest.raises(LakeError, match="no trace id"):
        numbers(trace_id="DEADBEEF")


@pytest.mark.parametrize("suffix", ["jsonl", "otlp"])
def test_a_file_holds_the_requests_and_is_whole_or_not_there(
    fill: Fill, tmp_path: Path, suffix: str
) -> None:
    fill.spans(rich_span(1))
    path = tmp_path / f"out.{suffix}"
    with file_target(path) as send:
        export(fill.lake, Selection((Signal.TRACES,)), send)
        assert not path.exists()
    content = path.read_bytes()
    if suffix == "jsonl":
        (line,) = content.splitlines()
        (span,) = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]
        assert span["traceId"] == f"{2:032x}"
        values = {item["key"]: item["value"] for item in span["attributes"]}
        assert values["int"] == {"intValue": str(2**63 - 1)}
        assert values["double"] == {"doubleValue": 5.0}
    else:
        (length,) = struct.unpack_from(">I", content)
        assert length == len(content) - 4
        request = ExportTraceServiceRequest.FromString(content[4:])
        assert by_name(request) == by_name(make_request(rich_span(1)))

    def stop(signal: Signal, request: Request) -> None:
        raise ExportError("stop")

    with pytest.raises(ExportError), file_target(path):
        export(fill.lake, Selection(), stop)
    assert path.read_bytes() == content
    assert sorted(tmp_path.glob("*out*")) == [path]
    with pytest.raises(ConfigError, match="cannot write"), file_target(tmp_path / "no" / "o"):
        pass


def test_another_collector_takes_the_export(fill: Fill, tmp_path: Path) -> None:
    fill.spans(*(rich_span(number) for number in range(600)))
    fill.logs(LogRecord(time_unix_nano=1))
    with running_collector(tmp_path / "other", flush_interval=0.1) as collector:
        target = HttpTarget(collector.http + "/")
        export(fill.lake, Selection(), target.send)
        assert collector.terminate() == 0
    other = Lake.open(tmp_path / "other")
    ours, theirs = fill.lake.read_spans(0), other.read_spans(0)
    received = ours.column_names.index("received_time_unix_nano")
    assert theirs.remove_column(received).equals(ours.remove_column(received))
    assert other.read_logs(0).num_rows == 1
    assert target.rejected.total() == 0


Answers = list[tuple[int, dict[str, str], bytes]]


@contextmanager
def server(answers: Answers) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """An endpoint that gives these answers in turn, and the headers of what it got."""
    seen: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            seen.append({name.lower(): value for name, value in self.headers.items()})
            status, headers, body = answers[min(len(seen), len(answers)) - 1]
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_address[1]}", seen
        listening.shutdown()
        thread.join()


def test_an_overloaded_endpoint_is_tried_again_when_it_says() -> None:
    """B76: seconds, a date, and our own waits where it says nothing."""
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    waits: list[float] = []
    with server(
        [
            (503, {"Retry-After": "2"}, b""),
            (429, {"Retry-After": at}, b""),
            (502, {}, b""),
            (504, {"Retry-After": "soon"}, b""),
            (200, {}, b""),
        ]
    ) as (endpoint, seen):
        HttpTarget(endpoint, waits.append).send(Signal.TRACES, make_request(make_span(1)))
    assert waits == [2, pytest.approx(29, abs=2), 4, 8]
    assert len(seen) == 5


@pytest.mark.parametrize("status", [400, 401, 413, 500, 501])
def test_what_is_refused_for_good_is_not_sent_again(status: int) -> None:
    """B76"""
    with server([(status, {}, b"")]) as (endpoint, seen):
        with pytest.raises(ExportError, match=f"answered {status}"):
            HttpTarget(endpoint).send(Signal.TRACES, make_request())
        assert len(seen) == 1


def test_an_endpoint_that_is_not_there_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_targets, "ATTEMPTS", 3)
    waits: list[float] = []
    with pytest.raises(ExportError, match="try again later"):
        HttpTarget("http://127.0.0.1:9", waits.append).send(Signal.LOGS, make_request())
    assert waits == [1, 2]


def test_an_endpoint_that_never_answered_is_waited_for_aloud_and_shortly() -> None:
    waits: list[float] = []
    lines: list[str] = []
    with pytest.raises(ExportError, match="refused"):
        HttpTarget("http://127.0.0.1:9", waits.append, lines.append).send(
            Signal.LOGS, make_request()
        )
    assert waits == [1, 2, 4]
    assert len(lines) == 3
    assert "127.0.0.1:9/v1/logs did not take the export (" in lines[0]
    assert "attempt 2 of 4 in 1 s" in lines[0]


def test_what_is_rejected_is_counted_and_headers_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc,x-a = 1")
    partial = ExportTraceServiceResponse(
        partial_success=ExportTracePartialSuccess(rejected_spans=3, error_message="no")
    )
    with server([(200, {}, partial.SerializeToString()), (200, {}, b"\xff")]) as (endpoint, seen):
        target = HttpTarget(endpoint)
        for _ in range(2):
            target.send(Signal.TRACES, make_request(make_span(1)))
    assert target.rejected[Signal.TRACES] == 3
    assert seen[0]["authorization"] == "Bearer abc"
    assert seen[0]["x-a"] == "1"


@pytest.mark.parametrize("endpoint", ["", "localhost:4318", "ftp://host", "http://"])
def test_what_is_no_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match="is no endpoint"):
        HttpTarget(endpoint)


def test_retry_after_is_read_with_suspicion() -> None:
    assert retry_after_s(None) is None
    assert retry_after_s("-1") is None
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 -0000") == 0


def test_export_reads_what_does_not_fit_in_ranges(
    fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regroup, "CHUNK_BYTES", 1000)
    fill.spans(*(make_span(number) for number in range(50)))
    fill.spans(*(make_span(number) for number in range(50)), hours=5)
    names = [
        span.span_id
        for _, request in collected(fill.lake)
        if isinstance(request, ExportTraceServiceRequest)
        for span in by_name(request)
    ]
    assert sorted(names) == [(number + 1).to_bytes(8) for number in range(50)]
