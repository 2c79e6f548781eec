"""Several processes on the same two ports: start them, watch them, stop them.

The kernel shares connections out between them (``SO_REUSEPORT``). Each has a log of its own under
the same lake; the folder is claimed once, by all of them together. One that dies is started again
and replays its own log. When the supervisor dies, its workers stop in order.
"""

import logging
import multiprocessing
import os
import signal as unix_signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Final

from toolverdict.collector.claim import claim
from toolverdict.collector.errors import CollectorError, ConfigError, StorageError
from toolverdict.collector.lakes import prepare_lake, tenants
from toolverdict.collector.service import (
    STOP_SIGNALS,
    Addresses,
    warn_of_exposure,
)
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.store import open_metrics

_LOG = logging.getLogger(__name__)

RESTART_S: Final = 1.0
"""Seconds until a worker that died is started again."""

_SPAWN: Final = multiprocessing.get_context("spawn")


class Worker:
    """One process and the pipe that ties it to this one."""

    def __init__(self, settings: CollectorSettings, number: int, main: Callable[..., None]) -> None:
        """Start the process."""
        self.number: Final = number
        self._pipe, theirs = _SPAWN.Pipe()
        self.process: Final[SpawnProcess] = _SPAWN.Process(
            target=main, args=(settings, number, theirs), name=f"worker-{number}"
        )
        self.process.start()
        theirs.close()

    def addresses(self) -> Addresses:
        """Wait until it listens.

        Raises:
            CollectorError: when it could not start, as it said itself.
        """
        told = self._told()
        if isinstance(told, Addresses):
            return told
        self.process.join()
        raise told or ConfigError(f"{self.process.name} ended before it listened")

    def end(self) -> CollectorError | None:
        """Wait until it has stored everything; what it says of what it could not."""
        told = self._told()
        self.process.join()
        self._pipe.close()
        if isinstance(told, CollectorError):
            return told
        if self.process.exitcode:
            return StorageError(
                f"{self.process.name} ended with {self.process.exitcode}; what it acknowledged is "
                "in its log, start the collector again"
            )
        return None

    def _told(self) -> Addresses | CollectorError | None:
        with suppress(EOFError, OSError):
            told = self._pipe.recv()
            if isinstance(told, Addresses | CollectorError):
                return told
        return None


def run_workers(
    settings: CollectorSettings,
    on_ready: Callable[[Addresses], None],
    main: Callable[[CollectorSettings, int, Connection], None],
) -> None:
    """Collect with several processes until SIGTERM or SIGINT, then stop them all.

    Args:
        settings: of the collector; ``workers`` says how many processes.
        on_ready: called once all of them listen.
        main: what a worker runs; it sends its addresses, or the error it ended with.

    Raises:
        ConfigError: when the collector cannot start.
        StorageError: when a worker could not store everything at the end.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)

    def ask_to_stop(*_: object) -> None:
        with suppress(BlockingIOError):
            os.write(wake, b"x")

    for number in STOP_SIGNALS:
        unix_signal.signal(number, ask_to_stop)
    with claim(settings.data_dir) as claimed:
        for tenant in (None, *tenants(settings.data_dir)):
            prepare_lake(settings, tenant, alone=True)
        open_metrics(settings.data_dir, rows=settings.workers).close()
        _refuse_ports_in_use(settings)
        claimed.share()
        warn_of_exposure(settings)
        workers: list[Worker] = []
        try:
            workers.append(Worker(settings, 0, main))
            addresses = workers[0].addresses()
            settings = settings.model_copy(
                update={"grpc_port": _port(addresses.grpc), "http_port": _port(addresses.http)}
            )
            workers += [Worker(settings, number, main) for number in range(1, settings.workers)]
            for worker in workers[1:]:
                worker.addresses()
            on_ready(addresses)
            _watch(workers, woken, settings, main)
        finally:
            _stop(workers)


def _watch(
    workers: list[Worker],
    woken: int,
    settings: CollectorSettings,
    main: Callable[[CollectorSettings, int, Connection], None],
) -> None:
    """Start workers again that die, until we are asked to stop."""
    while True:
        ready = wait([woken, *(worker.process.sentinel for worker in workers)])
        if woken in ready:
            return
        for place, worker in enumerate(workers):
            if worker.process.sentinel in ready:
                worker.process.join()
                _LOG.error(
                    "worker %d died (exit code %s) and is started again",
                    worker.number,
                    worker.process.exitcode,
                )
                if wait([woken], RESTART_S):
                    return
                workers[place] = Worker(settings, worker.number, main)
                try:
                    workers[place].addresses()
                except CollectorError as error:
                    _LOG.error("worker %d: %s", worker.number, error)


def _stop(workers: list[Worker]) -> None:
    for worker in workers:
        worker.process.terminate()
    errors = [error for worker in workers if (error := worker.end()) is not None]
    if errors and sys.exception() is None:
        raise StorageError(". ".join(str(error) for error in errors))


def _refuse_ports_in_use(settings: CollectorSettings) -> None:
    """``SO_REUSEPORT`` would let us share a port with a collector we know nothing of."""
    for option, port in (("--grpc-port", settings.grpc_port), ("--http-port", settings.http_port)):
        if port == 0:
            continue
        try:
            socket.create_server((settings.host, port)).close()
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {settings.host} port {port} "
                f"({error.strerror or 'no such address'}); give another {option} or --host"
            ) from error


def _port(address: str) -> int:
    return int(address.rpartition(":")[2])
