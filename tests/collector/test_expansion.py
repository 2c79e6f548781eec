"""Requests that are small on the wire and large as columns: memory stays within what README says.

A real process. Every shape is sent as full as the limits let in, or fuller.
"""

import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from toolverdict.collector.decoders import decoder
from toolverdict.collector.limits import MIB
from toolverdict.collector.testing import CollectorProcess, post, running_collector

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")

FLUSH_MIB = {"native": 320, "python": 960}
"""What README says of a segment on its way to Parquet."""
REFUSED_MIB = {"native": 5 * 16, "python": 15 * 16}
"""What came, copies of it without the bomb, and what it takes to look through it."""


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _request(count: int, extra: bytes = b"", resource: bytes = b"") -> bytes:
    """A request of spans with more in each, and a resource."""
    spans = b"".join(
        _field(2, _field(1, (n + 1).to_bytes(16)) + _field(2, (n + 1).to_bytes(8)) + extra)
        for n in range(count)
    )
    return _field(1, (_field(1, resource) if resource else b"") + _field(2, spans))


def _value(value: bytes) -> bytes:
    return _field(9, _field(1, b"k") + _field(2, value))


class Shape(NamedTuple):
    """What a request is full of."""

    spans: int
    extra: bytes = b""
    resource: bytes = b""

    def body(self) -> bytes:
        return _request(self.spans, self.extra, self.resource)


SHAPES = {
    "events": Shape(160, b"\x5a\x00" * 10_000),
    "links": Shape(160, b"\x6a\x00" * 10_000),
    "an array": Shape(10, _value(_field(5, b"\x0a\x00" * 199_000))),
    "control characters": Shape(4, _value(_field(1, b"\x01" * 4_000_000))),
    "a resource": Shape(50_000, resource=_field(1, _field(1, b"k" * 500_000))),
}
REQUESTS = 2


def _peak_mib(collector: CollectorProcess) -> float:
    status = Path(f"/proc/{collector.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def _metric(collector: CollectorProcess, name: str) -> float:
    with urllib.request.urlopen(f"{collector.http}/metrics") as response:
        lines = response.read().decode().splitlines()
    series = f"toolverdict_collector_{name} "
    (value,) = (line.removeprefix(series) for line in lines if line.startswith(series))
    return float(value)


def _stored(data_dir: Path) -> int:
    return sum(pq.read_metadata(part).num_rows for part in data_dir.rglob("part-*.parquet"))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_what_is_accepted_is_flushed_in_bounded_memory(tmp_path: Path, shape: Shape) -> None:
    data_dir = tmp_path / "lake"
    body, expected = shape.body(), REQUESTS * shape.spans
    with running_collector(data_dir, flush_interval=1) as collector:
        idle_mib = _peak_mib(collector)
        for _ in range(REQUESTS):
            answer = post(f"{collector.http}/v1/traces", body)
            assert (answer.status, answer.body) == (200, b"")
        while _metric(collector, 'stored_total{signal="traces"}') < expected:
            assert _metric(collector, "segments_quarantined_total") == 0
            time.sleep(0.1)
        grown_mib = _peak_mib(collector) - idle_mib
        assert collector.terminate() == 0
    assert grown_mib < FLUSH_MIB[decoder().name] + len(body) / MIB
    assert _stored(data_dir) == expected


OVER = {
    "events": b"\x5a\x00",
    "links": b"\x6a\x00",
    "attributes": b"\x4a\x00",
    "values": _value(_field(5, b"\x0a\x00" * 1_000)),
    "record": _value(_field(1, b"\x01" * 8_000)),
}


def test_what_would_become_too_large_is_refused_before_it_is_stored(tmp_path: Path) -> None:
    """As full as a request may be; a span beside it is none the worse for it."""
    data_dir = tmp_path / "lake"
    with running_collector(data_dir, flush_interval=1) as collector:
        idle_mib = _peak_mib(collector)
        for reason, piece in OVER.items():
            messages = 1_900_000 // max(1, piece.count(b"\x0a\x00"))
            bomb = _request(1, piece * min(messages, 15 * MIB // len(piece)))
            body = bomb + _request(1)
            answer = post(f"{collector.http}/v1/traces", body)
            assert answer.status == 200
            told = ExportTraceServiceResponse.FromString(answer.body).partial_success
            assert told.rejected_spans == 1
            assert told.error_message.startswith(f"{reason} "), told.error_message
            series = f'rejected_total{{signal="traces",reason="{reason}"}}'
            assert _metric(collector, series) == 1
        grown_mib = _peak_mib(collector) - idle_mib
        assert collector.terminate() == 0
        log = collector.log_file.read_text()
    assert grown_mib < REFUSED_MIB[decoder().name]
    assert _stored(data_dir) == len(OVER)
    assert "Traceback" not in log
