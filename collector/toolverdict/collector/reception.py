"""What both transports do with a request before and after its body: who sends, room, counts."""

import asyncio
from collections import Counter
from typing import Final

from toolverdict.collector.admission import Admission
from toolverdict.collector.auth import Tokens
from toolverdict.collector.intake import Intake
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.signals import Signal
from toolverdict.collector.store import Stores
from toolverdict.collector.versions import versions

REFRESH_S: Final = 1.0
"""Seconds between two looks at what is measured, not counted."""


class Reception:
    """The shared front of the HTTP and the gRPC server of one process."""

    def __init__(self, settings: CollectorSettings, stores: Stores, intake: Intake) -> None:
        """Read the tokens.

        Raises:
            ConfigError: when the file of the tokens cannot be used.
        """
        self.intake: Final = intake
        self.tokens: Final = Tokens(settings.tokens_file)
        self.admission: Final = Admission(settings.max_inflight_bytes, settings.admission_timeout_s)
        self._stores = stores
        self._metrics = stores.metrics
        self._workers = settings.workers
        self._stored: Counter[Signal] = Counter()
        self._segments: Counter[str] = Counter()

    def answered(self, signal: Signal, transport: str, code: str) -> None:
        """Count a request that got its answer."""
        self._metrics.add("requests_total", signal.name.lower(), transport, code)

    def received(self, signal: Signal, transport: str, size: int) -> None:
        """Count the bytes of a request."""
        self._metrics.add("received_bytes_total", signal.name.lower(), transport, amount=size)

    def metrics_text(self) -> str:
        """All metrics as Prometheus reads them."""
        self.refresh()
        return self._metrics.text(versions() | {"workers": str(self._workers)})

    async def keep_fresh(self) -> None:
        """Refresh for ever, so that another worker that is asked can tell our numbers."""
        while True:
            self.refresh()
            await asyncio.sleep(REFRESH_S)

    def refresh(self) -> None:
        """Take over what others keep count of."""
        stored: Counter[Signal] = Counter()
        segments: Counter[str] = Counter()
        backlog = 0
        for store in self._stores:
            stored.update(store.flusher.stored)
            backlog += store.flusher.backlog_bytes
            segments["segments_quarantined_total"] += store.flusher.set_aside
            segments["segments_lost_total"] += store.flusher.taken_away
        # Differences: the numbers of a worker that was started again begin at 0, ours go on.
        for signal in Signal:
            amount = stored[signal] - self._stored[signal]
            self._metrics.add("stored_total", signal.name.lower(), amount=amount)
        for name, count in segments.items():
            self._metrics.add(name, amount=count - self._segments[name])
        self._stored, self._segments = stored, segments
        self._metrics.set("inflight_bytes", self.admission.held_bytes)
        self._metrics.set("wal_backlog_bytes", backlog)
        self._metrics.set("ready", float(self.intake.is_ready))
