"""Where an export goes: a file of OTLP/JSON lines or protobuf messages, or an OTLP/HTTP endpoint."""

import gzip
import http.client
import os
import struct
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final, TypeAlias

from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from toolverdict.collector.durable import replace_durably
from toolverdict.collector.errors import CollectorError, ConfigError
from toolverdict.collector.otlp_json_encode import otlp_json_of
from toolverdict.collector.signals import WIRE, Request, Response, Signal

Send: TypeAlias = Callable[[Signal, Request], None]

JSON_SUFFIXES: Final = (".jsonl", ".ndjson", ".json")

ATTEMPTS: Final = 8
"""Times that one request is sent before the export gives up."""

UNREACHED_ATTEMPTS: Final = 4
"""The same for an endpoint that never answered: then it is more likely not there than busy."""

MAX_WAIT_S: Final = 60.0
"""Longest wait between two attempts, whatever the server asks for."""

TIMEOUT_S: Final = 30.0

_RESPONSES: Final[dict[Signal, type[Response]]] = {
    Signal.TRACES: ExportTraceServiceResponse,
    Signal.LOGS: ExportLogsServiceResponse,
}

_RETRYABLE: Final = frozenset({429, 502, 503, 504})
"""OTLP specification 1.9, "Retryable response codes"."""


class ExportError(CollectorError):
    """The endpoint did not take what was sent."""


@contextmanager
def file_target(path: Path) -> Iterator[Send]:
    """A file that is there, or replaced, when all of it is written.

    With the suffix ``.jsonl``, ``.ndjson`` or ``.json`` each line is one request in OTLP/JSON, as
    the file exporter of the OpenTelemetry Collector writes it and its ``otlpjsonfile`` receiver
    reads it. With any other, each request is protobuf behind its length, four bytes big-endian, as
    the same exporter writes with ``format: proto``.

    Raises:
        ConfigError: when the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:

            def send(_: Signal, request: Request) -> None:
                if path.suffix in JSON_SUFFIXES:
                    file.write(otlp_json_of(request) + b"\n")
                else:
                    body = request.SerializeToString()
                    file.write(struct.pack(">I", len(body)) + body)

            yield send
        replace_durably(temporary, path)
    except OSError as error:
        raise ConfigError(f"cannot write {path} ({error.strerror}); give another file") from error
    finally:
        temporary.unlink(missing_ok=True)


class HttpTarget:
    """An OTLP/HTTP endpoint: protobuf with gzip, sent again as the specification has it.

    The headers of ``OTEL_EXPORTER_OTLP_HEADERS`` go with every request, so that a token need not
    be on the command line.
    """

    def __init__(
        self,
        endpoint: str,
        sleep: Callable[[float], None] = time.sleep,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """Aim at an endpoint.

        Args:
            endpoint: ``http://host:port``, without the path of the signal.
            sleep: waits so many seconds, for tests.
            tell: is given a line before each wait that says what for.

        Raises:
            ConfigError: when it is no HTTP URL.
        """
        parts = urllib.parse.urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigError(f"{endpoint} is no endpoint; give http://HOST:PORT")
        self._endpoint = endpoint.rstrip("/")
        self._sleep = sleep
        self._tell = tell
        self._reached = False
        self._headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            **_headers_of(os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")),
        }
        self.rejected: Counter[Signal] = Counter()
        """Records that the endpoint said it did not take."""

    def send(self, signal: Signal, request: Request) -> None:
        """Send one request.

        Raises:
            ExportError: when the endpoint refuses it, or does not take it in time.
        """
        url = self._endpoint + WIRE[signal].http_path
        body = gzip.compress(request.SerializeToString(), 1)
        reason = ""
        for attempt in range(ATTEMPTS):
            wait_s = 2.0**attempt
            try:
                sent = urllib.request.Request(url, body, self._headers, method="POST")
                with urllib.request.urlopen(sent, timeout=TIMEOUT_S) as response:
                    self._reached = True
                    self._count(signal, response.read())
                return
            except urllib.error.HTTPError as error:
                self._reached = True
                with error:
                    reason = f"it answered {error.code}"
                    if error.code not in _RETRYABLE:
                        raise ExportError(f"{url} refused the export: {reason}") from error
                    wait_s = retry_after_s(error.headers.get("Retry-After")) or wait_s
            except (OSError, http.client.HTTPException) as error:
                reason = str(getattr(error, "reason", error))
            attempts = ATTEMPTS if self._reached else min(ATTEMPTS, UNREACHED_ATTEMPTS)
            if attempt + 1 >= attempts:
                break
            wait_s = min(wait_s, MAX_WAIT_S)
            if self._tell is not None:
                self._tell(
                    f"{url} did not take the export ({reason}); attempt {attempt + 2} of "
                    f"{attempts} in {wait_s:.0f} s"
                )
            self._sleep(wait_s)
        raise ExportError(f"{url} did not take the export ({reason}); try again later")

    def _count(self, signal: Signal, body: bytes) -> None:
        wire = WIRE[signal]
        try:
            response = _RESPONSES[signal].FromString(body)
        except ProtobufError:
            return  # it said 200, and nothing that we understand
        self.rejected[signal] += getattr(response.partial_success, wire.rejected_field)


def retry_after_s(value: str | None) -> float | None:
    """Seconds to wait by a ``Retry-After`` header, which is a number or a date (RFC 9110)."""
    if not value:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        at = parsedate_to_datetime(value)
    except ValueError:
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - datetime.now(UTC)).total_seconds())


def _headers_of(text: str) -> dict[str, str]:
    """The headers of a list ``key=value,key=value`` (percent-encoded, as of W3C Baggage)."""
    pairs = (item.partition("=") for item in text.split(",") if "=" in item)
    return {key.strip(): urllib.parse.unquote(value.strip()) for key, _, value in pairs}
