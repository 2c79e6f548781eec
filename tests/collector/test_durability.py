"""A real process, killed at bad moments: what it acknowledged is there, once."""

import http.client
import os
import random
import resource
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest

from toolverdict.collector.lake import Lake
from toolverdict.collector.segment import read_segment
from toolverdict.collector.signals import WIRE, Signal
from toolverdict.collector.testing import (
    CollectorProcess,
    make_request,
    make_span,
    post,
    running_collector,
)

SPANS_A_REQUEST = 3

KILLS = int(os.environ.get("TOOLVERDICT_KILLS", "6"))
"""How often the collector dies under load; 50 for the proof that ``collector/README.md`` names."""


class Client:
    """Sends requests until the collector is gone, and remembers what was acknowledged."""

    def __init__(self, first: int) -> None:
        self._next = first
        self.acknowledged: set[int] = set()

    def _body(self) -> tuple[list[int], bytes]:
        numbers = list(range(self._next, self._next + SPANS_A_REQUEST))
        self._next += SPANS_A_REQUEST
        # Now and then a large one, which is longest on its way to the disk.
        name = "x" * 100_000 if self._next % 17 == 0 else "execute_tool refund"
        spans = [make_span(number, name=name) for number in numbers]
        return numbers, make_request(*spans).SerializeToString()

    def send_over_http(self, collector: CollectorProcess, requests: int = 10**9) -> None:
        parts = urlsplit(collector.http)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        headers = {"Content-Type": "application/x-protobuf"}
        try:
            for _ in range(requests):
                numbers, body = self._body()
                connection.request("POST", "/v1/traces", body, headers)
                response = connection.getresponse()
                response.read()
                if response.status != 200:
                    return
                self.acknowledged.update(numbers)
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()

    def send_over_grpc(self, collector: CollectorProcess) -> None:
        options = [("grpc.enable_retries", 0)]
        method = f"/{WIRE[Signal.TRACES].grpc_service}/Export"
        with grpc.insecure_channel(collector.grpc, options) as channel:
            export = channel.unary_unary(method, None, None)
            try:
                while True:
                    numbers, body = self._body()
                    export(body)
                    self.acknowledged.update(numbers)
            except grpc.RpcError:
                pass


def _stored(data_dir: Path) -> Counter[int]:
    """How often each span is in the Parquet files, before reading removes repetitions."""
    lake = Lake.open(data_dir)
    counts: Counter[int] = Counter()
    table = lake._read(Signal.TRACES, 0, ["span_id"])
    counts.update(int(str(span_id), 16) - 1 for span_id in table["span_id"].to_pylist())
    assert lake.read_spans(0, ["name"]).num_rows == len(counts)
    return counts


def _assert_all_once(data_dir: Path, acknowledged: set[int]) -> None:
    counts = _stored(data_dir)
    assert acknowledged - counts.keys() == set()
    assert [number for number, count in counts.items() if count > 1] == []
    assert list((data_dir / "wal").rglob("*.log")) == []
    assert not list((data_dir / "wal").rglob("quarantine"))


def test_killed_right_after_the_acknowledgement(tmp_path: Path) -> None:
    """B82: nothing has become Parquet yet, and nothing is lost."""
    data_dir = tmp_path / "lake"
    acknowledged: set[int] = set()
    for round_number in range(3):
        with running_collector(data_dir, flush_interval=3600) as collector:
            client = Client(round_number * 1000)
            client.send_over_http(collector, 20)
            collector.kill()
            acknowledged |= client.acknowledged
    assert len(acknowledged) == 3 * 20 * SPANS_A_REQUEST
    with running_collector(data_dir) as collector:
        assert collector.terminate() == 0
    _assert_all_once(data_dir, acknowledged)


@pytest.mark.parametrize(("flush_interval", "workers"), [(0.02, 1), (0.3, 1), (0.05, 2)])
def test_killed_during_load_and_flush(tmp_path: Path, flush_interval: float, workers: int) -> None:
    """B82: many small segments are sealed, written and deleted while the process dies."""
    data_dir = tmp_path / "lake"
    flags = {"flush_interval": flush_interval, "workers": workers}
    acknowledged = _acknowledged_until_killed(data_dir, KILLS // 2, flags)
    with running_collector(data_dir, workers=workers) as collector:
        assert collector.terminate() == 0
    assert acknowledged
    _assert_all_once(data_dir, acknowledged)


JUMPING_CLOCK = """
import os, random, time
real_ns, seen = time.time_ns, set()
def time_ns():
    jump = random.choice((-1, 0, 1))
    if jump not in seen:
        seen.add(jump)
        if len(seen) == 3:
            open(os.environ["CLOCK_JUMPED"], "w").close()
    return real_ns() + jump * 86_400_000_000_000
time.time_ns = time_ns
time.time = lambda: time_ns() / 1e9
"""
"""Goes a day back and forth between two looks at it, and leaves a file when it has."""


def test_killed_while_the_clock_jumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No name comes twice, and nothing that is there is taken for something newer or older."""
    data_dir = tmp_path / "lake"
    (tmp_path / "sitecustomize.py").write_text(JUMPING_CLOCK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("CLOCK_JUMPED", str(tmp_path / "jumped"))
    acknowledged = _acknowledged_until_killed(
        data_dir, max(2, KILLS // 3), {"flush_interval": 0.05}
    )
    with running_collector(data_dir) as collector:
        assert collector.terminate() == 0
    assert acknowledged
    _assert_all_once(data_dir, acknowledged)
    assert (tmp_path / "jumped").exists()


def _acknowledged_until_killed(data_dir: Path, kills: int, flags: Mapping[str, float]) -> set[int]:
    """Start a collector, kill it under load, and again; the numbers of what was acknowledged."""
    acknowledged: set[int] = set()
    chance = random.Random(str(flags))
    for round_number in range(kills):
        with running_collector(data_dir, **flags) as collector:
            clients = [Client((round_number * 8 + n) * 10**6) for n in range(3)]
            senders: list[Callable[[CollectorProcess], None]] = [
                clients[0].send_over_http,
                clients[1].send_over_http,
                clients[2].send_over_grpc,
            ]
            threads = [threading.Thread(target=sender, args=[collector]) for sender in senders]
            for thread in threads:
                thread.start()
            time.sleep(chance.uniform(0.1, 0.5))
            collector.kill()
            for thread in threads:
                thread.join()
            for client in clients:
                acknowledged |= client.acknowledged
    return acknowledged


def test_killed_again_and_again_during_replay(tmp_path: Path) -> None:
    """B88: replay appends nothing, so the log never grows and nothing doubles."""
    data_dir = tmp_path / "lake"
    acknowledged: set[int] = set()
    for round_number in range(3):
        with running_collector(data_dir, flush_interval=3600) as collector:
            client = Client(round_number * 10**6)
            client.send_over_http(collector, 100)
            collector.kill()
            acknowledged |= client.acknowledged
    size = _wal_bytes(data_dir)
    for delay_s in (0.0, 0.002, 0.005, 0.01, 0.02):
        with running_collector(data_dir) as collector:
            time.sleep(delay_s)
            collector.kill()
        assert _wal_bytes(data_dir) <= size
        size = _wal_bytes(data_dir)
    with running_collector(data_dir) as collector:
        assert collector.terminate() == 0
    _assert_all_once(data_dir, acknowledged)


def _wal_bytes(data_dir: Path) -> int:
    return sum(path.stat().st_size for path in (data_dir / "wal").glob("*.log"))


def test_sigterm_during_load_stores_all_it_acknowledged(tmp_path: Path) -> None:
    """B89: stop accepting, finish what is in flight, write Parquet, exit 0."""
    data_dir = tmp_path / "lake"
    with running_collector(data_dir, flush_interval=0.1) as collector:
        clients = [Client(n * 10**6) for n in range(4)]
        senders: list[Callable[[CollectorProcess], None]] = [
            clients[0].send_over_http,
            clients[1].send_over_http,
            clients[2].send_over_grpc,
            clients[3].send_over_grpc,
        ]
        threads = [threading.Thread(target=sender, args=[collector]) for sender in senders]
        for thread in threads:
            thread.start()
        time.sleep(0.5)
        assert collector.terminate() == 0
        for thread in threads:
            thread.join()
        log = collector.log_file.read_text()
    acknowledged = set().union(*(client.acknowledged for client in clients))
    _assert_all_once(data_dir, acknowledged)
    assert all(client.acknowledged for client in clients)
    stored = len(_stored(data_dir))
    assert f"spans: {stored} acknowledged, 0 rejected, {stored} written as Parquet" in log
    assert "Traceback" not in log


def test_damaged_files_do_not_stop_the_start(tmp_path: Path) -> None:
    """B85, B86: torn, flipped, empty and garbage segments; what is sound is stored."""
    data_dir = tmp_path / "lake"
    torn, flipped = (_segment_of_a_crash(data_dir, first) for first in (0, 1000))
    *_, last = read_segment(torn).frames
    whole = torn.read_bytes()
    torn.write_bytes(whole[: whole.rindex(last.body) + 10])
    data = bytearray(flipped.read_bytes())
    data[data.index(read_segment(flipped).frames[2].body)] ^= 0x40
    flipped.write_bytes(data)
    names = ["0000000000000001-00000000.log", "0000000000000002-00000000.log", "notes.log"]
    for name, content in zip(names, [b"", b"garbage" * 99, b"x"], strict=True):
        (data_dir / "wal" / name).write_bytes(content)
    with running_collector(data_dir) as collector:
        assert post(f"{collector.http}/v1/traces", _one_span()).status == 200
        assert collector.terminate() == 1
        log = collector.log_file.read_text()
    assert log.splitlines()[-1].startswith("error: 4 segments were damaged")
    # 5 requests less the torn one, 5 less the flipped one, and the new span.
    assert len(_stored(data_dir)) == 2 * 4 * SPANS_A_REQUEST + 1
    aside = sorted(path.name for path in (data_dir / "wal" / "quarantine").iterdir())
    assert aside == sorted([*names, flipped.name])
    assert list((data_dir / "wal").glob("*.log")) == []
    assert f"{flipped.name}: " in log
    assert "Traceback" not in log


def _segment_of_a_crash(data_dir: Path, first: int) -> Path:
    """Five acknowledged requests in a segment, as kill -9 leaves it."""
    elsewhere = data_dir.with_name(f"crashed-{first}")
    with running_collector(elsewhere, flush_interval=3600) as collector:
        Client(first).send_over_http(collector, 5)
        collector.kill()
    (segment,) = (elsewhere / "wal").glob("*.log")
    (data_dir / "wal").mkdir(parents=True, exist_ok=True)
    return segment.rename(data_dir / "wal" / segment.name)


def _one_span() -> bytes:
    return make_request(make_span(10**9)).SerializeToString()


def test_a_truncated_part_is_written_anew_from_the_log(tmp_path: Path) -> None:
    """B103: an output that is there is never trusted while its segment is, too."""
    data_dir = tmp_path / "lake"
    with running_collector(data_dir, flush_interval=3600) as collector:
        client = Client(0)
        client.send_over_http(collector, 5)
        collector.kill()
    (segment,) = (data_dir / "wal").glob("*.log")
    content = segment.read_bytes()
    with running_collector(data_dir) as collector:
        collector.terminate()
    (part,) = Lake.open(data_dir).parts(Signal.TRACES, 0)
    part.write_bytes(part.read_bytes()[:64])
    segment.write_bytes(content)
    with running_collector(data_dir) as collector:
        assert collector.terminate() == 0
    assert Lake.open(data_dir).parts(Signal.TRACES, 0) == [part]
    _assert_all_once(data_dir, client.acknowledged)


def test_a_request_sent_again_is_read_once(tmp_path: Path) -> None:
    """B91: the client did not hear our answer and sends the batch again, after a restart."""
    data_dir = tmp_path / "lake"
    body = make_request(make_span(1), make_span(2)).SerializeToString()
    for _ in range(2):
        with running_collector(data_dir) as collector:
            for _ in range(2):
                assert post(f"{collector.http}/v1/traces", body).status == 200
            collector.terminate()
    assert sorted(_stored(data_dir).values()) == [4, 4]
    assert Lake.open(data_dir).read_spans(0).num_rows == 2


def _post_until(collector: CollectorProcess, status: int, first: int) -> list[int]:
    """Send a span at a time until one gets this status; which were acknowledged."""
    acknowledged = []
    for number in range(first, first + 500):
        body = make_request(make_span(number)).SerializeToString()
        answer = post(f"{collector.http}/v1/traces", body)
        if answer.status == 200:
            acknowledged.append(number)
        if answer.status == status:
            return acknowledged
        assert answer.status in (200, 503)
    raise AssertionError(f"no answer was {status}")


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="needs prlimit")
def test_a_disk_that_fills_and_empties_again(tmp_path: Path) -> None:
    """B74, B82: the kernel itself refuses the write; nothing acknowledged is lost meanwhile."""
    data_dir = tmp_path / "lake"
    with running_collector(data_dir, flush_interval=0.2) as collector:
        acknowledged = _post_until(collector, 200, 0)
        pid = collector.process.pid
        soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (10, hard))
        acknowledged += _post_until(collector, 503, 1000)
        time.sleep(0.5)  # Parquet is refused, too
        acknowledged += _post_until(collector, 503, 2000)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
        acknowledged += _post_until(collector, 200, 3000)
        collector.kill()
        log = collector.log_file.read_text()
    assert "the log is written again" in log  # its own lines were refused before
    with running_collector(data_dir) as collector:
        assert collector.terminate() == 0
    _assert_all_once(data_dir, set(acknowledged))


def test_a_collector_that_hung_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    """Stopped in the midst, its clients gone, then killed: no half request is stored."""
    data_dir = tmp_path / "lake"
    with running_collector(data_dir, flush_interval=0.05) as collector:
        client = Client(0)
        thread = threading.Thread(target=client.send_over_http, args=[collector])
        thread.start()
        time.sleep(0.3)
        os.kill(collector.process.pid, signal.SIGSTOP)
        time.sleep(0.1)
        collector.kill()
        thread.join()
    with running_collector(data_dir) as collector:
        assert collector.terminate() == 0
    assert client.acknowledged
    _assert_all_once(data_dir, client.acknowledged)
    counts = Counter(number // SPANS_A_REQUEST for number in _stored(data_dir))
    assert set(counts.values()) == {SPANS_A_REQUEST}


def test_an_interval_of_fsync_survives_the_death_of_the_process(tmp_path: Path) -> None:
    """Only the loss of power costs what was not synced: the kernel has every byte."""
    data_dir = tmp_path / "lake"
    with running_collector(
        data_dir, flush_interval=3600, fsync="interval", fsync_interval=60
    ) as collector:
        client = Client(0)
        client.send_over_http(collector, 50)
        collector.kill()
    with running_collector(data_dir, fsync="off") as collector:
        assert collector.terminate() == 0
    assert len(client.acknowledged) == 50 * SPANS_A_REQUEST
    _assert_all_once(data_dir, client.acknowledged)
