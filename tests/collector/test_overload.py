"""Far more comes than can be stored: memory stays within what the settings say."""

import http.client
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from toolverdict.collector.lake import Lake
from toolverdict.collector.testing import (
    CollectorProcess,
    make_request,
    make_span,
    running_collector,
)

MIB = 1024 * 1024
CLIENTS = 24
INFLIGHT_MIB = 16
SECONDS = 4.0


def _peak_mib(collector: CollectorProcess) -> float:
    status = Path(f"/proc/{collector.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


def _flood(collector: CollectorProcess, first: int, acknowledged: list[int]) -> None:
    """Send requests of a mebibyte as fast as they are taken."""
    parts = urlsplit(collector.http)
    ends_s = time.monotonic() + SECONDS
    number = first
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    headers = {"Content-Type": "application/x-protobuf"}
    while time.monotonic() < ends_s:
        body = make_request(make_span(number, name="x" * MIB)).SerializeToString()
        connection.request("POST", "/v1/traces", body, headers)
        response = connection.getresponse()
        response.read()
        assert response.status in (200, 429, 503)
        if response.status == 200:
            acknowledged.append(number)
        number += 1
    connection.close()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_is_bounded_while_clients_send_too_much(tmp_path: Path) -> None:
    """What is in flight, twice, and one segment on its way to Parquet, a few times over."""
    data_dir = tmp_path / "lake"
    limits = {"max_body_mib": 2, "max_inflight_mib": INFLIGHT_MIB}
    with running_collector(data_dir, flush_interval=1, **limits) as collector:
        idle_mib = _peak_mib(collector)
        acknowledged: list[int] = []
        threads = [
            threading.Thread(target=_flood, args=[collector, n * 10**6, acknowledged])
            for n in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        grown_mib = _peak_mib(collector) - idle_mib
        assert collector.terminate() == 0
    segment_mib = 32
    assert grown_mib < 2 * INFLIGHT_MIB + 6 * segment_mib
    assert len(acknowledged) * 1.0 > 3 * INFLIGHT_MIB, "the flood was none"
    assert Lake.open(data_dir).read_spans(0, ["span_id"]).num_rows == len(acknowledged)
