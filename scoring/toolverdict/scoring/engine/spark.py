"""Units as rows of a Spark job: each task runs its units and gives back what they did.

Extra ``[spark]``. The session is the one there is, else one on this machine; the nodes of a cluster
need the same toolverdict, and the lake and ``OUT`` at the same paths. Spark's default on a cluster
runs a task four times before it gives up; ``local[N]`` runs it once, ``local[N,4]`` four times.
"""

import os
import pickle
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from toolverdict.collector import LakeError
from toolverdict.collector.lake.part_file import PartGoneError
from toolverdict.scoring.engine.errors import EngineError
from toolverdict.scoring.engine.units import Done, Unit
from toolverdict.scoring.engine.work import Job, run_unit
from toolverdict.scoring.errors import ScoringError

_ATTEMPTS = 4
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by ``spark-submit``, which says where to run."""


class OnSpark:
    """Runs units with ``mapInArrow``, one in each partition."""

    def __init__(self, workers: int | None = None) -> None:
        """``workers`` processes, where there is no session and one is started on this machine."""
        self._workers = workers or os.cpu_count() or 1

    def map(self, job: Job, units: Sequence[Unit]) -> Iterator[Done]:
        """When all are done: Spark gives results in the order of partitions."""
        if not units:
            return
        session = self._session()
        pickled = [(pickle.dumps(unit),) for unit in units]
        of_job = session.sparkContext.broadcast(job)

        def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                pickled_units: Any = batch.column(0).to_pylist()
                for unit in pickled_units:
                    done = pickle.dumps(_done(of_job.value, pickle.loads(unit)))
                    yield pa.RecordBatch.from_pydict({"done": pa.array([done], pa.binary())})

        try:
            rows = session.createDataFrame(
                session.sparkContext.parallelize(pickled, len(units)), "unit binary"
            )
            for row in rows.mapInArrow(run, "done binary").toLocalIterator(prefetchPartitions=True):
                done: Done | Exception = pickle.loads(row.done)
                if isinstance(done, Exception):
                    raise done
                yield done
        except PySparkException as error:
            raise EngineError(f"Spark: {str(error).strip().splitlines()[0]:.300}") from error

    def _session(self) -> SparkSession:
        found = SparkSession.getActiveSession()
        if found is not None:
            return found
        # Workers are to use this interpreter; Spark would take any python3 it finds.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName("toolverdict score")
        if _SUBMITTED not in os.environ:
            builder = builder.master(f"local[{self._workers},{_ATTEMPTS}]")
        return builder.config("spark.ui.enabled", "false").getOrCreate()


def _done(job: Job, unit: Unit) -> Done | Exception:
    """What a unit did; what will not get better by running it again comes as a value."""
    try:
        return run_unit(job, unit)
    except (LakeError, PartGoneError, ScoringError) as error:
        return error
