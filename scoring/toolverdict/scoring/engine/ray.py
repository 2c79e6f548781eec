"""Units as tasks of Ray: on a cluster, or on one that is started on this machine.

Extra ``[ray]``. ``RAY_ADDRESS`` names a cluster; its nodes need the same toolverdict, and the lake
and ``OUT`` at the same paths.
"""

import os
from collections.abc import Iterator, Sequence

import ray
from ray.exceptions import RayError, RayTaskError

from toolverdict.scoring.engine.errors import EngineError
from toolverdict.scoring.engine.units import Done, Unit
from toolverdict.scoring.engine.work import Job, run_unit

_RETRIES = 3
_WAITING_PER_CPU = 4
"""Tasks that are handed over before others are done: a cluster of any size has enough to do."""


class OnRay:
    """Runs units as core tasks; Ray runs a task again when its worker or its node dies."""

    def __init__(self, workers: int | None = None) -> None:
        """Connect to the cluster of ``RAY_ADDRESS``, else start one of ``workers`` processes."""
        self._workers = workers

    def map(self, job: Job, units: Sequence[Unit]) -> Iterator[Done]:
        """As they come."""
        if not units:
            return
        try:
            self._connect()
            yield from _run(job, units)
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, Exception) else error from error
        except (RayError, ConnectionError) as error:
            raise EngineError(f"Ray: {str(error).strip().splitlines()[0]:.300}") from error

    def _connect(self) -> None:
        if ray.is_initialized():
            return
        quietly = {"log_to_driver": False, "configure_logging": False}
        if "RAY_ADDRESS" in os.environ:
            ray.init(**quietly)
        else:
            ray.init(num_cpus=self._workers, include_dashboard=False, **quietly)


def _run(job: Job, units: Sequence[Unit]) -> Iterator[Done]:
    task = ray.remote(max_retries=_RETRIES, retry_exceptions=[OSError])(run_unit)
    shared = ray.put(job)
    waiting = list(reversed(units))
    most = max(1, int(ray.cluster_resources().get("CPU", 1))) * _WAITING_PER_CPU
    running: list[ray.ObjectRef[Done]] = []
    while waiting or running:
        while waiting and len(running) < most:
            running.append(task.remote(shared, waiting.pop()))
        ready, running = ray.wait(running, num_returns=1)
        yield from ray.get(ready)
