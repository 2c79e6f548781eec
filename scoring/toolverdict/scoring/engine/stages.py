"""The three stages of a run: what each unit set aside makes the units of the stage behind it."""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from toolverdict.scoring.engine.executors import Executor
from toolverdict.scoring.engine.plan import Plan, Sizes, awaited_digest, digest_of
from toolverdict.scoring.engine.units import Done, Stage, Unit
from toolverdict.scoring.engine.work import Job

Progress = Callable[[int, int], None]


def run_stages(
    job: Job, plan: Plan, executor: Executor, sizes: Sizes, progress: Progress | None
) -> list[Done]:
    """Score the units of a plan, then what they set aside.

    Args:
        job: what they are scored by.
        plan: the units of the first stage.
        executor: what runs them.
        sizes: what is few and what is many.
        progress: told (units done, units in all) after each unit.

    Returns:
        What each unit did, in the order of the stages.
    """
    running = _Running(job, executor, progress)
    windows = running.all(plan.units)
    late = running.all(list(_late_units(job, plan, windows, sizes)))
    across = running.all(list(_across_units(job, [*windows, *late], sizes)))
    return [*windows, *late, *across]


class _Running:
    """Units on their way through an executor."""

    def __init__(self, job: Job, executor: Executor, progress: Progress | None) -> None:
        self._job = job
        self._executor = executor
        self._progress = progress
        self._done = 0

    def all(self, units: Sequence[Unit]) -> list[Done]:
        """Run units; what they did, in their order."""
        total = self._done + len(units)
        found: dict[str, Done] = {}
        for done in self._executor.map(self._job, units):
            found[done.unit] = done
            self._done += 1
            if self._progress is not None:
                self._progress(self._done, total)
        return [found[unit.name] for unit in units]


def _late_units(job: Job, plan: Plan, done: Sequence[Done], sizes: Sizes) -> Iterator[Unit]:
    spans = tuple(one.file for one in done if one.late.spans)
    logs = tuple(one.file for one in done if one.late.logs)
    rows = sum(one.late.spans + one.late.logs for one in done)
    since = job.quiet_since_ns
    latest = max((one.late.latest_ns for one in done), default=0)
    may_be_open = since is not None and latest > since
    pieces = 1
    while pieces * sizes.late_rows < rows:
        pieces *= 2
    for number in range(pieces if rows else 0):
        name = f"late-{number:03d}of{pieces:03d}"
        going_on = str(since) if may_be_open else ""
        inputs = (*spans, "", *logs, awaited_digest(plan.awaited), going_on)
        yield Unit(
            stage=Stage.LATE,
            name=name,
            digest=digest_of(job, Stage.LATE, name, inputs),
            spans=spans,
            logs=logs,
            shard=(number, pieces),
            awaited=plan.awaited,
            may_be_open=may_be_open,
        )


def _across_units(job: Job, done: Sequence[Done], sizes: Sizes) -> Iterator[Unit]:
    """What is put together at once, in the order of time; one unit even of nothing."""
    borders, rows = [0], 0
    for number, one in enumerate(done):
        more = one.across.spans + one.across.logs
        if rows and rows + more > sizes.across_rows:
            borders.append(number)
            rows = 0
        rows += more
    for slice_number, (begin, end) in enumerate(pairwise([*borders, len(done)])):
        spans = tuple(one.file for one in done[begin:end] if one.across.spans)
        logs = tuple(one.file for one in done[begin:end] if one.across.logs)
        name = f"across-{slice_number:03d}"
        digest = digest_of(job, Stage.ACROSS, name, (*spans, "", *logs))
        yield Unit(Stage.ACROSS, name, digest, spans, logs)
