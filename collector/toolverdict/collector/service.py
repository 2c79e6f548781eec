"""The whole daemon, top down: lock, start, serve, drain, stop."""

import asyncio
import fcntl
import logging
import os
import signal as unix_signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from toolverdict.collector.durable import sync_folder
from toolverdict.collector.errors import ConfigError, StorageError
from toolverdict.collector.flush import Flusher
from toolverdict.collector.intake import Intake
from toolverdict.collector.lake import Lake
from toolverdict.collector.otlp_grpc import GrpcServer, join_address
from toolverdict.collector.otlp_http import HttpServer
from toolverdict.collector.parts import remove_unfinished
from toolverdict.collector.segment import refuse_newer
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.signals import WIRE, Signal
from toolverdict.collector.wal import UNNAMED_SUFFIX, WriteAheadLog

_LOG = logging.getLogger(__name__)


class Addresses(NamedTuple):
    """Where the collector listens, with the real ports."""

    grpc: str
    """host:port"""
    http: str
    """http://host:port"""


async def run(settings: CollectorSettings, on_ready: Callable[[Addresses], None]) -> None:
    """Collect until SIGTERM or SIGINT, then store everything and return.

    Raises:
        ConfigError: when the collector cannot start.
        StorageError: when the disk did not take everything at the end; the rest is in the log.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (unix_signal.SIGTERM, unix_signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with collecting(settings) as addresses:
        on_ready(addresses)
        await stop.wait()
        _LOG.info("stopping")


@asynccontextmanager
async def collecting(settings: CollectorSettings) -> AsyncIterator[Addresses]:
    """A collector that serves inside the block and has stored everything after it.

    Raises:
        ConfigError: when the collector cannot start.
        StorageError: as :func:`run` does.
    """
    with _data_folder(settings.data_dir) as (lake, wal_folder):
        left_over = _left_over(wal_folder)
        flusher = Flusher(lake)
        wal = WriteAheadLog(wal_folder, settings, flusher.submit)
        intake = Intake(wal, flusher, settings)
        try:
            async with _listening(intake, settings) as addresses:
                # After the ports are bound, so that a port in use is told at once.
                for path, size in left_over:
                    flusher.submit(path, size)
                yield addresses
        finally:
            # Both transports are silent now: what they acknowledged goes to the disk in order.
            await asyncio.to_thread(wal.close)
            failed = await asyncio.to_thread(flusher.close)
        _report(intake, flusher)
        if failed:
            raise StorageError(
                f"{len(failed)} segments could not be written as Parquet and stay in {wal_folder}; "
                "make room and start the collector again"
            )


@asynccontextmanager
async def _listening(intake: Intake, settings: CollectorSettings) -> AsyncIterator[Addresses]:
    http, grpc = HttpServer(intake, settings), GrpcServer(intake, settings)
    try:
        http_port = await http.start()
        grpc_port = await grpc.start()
        yield Addresses(
            grpc=join_address(settings.host, grpc_port),
            http=f"http://{join_address(settings.host, http_port)}",
        )
    finally:
        await asyncio.gather(http.stop(), grpc.stop())


@contextmanager
def _data_folder(folder: Path) -> Iterator[tuple[Lake, Path]]:
    """The lake and the folder of the log, for this process alone."""
    wal_folder = folder / "wal"
    try:
        wal_folder.mkdir(parents=True, exist_ok=True)
        # The log is only as durable as the names of the folders it is in.
        sync_folder(folder)
        with suppress(PermissionError):
            sync_folder(folder.absolute().parent)
        lock = os.open(wal_folder / "LOCK", os.O_RDWR | os.O_CREAT, 0o640)
    except OSError as error:
        raise _cannot_write(folder, error) from error
    try:
        _lock(lock, folder)
        yield _prepare_lake(folder), wal_folder
    finally:
        os.close(lock)


def _lock(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(
            f"another collector uses {folder}; stop it, or give --data another folder"
        ) from error


def _prepare_lake(folder: Path) -> Lake:
    try:
        lake = Lake.create(folder)
        unfinished = remove_unfinished(lake)
    except OSError as error:
        raise _cannot_write(folder, error) from error
    if unfinished:
        _LOG.info("removed %d unfinished files", unfinished)
    return lake


def _cannot_write(folder: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"cannot write to {folder} ({error.strerror}); give --data a folder this user can write"
    )


def _left_over(wal_folder: Path) -> list[tuple[Path, int]]:
    """Segments of an earlier run that did not become Parquet, with their sizes, in order."""
    try:
        for path in wal_folder.glob(f"*{UNNAMED_SUFFIX}"):
            path.unlink()
        paths = sorted(wal_folder.glob("*.log"))
        for path in paths:
            refuse_newer(path)
        sizes = [path.stat().st_size for path in paths]
    except OSError as error:
        raise _cannot_write(wal_folder, error) from error
    if paths:
        _LOG.info("replaying %d segments of an earlier run", len(paths))
    return list(zip(paths, sizes, strict=True))


def _report(intake: Intake, flusher: Flusher) -> None:
    for signal in Signal:
        _LOG.info(
            "%s: %d acknowledged, %d rejected, %d written as Parquet",
            WIRE[signal].noun,
            intake.accepted[signal],
            intake.rejected[signal],
            flusher.stored[signal],
        )
