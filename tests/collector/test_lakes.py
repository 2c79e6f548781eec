"""The lake of a collector in an object store: a real collector, a real S3 server, and outages."""

import asyncio
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from toolverdict.collector.lake import Lake
from toolverdict.collector.lake.verification import verify
from toolverdict.collector.testing import (
    CollectorProcess,
    make_request,
    make_span,
    post,
    running_collector,
)

Serve = Callable[..., AbstractAsyncContextManager[Any]]
WAIT_S = 60.0


class Road:
    """A port before the S3 server that can be closed: connections are then refused or broken."""

    def __init__(self, endpoint: str) -> None:
        self._server = urlsplit(endpoint)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self.open = True
        self.requests = 0
        """Connections that came so far."""
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        """Break what goes on, and let nothing through until it is opened again."""
        self.open = False
        for end in self._ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        self.close()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                self.requests += 1
                if not self.open:
                    client.close()
                    continue
                server = socket.create_connection((self._server.hostname, self._server.port))
                self._ends += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=(source, target), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while received := source.recv(65536):
                target.sendall(received)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def road(s3_server: str, s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Road]:
    """What the collectors of a test have between them and the server."""
    made = Road(s3_server)
    monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
    yield made
    made.end()


def send(collector: CollectorProcess, *numbers: int, token: str | None = None) -> int:
    body = make_request(*(make_span(number) for number in numbers)).SerializeToString()
    headers = {"Content-Type": "application/x-protobuf"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"{collector.http}/v1/traces", data=body, headers=headers)
    with urllib.request.urlopen(request) as answer:
        return int(answer.status)


def spans(location: str) -> int:
    """Rows in the lake, none of which is there twice."""
    found = verify(Lake.open(location))
    assert (found.faults, found.duplicates) == ([], 0)
    return found.rows


def wait_until(true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def segments(folder: Path) -> int:
    return len(list((folder / "wal").glob("*.log")))


def test_parts_go_to_the_store_and_the_log_stays_here(s3_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with running_collector(folder, lake=s3_url, flush_interval=0.1) as collector:
        assert send(collector, 1, 2) == 200
        wait_until(lambda: spans(s3_url) == 2)
        assert send(collector, 3) == 200
        assert collector.terminate() == 0
    assert spans(s3_url) == 3
    assert not (folder / "spans").exists()
    assert not (folder / "lake.json").exists()
    assert segments(folder) == 0


def test_the_process_dies_while_the_store_is_out_of_reach(
    road: Road, s3_url: str, tmp_path: Path
) -> None:
    """What was acknowledged is in the log, and is there once when the store is back; a collector
    that has reached its lake before starts without it."""
    folder = tmp_path / "data"
    with running_collector(folder, lake=s3_url, flush_interval=0.1) as collector:
        assert send(collector, 0) == 200
        wait_until(lambda: spans(s3_url) == 1)
        road.close()
        assert [send(collector, number) for number in range(1, 4)] == [200] * 3
        wait_until(lambda: "stays in the log" in collector.log_file.read_text())
        collector.kill()
    with running_collector(folder, lake=s3_url, flush_interval=0.1) as collector:
        assert "cannot be reached" in collector.log_file.read_text()
        assert send(collector, 4) == 200
        road.open = True
        wait_until(lambda: spans(s3_url) == 5)
        assert send(collector, 5) == 200
        assert collector.terminate() == 0
    assert spans(s3_url) == 6
    assert segments(folder) == 0


def test_it_ends_soon_though_the_store_does_not_answer(
    road: Road, s3_url: str, tmp_path: Path
) -> None:
    """It does not try each segment of a long outage: all of them are in the log."""
    folder = tmp_path / "data"
    with running_collector(folder, lake=s3_url, flush_interval=0.01) as collector:
        road.close()
        sent = 0
        while segments(folder) < 8:
            assert send(collector, sent) == 200
            sent += 1
        assert collector.terminate() == 1
        log = collector.log_file.read_text()
    assert log.partition("stopping")[2].count("stays in the log") <= 2
    assert f"see that {s3_url} can be written" in log
    assert "Traceback" not in log
    assert segments(folder) >= 7  # one may have been empty
    road.open = True
    with running_collector(folder, lake=s3_url) as collector:
        assert collector.terminate() == 0
    assert spans(s3_url) == sent


def test_killed_while_it_uploads_it_loses_and_doubles_nothing(
    road: Road, s3_url: str, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    sent = 0
    for _ in range(3):
        with running_collector(folder, lake=s3_url, flush_interval=0.02) as collector:
            before = road.requests
            while road.requests < before + 3:
                assert send(collector, sent) == 200
                sent += 1
            collector.kill()
    with running_collector(folder, lake=s3_url, flush_interval=0.02) as collector:
        assert collector.terminate() == 0
    assert spans(s3_url) == sent
    assert segments(folder) == 0


async def test_a_log_that_grows_too_long_is_back_pressure(
    road: Road, s3_url: str, serve: Serve
) -> None:
    """Refused with 503 and not acknowledged; what was acknowledged is there once in the end."""
    body = make_request(make_span(1, name="x" * 300_000)).SerializeToString()

    async def status(url: str) -> int:
        answer = await asyncio.to_thread(post, f"{url}/v1/traces", body)
        assert answer.status == 200 or "retry-after" in answer.headers
        return answer.status

    limits = {"max_wal_bytes": 1_000_000, "max_segment_bytes": 100_000}
    async with serve(lake_url=s3_url, **limits) as collector:
        road.close()
        statuses = [await status(collector.http) for _ in range(8)]
        accepted = statuses.count(200)
        assert statuses == [200] * accepted + [503] * (8 - accepted)
        assert 4 <= accepted < 8
        road.open = True
        deadline_s = time.monotonic() + WAIT_S
        while await status(collector.http) != 200:
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.05)
    assert verify(Lake.open(s3_url)).rows == accepted + 1


def test_a_store_that_never_was_reached_is_told_at_once(s3_url: str, tmp_path: Path) -> None:
    for wrong, said in (
        ("s3://nobodys-bucket/lake", "give --lake a place that is there"),
        ("lake", "is no URL of an object store"),
        ("s3://", "is no URL of an object store"),
    ):
        with (
            pytest.raises(RuntimeError, match=said) as told,
            running_collector(tmp_path / "data", lake=wrong),
        ):
            pass
        assert "Traceback" not in str(told.value)


def test_tenants_have_a_lake_of_their_own_there(s3_url: str, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("acme tv_8c1f0e5b7d9a4f26\n")
    flags = {"lake": s3_url, "tokens": str(tokens), "compact_every": "0.3s"}
    for workers in (1, 2):
        with running_collector(tmp_path / "data", workers=workers, **flags) as collector:
            assert send(collector, workers, token="tv_8c1f0e5b7d9a4f26") == 200
            assert collector.terminate() == 0
            assert "the upkeep of" not in collector.log_file.read_text()
        assert spans(f"{s3_url}/tenants/acme") == workers
    assert spans(s3_url) == 0
