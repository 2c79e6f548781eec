"""One unit scored: a pure function from files to files.

What it needs comes as a :class:`Job`, the same for all units, and a unit; what it did goes back as
counts. It may run twice, on two machines at once, or after half of it was done before.
"""

import functools
import hashlib
import importlib
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.collector.lake import Lake
from toolverdict.scoring.engine.accounts import added, read_account, write_account
from toolverdict.scoring.engine.errors import WorkerVersionError
from toolverdict.scoring.engine.files import ACROSS, LATE, TABLES, TableFile, UnitFiles
from toolverdict.scoring.engine.keys import are_in, row_keys
from toolverdict.scoring.engine.source import LOG_ROWS, SPAN_ROWS, Mask, Source, may_go_on
from toolverdict.scoring.engine.units import Done, SetAside, Stage, Unit
from toolverdict.scoring.spans import COLUMNS, LOG_COLUMNS
from toolverdict.scoring.tables import CALLS, FINDINGS, VERDICTS
from toolverdict.scoring.unit import Rules, UnitResult

SCORER: Final = "toolverdict.scoring.unit:score_unit"
_SCHEMAS: Final = dict(zip(TABLES, (CALLS, FINDINGS, VERDICTS), strict=True))

Scorer = Callable[..., UnitResult]


@dataclass(frozen=True, slots=True)
class Job:
    """What is the same for all units of a run."""

    lake: Path | str
    out: Path
    rules: Rules
    rules_digest: str
    quiet_since_ns: int | None = None
    """A trace of which nothing was received since then is over; None: every one is."""
    scorer: str = SCORER
    """``package.module:function`` with the arguments of :func:`toolverdict.scoring.unit.score_unit`."""
    code: str = ""
    """:func:`code_digest` where the run was started; empty: not checked."""


@functools.cache
def code_digest() -> str:
    """A digest of every source file of ours that a result depends on, and of Arrow's version."""
    digest = hashlib.sha256(f"{version('pyarrow')} {version('numpy')}".encode())
    for package in ("instrument", "collector", "scoring"):
        spec = find_spec(f"toolverdict.{package}")
        for folder in spec.submodule_search_locations or () if spec is not None else ():
            for path in sorted(Path(folder).rglob("*.py")):
                digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
                digest.update(path.read_bytes())
    return digest.hexdigest()


def run_unit(job: Job, unit: Unit) -> Done:
    """Score a unit, unless its results are there.

    Raises:
        LakeError: when a part is damaged or has a newer schema.
        PartGoneError: when a part is not there any more: plan again.
        WorkerVersionError: this process has other code than the one that started the run.
        OSError: when ``OUT`` does not take it.
    """
    files = UnitFiles(job.out)
    done = read_account(files, unit)
    if done is not None:
        return done
    if job.code and job.code != code_digest():
        raise WorkerVersionError(
            f"the worker on {sys.executable} has another toolverdict than the command that started "
            "it; install the same version everywhere"
        )
    with ExitStack() as stack:
        working = _Working(job, unit, files, stack)
        working.run()
        done = working.finish()
    write_account(files, done)
    return done


class _Working:
    """A unit on its way."""

    def __init__(self, job: Job, unit: Unit, files: UnitFiles, stack: ExitStack) -> None:
        self._job = job
        self._unit = unit
        self._scorer = _imported(job.scorer)
        self._source = Source(functools.cache(lambda: Lake.open(job.lake)), files, unit)
        self._outputs: dict[str, TableFile] = {}
        self._files = files
        self._stack = stack
        self._results: list[Any] = []
        self._latest = {LATE: 0, ACROSS: 0}
        self._open = 0
        for kind, schema in _SCHEMAS.items():
            self._output(kind, schema)

    def run(self) -> None:
        """Read, set aside, score, write."""
        logs = self._source.logs()
        if self._unit.stage is Stage.ACROSS:
            for spans in self._source.spans():
                self._keep(self._score(spans, logs, hold=None))
            return
        logs = self._own_logs(logs)
        seen = np.zeros(logs.num_rows, np.bool_)
        for spans in self._source.spans():
            chosen = self._own(spans)
            mine = _of_traces(logs, spans)
            seen |= mine
            if chosen.num_rows:
                its = logs.filter(pa.array(mine)) if mine.any() else logs.slice(0, 0)
                result = self._score(chosen, its, hold=self._unit.awaited)
                self._keep(result)
                if result.held:
                    self._set_aside(ACROSS, _only(chosen, result.held), _only(its, result.held))
        # A trace without a span here has none at all: its records may belong to a conversation.
        self._set_aside(ACROSS, None, _without(logs, seen))

    def finish(self) -> Done:
        """Give every file its name."""
        for output in self._outputs.values():
            output.finish()
        return Done(
            unit=self._unit.name,
            digest=self._unit.digest,
            counts=added(self._results),
            late=self._account(LATE),
            across=self._account(ACROSS),
            open_traces=self._open,
        )

    def _own(self, spans: pa.Table) -> pa.Table:
        """The rows that are scored here: whole traces that began here and are over."""
        unit, since = self._unit, self._job.quiet_since_ns
        if len(unit.shared) or len(unit.earlier):
            keys = row_keys(spans)
            shared = are_in(keys, unit.shared)
            if shared.any():
                self._set_aside(LATE, spans.filter(pa.array(shared)), None)
            spans = _without(spans, shared | are_in(keys, unit.earlier))
        if unit.may_be_open and since is not None:
            going_on = may_go_on(spans, since)
            if going_on.any():
                ids = spans.column("trace_id").filter(pa.array(going_on))
                self._open += len(pc.unique(ids))
                spans = _without(spans, going_on)
        return spans

    def _score(self, spans: pa.Table, logs: pa.Table, hold: frozenset[str] | None) -> UnitResult:
        of_logs = logs.select(LOG_COLUMNS) if logs.num_rows else None
        return self._scorer(spans.select(COLUMNS), self._job.rules, of_logs, hold)

    def _keep(self, result: UnitResult) -> None:
        self._results.append(result.counts)
        for kind in TABLES:
            self._outputs[kind].add(getattr(result, kind))

    def _own_logs(self, logs: pa.Table) -> pa.Table:
        """The records of traces that are scored here, and of no trace."""
        unit = self._unit
        if not logs.num_rows or not (len(unit.shared) or len(unit.earlier)):
            return logs
        named = logs.column("trace_id").is_valid().to_numpy()
        keys = np.zeros(logs.num_rows, np.uint64)
        keys[named] = row_keys(logs.filter(pa.array(named)))
        shared = named & are_in(keys, unit.shared)
        if shared.any():
            self._set_aside(LATE, None, logs.filter(pa.array(shared)))
        return _without(logs, shared | (named & are_in(keys, unit.earlier)))

    def _set_aside(self, stage: str, spans: pa.Table | None, logs: pa.Table | None) -> None:
        for signal, schema, table in (("spans", SPAN_ROWS, spans), ("logs", LOG_ROWS, logs)):
            if table is None or not table.num_rows:
                continue
            self._output(f"{stage}-{signal}", schema).add(table.select(schema.names))
            latest: Any = pc.max(table.column("received_time_unix_nano")).as_py()
            self._latest[stage] = max(self._latest[stage], latest)

    def _output(self, kind: str, schema: pa.Schema) -> TableFile:
        if kind not in self._outputs:
            output = TableFile(self._files.path(kind, self._unit.file), schema)
            self._outputs[kind] = output
            self._stack.callback(output.abandon)
        return self._outputs[kind]

    def _account(self, stage: str) -> SetAside:
        rows = {
            signal: self._outputs[f"{stage}-{signal}"].rows
            for signal in ("spans", "logs")
            if f"{stage}-{signal}" in self._outputs
        }
        return SetAside(rows.get("spans", 0), rows.get("logs", 0), self._latest[stage])


def _of_traces(logs: pa.Table, spans: pa.Table) -> Mask:
    """Which log records name a trace that has a span here."""
    if not logs.num_rows:
        return np.zeros(0, np.bool_)
    ids = pc.unique(spans.column("trace_id"))
    found: Any = pc.is_in(logs.column("trace_id"), value_set=ids, skip_nulls=True)
    return np.asarray(found.to_numpy(), np.bool_)


def _only(table: pa.Table, ids: Iterable[str]) -> pa.Table:
    wanted = pa.array(list(ids), pa.string())
    return table.filter(pc.is_in(table.column("trace_id"), value_set=wanted, skip_nulls=True))


def _without(table: pa.Table, rows: Mask) -> pa.Table:
    return table.filter(pa.array(~rows)) if rows.any() else table


def _imported(path: str) -> Scorer:
    module, _, name = path.partition(":")
    scorer: Scorer = getattr(importlib.import_module(module), name)
    return scorer
