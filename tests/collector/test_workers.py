"""Several processes behind the same ports."""

import os
import signal
import socket
import time
import urllib.request
from pathlib import Path

import grpc
import pytest

from toolverdict.collector.lake import Lake
from toolverdict.collector.signals import WIRE, Signal
from toolverdict.collector.testing import (
    CollectorProcess,
    make_request,
    make_span,
    post,
    running_collector,
)

WAIT_S = 60.0


def _children(collector: CollectorProcess) -> list[int]:
    """The worker processes, without Python's own helper of them."""
    task = Path(f"/proc/{collector.process.pid}/task/{collector.process.pid}/children")
    pids = [int(pid) for pid in task.read_text().split()]
    return [pid for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def _send(collector: CollectorProcess, numbers: range) -> list[int]:
    """One request a span, each on a connection of its own; which were acknowledged."""
    acknowledged = []
    for number in numbers:
        body = make_request(make_span(number)).SerializeToString()
        try:
            status = post(f"{collector.http}/v1/traces", body).status
        except OSError:  # of a worker that died
            continue
        if status == 200:
            acknowledged.append(number)
    return acknowledged


def _metric(collector: CollectorProcess, name: str) -> float:
    with urllib.request.urlopen(f"{collector.http}/metrics", timeout=20) as response:
        lines = response.read().decode().splitlines()
    (line,) = (line for line in lines if line.startswith(f"toolverdict_collector_{name} "))
    return float(line.rpartition(" ")[2])


def _stored(data_dir: Path) -> list[int]:
    table = Lake.open(data_dir).read_spans(0, ["span_id"])
    return sorted(int(str(span_id), 16) - 1 for span_id in table["span_id"].to_pylist())


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_kill_leaves_no_worker(tmp_path: Path) -> None:
    """Not even one that could not notice by itself that its parent is gone."""
    with running_collector(tmp_path / "lake", workers=2) as collector:
        children = _children(collector)
        for pid in children:
            os.kill(pid, signal.SIGSTOP)
        try:
            collector.kill()
            deadline_s = time.monotonic() + WAIT_S
            while any(map(_is_alive, children)) and time.monotonic() < deadline_s:
                time.sleep(0.01)
            assert [pid for pid in children if _is_alive(pid)] == []
        finally:
            for pid in filter(_is_alive, children):
                os.kill(pid, signal.SIGKILL)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_workers_share_the_ports_and_one_that_dies_comes_back(tmp_path: Path) -> None:
    """Each has its own log; nothing acknowledged is lost, nothing is there twice."""
    data_dir = tmp_path / "lake"
    with running_collector(data_dir, workers=2, flush_interval=3600) as collector:
        assert len(_children(collector)) == 2
        acknowledged = _send(collector, range(40))
        assert len(acknowledged) == 40
        with grpc.insecure_channel(collector.grpc) as channel:
            export = channel.unary_unary(f"/{WIRE[Signal.TRACES].grpc_service}/Export", None, None)
            export(make_request(make_span(40)).SerializeToString())
        logs = list((data_dir / "wal").glob("worker-*/*.log"))
        assert {path.parent.name for path in logs} == {"worker-0", "worker-1"}
        victim = _children(collector)[0]
        os.kill(victim, signal.SIGKILL)
        acknowledged += _send(collector, range(100, 120))
        deadline_s = time.monotonic() + WAIT_S
        while victim in _children(collector) or len(_children(collector)) < 2:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        while _metric(collector, "ready") < 2:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        acknowledged += _send(collector, range(200, 220))
        assert _metric(collector, 'accepted_total{signal="traces"}') >= len(acknowledged)
        assert collector.terminate() == 0
        log = collector.log_file.read_text()
    assert "died (exit code -9) and is started again" in log
    assert "Traceback" not in log
    assert set(acknowledged) <= set(_stored(data_dir))
    assert list((data_dir / "wal").rglob("*.log")) == []
    rows = Lake.open(data_dir)._read(Signal.TRACES, 0, ["span_id"])["span_id"].to_pylist()
    assert len(rows) == len(set(rows))


def test_workers_end_with_their_supervisor_and_one_process_replays_them(tmp_path: Path) -> None:
    """kill -9 of the one process that has no log: its workers store what they took and end."""
    data_dir = tmp_path / "lake"
    with running_collector(data_dir, workers=2, flush_interval=3600) as collector:
        workers = _children(collector)
        acknowledged = _send(collector, range(20))
        for worker in workers:  # one is hung, so it cannot end in order
            os.kill(worker, signal.SIGSTOP)
            break
        collector.kill()
        os.kill(workers[0], signal.SIGKILL)
        deadline_s = time.monotonic() + WAIT_S
        while any(Path(f"/proc/{worker}/exe").exists() for worker in workers):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
    with running_collector(data_dir) as collector:
        assert collector.terminate() == 0
    assert _stored(data_dir) == acknowledged
    assert list((data_dir / "wal").rglob("*.log")) == []


def test_a_folder_and_a_port_of_a_collector_with_workers_are_taken(tmp_path: Path) -> None:
    """Sharing a port is for siblings: a stranger is told that it is in use."""
    with running_collector(tmp_path / "lake", workers=2) as collector:
        for workers, option, address in (
            (1, "http_port", collector.http),
            (2, "grpc_port", collector.grpc),
        ):
            with (
                pytest.raises(RuntimeError, match="another collector uses"),
                running_collector(tmp_path / "lake", workers=workers),
            ):
                pass
            port = int(address.rpartition(":")[2])
            with (
                pytest.raises(RuntimeError, match=f"port {port}"),
                running_collector(tmp_path / "other", workers=workers, **{option: port}),
            ):
                pass


def test_what_a_worker_cannot_use_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("")
    with (
        pytest.raises(RuntimeError, match="holds no token") as caught,
        running_collector(tmp_path / "lake", workers=2, tokens=str(tmp_path / "tokens")),
    ):
        pass
    assert "Traceback" not in str(caught.value)


def test_a_listener_of_another_kind_is_noticed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with (
            pytest.raises(RuntimeError, match=f"cannot listen on 127.0.0.1 port {port}"),
            running_collector(tmp_path / "lake", workers=2, http_port=port),
        ):
            pass
