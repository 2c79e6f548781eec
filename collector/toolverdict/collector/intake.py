"""The one road of a request, whichever way it came: parse, validate, log, acknowledge."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from toolverdict.collector.bounds import check_json, check_protobuf
from toolverdict.collector.content import MediaType, too_large_message
from toolverdict.collector.decode import parse
from toolverdict.collector.errors import OverloadedError, TooLargeError
from toolverdict.collector.flush import Flusher
from toolverdict.collector.otlp_json import protobuf_of_json
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.signals import WIRE, Request, Response, Signal
from toolverdict.collector.validate import log_fault, log_warning, span_fault
from toolverdict.collector.wal import WriteAheadLog

_LOG = logging.getLogger(__name__)

INLINE_BYTES: Final = 64 * 1024
"""Larger bodies are worked on in a thread, so that health checks are answered meanwhile."""

_LARGE_AT_ONCE: Final = 2
"""Larger bodies that are parsed at a time: as messages they are many times their size."""


class Prepared(NamedTuple):
    """A request that was read and judged, before anything is stored."""

    body: bytes
    """Protobuf, whatever the client sent."""
    accepted: int
    rejected: Counter[str]
    """Records that cannot be stored, by reason."""
    warnings: Counter[str]
    """Records that are stored without something, by reason."""


def prepare(
    signal: Signal, media_type: MediaType, body: bytes, settings: CollectorSettings
) -> Prepared:
    """Read and judge a request; pure.

    Raises:
        DecodeError: when the body is not an export request of this signal, or holds too much.
    """
    if media_type is MediaType.JSON:
        check_json(body, settings.max_request_messages)
        body = protobuf_of_json(body, WIRE[signal].request)
    check_protobuf(signal, body, settings.max_request_records, settings.max_request_messages)
    accepted = 0
    rejected: Counter[str] = Counter()
    warnings: Counter[str] = Counter()
    for fault, warning in _judge(parse(signal, body)):
        if fault is not None:
            rejected[fault] += 1
            continue
        accepted += 1
        if warning is not None:
            warnings[warning] += 1
    return Prepared(body, accepted, rejected, warnings)


def _judge(request: Request) -> Iterator[tuple[str | None, str | None]]:
    """Fault and warning of every record."""
    if isinstance(request, ExportTraceServiceRequest):
        for resource_spans in request.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    yield span_fault(span), None
    else:
        for resource_logs in request.resource_logs:
            for scope_logs in resource_logs.scope_logs:
                for record in scope_logs.log_records:
                    yield log_fault(record), log_warning(record)


class Intake:
    """Takes requests from both transports and answers once they are on the disk."""

    def __init__(self, wal: WriteAheadLog, flusher: Flusher, settings: CollectorSettings) -> None:
        """Bind the log that is written, and the flusher whose backlog limits what is taken."""
        self._wal = wal
        self._flusher = flusher
        self._settings = settings
        self._inflight_bytes = 0
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)
        self.accepted: Counter[Signal] = Counter()
        """Spans and log records acknowledged."""
        self.rejected: Counter[Signal] = Counter()
        """Spans and log records refused one by one, as their clients were told."""
        self._reasons_logged: set[str] = set()
        self.empty_json_requests = 0
        """JSON requests without a record: often data sent to the wrong path."""

    @property
    def is_ready(self) -> bool:
        """Whether the log can be written, as far as is known."""
        return not self._wal.is_failing

    @contextmanager
    def reserving(self) -> Iterator[Callable[[int], None]]:
        """Account for the bytes of one request as they come in.

        Yields:
            A function that adds bytes, and raises OverloadedError when all requests together
            hold more than the limit. The bytes are given back at the end.
        """
        held = 0

        def reserve(size: int) -> None:
            nonlocal held
            if self._inflight_bytes + size > self._settings.max_inflight_bytes:
                raise OverloadedError("too many requests are in flight; send the request later")
            self._inflight_bytes += size
            held += size

        try:
            yield reserve
        finally:
            self._inflight_bytes -= held

    async def accept(self, signal: Signal, media_type: MediaType, body: bytes) -> Response:
        """Store one request; the response may be sent as soon as this returns.

        Raises:
            PermanentError: when the body can never be accepted.
            TransientError: when it was not stored, and may be later.
        """
        if len(body) > self._settings.max_body_bytes:
            raise TooLargeError(too_large_message(self._settings.max_body_bytes))
        if len(body) <= INLINE_BYTES:
            prepared = prepare(signal, media_type, body, self._settings)
        else:
            async with self._large:
                prepared = await asyncio.to_thread(
                    prepare, signal, media_type, body, self._settings
                )
        if prepared.accepted:
            if self._flusher.backlog_bytes > self._settings.max_wal_bytes:
                raise OverloadedError("too much of the log waits for Parquet; send it later")
            await self._append(signal, prepared.body)
        elif media_type is MediaType.JSON and not prepared.rejected:
            self._note_empty_json(signal)
        self.accepted[signal] += prepared.accepted
        return self._respond(signal, prepared)

    async def _append(self, signal: Signal, body: bytes) -> None:
        # Shielded: a client that goes away does not take its request out of the group.
        await asyncio.shield(asyncio.wrap_future(self._wal.append(signal, body)))

    def _respond(self, signal: Signal, prepared: Prepared) -> Response:
        rejected = prepared.rejected.total()
        self.rejected[signal] += rejected
        for reason in prepared.rejected.keys() - self._reasons_logged:
            self._reasons_logged.add(reason)
            _LOG.warning("rejected %s: %s (logged once)", WIRE[signal].noun, reason)
        reason = _reasons(prepared.rejected + prepared.warnings)
        return WIRE[signal].respond(rejected, reason)

    def _note_empty_json(self, signal: Signal) -> None:
        self.empty_json_requests += 1
        if self.empty_json_requests == 1:
            _LOG.warning(
                "a JSON request to %s held no %s and was accepted as OTLP demands; is data of "
                "another kind sent to this path? (logged once)",
                WIRE[signal].http_path,
                WIRE[signal].noun,
            )


def _reasons(counts: Counter[str]) -> str:
    return "; ".join(f"{reason} ({count})" for reason, count in counts.most_common())
