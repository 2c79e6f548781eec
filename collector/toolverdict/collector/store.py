"""Where requests go: a lake with its log for those without a tenant, and one for each tenant."""

import asyncio
import fcntl
import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from toolverdict.collector.claim import Claim, cannot_write, claim
from toolverdict.collector.errors import ConfigError, StorageError
from toolverdict.collector.flush import DEATHS_SUFFIX, Flusher
from toolverdict.collector.lake import Lake
from toolverdict.collector.lakes import lake_of, prepare_lake, tenant_folder, tenants
from toolverdict.collector.metrics import Metrics
from toolverdict.collector.segment import refuse_newer
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.signals import Signal
from toolverdict.collector.wal import UNNAMED_SUFFIX, WriteAheadLog

_LOG = logging.getLogger(__name__)


class Result(NamedTuple):
    """What became of everything a process acknowledged, at its end."""

    stored: Counter[Signal]
    losses: list[str]
    """What did not become Parquet, in words."""


class Store:
    """A lake, the log before it and the thread that turns one into the other."""

    def __init__(
        self, claimed: Claim, lake: Lake, settings: CollectorSettings, metrics: Metrics
    ) -> None:
        """Start both threads; use :class:`Stores`."""
        self._wal_folder = claimed.wal_folder
        self._lake = lake
        self.flusher: Final = Flusher(
            lake, lambda seconds: metrics.observe("flush_seconds", seconds)
        )
        self.wal: Final = WriteAheadLog(
            claimed.wal_folder,
            settings,
            self.flusher.submit,
            claimed.check,
            lambda seconds: metrics.observe("fsync_seconds", seconds),
        )

    def close(self) -> Result:
        """Bring what was acknowledged to the disk, in order."""
        self.wal.close()
        failed = len(self.flusher.close())
        losses = [
            (
                failed,
                f"could not be written as Parquet and stay in {self._wal_folder}; see that "
                f"{self._lake.location} can be written and start the collector again",
            ),
            (
                self.flusher.set_aside,
                f"were damaged and are in {self._wal_folder / 'quarantine'}; look at them",
            ),
            (
                self.flusher.taken_away,
                f"were taken out of {self._wal_folder} by someone else; put them back and "
                "start the collector again",
            ),
        ]
        told = [f"{count} segments {fate}" for count, fate in losses if count]
        return Result(self.flusher.stored, told)


class Stores:
    """The stores of one process, each opened when it is first needed."""

    metrics: Metrics
    """What is counted."""

    def __init__(self, settings: CollectorSettings, worker: int | None = None) -> None:
        """Open the lake of those without a tenant, and of tenants with something to replay.

        Args:
            settings: of the collector.
            worker: which of several processes this is; None for the only one.

        Raises:
            ConfigError: when a folder belongs to another collector or cannot be written.
        """
        self._settings = settings
        self._worker = worker
        self._held = ExitStack()
        self._opening = asyncio.Lock()
        self._left_over: list[tuple[Store, Path, int]] = []
        self._by_tenant: dict[str | None, Store] = {}
        try:
            for tenant in (None, *_tenants_with_segments(settings.data_dir)):
                self._by_tenant[tenant] = self._open(tenant)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[Store]:
        """The stores that are open."""
        return iter(list(self._by_tenant.values()))

    async def of(self, tenant: str | None) -> Store:
        """The store of a tenant.

        Raises:
            StorageError: when it cannot be opened.
        """
        if tenant not in self._by_tenant:
            async with self._opening:
                if tenant not in self._by_tenant:
                    try:
                        opened = await asyncio.to_thread(self._open, tenant)
                    except ConfigError as error:
                        _LOG.error("tenant %s: %s", tenant, error)
                        raise StorageError(
                            "the collector cannot open the lake of this tenant; send the request "
                            "again later"
                        ) from error
                    self._by_tenant[tenant] = opened
                    self.replay()
        return self._by_tenant[tenant]

    def replay(self) -> None:
        """Begin to turn into Parquet what an earlier run left in its log."""
        if self._left_over:
            _LOG.info("replaying %d segments of an earlier run", len(self._left_over))
        for store, path, size in self._left_over:
            store.flusher.submit(path, size)
        self._left_over.clear()

    def close(self) -> Result:
        """Close all stores and give the folders back."""
        results = [store.close() for store in self._by_tenant.values()]
        self._held.close()
        stored: Counter[Signal] = Counter()
        for result in results:
            stored.update(result.stored)
        return Result(stored, [loss for result in results for loss in result.losses])

    def _open(self, tenant: str | None) -> Store:
        folder = tenant_folder(self._settings.data_dir, tenant)
        with _alone(self._settings.data_dir, tenant), ExitStack() as opening:
            claimed = opening.enter_context(claim(folder, self._worker))
            if tenant is None:
                # Not before the claim: the numbers of another collector are not ours to end.
                self.metrics = open_metrics(folder, self._worker)
                opening.callback(self.metrics.close)
            if self._worker is None or tenant is not None:
                prepare_lake(self._settings, tenant, alone=self._worker is None)
            found = _segments(_log_folders(folder, self._settings.workers, self._worker))
            lake = lake_of(self._settings, tenant)
            store = Store(claimed, lake, self._settings, self.metrics)
            self._held.push(opening.pop_all())
        self._left_over += [(store, path, size) for path, size in found]
        return store


def open_metrics(data_dir: Path, worker: int | None = None, rows: int = 1) -> Metrics:
    """The file of the metrics; a worker finds it there, with a row for each.

    Raises:
        ConfigError: when it cannot be made.
    """
    try:
        (data_dir / "wal").mkdir(parents=True, exist_ok=True)
        return Metrics(data_dir / "wal" / "METRICS", worker, rows)
    except OSError as error:
        raise cannot_write(data_dir, error) from error


@contextmanager
def _alone(data_dir: Path, tenant: str | None) -> Iterator[None]:
    """Two workers never make the lake of a tenant at the same time."""
    if tenant is None:
        yield
        return
    folder = tenant_folder(data_dir, tenant).parent
    try:
        folder.mkdir(exist_ok=True)
        descriptor = os.open(folder / "LOCK", os.O_RDWR | os.O_CREAT, 0o640)
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _tenants_with_segments(data_dir: Path) -> list[str]:
    return [
        tenant
        for tenant in tenants(data_dir)
        if any(
            path.parent.name != "quarantine"
            for path in (tenant_folder(data_dir, tenant) / "wal").rglob("*.log")
        )
    ]


def _log_folders(folder: Path, workers: int, worker: int | None) -> list[Path]:
    """The log folders a process replays: its own, and the first one also those of nobody."""
    logs = folder / "wal"
    owned = (
        {logs / f"worker-{number}" for number in range(workers)} if worker is not None else set()
    )
    orphaned = [path for path in (logs, *sorted(logs.glob("worker-*"))) if path not in owned]
    if worker is None:
        return orphaned
    return [logs / f"worker-{worker}", *(orphaned if worker == 0 else [])]


def _segments(folders: list[Path]) -> list[tuple[Path, int]]:
    """Segments that did not become Parquet, with their sizes, in order.

    Raises:
        ConfigError: when one is of a newer version, or a folder cannot be read.
    """
    found: list[tuple[Path, int]] = []
    for folder in folders:
        try:
            for path in folder.glob(f"*{UNNAMED_SUFFIX}"):
                path.unlink()
            for path in folder.glob(f"*{DEATHS_SUFFIX}"):
                if not path.with_suffix(".log").exists():
                    path.unlink()
            for path in sorted(folder.glob("*.log")):
                if path.is_file():
                    refuse_newer(path)
                found.append((path, path.lstat().st_size))
        except OSError as error:
            raise cannot_write(folder, error) from error
    return found
