"""Where spans go when the application has set up nothing itself: OTLP, in batches, in the background.

Importing this module imports the OpenTelemetry SDK; ``configure`` does. One ``Outlet`` per process
is attached to every provider that we feed, and configuring again replaces what is behind it, so
that no span is exported twice. A collector that is down or does not answer never slows a tool, and
holds up the end of the process for a bounded time.
"""

import atexit
import os
import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Final, Literal, cast, get_args
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from toolverdict.instrument import guard, partial_success
from toolverdict.instrument.errors import ConfigurationError
from toolverdict.instrument.span_ids import SystemIdGenerator

Protocol = Literal["grpc", "http/protobuf"]

EXIT_TIMEOUT_S: Final = 5.0
"""How long the end of the process may wait for spans to be delivered."""

_PROTOCOL_ENV: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_ENDPOINT_ENV: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


class Outlet(SpanProcessor):
    """Passes ended spans on to the exporter of the moment, if there is one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._route: _Route | None = None
        self._providers: weakref.WeakSet[TracerProvider] = weakref.WeakSet()

    def attach_to(self, provider: TracerProvider) -> None:
        """Take the spans of a provider, once."""
        with self._lock:
            if provider not in self._providers:
                self._providers.add(provider)
                provider.add_span_processor(self)

    def use(self, exporter: SpanExporter | None) -> None:
        """Send spans through this exporter from now on; what waits for the old one is sent."""
        with self._lock:
            old, self._route = self._route, None if exporter is None else _Route(exporter)
        if old is not None:
            old.close(EXIT_TIMEOUT_S)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do yet."""

    def on_end(self, span: ReadableSpan) -> None:
        """Queue the span; this never waits."""
        route = self._route
        if route is not None:
            route.take(span)

    def flush(self, timeout_s: float) -> bool:
        """Deliver what waits; whether all of it was accepted in time."""
        route = self._route
        return True if route is None else route.flush(timeout_s)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """The SDK's name for ``flush``."""
        return self.flush(timeout_millis / 1000)

    def shutdown(self) -> None:
        """Deliver what waits and close the exporter, within a bounded time."""
        self.use(None)


class _Route:
    """One exporter with its queue, and a helper thread that can be waited for only so long.

    The SDK's own flush and shutdown wait as long as the exporter likes. The thread is started here
    and not when the process ends, because Python 3.12 starts none then.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = _Counting(exporter)
        self._batches = BatchSpanProcessor(self._exporter)
        self._taken = 0
        self._count_lock = threading.Lock()
        self._start_helper()

    def take(self, span: ReadableSpan) -> None:
        if self._pid != os.getpid():
            self._after_fork()
        if span.context is not None and span.context.trace_flags.sampled:
            with self._count_lock:
                self._taken += 1
            self._batches.on_end(span)

    def flush(self, timeout_s: float) -> bool:
        lost = self._exporter.lost
        return self._within(timeout_s, self._batches.force_flush) and self._exporter.lost == lost

    def close(self, timeout_s: float) -> None:
        if not self._within(timeout_s, self._batches.shutdown):
            # Breaks off a retry that is being waited for; its thread ends with the process.
            self._exporter.shutdown()
        self._jobs.put(None)
        undelivered = self._taken - self._exporter.delivered
        if undelivered > 0:
            guard.note("export", "%d spans were not delivered to the collector", undelivered)

    def _within(self, timeout_s: float, job: Callable[[], object]) -> bool:
        if self._pid != os.getpid():
            self._after_fork()
        done = threading.Event()
        self._jobs.put((job, done))
        return done.wait(timeout_s)

    def _start_helper(self) -> None:
        self._pid = os.getpid()
        self._jobs: queue.SimpleQueue[tuple[Callable[[], object], threading.Event] | None] = (
            queue.SimpleQueue()
        )
        threading.Thread(
            target=_work, args=(self._jobs,), name="toolverdict-export", daemon=True
        ).start()

    def _after_fork(self) -> None:
        # The parent delivers what it had queued; the SDK's queue starts empty here as well.
        self._taken = 0
        self._count_lock = threading.Lock()
        self._exporter.forget()
        self._start_helper()


class _Counting(SpanExporter):
    """Counts what the collector took and what it did not; the SDK tells nobody."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._closed = False
        self.forget()

    def forget(self) -> None:
        self.delivered = 0
        self.lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            if result is SpanExportResult.SUCCESS:
                self.delivered += len(spans)
            else:
                self.lost += len(spans)
        return result

    def shutdown(self) -> None:
        if not self._closed:
            self._closed = True
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._exporter.force_flush(timeout_millis)


def _work(
    jobs: "queue.SimpleQueue[tuple[Callable[[], object], threading.Event] | None]",
) -> None:
    while (job := jobs.get()) is not None:
        run, done = job
        try:
            run()
        except Exception as error:  # noqa: BLE001 - an exporter that fails must not stop the helper
            guard.note("export", "the exporter failed (%s)", type(error).__name__)
        finally:
            done.set()


class _Process:
    """What this process has set up: one outlet, and the providers that are ours."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.outlet: Outlet | None = None
        self.providers: weakref.WeakSet[TracerProvider] = weakref.WeakSet()
        self.last: TracerProvider | None = None


_process = _Process()


def set_up(
    service_name: str | None, endpoint: str | None, protocol: Protocol | None
) -> tuple[trace.TracerProvider, Outlet]:
    """The provider that makes our spans from now on, and the outlet that they go to.

    An application that has a provider of its own keeps it, and nothing is added to it unless an
    endpoint is given. Otherwise a provider is made and set as the global one.

    Raises:
        ConfigurationError: The protocol or the endpoint is none that we know.
    """
    if protocol is not None and protocol not in get_args(Protocol):
        known = ", ".join(get_args(Protocol))
        raise ConfigurationError(f"protocol is {protocol!r}; use one of {known}")
    with _process.lock:
        outlet = _outlet()
        provider = trace.get_tracer_provider()
        nobodys = isinstance(provider, trace.ProxyTracerProvider)
        ours = nobodys or provider in _process.providers
        exporter = _exporter(endpoint, protocol) if ours or endpoint is not None else None
        if ours:
            provider = _own_provider(service_name)
            outlet.attach_to(provider)
        elif endpoint is not None and isinstance(provider, TracerProvider):
            outlet.attach_to(provider)
            if service_name not in (None, provider.resource.attributes[SERVICE_NAME]):
                guard.note(
                    "service name",
                    "service_name has no effect: the application's own TracerProvider names it",
                )
        elif endpoint is not None:
            # A provider of another make takes no processor of ours, so our spans get their own.
            provider = own = _own_provider(service_name)
            outlet.attach_to(own)
        if nobodys:
            trace.set_tracer_provider(provider)
    outlet.use(exporter)
    return provider, outlet


def _outlet() -> Outlet:
    if _process.outlet is None:
        _process.outlet = Outlet()
        atexit.register(_process.outlet.shutdown)
    return _process.outlet


def _own_provider(service_name: str | None) -> TracerProvider:
    """A provider of ours with this service name; the last one when it has it already."""
    attributes = {} if service_name is None else {SERVICE_NAME: service_name}
    # The argument wins over OTEL_SERVICE_NAME, which Resource.create lets win over attributes.
    resource = Resource.create().merge(Resource(attributes))
    last = _process.last
    if (
        last is not None
        and last.resource.attributes[SERVICE_NAME] == resource.attributes[SERVICE_NAME]
    ):
        return last
    # The outlet ends with the process by itself, in bounded time.
    provider = TracerProvider(
        resource=resource, id_generator=SystemIdGenerator(), shutdown_on_exit=False
    )
    _process.providers.add(provider)
    _process.last = provider
    return provider


def _exporter(endpoint: str | None, protocol: Protocol | None) -> SpanExporter | None:
    if endpoint is None and _wants_no_exporter():
        return None
    chosen = (
        protocol
        or _protocol_from_environment()
        or _protocol_of(endpoint or _first_set(_ENDPOINT_ENV))
    )
    if chosen == "grpc":
        return _grpc_exporter(endpoint)
    return _http_exporter(endpoint)


def _grpc_exporter(endpoint: str | None) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    if endpoint is None:
        exporter = OTLPSpanExporter()
    else:
        url = urlsplit(endpoint)
        if url.scheme in ("http", "https") and not url.netloc:
            raise ConfigurationError(f"endpoint {endpoint!r} names no host; use http://host:4317")
        # A bare host:port says nothing about TLS; like the scheme http, it is taken without.
        exporter = OTLPSpanExporter(endpoint=endpoint, insecure=None if url.netloc else True)
    partial_success.watch_stub(exporter)
    return exporter


def _http_exporter(endpoint: str | None) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    if endpoint is not None:
        url = urlsplit(endpoint)
        if url.scheme not in ("http", "https") or not url.netloc:
            raise ConfigurationError(f"endpoint {endpoint!r} is no URL; use http://host:4318")
        if url.path in ("", "/"):
            endpoint = endpoint.rstrip("/") + "/v1/traces"
    return OTLPSpanExporter(endpoint=endpoint, session=partial_success.watching_session())


def _wants_no_exporter() -> bool:
    wanted = os.environ.get("OTEL_TRACES_EXPORTER", "otlp").strip().lower()
    if wanted not in ("", "otlp", "none"):
        # The specification asks to warn and go on with the default.
        guard.note("export", "OTEL_TRACES_EXPORTER=%s is not supported here; using otlp", wanted)
    return wanted == "none"


def _protocol_from_environment() -> Protocol | None:
    wanted = (_first_set(_PROTOCOL_ENV) or "").strip().lower()
    if wanted in get_args(Protocol):
        return cast("Protocol", wanted)
    if wanted:
        guard.note("export", "the OTLP protocol %s is not supported here", wanted)
    return None


def _protocol_of(endpoint: str | None) -> Protocol:
    """What is spoken at an endpoint when nobody says: HTTP on its port or path, else gRPC."""
    if endpoint is None:
        return "grpc"
    url = urlsplit(endpoint)
    http = url.netloc.endswith(":4318") or url.path.endswith("/v1/traces")
    return "http/protobuf" if http else "grpc"


def _first_set(names: Sequence[str]) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)
