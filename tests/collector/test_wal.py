"""The write-ahead log: acknowledged means synced, and an error never hides."""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toolverdict.collector import segment_file, wal
from toolverdict.collector.errors import OverloadedError, StorageError
from toolverdict.collector.segment import read_segment
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.signals import Signal
from toolverdict.collector.wal import WriteAheadLog

WAIT_S = 10


class Log:
    """A log in a folder, with the segments it has handed on."""

    def __init__(self, folder: Path, **settings: float) -> None:
        self.folder = folder
        self.sealed: list[Path] = []
        self.is_replaced = False
        values = {"flush_interval_s": 3600.0, **settings}
        self.wal = WriteAheadLog(
            folder,
            CollectorSettings.model_validate({"data_dir": folder, **values}),
            lambda path, size: self.sealed.append(path),
            self._check_folder,
        )

    def _check_folder(self) -> None:
        if self.is_replaced:
            raise StorageError("replaced")

    def append(self, body: bytes) -> None:
        self.wal.append(Signal.TRACES, body).result(WAIT_S)

    def bodies(self) -> list[bytes]:
        """What all segments hold, in order."""
        paths = sorted(self.folder.glob("*.log"))
        return [bytes(frame.body) for path in paths for frame in read_segment(path).frames]


@pytest.fixture(params=["direct", "buffered"])
def open_log(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Log]]:
    if request.param == "buffered":
        monkeypatch.setattr(segment_file, "_DIRECT", 0)
    logs: list[Log] = []

    def open_one(**settings: float) -> Log:
        logs.append(Log(tmp_path, **settings))
        return logs[-1]

    yield open_one
    for log in logs:
        log.wal.close()


def test_what_is_acknowledged_is_in_the_file(open_log: Callable[..., Log]) -> None:
    log = open_log()
    log.append(b"one")
    log.append(b"two")
    assert log.bodies() == [b"one", b"two"]
    assert log.sealed == []


def test_one_sync_serves_many_requests(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one group is being synced the next one gathers."""
    log = open_log()
    log.append(b"first makes the segment")
    started, go_on, syncs = threading.Event(), threading.Event(), []

    def slow_sync(descriptor: int) -> None:
        syncs.append(descriptor)
        started.set()
        assert go_on.wait(WAIT_S)

    monkeypatch.setattr(os, "fdatasync", slow_sync)
    futures = [log.wal.append(Signal.LOGS, b"a")]
    assert started.wait(WAIT_S)
    futures += [log.wal.append(Signal.LOGS, b"b") for _ in range(50)]
    assert not any(future.done() for future in futures)
    go_on.set()
    for future in futures:
        future.result(WAIT_S)
    assert len(syncs) == 2


def test_a_segment_is_sealed_by_age(open_log: Callable[..., Log]) -> None:
    log = open_log(flush_interval_s=0.05)
    log.append(b"x")
    for _ in range(200):
        if log.sealed:
            break
        threading.Event().wait(0.02)
    (path,) = log.sealed
    assert [frame.body for frame in read_segment(path).frames] == [b"x"]


def test_a_segment_is_sealed_by_size(open_log: Callable[..., Log]) -> None:
    log = open_log(max_segment_bytes=15_000)
    for _ in range(4):
        log.append(b"x" * 7_000)
    log.wal.close()
    assert len(log.sealed) == 2
    assert log.bodies() == [b"x" * 7_000] * 4


def test_close_writes_what_waits_and_then_refuses(open_log: Callable[..., Log]) -> None:
    log = open_log()
    futures = [log.wal.append(Signal.TRACES, bytes([n])) for n in range(20)]
    log.wal.close()
    assert all(future.result(0) is None for future in futures)
    assert len(log.sealed) == 1
    assert len(log.bodies()) == 20
    with pytest.raises(StorageError, match="stopping"):
        log.wal.append(Signal.TRACES, b"late")


def test_nothing_appended_makes_no_file(open_log: Callable[..., Log], tmp_path: Path) -> None:
    log = open_log(flush_interval_s=0.01)
    log.wal.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["writev", "fdatasync", "fsync", "open"])
def test_a_disk_error_fails_the_request_and_is_not_retried(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """B74, B82: nothing is acknowledged that is not on the disk; afterwards a new file works."""
    log = open_log()
    calls = 0

    def fail(*args: object) -> int:
        nonlocal calls
        calls += 1
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        with pytest.raises(StorageError, match="No space left"):
            log.append(b"refused")
    assert calls == 1
    assert log.wal.is_failing
    assert list(log.folder.iterdir()) == []
    log.append(b"stored")
    assert not log.wal.is_failing
    assert log.bodies() == [b"stored"]


def test_a_failure_is_forgotten_after_a_while(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collector that nobody asks any more must not stay unready for ever."""
    log = open_log()

    def fail(*args: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(StorageError):
            log.append(b"refused")
    assert log.wal.is_failing
    monkeypatch.setattr(wal, "FAILING_S", 0.0)
    assert not log.wal.is_failing


def test_a_fault_of_ours_answers_whoever_waits(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer's thread survives, and no request waits for ever."""
    log = open_log()

    def fault(*args: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(segment_file, "write_all", fault)
        with pytest.raises(StorageError, match="ZeroDivisionError"):
            log.append(b"refused")
    log.append(b"stored")
    assert log.bodies() == [b"stored"]


def test_a_failed_sync_ends_the_segment_and_keeps_what_was_durable(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fsync the same file is never synced again."""
    log = open_log()
    log.append(b"before")
    descriptors: list[int] = []

    def fail(descriptor: int) -> None:
        descriptors.append(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        for _ in range(3):
            with pytest.raises(StorageError):
                log.append(b"refused")
    assert len(log.sealed) == 1
    assert [frame.body for frame in read_segment(log.sealed[0]).frames] == [b"before"]
    log.append(b"after")
    assert log.bodies() == [b"before", b"after"]


def test_what_cannot_be_cut_off_or_sealed_is_a_torn_end(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader copes with the end of a file on a disk that refuses everything."""
    log = open_log()
    log.append(b"before")

    def fail(*args: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        for name in ("fdatasync", "ftruncate"):
            patch.setattr(os, name, fail)
        with pytest.raises(StorageError):
            log.append(b"refused")
    log.append(b"after")
    with monkeypatch.context() as patch:
        patch.setattr(os, "writev", fail)
        log.wal.close()
    assert len(log.sealed) == 2
    assert b"before" in log.bodies()
    assert log.bodies()[-1] == b"after"


def test_a_short_write_is_continued(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "writev", lambda file, pieces: os.write(file, b"".join(pieces)[:7]))
    log = open_log()
    log.append(b"x" * 100)
    assert log.bodies() == [b"x" * 100]


def test_too_much_waiting_is_refused(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """B74: memory is bounded when the disk is slow."""
    log = open_log(max_inflight_bytes=100)
    go_on = threading.Event()
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: go_on.wait(WAIT_S))
    waiting = log.wal.append(Signal.TRACES, b"x" * 90)
    with pytest.raises(OverloadedError):
        log.wal.append(Signal.TRACES, b"x" * 20)
    go_on.set()
    waiting.result(WAIT_S)
    log.append(b"x" * 20)


def test_a_client_that_went_away_does_not_stop_the_log(open_log: Callable[..., Log]) -> None:
    log = open_log()
    log.wal.append(Signal.TRACES, b"gone").cancel()
    log.append(b"next")
    assert log.bodies()[-1] == b"next"


@pytest.mark.parametrize("take", [Path.unlink, lambda path: path.rename(path.with_suffix(".old"))])
def test_a_file_that_lost_its_name_acknowledges_nothing(
    open_log: Callable[..., Log], take: Callable[[Path], object]
) -> None:
    """The kernel takes every byte and forgets them with the last descriptor."""
    log = open_log()
    log.append(b"before")
    (path,) = log.folder.glob("*.log")
    take(path)
    with pytest.raises(StorageError, match="No such file"):
        log.append(b"refused")
    assert log.wal.is_failing
    assert log.sealed == [path]
    log.append(b"after")
    assert log.bodies() == [b"after"]


def test_a_replaced_folder_gets_no_new_segment(open_log: Callable[..., Log]) -> None:
    log = open_log()
    log.is_replaced = True
    with pytest.raises(StorageError, match="its folder was replaced"):
        log.append(b"refused")
    assert log.wal.is_failing
    assert log.bodies() == []


def test_more_pieces_than_one_write_takes(open_log: Callable[..., Log]) -> None:
    """A group of very many small requests is one group all the same."""
    log = open_log()
    bodies = [str(number).encode() for number in range(os.sysconf("SC_IOV_MAX"))]
    for waiting in [log.wal.append(Signal.TRACES, body) for body in bodies]:
        waiting.result(WAIT_S)
    assert log.bodies() == bodies


def _count_syncs(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    syncs: list[float] = []
    real_sync = os.fdatasync

    def sync(descriptor: int) -> None:
        syncs.append(time.monotonic())
        real_sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync)
    return syncs


def test_interval_syncs_after_the_answer_and_in_time(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the loss of power may cost is bounded, also when no further request comes."""
    syncs = _count_syncs(monkeypatch)
    log = open_log(fsync="interval", fsync_interval_s=0.2)
    started_s = time.monotonic()
    for number in range(5):
        log.append(str(number).encode())
    of_the_header = 1
    assert len(syncs) == of_the_header or time.monotonic() - started_s >= 0.2
    while len(syncs) == of_the_header:
        assert time.monotonic() - started_s < WAIT_S
        time.sleep(0.01)
    assert syncs[1] - started_s >= 0.2
    log.append(b"last")
    log.wal.close()
    assert len(syncs) > 2, "what is sealed is synced first"


def test_off_never_syncs_what_it_acknowledges(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = _count_syncs(monkeypatch)
    log = open_log(fsync="off")
    log.append(b"one")
    log.wal.close()
    assert len(syncs) == 1  # of the header
    assert log.bodies() == [b"one"]


def test_a_late_sync_that_fails_is_told_and_the_file_never_written_again(
    open_log: Callable[..., Log], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(fsync="interval", fsync_interval_s=0.05)
    log.append(b"before")

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        for _ in range(500):
            if log.sealed:
                break
            time.sleep(0.01)
    assert "was acknowledged but could not be synced (Input/output error)" in caplog.text
    assert log.wal.is_failing
    log.append(b"after")
    log.wal.close()
    assert len(log.sealed) == 2
    assert log.bodies() == [b"before", b"after"]
