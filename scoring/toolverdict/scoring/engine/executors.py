"""What runs units: one after the other, or in processes of this machine.

An executor does one thing, ``map``. Units are idempotent, so whatever was lost is simply run again.
"""

import multiprocessing
import os
import pickle
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, as_completed
from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import connection, forkserver
from typing import Final, Protocol

import pyarrow as pa

from toolverdict.scoring.engine.errors import EngineError
from toolverdict.scoring.engine.units import Done, Unit
from toolverdict.scoring.engine.work import Job, run_unit

_MOST_DEATHS: Final = 3
"""Times in a row that workers may die before any unit is done."""


class Executor(Protocol):
    """Runs units somewhere."""

    def map(self, job: Job, units: Sequence[Unit]) -> Iterator[Done]:
        """Run :func:`~.work.run_unit` with each unit; what they did, in any order.

        Raises:
            EngineError: when workers keep dying, or have other code.
            LakeError, PartGoneError, OSError: as a unit raised it.
        """


class Serial:
    """Runs units in this process."""

    def map(self, job: Job, units: Sequence[Unit]) -> Iterator[Done]:
        """One after the other."""
        for unit in units:
            yield run_unit(job, unit)


class Pool:
    """Runs units in processes of this machine; one that dies is replaced, its units run again."""

    def __init__(self, workers: int) -> None:
        """``workers`` processes at most, each of one thread."""
        self._workers = workers

    def map(self, job: Job, units: Sequence[Unit]) -> Iterator[Done]:
        """As they come."""
        if len(units) < 2 or self._workers < 2:  # a process would cost more than the unit
            yield from Serial().map(job, units)
            return
        missing = dict(enumerate(units))
        deaths = 0
        while missing:
            before = len(missing)
            try:
                yield from self._run(job, missing)
            except BrokenProcessPool:
                deaths = 1 if len(missing) < before else deaths + 1
                if deaths >= _MOST_DEATHS:
                    names = ", ".join(unit.name for unit in list(missing.values())[:3])
                    raise EngineError(
                        f"workers were killed {deaths} times at the same units ({names}); give "
                        "this machine more memory, or score with fewer --workers"
                    ) from None

    def _run(self, job: Job, missing: dict[int, Unit]) -> Iterator[Done]:
        """Run what is missing, and take what is done from it."""
        pool = ProcessPoolExecutor(
            min(self._workers, len(missing)), _context(), _begin, (pickle.dumps(job),)
        )
        try:
            numbers: dict[Future[Done], int] = {
                pool.submit(_run_here, unit): number for number, unit in missing.items()
            }
            for future in as_completed(numbers):
                done = future.result()
                del missing[numbers[future]]
                yield done
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _context() -> "multiprocessing.context.BaseContext":
    """Processes that inherit no thread and no lock of ours, begun from one that has our modules."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    with _without_current_folder():
        forkserver.ensure_running()
    return context


@contextmanager
def _without_current_folder() -> Iterator[None]:
    """Python processes that are begun meanwhile import nothing from the folder they begin in.

    The command's own process does not, either; a folder of data may hold a ``secrets.py``.
    """
    before = os.environ.get(_SAFE_PATH)
    os.environ[_SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE_PATH]
        else:
            os.environ[_SAFE_PATH] = before


_SAFE_PATH: Final = "PYTHONSAFEPATH"

_job: Job | None = None


def _begin(job: bytes) -> None:
    """What a worker does first."""
    global _job
    _job = pickle.loads(job)
    pa.set_cpu_count(1)  # there is a worker for each core
    pa.set_io_thread_count(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _run_here(unit: Unit) -> Done:
    assert _job is not None
    return run_unit(_job, unit)
