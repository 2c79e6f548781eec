"""The road of the scorer, top-down: lake, units, rows and rates, ``OUT``.

Reads nothing but the lake, the policy and the cases; leaves behind what ``results`` puts in place.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

import orjson

from toolverdict.collector import Lake, LakeError
from toolverdict.collector.lake.part_file import PartGoneError
from toolverdict.instrument.catalogue.definitions import Catalogue
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.cases.load import CaseSet
from toolverdict.scoring.engine.accounts import added
from toolverdict.scoring.engine.executors import Executor, Pool, Serial
from toolverdict.scoring.engine.files import INDEX, UnitFiles
from toolverdict.scoring.engine.manifest import Manifest, read_manifest
from toolverdict.scoring.engine.plan import Sizes, Window, plan
from toolverdict.scoring.engine.stages import Progress, run_stages
from toolverdict.scoring.engine.units import Done
from toolverdict.scoring.engine.work import Job, code_digest
from toolverdict.scoring.errors import EmptyLakeError, InputError
from toolverdict.scoring.model import Thresholds
from toolverdict.scoring.results import opened, put_in_place
from toolverdict.scoring.summary import Summary, summarise
from toolverdict.scoring.unit import Rules

GRACE: Final = timedelta(minutes=30)
"""How long a trace of which no root has ended is waited for."""

_ATTEMPTS: Final = 20
"""Times that units are planned anew; each time parts were compacted or deleted meanwhile."""

Engine = Literal["local", "ray", "spark"]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What to score and by what."""

    lake: Path | str
    """A folder, or the URL of an object store as text."""
    policy: Policy | None = None
    cases: CaseSet | None = None
    case_of: Mapping[str, str] = field(default_factory=dict)
    thresholds: Thresholds = field(default_factory=Thresholds)
    catalogue: Catalogue | None = None
    """By which the cases were loaded, and what is known of tools: labels, polling, personal data."""

    @property
    def rules(self) -> Rules:
        """What trajectories are judged by."""
        return Rules(
            policy=self.policy,
            cases=self.cases.cases if self.cases is not None else {},
            case_of=self.case_of,
            thresholds=self.thresholds,
            catalogue=self.catalogue,
        )

    @property
    def digest(self) -> str:
        """A digest of what trajectories are judged by."""
        cases = self.cases.cases if self.cases is not None else {}
        said = [
            self.policy.digest if self.policy is not None else None,
            self.cases.digest if self.cases is not None else None,
            self.catalogue.digest if self.catalogue is not None else None,
            [case.model_dump_json() for _, case in sorted(cases.items())],
            sorted(self.case_of.items()),
            repr(self.thresholds),
        ]
        return hashlib.sha256(orjson.dumps(said)).hexdigest()


@dataclass(frozen=True, slots=True)
class Period:
    """What of a lake to score, and with what."""

    since: datetime | Literal["last"] | None = None
    """From the hour of this time on; ``last``: what was not scored yet, and what is over."""
    until: datetime | None = None
    """Up to the hour of this time."""
    grace: timedelta = GRACE
    """With ``last``: how long a trace of which no root has ended is waited for."""


@dataclass(frozen=True, slots=True)
class Engines:
    """What runs the units."""

    engine: Engine = "local"
    workers: int | None = None
    """Processes; None is one for each core."""
    sizes: Sizes = field(default_factory=Sizes)

    def executor(self) -> Executor:
        """Start it.

        Raises:
            InputError: it is not installed.
        """
        if self.engine == "local":
            workers = self.workers or _cores()
            return Serial() if workers == 1 else Pool(workers)
        try:
            if self.engine == "ray":
                from toolverdict.scoring.engine.ray import OnRay

                return OnRay(self.workers)
            from toolverdict.scoring.engine.spark import OnSpark

            return OnSpark(self.workers)
        except ImportError as error:
            raise InputError(
                f"--engine {self.engine}: {error}; install it with: "
                f"pip install 'toolverdict[scoring,{self.engine}]'"
            ) from error


def score(
    inputs: Inputs,
    out: Path,
    progress: Progress | None = None,
    period: Period | None = None,
    engines: Engines | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Summary:
    """Scores a lake and writes ``OUT``: calls, findings, verdicts and ``summary.json``.

    What an earlier run into ``out`` scored by the same rules, and what a run that was cut off had
    done, is not scored again. With workers a program needs ``if __name__ == "__main__":`` around its
    call, as with every pool of processes.

    Args:
        inputs: the lake, and the policy and cases to judge by.
        out: the folder to write; what an earlier run left there is replaced.
        progress: told (units done, units in all) after each unit; the second number may grow.
        period: what of the lake; None is all of it, and nothing is waited for.
        engines: what runs the units; None is this process alone.
        clock: the time, for tests.

    Raises:
        EmptyLakeError: all of the lake was to be scored and it holds no span. ``OUT`` is written all
            the same: rates None (n=0).
        LakeError: the folder is missing, is no lake, or is of a newer version.
        InputError: ``OUT`` cannot be written, or belongs to another lake with ``since="last"``.
        EngineError: workers or a cluster failed.
    """
    period, engines = period or Period(), engines or Engines(workers=1)
    lake = Lake.open(inputs.lake)
    job = Job(
        lake=inputs.lake,
        out=out,
        rules=inputs.rules,
        rules_digest=inputs.digest,
        quiet_since_ns=_nanoseconds(clock() - period.grace) if period.since == "last" else None,
        code=code_digest(),
    )
    executor = engines.executor()
    with opened(out) as files:
        _refuse_another_lake(out, inputs, period)
        done = _run(lake, job, period, engines, executor, files, progress)
        counts = added([one.counts for one in done])
        summary = summarise(inputs.lake, inputs.policy, inputs.cases, counts)
        units = tuple(one.file for one in done)
        put_in_place(out, files, units, summary)
        _manifest(job, period, done).write(out)
        files.remove_all_but(frozenset(units))
    if not counts.spans and period == Period():
        raise EmptyLakeError(
            f"{inputs.lake}: the lake holds no span, so every rate is None (n=0); send spans to "
            "the collector of this folder, or wait for its next flush"
        )
    return summary


def _run(
    lake: Lake,
    job: Job,
    period: Period,
    engines: Engines,
    executor: Executor,
    files: UnitFiles,
    progress: Progress | None,
) -> list[Done]:
    since = period.since if isinstance(period.since, datetime) else None
    window, kept = Window(since, period.until), files.folder(INDEX)
    for _ in range(_ATTEMPTS):
        try:
            planned = plan(lake, job, window, engines.sizes, kept)
            return run_stages(job, planned, executor, engines.sizes, progress)
        except PartGoneError:  # parts were compacted meanwhile: the same rows are elsewhere
            continue
    raise LakeError(f"parts of {lake.location} keep vanishing; see what deletes them")


def _refuse_another_lake(out: Path, inputs: Inputs, period: Period) -> None:
    manifest = read_manifest(out)
    if period.since == "last" and manifest is not None and manifest.lake != str(inputs.lake):
        raise InputError(
            f"{out}: holds results of {manifest.lake:.200}, so there is no last run of "
            f"{inputs.lake}; name another --out, or leave --since out"
        )


def _manifest(job: Job, period: Period, done: list[Done]) -> Manifest:
    since = period.since.isoformat() if isinstance(period.since, datetime) else period.since
    return Manifest(
        lake=str(job.lake),
        rules=job.rules_digest,
        code=job.code,
        since=since,
        until=period.until.isoformat() if period.until is not None else None,
        quiet_since_ns=job.quiet_since_ns,
        open_traces=sum(one.open_traces for one in done),
        units=tuple(one.file for one in done),
    )


def _nanoseconds(time: datetime) -> int:
    return int(time.timestamp()) * 1_000_000_000


def _cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
