"""A lake with parts in it, written as the collector writes them."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from toolverdict.collector.decode import decode, table_of
from toolverdict.collector.lake import Lake
from toolverdict.collector.parts import write_part
from toolverdict.collector.segment import SegmentId
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_request

HOUR: Final = datetime(2026, 11, 30, 14, tzinfo=UTC)


class Filler:
    """Puts segments of spans and log records into a lake."""

    hour = HOUR
    """The hour of the first segment."""
    closed = HOUR + timedelta(hours=3)
    """A time at which that hour and the next are closed."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self._segments = 0

    def segment(self, hours: int = 0) -> SegmentId:
        """A new segment, so many hours after the first hour."""
        self._segments += 1
        time = self.hour + timedelta(hours=hours, seconds=self._segments)
        created = int(time.timestamp()) * 10**9
        return SegmentId(f"{created:016x}-{self._segments:08x}", created)

    def spans(self, *spans: Span, hours: int = 0, received: int | None = None) -> Path:
        """One part of spans; returns its path. Received when its segment began unless said."""
        segment = self.segment(hours)
        time = segment.created_unix_nano if received is None else received
        body = make_request(*spans).SerializeToString()
        return self._write(segment, Signal.TRACES, decode(Signal.TRACES, body, time))

    def logs(self, *records: LogRecord, hours: int = 0, received: int = 1) -> Path:
        """One part of log records."""
        request = ExportLogsServiceRequest(
            resource_logs=[ResourceLogs(scope_logs=[ScopeLogs(log_records=records)])]
        )
        rows = decode(Signal.LOGS, request.SerializeToString(), received)
        return self._write(self.segment(hours), Signal.LOGS, rows)

    def _write(self, segment: SegmentId, signal: Signal, rows: Iterable[list[Any]]) -> Path:
        table = table_of(signal, list(rows))
        part = ""
        for bucket in range(self.lake.buckets):
            mine = [
                number
                for number, trace_id in enumerate(table.column("trace_id").to_pylist())
                if self.lake.bucket_of(trace_id) == bucket
            ]
            if mine:
                part = write_part(self.lake, segment, signal, bucket, table.take(mine))
        return Path(self.lake.location) / part


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    folder = tmp_path / "lake"
    folder.mkdir()
    return Lake.create(folder)


@pytest.fixture
def fill(lake: Lake) -> Filler:
    return Filler(lake)


@pytest.fixture(scope="session")
def filler() -> Callable[[Lake], Filler]:
    return Filler
