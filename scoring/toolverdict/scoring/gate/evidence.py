"""What ``score`` left in ``OUT``, as the gate and the comparison need it: shares by trajectory."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from toolverdict.scoring import summary as summary_form
from toolverdict.scoring import tables
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.gate.derived import derived_shares
from toolverdict.scoring.intervals import Moments, cluster_moments, total
from toolverdict.scoring.model import Category, Share
from toolverdict.scoring.results import SUMMARY

TRACE_FIELDS = {
    "tool.name": "tool",
    "tool.args_hash": "args_hash",
    "tool.schema_version": "schema_version",
    "tool.outcome": "outcome",
    "tool.executed": "executed",
    "policy.decision": "policy_decision",
    "policy.reason_code": "policy_reason_code",
    "approval.id": "approval_id",
    "approval.status": "approval_status",
    "idempotency.key_hash": "idempotency_key_hash",
    "idempotency.status": "idempotency_status",
    "gen_ai.agent.name": "agent",
    "gen_ai.conversation.id": "conversation_id",
    "gen_ai.request.model": "model",
    "gen_ai.tool.call.id": "call_id",
    "gen_ai.tool.name": "tool",
    "service.version": "service_version",
}
"""Attributes of a tool call that a gate may require, and the column that holds each."""

CALLS = "calls_per_trajectory"
"""A mean rather than a rate: calls over trajectories."""

_MOST_CULPRITS = 10_000
_VERSION_KEY = b"toolverdict.results.version"
_OPTIONAL = {
    "calls": ("conversation_id", *dict.fromkeys(TRACE_FIELDS.values())),
    "findings": (),
    "verdicts": ("shares",),
}
_NEEDED = {
    "calls": (
        *("trajectory_id", "trace_id", "span_id", "index", "retry_of", "tool", "outcome"),
        *("labels", "arguments_state"),
    ),
    "findings": (
        *("trajectory_id", "trace_id", "span_id", "call_index", "category", "message"),
        *("repaired", "root_cause"),
    ),
    "verdicts": (
        *("trajectory_id", "trace_id", "case_id", "passed", "reason", "selection", "arguments"),
        *("arguments_first_attempt", "order", "result_handling", "safety", "need", "weight"),
        *("forbidden_attempted", "forbidden_executed", "retry_waste", "root_cause_span_id"),
    ),
}


@dataclass(frozen=True, slots=True)
class Scored:
    """One trajectory: what it adds to each rate, and the cluster it belongs to.

    Trials of one case are a cluster, else the trajectories of one conversation. ``shares`` are not
    weighted; ``weight`` is how many trajectories this one stands for. Where nobody knows that, all
    of them are unseen.
    """

    trajectory_id: str
    trace_id: str
    case_id: str | None
    cluster: str
    passed: bool | None
    reason: str | None
    weight: float | None
    shares: Mapping[str, Share]
    cause_span_id: str | None = None


@dataclass(frozen=True, slots=True)
class Culprit:
    """Where a check failed. ``span_id`` None: no span shows it."""

    trajectory_id: str
    trace_id: str
    span_id: str | None
    case_id: str | None
    message: str


@dataclass(frozen=True)
class Results:
    """One ``OUT``: its summary, its trajectories and its tables of calls and findings."""

    out: Path
    summary: Mapping[str, Any]
    trajectories: tuple[Scored, ...]
    calls: pa.Table
    findings: pa.Table

    def moments(self, rate: str) -> Moments:
        """The sums of a rate over its clusters."""
        return moments_of(self.trajectories, rate)

    @property
    def cases_played(self) -> frozenset[str]:
        """The given cases that a trajectory played."""
        return frozenset(
            one.case_id
            for one in self.trajectories
            if one.case_id is not None and one.reason != "unknown_case"
        )

    def found(
        self,
        categories: Iterable[Category],
        keep: Callable[[Mapping[str, Any]], bool] | None = None,
    ) -> tuple[Culprit, ...]:
        """The findings of these categories that nobody put right, in a fixed order."""
        wanted = pa.array([category.value for category in categories], pa.string())
        here = pc.is_in(self.findings["category"].cast(pa.string()), value_set=wanted)
        return self.culprits(
            row
            for row in self.findings.filter(here).to_pylist()
            if not row["repaired"] and (keep is None or keep(row))
        )

    def failures(self) -> tuple[Culprit, ...]:
        """The root cause of each trajectory that failed."""
        of_causes = self.findings.filter(self.findings["root_cause"])
        causes = {row["trajectory_id"]: row for row in of_causes.to_pylist()}
        return self.culprits(
            causes.get(one.trajectory_id)
            or {
                "trajectory_id": one.trajectory_id,
                "trace_id": one.trace_id,
                "span_id": one.cause_span_id,
                "message": f"failed: {one.reason or 'no finding says why'}",
            }
            for one in self.trajectories
            if one.passed is False
        )

    def culprits(self, rows: Iterable[Mapping[str, Any]]) -> tuple[Culprit, ...]:
        """Rows with ``trajectory_id``, ``trace_id``, ``span_id``, ``message``, in a fixed order."""
        cases = {one.trajectory_id: one.case_id for one in self.trajectories}
        made = (
            Culprit(
                row["trajectory_id"],
                row["trace_id"],
                row["span_id"] or None,
                cases.get(row["trajectory_id"]),
                row["message"] or "",
            )
            for row in rows
        )
        return tuple(sorted(made, key=_place)[:_MOST_CULPRITS])


def _place(one: Culprit) -> tuple[str, ...]:
    return one.case_id or "", one.trajectory_id, one.span_id or "", one.message


def moments_of(trajectories: Iterable[Scored], rate: str) -> Moments:
    """The sums of a rate over the clusters of some trajectories."""
    clusters: dict[str, list[tuple[Share, float]]] = {}
    for one in trajectories:
        share = one.shares.get(rate)
        if share is not None:
            # What stands for nobody knows how many is in no rate: it was not seen.
            member = (share.times(None), 1.0) if one.weight is None else (share, one.weight)
            clusters.setdefault(one.cluster, []).append(member)
    return total(cluster_moments(members) for members in clusters.values())


def read_results(out: Path) -> Results:
    """Reads an ``OUT``.

    Raises:
        InputError: it is missing, unfinished or damaged, or written by a newer toolverdict.
    """
    summary = _read_summary(out)
    return results_of(out, summary, *(_read_table(out, kind) for kind in _NEEDED))


def results_of(
    out: Path, summary: Mapping[str, Any], calls: pa.Table, findings: pa.Table, verdicts: pa.Table
) -> Results:
    """The results that these tables hold."""
    return Results(out, summary, tuple(_scored(calls, findings, verdicts)), calls, findings)


def _scored(calls: pa.Table, findings: pa.Table, verdicts: pa.Table) -> Iterator[Scored]:
    rows = verdicts.to_pylist()
    counted = _counts(calls)
    conversations = _conversations(calls)
    written = "shares" in verdicts.column_names
    derived = {} if written else derived_shares(rows, calls, findings)
    for row in rows:
        trajectory, case = row["trajectory_id"], row["case_id"]
        conversation = conversations.get(trajectory, trajectory)
        yield Scored(
            trajectory_id=trajectory,
            trace_id=row["trace_id"],
            case_id=case,
            cluster=f"case {case}" if case is not None else f"conversation {conversation}",
            passed=row["passed"],
            reason=row["reason"],
            weight=row["weight"],
            shares={
                **(_shares(row["shares"]) if written else derived[trajectory]),
                CALLS: Share(counted.get(trajectory, 0), 1),
            },
            cause_span_id=row["root_cause_span_id"],
        )


def _shares(text: str) -> dict[str, Share]:
    return {name: Share(*counts) for name, counts in orjson.loads(text).items()}


def _counts(calls: pa.Table) -> dict[str, int]:
    grouped = calls.group_by("trajectory_id").aggregate([("span_id", "count")]).to_pydict()
    return dict(zip(grouped["trajectory_id"], grouped["span_id_count"], strict=True))


def _conversations(calls: pa.Table) -> dict[str, str]:
    if "conversation_id" not in calls.column_names:
        return {}
    said = calls.filter(pc.is_valid(calls["conversation_id"]))
    pairs = said.select(["trajectory_id", "conversation_id"]).to_pydict()
    return dict(zip(pairs["trajectory_id"], pairs["conversation_id"], strict=True))


def _read_summary(out: Path) -> Mapping[str, Any]:
    path = out / SUMMARY
    try:
        summary = orjson.loads(path.read_bytes())
        version = summary["version"]
        _ = summary["counts"], summary["cases"], summary["policy"], summary["cases_not_run"]
    except OSError as error:
        raise InputError(
            f"{out}: holds no results: {SUMMARY}: {error.strerror}; "
            "write them with: toolverdict score LAKE --out OUT"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is not what `toolverdict score` writes; score again") from error
    _refuse_newer(path, version, summary_form.VERSION)
    return summary  # type: ignore[no-any-return]


def _read_table(out: Path, kind: str) -> pa.Table:
    """The columns that are needed, and of the others those that are there."""
    path = out / kind
    try:
        there = pq.ParquetDataset(path).schema
        version = (there.metadata or {}).get(_VERSION_KEY, b"")
        _refuse_newer(path, int(version) if version.isdigit() else None, tables.VERSION)
        wanted = dict.fromkeys((*_NEEDED[kind], *_OPTIONAL[kind]))
        table = pq.read_table(path, columns=[name for name in wanted if name in there.names])
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path}: cannot be read as Parquet; score again") from error
    for name in _NEEDED[kind]:
        if name not in table.column_names:
            raise InputError(f"{path}: the column {name} is missing; score again")
    return table


def _refuse_newer(path: Path, version: Any, known: int) -> None:
    if not isinstance(version, int) or isinstance(version, bool) or version > known:
        raise InputError(
            f"{path}: is of version {str(version)[:40]}, and this toolverdict reads up to {known}; "
            "update toolverdict, or score again"
        )
