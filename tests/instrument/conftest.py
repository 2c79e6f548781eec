"""Every test starts with nothing configured; and collectors for the tests that export."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.util._once import Once

from toolverdict.instrument import export, guard, settings


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("TOOLVERDICT_HASH_KEY", "OTEL_TRACES_EXPORTER", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(settings, "_current", settings._Current())
    monkeypatch.setattr(guard, "_state", guard._State())
    monkeypatch.setattr(export, "_process", process := export._Process())
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)
    monkeypatch.setattr(trace, "_TRACER_PROVIDER_SET_ONCE", Once())
    yield
    if process.outlet is not None:
        process.outlet.shutdown()


@dataclass
class Collected:
    """What a collector was sent."""

    endpoint: str
    status: int = 200
    answer: ExportTraceServiceResponse = field(default_factory=ExportTraceServiceResponse)
    bodies: list[bytes] = field(default_factory=list)

    @property
    def requests(self) -> list[ExportTraceServiceRequest]:
        return [ExportTraceServiceRequest.FromString(body) for body in self.bodies]

    @property
    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def calls(self) -> list[Span]:
        return [span for span in self.spans if span.name.startswith("tool.call ")]

    @property
    def services(self) -> set[str]:
        return {
            attribute.value.string_value
            for request in self.requests
            for resource in request.resource_spans
            for attribute in resource.resource.attributes
            if attribute.key == "service.name"
        }


@contextmanager
def http_collector(status: int = 200) -> Iterator[Collected]:
    collected = Collected("", status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found = self.path == "/v1/traces"
            if found:
                collected.bodies.append(body)
            answer = collected.answer.SerializeToString()
            self.send_response(collected.status if found else 404)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        collected.endpoint = f"http://127.0.0.1:{server.server_port}"
        try:
            yield collected
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def grpc_collector() -> Iterator[Collected]:
    collected = Collected("")

    def export(request: bytes, context: grpc.ServicerContext) -> bytes:
        collected.bodies.append(request)
        return collected.answer.SerializeToString()

    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    handler = grpc.method_handlers_generic_handler(
        service, {"Export": grpc.unary_unary_rpc_method_handler(export)}
    )
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((handler,))
        collected.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield collected
        finally:
            server.stop(None).wait()


@contextmanager
def silent_collector() -> Iterator[str]:
    """Accepts connections into its backlog and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def closed_port() -> str:
    """An endpoint where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.fixture
def collectors() -> SimpleNamespace:
    """The makers of collectors."""
    return SimpleNamespace(
        http=http_collector, grpc=grpc_collector, silent=silent_collector, closed_port=closed_port
    )
