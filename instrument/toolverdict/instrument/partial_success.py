"""Spans that a collector refused out of a request that it took.

It says so in ``partial_success`` of its answer (OTLP specification 1.x, "Partial Success"), which
the SDK's exporters never look at: the spans would be gone without a sign.
"""

import os
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from toolverdict.instrument import guard

if TYPE_CHECKING:
    import requests

_MAX_ANSWER_BYTES: Final = 64 * 1024
_MAX_SHOWN: Final = 200
_CREDENTIALS_ENV: Final = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
)


def watching_session() -> "requests.Session | None":
    """A session for the HTTP exporter that looks at its answers.

    None where the exporter is to make its own: it gets credentials from somebody, or has no need
    of ``requests``.
    """
    if any(os.environ.get(name) for name in _CREDENTIALS_ENV):
        return None
    try:
        import requests
    except ImportError:
        return None
    session = requests.Session()
    session.hooks["response"].append(_look_at_response)
    return session


def watch_stub(exporter: Any) -> None:
    """Look at the answers that a gRPC exporter gets.

    It makes its stub anew when the connection is lost, and offers no other place to look from than
    where it does; an SDK that has another one for it costs the warning and nothing else.
    """
    connect = getattr(exporter, "_initialize_channel_and_stub", None)
    if connect is None or not hasattr(getattr(exporter, "_client", None), "Export"):
        return

    def connect_and_watch() -> None:
        connect()
        exporter._client.Export = _watched(exporter._client.Export)

    exporter._initialize_channel_and_stub = connect_and_watch
    exporter._client.Export = _watched(exporter._client.Export)


def _watched(export: Any) -> Any:
    def export_and_look(*args: Any, **kwargs: Any) -> Any:
        answer = export(*args, **kwargs)
        _look_at(answer)
        return answer

    return export_and_look


def _look_at_response(response: "requests.Response", *args: Any, **kwargs: Any) -> None:
    if response.ok and 0 < len(response.content) <= _MAX_ANSWER_BYTES:
        try:
            _look_at(ExportTraceServiceResponse.FromString(response.content))
        except Exception as error:  # noqa: BLE001 - the answer may be of any kind
            guard.note("export", "the collector's answer cannot be read (%s)", type(error).__name__)


def _look_at(answer: Any) -> None:
    refused = answer.partial_success.rejected_spans
    if refused > 0:
        why = answer.partial_success.error_message[:_MAX_SHOWN]
        # In quotes and escaped: what a collector says may hold anything.
        guard.note("refused spans", "the collector refused %d of our spans: %r", refused, why)
