"""The daemon of one process, top down: lock, start, serve, drain, stop."""

import asyncio
import logging
import signal as unix_signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from typing import Final, NamedTuple

from toolverdict.collector.connections import raise_file_limit
from toolverdict.collector.errors import StorageError
from toolverdict.collector.intake import Intake
from toolverdict.collector.otlp_grpc import GrpcServer, join_address
from toolverdict.collector.otlp_http import HttpServer
from toolverdict.collector.reception import Reception
from toolverdict.collector.redaction import read_redactor
from toolverdict.collector.sampling.policy import SamplingPolicy
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.signals import WIRE, Signal
from toolverdict.collector.store import Stores
from toolverdict.collector.upkeep import keep_up
from toolverdict.collector.versions import versions

_LOG = logging.getLogger(__name__)

STOP_SIGNALS: Final = (unix_signal.SIGTERM, unix_signal.SIGINT)
"""What makes :func:`run` store everything and return, however often it comes."""


class Addresses(NamedTuple):
    """Where the collector listens, with the real ports."""

    grpc: str
    """host:port"""
    http: str
    """http://host:port, or https:// with TLS."""


async def run(
    settings: CollectorSettings,
    on_ready: Callable[[Addresses], None],
    worker: int | None = None,
    lifeline: int | None = None,
) -> None:
    """Collect until SIGTERM or SIGINT, then store everything and return.

    Args:
        settings: of the collector.
        on_ready: called once both servers listen.
        worker: which of several processes this is; None for the only one.
        lifeline: a pipe whose other end is closed when the process that started this one ends,
            which is a reason to stop, too.

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
    if lifeline is not None:
        loop.add_reader(lifeline, stop.set)
    async with collecting(settings, worker) as addresses:
        on_ready(addresses)
        await stop.wait()
        _LOG.info("stopping")


@asynccontextmanager
async def collecting(
    settings: CollectorSettings, worker: int | None = None
) -> AsyncIterator[Addresses]:
    """A collector that serves inside the block and has stored everything after it.

    Raises:
        ConfigError: when the collector cannot start.
        StorageError: as :func:`run` does.
    """
    redactor = read_redactor(settings.redaction_file) if settings.redaction_file else None
    if settings.sampling_file is not None:
        SamplingPolicy.load(
            settings.sampling_file
        )  # the upkeep reads it each time; here to be told
    stores = Stores(settings, worker)
    try:
        intake = Intake(stores, settings, redactor)
        reception = Reception(settings, stores, intake)
        async with _listening(reception, settings, worker) as addresses:
            if worker is None:
                warn_of_exposure(settings)
            # After the ports are bound, so that a port in use is told at once.
            stores.replay()
            yield addresses
    finally:
        # Both transports are silent now: what they acknowledged goes to the disk in order.
        result = await asyncio.to_thread(stores.close)
    _report(intake, result.stored)
    if result.losses:
        raise StorageError(". ".join(result.losses))


def warn_of_exposure(settings: CollectorSettings) -> None:
    """Say in one line that more than this machine may send, when nothing keeps strangers out."""
    missing = [
        option
        for option, given in (
            ("--tls-cert", settings.tls_certificate),
            ("--tokens", settings.tokens_file or settings.tls_client_ca),
        )
        if given is None
    ]
    if missing and not _is_loopback(settings.host):
        _LOG.warning(
            "listening on %s without %s: whoever reaches this address can send, or read what is "
            "sent",
            settings.host,
            " and ".join(missing),
        )


@asynccontextmanager
async def _listening(
    reception: Reception, settings: CollectorSettings, worker: int | None
) -> AsyncIterator[Addresses]:
    http, grpc = HttpServer(reception, settings), GrpcServer(reception, settings)
    background = [asyncio.create_task(reception.keep_fresh())]
    if settings.compact_every_s is not None and not worker:
        background.append(asyncio.create_task(keep_up(settings, settings.compact_every_s)))
    scheme = "http" if settings.tls_certificate is None else "https"
    try:
        http_port = await http.start()
        grpc_port = await grpc.start()
        _LOG.info("%s", ", ".join(f"{name} {value}" for name, value in versions().items()))
        yield Addresses(
            grpc=join_address(settings.host, grpc_port),
            http=f"{scheme}://{join_address(settings.host, http_port)}",
        )
    finally:
        await asyncio.gather(http.stop(), grpc.stop())
        for task in background:
            task.cancel()
        await asyncio.gather(*background, return_exceptions=True)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _report(intake: Intake, stored: Counter[Signal]) -> None:
    for signal in Signal:
        _LOG.info(
            "%s: %d acknowledged, %d rejected, %d written as Parquet",
            WIRE[signal].noun,
            intake.accepted[signal],
            intake.rejected[signal],
            stored[signal],
        )
