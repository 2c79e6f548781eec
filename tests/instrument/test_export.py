"""Through the real batch processor and exporters, to real sockets."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from toolverdict.instrument import (
    Refused,
    configure,
    export,
    guard,
    partial_success,
    tool,
    trajectory,
)

KEY = "00112233445566778899aabbccddeeff"


@tool(labels=["payment"])
def refund(order: str, amount: int) -> dict[str, str]:
    if order == "refused":
        raise Refused("secret")
    return {"id": order}


def test_spans_arrive_by_http(collectors: Any) -> None:
    with collectors.http() as collected:
        telemetry = configure(
            service_name="bot", endpoint=collected.endpoint, protocol="http/protobuf", hash_key=KEY
        )
        with trajectory("bot", case_id="case-1"):
            refund("o-1", 10597685537261926722)
            with pytest.raises(Refused):
                refund("refused", 1)
        assert telemetry.flush(5.0)
        telemetry.shutdown()
    assert collected.services == {"bot"}
    _, first, _, second, whole = collected.spans
    attributes = {item.key: item.value for item in first.attributes}
    assert first.name == "tool.call refund"
    assert attributes["tool.outcome"].string_value == "ok"
    assert attributes["tool.executed"].bool_value is True
    assert [v.string_value for v in attributes["tool.labels"].array_value.values] == ["payment"]
    assert first.parent_span_id == whole.span_id
    assert second.status.code == Status.STATUS_CODE_ERROR
    assert second.status.message == "refused"
    assert all(b"secret" not in body for body in collected.bodies)


def test_spans_arrive_by_grpc(collectors: Any) -> None:
    with collectors.grpc() as collected:
        telemetry = configure(service_name="bot", endpoint=collected.endpoint, hash_key=KEY)
        refund("o-1", 1)
        assert telemetry.flush(5.0)
        telemetry.shutdown()
    assert [span.name for span in collected.calls] == ["tool.call refund"]
    assert collected.services == {"bot"}


def test_the_environment_says_where(collectors: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with collectors.http() as collected:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collected.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "env-bot")
        telemetry = configure(hash_key=KEY)
        refund("o-1", 1)
        assert telemetry.flush(5.0)
        telemetry.shutdown()
    assert collected.services == {"env-bot"}


def test_configuring_twice_exports_once(collectors: Any) -> None:
    with collectors.http() as first, collectors.http() as second:
        for collected in (first, first, second):
            telemetry = configure(
                endpoint=collected.endpoint, protocol="http/protobuf", hash_key=KEY
            )
            refund("o-1", 1)
        assert telemetry.flush(5.0)
        telemetry.shutdown()
    assert (len(first.calls), len(second.calls)) == (2, 1)


def test_an_endpoint_is_added_to_an_applications_provider_and_taken_away(
    collectors: Any,
) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    trace.set_tracer_provider(provider)
    with collectors.http() as collected:
        for _ in range(2):
            telemetry = configure(
                endpoint=collected.endpoint, protocol="http/protobuf", hash_key=KEY
            )
        refund("o-1", 1)
        assert telemetry.flush(5.0)
        configure(hash_key=KEY)
        refund("o-2", 1)
        assert telemetry.flush(5.0)
    assert len(collected.calls) == 1
    provider.shutdown()


def test_a_hundred_spans_with_every_bad_value_all_arrive(collectors: Any) -> None:
    """B22, B23: no argument, id or name fails the export of the spans around it."""

    @tool
    def get(thing: Any) -> Any:
        return thing

    bad = ["\ud800", float("nan"), 2**63, 2**70, {"\ud800": 1}, b"\xff", object(), {1}]
    with collectors.http() as collected:
        telemetry = configure(
            endpoint=collected.endpoint, protocol="http/protobuf", hash_key=KEY, capture="full"
        )
        for index in range(100 - len(bad)):
            get(index)
        with trajectory("a\ud800", conversation_id="c\ud800"):
            for value in bad:
                get(value)
        assert telemetry.flush(5.0)
        telemetry.shutdown()
    assert len(collected.calls) == 100
    assert len(collected.spans) == 201


def test_a_flush_says_when_spans_were_refused(
    collectors: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with collectors.http(status=400) as collected:
        telemetry = configure(endpoint=collected.endpoint, protocol="http/protobuf", hash_key=KEY)
        refund("o-1", 1)
        refund("o-2", 1)
        assert telemetry.flush(5.0) is False
        telemetry.shutdown()
    assert "4 spans were not delivered to the collector" in caplog.text


class Stuck(SpanExporter):
    """Never answers until it is let go."""

    def __init__(self) -> None:
        self.called = threading.Event()
        self.let_go = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.called.set()
        self.let_go.wait()
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        self.let_go.set()


def test_an_exporter_that_never_answers_blocks_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """B55: the calls return while the exporter still hangs; a full queue drops and goes on."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1")
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    telemetry = configure(hash_key=KEY)
    stuck = Stuck()
    outlet = export._process.outlet
    assert outlet is not None
    outlet.use(stuck)
    refund("o-1", 1)
    assert stuck.called.wait(5.0)
    for number in range(50):
        refund(f"o-{number}", 1)
    assert not stuck.let_go.is_set()
    assert telemetry.flush(0.01) is False
    stuck.let_go.set()
    telemetry.shutdown()
    assert guard.counts()["export"] == 1


class Failing(SpanExporter):
    """Raises where it should answer."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise RuntimeError("secret")

    def shutdown(self) -> None:
        raise RuntimeError("secret")


def test_an_exporter_that_fails_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    telemetry = configure(hash_key=KEY)
    outlet = export._process.outlet
    assert outlet is not None
    outlet.use(Failing())
    refund("o-1", 1)
    assert telemetry.flush(5.0) is False
    telemetry.shutdown()
    assert guard.counts()["export"] == 2
    assert "the exporter failed (RuntimeError)" in caplog.text


def test_an_applications_own_flush_reaches_ours(collectors: Any) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    trace.set_tracer_provider(provider)
    with collectors.http() as collected:
        configure(endpoint=collected.endpoint, protocol="http/protobuf", hash_key=KEY)
        refund("o-1", 1)
        assert provider.force_flush(5000)
        assert len(collected.calls) == 1
        provider.shutdown()


def test_shutdown_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "EXIT_TIMEOUT_S", 0.05)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    telemetry = configure(hash_key=KEY)
    stuck = Stuck()
    outlet = export._process.outlet
    assert outlet is not None
    outlet.use(stuck)
    refund("o-1", 1)
    telemetry.shutdown()
    assert stuck.let_go.is_set()
    refund("after the end", 1)
    assert telemetry.flush() is True


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_what_a_collector_refused_is_said(
    collectors: Any, protocol: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """B79: a request that was taken may hold spans that were not."""
    with (collectors.grpc if protocol == "grpc" else collectors.http)() as collected:
        collected.answer.partial_success.rejected_spans = 1
        collected.answer.partial_success.error_message = "bad id\nroot: all is well"
        telemetry = configure(endpoint=collected.endpoint, protocol=protocol, hash_key=KEY)
        refund("o-1", 1)
        assert telemetry.flush(5.0)
        telemetry.shutdown()
    assert guard.counts() == {"refused spans": 1}
    assert [record.getMessage() for record in caplog.records] == [
        "the collector refused 1 of our spans: 'bad id\\nroot: all is well'"
    ]


def test_an_answer_that_nobody_can_read_is_no_loss(collectors: Any) -> None:
    with collectors.http() as collected:
        collected.answer = Unreadable()
        telemetry = configure(endpoint=collected.endpoint, protocol="http/protobuf", hash_key=KEY)
        refund("o-1", 1)
        assert telemetry.flush(5.0)
        telemetry.shutdown()
    assert guard.counts() == {"export": 1}
    assert len(collected.calls) == 1


def test_a_credential_provider_keeps_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    assert partial_success.watching_session() is not None
    monkeypatch.setenv("OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER", "mine")
    assert partial_success.watching_session() is None


class Unreadable:
    def SerializeToString(self) -> bytes:
        return b"<html>\xff"


SCRIPT = """
import sys
from toolverdict.instrument import configure, tool
telemetry = configure(endpoint=sys.argv[1], protocol=sys.argv[2], hash_key="00" * 16)
@tool
def get(a: int) -> int: return a
for number in range(3): get(number)
print("done", flush=True)
"""


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
@pytest.mark.parametrize("collector", ["down", "silent"])
def test_a_process_ends_in_time_and_says_what_was_lost(
    collectors: Any, protocol: str, collector: str
) -> None:
    """B52: a script ends though its collector is down or hangs, with one line about the loss."""
    with collectors.silent() as silent:
        endpoint = collectors.closed_port() if collector == "down" else silent
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, endpoint, protocol],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    assert time.monotonic() - begun < export.EXIT_TIMEOUT_S + 15
    assert done.stdout == "done\n"
    assert done.stderr.count("6 spans were not delivered to the collector") == 1
    assert "Traceback" not in done.stderr


def test_a_script_that_just_ends_delivers(collectors: Any) -> None:
    with collectors.http() as collected:
        subprocess.run(
            [sys.executable, "-c", SCRIPT, collected.endpoint, "http/protobuf"], check=True
        )
    assert len(collected.calls) == 3


FORKING = (
    SCRIPT
    + """
import ctypes, multiprocessing, os
def child():
    get(7)
    assert telemetry.flush(10.0)
    telemetry.shutdown()
if sys.argv[3] == "multiprocessing":
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode == 0
else:
    # What forks in C runs none of the hooks that Python has for it.
    fork = os.fork if sys.argv[3] == "os" else ctypes.PyDLL(None).fork
    pid = fork()
    if pid == 0:
        try:
            child()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
get(8)
"""
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("how", ["os", "multiprocessing", "libc"])
def test_a_forked_child_delivers_its_own(collectors: Any, how: str) -> None:
    """B53: and nothing of its parent, which had spans waiting when it forked."""
    with collectors.http() as collected:
        done = subprocess.run(
            [sys.executable, "-c", FORKING, collected.endpoint, "http/protobuf", how],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(collected.calls) == 5
    assert len({span.span_id for span in collected.calls}) == 5
    assert len({span.span_id for span in collected.spans}) == len(collected.spans)


@pytest.mark.parametrize(
    ("endpoint", "protocol"),
    [
        (None, "grpc"),
        ("http://collector:4317", "grpc"),
        ("collector:4317", "grpc"),
        ("http://collector:4318", "http/protobuf"),
        ("https://collector/v1/traces", "http/protobuf"),
    ],
)
def test_the_protocol_is_guessed_from_the_endpoint(endpoint: str | None, protocol: str) -> None:
    assert export._protocol_of(endpoint) == protocol


def test_a_bare_host_and_port_is_grpc_without_tls() -> None:
    exporter = export._exporter("127.0.0.1:4317", None)
    assert exporter is not None
    exporter.shutdown()
    with_path = export._exporter("http://127.0.0.1:4318/", None)
    assert with_path is not None
    assert vars(with_path)["_endpoint"] == "http://127.0.0.1:4318/v1/traces"
    with_path.shutdown()


def test_a_protocol_of_the_environment_that_we_do_not_speak_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
    assert export._protocol_from_environment() is None
    assert "the OTLP protocol http/json is not supported here" in caplog.text
