"""A disk that is full, for the log and for Parquet: a real one of a few MiB, in memory."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from toolverdict.collector.lake import Lake
from toolverdict.collector.testing import (
    Answer,
    CollectorProcess,
    make_request,
    make_span,
    post,
    running_collector,
)

NAME = "x" * 200_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _fill(disk: Path) -> Path:
    """Take all the space that is left, to the last byte."""
    ballast = disk / "ballast"
    with ballast.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return ballast


def _send(collector: CollectorProcess, number: int) -> Answer:
    body = make_request(make_span(number, name=f"{number}{NAME}")).SerializeToString()
    return post(f"{collector.http}/v1/traces", body)


def _send_until_stored(collector: CollectorProcess, number: int) -> int:
    """Send as exporters do, again and again; returns the number that was acknowledged."""
    for _ in range(100):
        answer = _send(collector, number)
        if answer.status == 200:
            return number
        assert answer.status == 503
        time.sleep(0.1)
    raise AssertionError("the collector did not recover")


def _assert_stored_once(lake: Path, numbers: list[int]) -> None:
    rows = Lake.open(lake).read_spans(0, ["span_id"])["span_id"].to_pylist()
    assert sorted(int(str(span_id), 16) - 1 for span_id in rows) == sorted(numbers)


def test_a_full_disk_refuses_the_log_until_there_is_space(disk: Path) -> None:
    """B74: 503 with a delay, and what was acknowledged before and after is there."""
    lake = disk / "lake"
    with running_collector(lake, flush_interval=3600) as collector:
        acknowledged = [_send_until_stored(collector, 0)]
        ballast = _fill(disk)
        answer = _send(collector, 1)
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        assert b"No space left on device" in answer.body
        ballast.unlink()
        acknowledged.append(_send_until_stored(collector, 2))
        collector.terminate()
    with running_collector(lake) as collector:  # what had to wait for space is in the log
        assert collector.terminate() == 0
    _assert_stored_once(lake, acknowledged)


def test_a_full_disk_keeps_the_log_until_parquet_can_be_written(disk: Path) -> None:
    """B74: the log is not deleted, no half a part is seen, and it is tried again."""
    lake = disk / "lake"
    with running_collector(lake, flush_interval=1.0) as collector:
        acknowledged = [_send_until_stored(collector, number) for number in range(3)]
        ballast = _fill(disk)
        for _ in range(200):
            if "could not be written as Parquet" in collector.log_file.read_text():
                break
            time.sleep(0.1)
        assert "stays in the log" in collector.log_file.read_text()
        assert list(lake.rglob("*.parquet")) == []
        assert _send(collector, 9).status == 503
        ballast.unlink()
        acknowledged.append(_send_until_stored(collector, 10))
        collector.terminate()
    with running_collector(lake) as collector:  # what had to wait for space is in the log
        assert collector.terminate() == 0
    _assert_stored_once(lake, acknowledged)
    assert list((lake / "wal").glob("*.log")) == []
