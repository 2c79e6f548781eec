"""A real collector process for tests and demonstrations, and what it takes to talk to it."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from toolverdict.collector.otlp_json_encode import otlp_json_of as otlp_json_of

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60


class CollectorProcess(NamedTuple):
    """A collector that listens on ports of its own."""

    grpc: str
    """host:port for OTLP/gRPC, without TLS."""
    http: str
    """http://host:port for OTLP/HTTP."""
    data_dir: Path
    process: subprocess.Popen[str]
    log_file: Path
    """What the process writes to stderr."""

    def terminate(self) -> int:
        """Send SIGTERM and wait until everything is Parquet; returns the exit code."""
        self.process.terminate()
        return self.process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """Send SIGKILL to it and its workers: what a crash of all of them looks like."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(STOP_TIMEOUT_S)


@contextmanager
def running_collector(data_dir: Path, **flags: str | float) -> Iterator[CollectorProcess]:
    """Start ``collect`` as a process of its own on free ports, and stop it at the end.

    Args:
        data_dir: the folder of the lake. The log of the process is written beside it, as
            ``<data_dir>.stderr.txt``.
        flags: options of the command, ``flush_interval=0.2`` for ``--flush-interval 0.2``.

    Raises:
        RuntimeError: when the collector does not start; the message holds what it said.
    """
    log_file = data_dir.with_name(data_dir.name + ".stderr.txt")
    with log_file.open("a", encoding="utf-8") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "toolverdict.collector", *_arguments(data_dir, flags)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            process_group=0,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            process.wait(START_TIMEOUT_S)
            raise RuntimeError(f"the collector did not start: {log_file.read_text().strip()}")
        event = json.loads(line)
        yield CollectorProcess(event["grpc"], event["http"], data_dir, process, log_file)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        process.stdout.close()


class Answer(NamedTuple):
    """What an HTTP server answered."""

    status: int
    headers: dict[str, str]
    """Header names in lower case."""
    body: bytes


def post(
    url: str,
    body: bytes,
    content_type: str = "application/x-protobuf",
    content_encoding: str | None = None,
) -> Answer:
    """POST a body as OTLP/HTTP clients do; an error status is an answer, too.

    Raises:
        OSError: when the server cannot be reached or the connection breaks.
    """
    headers = {"Content-Type": content_type}
    if content_encoding is not None:
        headers["Content-Encoding"] = content_encoding
    request = urllib.request.Request(url, data=body, headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=STOP_TIMEOUT_S) as response:
            return _answer(response.status, response.headers.items(), response.read())
    except urllib.error.HTTPError as error:
        with error:
            return _answer(error.code, error.headers.items(), error.read())


def make_span(number: int, **fields: Any) -> Span:
    """A valid span whose ids are made from a number; other fields as given."""
    defaults: dict[str, Any] = {
        "trace_id": (number + 1).to_bytes(16),
        "span_id": (number + 1).to_bytes(8),
        "name": "execute_tool refund",
        "kind": Span.SPAN_KIND_INTERNAL,
        "start_time_unix_nano": 1_700_000_000_000_000_000 + number,
        "end_time_unix_nano": 1_700_000_001_000_000_000 + number,
    }
    return Span(**{**defaults, **fields})


def make_request(*spans: Span) -> ExportTraceServiceRequest:
    """An export request with these spans under one resource and scope."""
    scope_spans = ScopeSpans(scope=InstrumentationScope(name="test"), spans=spans)
    return ExportTraceServiceRequest(resource_spans=[ResourceSpans(scope_spans=[scope_spans])])


def _answer(status: int, headers: Iterable[tuple[str, str]], body: bytes) -> Answer:
    return Answer(status, {name.lower(): value for name, value in headers}, body)


def _arguments(data_dir: Path, flags: dict[str, str | float]) -> list[str]:
    options: dict[str, str | float] = {"grpc_port": 0, "http_port": 0, **flags}
    arguments = ["--data", str(data_dir), "--json"]
    for name, value in options.items():
        arguments += [f"--{name.replace('_', '-')}", str(value)]
    return arguments
