"""The one road of a request, whichever way it came: parse, validate, log, acknowledge."""

import asyncio
import logging
from collections import Counter
from contextlib import nullcontext
from typing import Final, NamedTuple

from toolverdict.collector.bounds import check_json
from toolverdict.collector.content import MediaType, too_large_message
from toolverdict.collector.decoders import decoder
from toolverdict.collector.errors import OverloadedError, TooLargeError
from toolverdict.collector.otlp_json import protobuf_of_json
from toolverdict.collector.otlp_wire import without
from toolverdict.collector.redaction import Redactor
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.signals import WIRE, Response, Signal
from toolverdict.collector.store import Stores
from toolverdict.collector.validate import Judgement

_LOG = logging.getLogger(__name__)

INLINE_BYTES: Final = 64 * 1024
"""Larger bodies are worked on in a thread, so that health checks are answered meanwhile."""

NATIVE_INLINE_BYTES: Final = 1024 * 1024
"""The native decoder judges so many in less time than it takes to change threads and back."""

_LARGE_AT_ONCE: Final = 2
"""Larger bodies that are parsed at a time: as messages they are many times their size."""


class Prepared(NamedTuple):
    """A request that was read and judged, before anything is stored."""

    body: bytes
    """Protobuf, whatever the client sent, without what is over a limit."""
    accepted: int
    rejected: Counter[str]
    """Records that cannot be stored, by reason."""
    warnings: Counter[str]
    """Records that are stored without something, by reason."""


class Judged(NamedTuple):
    """A request that was read and judged, with everything that is over a limit still in it."""

    body: bytes
    """Protobuf, whatever the client sent."""
    judgement: Judgement

    @property
    def is_to_be_stripped(self) -> bool:
        """Whether something has to be taken out of what is stored."""
        return self.judgement.accepted > 0 and any(self.judgement.over)


def prepare(
    signal: Signal, media_type: MediaType, body: bytes, settings: CollectorSettings
) -> Prepared:
    """Read and judge a request; pure.

    Raises:
        DecodeError: when the body is not an export request of this signal, or holds too much.
    """
    return stripped(judge(signal, media_type, body, settings))


def judge(
    signal: Signal, media_type: MediaType, body: bytes, settings: CollectorSettings
) -> Judged:
    """The first half of :func:`prepare`, and the quick one; raises as that does."""
    if media_type is MediaType.JSON:
        check_json(body, settings.max_request_messages)
        body = protobuf_of_json(body, WIRE[signal].request)
    return Judged(body, decoder().judge(signal, body, settings.limits))


def stripped(judged: Judged) -> Prepared:
    """A request without what is over a limit; this takes as long as copying it in Python does."""
    body, judgement = judged
    if judged.is_to_be_stripped:
        body = without(body, judgement.over)
    return Prepared(body, judgement.accepted, judgement.rejected, judgement.warnings)


class Intake:
    """Takes requests from both transports and answers once they are on the disk."""

    def __init__(
        self,
        stores: Stores,
        settings: CollectorSettings,
        redactor: Redactor | None = None,
    ) -> None:
        """Bind where requests go and what is taken out of them before."""
        self._stores = stores
        self._settings = settings
        self._metrics = stores.metrics
        self._redactor = redactor
        self._judges_natively = decoder().name == "native"
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)
        self._large_json = asyncio.Semaphore(1)  # its values are larger still than messages
        self.accepted: Counter[Signal] = Counter()
        """Spans and log records acknowledged."""
        self.rejected: Counter[Signal] = Counter()
        """Spans and log records refused one by one, as their clients were told."""
        self._reasons_logged: set[str] = set()
        self.empty_json_requests = 0
        """JSON requests without a record: often data sent to the wrong path."""

    @property
    def is_ready(self) -> bool:
        """Whether the logs can be written, as far as is known."""
        return not any(store.wal.is_failing for store in self._stores)

    async def accept(
        self, signal: Signal, media_type: MediaType, body: bytes, tenant: str | None = None
    ) -> Response:
        """Store one request; the response may be sent as soon as this returns.

        Raises:
            PermanentError: when the body can never be accepted.
            TransientError: when it was not stored, and may be later.
        """
        if len(body) > self._settings.max_body_bytes:
            raise TooLargeError(too_large_message(self._settings.max_body_bytes))
        prepared = await self._prepared(signal, media_type, body)
        if prepared.accepted:
            store = await self._stores.of(tenant)
            if store.flusher.backlog_bytes > self._settings.max_wal_bytes:
                raise OverloadedError("too much of the log waits for Parquet; send it later")
            # A client that goes away does not take its request out of the log.
            await asyncio.wrap_future(store.wal.append(signal, prepared.body))
        elif media_type is MediaType.JSON and not prepared.rejected:
            self._note_empty_json(signal)
        self.accepted[signal] += prepared.accepted
        self._metrics.add("accepted_total", signal.name.lower(), amount=prepared.accepted)
        return self._respond(signal, prepared)

    async def _prepared(self, signal: Signal, media_type: MediaType, body: bytes) -> Prepared:
        if len(body) > self._inline_bytes(media_type):
            is_json = media_type is MediaType.JSON
            async with self._large_json if is_json else nullcontext(), self._large:
                return await asyncio.to_thread(self._prepare, signal, media_type, body)
        judged = judge(signal, media_type, body, self._settings)
        if judged.is_to_be_stripped and len(judged.body) > INLINE_BYTES:
            async with self._large:
                return await asyncio.to_thread(self._redacted, signal, judged)
        return self._redacted(signal, judged)

    def _inline_bytes(self, media_type: MediaType) -> int:
        is_quick = self._judges_natively and media_type is MediaType.PROTOBUF
        return NATIVE_INLINE_BYTES if is_quick and self._redactor is None else INLINE_BYTES

    def _prepare(self, signal: Signal, media_type: MediaType, body: bytes) -> Prepared:
        return self._redacted(signal, judge(signal, media_type, body, self._settings))

    def _redacted(self, signal: Signal, judged: Judged) -> Prepared:
        prepared = stripped(judged)
        if self._redactor is None or not prepared.accepted:
            return prepared
        return prepared._replace(body=self._redactor.redact(signal, prepared.body))

    def _respond(self, signal: Signal, prepared: Prepared) -> Response:
        rejected = prepared.rejected.total()
        self.rejected[signal] += rejected
        for text, amount in prepared.rejected.items():
            field = text.partition(" ")[0]
            self._metrics.add("rejected_total", signal.name.lower(), field, amount=amount)
        for reason in prepared.rejected.keys() - self._reasons_logged:
            self._reasons_logged.add(reason)
            _LOG.warning("rejected %s: %s (logged once)", WIRE[signal].noun, reason)
        reason = _reasons(prepared.rejected + prepared.warnings)
        return WIRE[signal].respond(rejected, reason)

    def _note_empty_json(self, signal: Signal) -> None:
        self.empty_json_requests += 1
        self._metrics.add("empty_json_requests_total")
        if self.empty_json_requests == 1:
            _LOG.warning(
                "a JSON request to %s held no %s and was accepted as OTLP demands; is data of "
                "another kind sent to this path? (logged once)",
                WIRE[signal].http_path,
                WIRE[signal].noun,
            )


def _reasons(counts: Counter[str]) -> str:
    return "; ".join(f"{reason} ({count})" for reason, count in counts.most_common())
