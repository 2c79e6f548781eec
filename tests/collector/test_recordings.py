"""What real agents sent goes through a real collector process and comes back the same."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from toolverdict.collector.encode import encode_logs, encode_spans
from toolverdict.collector.lake import Lake
from toolverdict.collector.signals import WIRE, Request, Signal
from toolverdict.collector.testing import otlp_json_of, post, running_collector

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
FOLDERS = sorted(path.name for path in RECORDINGS.iterdir())
SIGNALS = {wire.http_path: signal for signal, wire in WIRE.items()}


class Recorded(NamedTuple):
    """One request of a recording."""

    signal: Signal
    body: bytes


def _requests(folder: str) -> Iterator[Recorded]:
    lines = (RECORDINGS / folder / "requests.jsonl").read_text().splitlines()
    for entry in map(json.loads, lines):
        if entry["path"] not in SIGNALS:
            continue  # metrics were listed when this was recorded, but not kept
        body = (RECORDINGS / folder / entry["file"]).read_bytes()
        yield Recorded(SIGNALS[entry["path"]], body)


def _meaning(message: Message) -> Any:
    """A message as a value that ignores what OTLP ignores.

    The order of attributes, and whether a default is set or absent.
    """
    if isinstance(message, AnyValue):
        return message.SerializeToString(deterministic=True)
    fields: list[Any] = []
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.name == "parent_span_id":
            fields.append(value if any(value) else b"")
        elif field.name == "attributes":
            fields.append(frozenset((item.key, _meaning(item.value)) for item in value))
        elif field.message_type is None:
            fields.append(tuple(value) if field.is_repeated else value)
        elif field.is_repeated:
            fields.append(tuple(map(_meaning, value)))
        else:
            fields.append(_meaning(value))
    return (message.DESCRIPTOR.full_name, *fields)


def _records(requests: Iterable[Request]) -> Counter[Any]:
    """Every span or log record with its resource and scope, and how often it is there."""
    records: Counter[Any] = Counter()
    for request in requests:
        if isinstance(request, ExportTraceServiceRequest):
            for resource_spans in request.resource_spans:
                resource = (_meaning(resource_spans.resource), resource_spans.schema_url)
                for scope_spans in resource_spans.scope_spans:
                    scope = (_meaning(scope_spans.scope), scope_spans.schema_url)
                    records.update((resource, scope, _meaning(s)) for s in scope_spans.spans)
        else:
            for resource_logs in request.resource_logs:
                resource = (_meaning(resource_logs.resource), resource_logs.schema_url)
                for scope_logs in resource_logs.scope_logs:
                    scope = (_meaning(scope_logs.scope), scope_logs.schema_url)
                    records.update((resource, scope, _meaning(r)) for r in scope_logs.log_records)
    return records


def _sent(folders: Iterable[str]) -> Counter[Any]:
    return _records(
        WIRE[recorded.signal].request.FromString(recorded.body)
        for folder in folders
        for recorded in _requests(folder)
    )


class Stored(NamedTuple):
    """What a collector made of all recordings."""

    records: Counter[Any]
    rows: dict[Signal, list[dict[str, Any]]]


def _collect(data_dir: Path, transport: str) -> Stored:
    with running_collector(data_dir, flush_interval=0.2) as collector:
        for folder in FOLDERS:
            for recorded in _requests(folder):
                _send(collector.http, collector.grpc, transport, recorded)
        assert collector.terminate() == 0
    lake = Lake.open(data_dir)
    rows = {
        Signal.TRACES: lake.read_spans(0).to_pylist(),
        Signal.LOGS: lake.read_logs(0).to_pylist(),
    }
    sent_out: list[Request] = [encode_spans(rows[Signal.TRACES]), encode_logs(rows[Signal.LOGS])]
    return Stored(_records(sent_out), rows)


def _send(http: str, grpc_address: str, transport: str, recorded: Recorded) -> None:
    wire = WIRE[recorded.signal]
    if transport == "grpc":
        with grpc.insecure_channel(grpc_address) as channel:
            method = f"/{wire.grpc_service}/Export"
            assert channel.unary_unary(method, None, None)(recorded.body) == b""
        return
    if transport == "http":
        answer = post(f"{http}{wire.http_path}", recorded.body)
    else:
        body = otlp_json_of(
            wire.request.FromString(recorded.body), integers_as_strings=transport == "json-strings"
        )
        answer = post(f"{http}{wire.http_path}", body, "application/json")
    assert (answer.status, answer.body) == (200, b"" if transport == "http" else b"{}")


@pytest.fixture(scope="module")
def over_http(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    return _collect(tmp_path_factory.mktemp("http") / "lake", "http")


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_recording_comes_back_the_same(over_http: Stored, folder: str) -> None:
    """Spans, events, links, log records, resources and scopes, through Parquet and back."""
    sent = _sent([folder])
    assert sent
    assert sent - over_http.records == Counter()


def test_nothing_else_is_stored(over_http: Stored) -> None:
    assert over_http.records == _sent(FOLDERS)


@pytest.mark.parametrize("transport", ["grpc", "json-strings", "json-numbers"])
def test_the_same_rows_whatever_the_transport(
    over_http: Stored, tmp_path: Path, transport: str
) -> None:
    """B98: OTLP/gRPC and both spellings of OTLP/JSON store the very same cells."""
    stored = _collect(tmp_path / "lake", transport)
    for signal in Signal:
        assert _cells(stored.rows[signal]) == _cells(over_http.rows[signal])


def _cells(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "received_time_unix_nano"} for row in rows]


def test_json_as_a_client_wrote_it(tmp_path: Path) -> None:
    """The JSON requests among the recordings, byte for byte as they were sent."""
    files = sorted(RECORDINGS.glob("*/request-*.json"))
    assert files
    with running_collector(tmp_path / "lake") as collector:
        for file in files:
            url = f"{collector.http}/v1/traces"
            assert post(url, file.read_bytes(), "application/json").body == b"{}"
        collector.terminate()
    spans = Lake.open(tmp_path / "lake").read_spans(0)
    assert spans.num_rows > 0


def test_the_recordings_hold_both_signals() -> None:
    kinds = {type(WIRE[r.signal].request()) for f in FOLDERS for r in _requests(f)}
    assert kinds == {ExportTraceServiceRequest, ExportLogsServiceRequest}
