"""Spans that a test has at hand, as the trajectories that the scorer would make of them.

They take the road that every span takes (OTLP, rows, traces, trajectories), so that a test judges
what production will judge. Spans of any dialect: those of
:func:`toolverdict.instrument.testing.capture_spans`, of OpenTelemetry's ``InMemorySpanExporter``, an
OTLP request as an exporter sends it, or the lake of a collector that an agent in another process
sent them to.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan

from toolverdict.collector import CollectorError, Lake
from toolverdict.collector.decode import decode, table_of
from toolverdict.collector.signals import Signal
from toolverdict.scoring.conversations import Conversations
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.model import Trajectory
from toolverdict.scoring.spans import COLUMNS, LOG_COLUMNS, log_records, traces

Spans: TypeAlias = Iterable[ReadableSpan] | bytes | Path
"""Ended spans, an OTLP ``ExportTraceServiceRequest`` in protobuf, or the folder of a lake."""


def trajectories_of(spans: Spans) -> Sequence[Trajectory]:
    """The trajectories of these spans, those without a tool call among them, in time order.

    Raises:
        InputError: the bytes are no OTLP request, or the folder is no lake.
    """
    conversations = Conversations()
    found: list[Trajectory] = []
    try:
        for table in _tables(spans, conversations):
            for trace in traces(table):
                # Two exporters in one process may have kept the same span twice.
                once = {span.span_id: span for span in trace}
                found.extend(conversations.add(list(once.values())))
    except CollectorError as error:
        raise InputError(f"these are no spans: {error}") from error
    found.extend(conversations.rest())
    return sorted(found, key=_began)


def _tables(spans: Spans, conversations: Conversations) -> Iterator[pa.Table]:
    """Whole traces, sorted by trace id; log records that belong to them are told of before."""
    if isinstance(spans, Path):
        lake = Lake.open(spans)
        for bucket in range(lake.buckets):
            conversations.expect(log_records(lake.read_logs(bucket, LOG_COLUMNS)))
            yield lake.read_spans(bucket, COLUMNS)
    else:
        body = spans if isinstance(spans, bytes) else encode_spans(list(spans)).SerializeToString()
        table = table_of(Signal.TRACES, decode(Signal.TRACES, body, 0))
        yield table.select(COLUMNS).sort_by("trace_id")


def _began(trajectory: Trajectory) -> int:
    return min((place.call.start_ns for place in trajectory.calls), default=0)
