"""The whole daemon, top down: lock, start, serve, drain, stop."""

import asyncio
import logging
import signal as unix_signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from toolverdict.collector.claim import cannot_write, claim
from toolverdict.collector.connections import raise_file_limit
from toolverdict.collector.errors import StorageError
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

STOP_SIGNALS: Final = (unix_signal.SIGTERM, unix_signal.SIGINT)
"""What makes :func:`run` store everything and return, however often it comes."""


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
    raise_file_limit()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask_to_stop(*_: object) -> None:
        with suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(stop.set)

    for number in STOP_SIGNALS:
        # Not the loop's own way, which gives the signals back before the process has ended.
        unix_signal.signal(number, ask_to_stop)
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
    with claim(settings.data_dir) as claimed:
        lake, wal_folder = _prepare_lake(settings.data_dir), claimed.wal_folder
        left_over = _left_over(wal_folder)
        flusher = Flusher(lake)
        wal = WriteAheadLog(wal_folder, settings, flusher.submit, claimed.check)
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
        _raise_for_loss(len(failed), flusher, wal_folder)


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


def _prepare_lake(folder: Path) -> Lake:
    try:
        lake = Lake.create(folder)
        unfinished = remove_unfinished(lake)
    except OSError as error:
        raise cannot_write(folder, error) from error
    if unfinished:
        _LOG.info("removed %d unfinished files", unfinished)
    return lake


def _left_over(wal_folder: Path) -> list[tuple[Path, int]]:
    """Segments of an earlier run that did not become Parquet, with their sizes, in order."""
    try:
        for path in wal_folder.glob(f"*{UNNAMED_SUFFIX}"):
            path.unlink()
        paths = sorted(wal_folder.glob("*.log"))
        for path in paths:
            if path.is_file():
                refuse_newer(path)
        sizes = [path.lstat().st_size for path in paths]
    except OSError as error:
        raise cannot_write(wal_folder, error) from error
    if paths:
        _LOG.info("replaying %d segments of an earlier run", len(paths))
    return list(zip(paths, sizes, strict=True))


def _raise_for_loss(failed: int, flusher: Flusher, wal_folder: Path) -> None:
    """Say at the end, in one line, what did not become Parquet."""
    losses = [
        (
            failed,
            f"could not be written as Parquet and stay in {wal_folder}; make room and start "
            "the collector again",
        ),
        (flusher.set_aside, f"were damaged and are in {wal_folder / 'quarantine'}; look at them"),
        (
            flusher.taken_away,
            f"were taken out of {wal_folder} by someone else; put them back and "
            "start the collector again",
        ),
    ]
    told = [f"{count} segments {fate}" for count, fate in losses if count]
    if told:
        raise StorageError(". ".join(told))


def _report(intake: Intake, flusher: Flusher) -> None:
    for signal in Signal:
        _LOG.info(
            "%s: %d acknowledged, %d rejected, %d written as Parquet",
            WIRE[signal].noun,
            intake.accepted[signal],
            intake.rejected[signal],
            flusher.stored[signal],
        )
