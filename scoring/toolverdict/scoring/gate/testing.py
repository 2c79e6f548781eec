"""Results in a few lines, for tests of gates and of one's own.

>>> write_out(folder, [played("a", passed=True), played("b", passed=False)])  # doctest: +SKIP
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from toolverdict.scoring.gate.evidence import CALLS, Scored
from toolverdict.scoring.model import Category, Share
from toolverdict.scoring.results import SUMMARY
from toolverdict.scoring.tables import CALLS as CALL_COLUMNS
from toolverdict.scoring.tables import FINDINGS, VERDICTS


@dataclass(frozen=True)
class Played:
    """One trajectory as rows: its verdict, its calls, and findings as (category, call, message)."""

    trajectory_id: str
    verdict: Mapping[str, Any]
    calls: Sequence[Mapping[str, Any]] = ()
    findings: Sequence[tuple[Category, int, str]] = ()


def played(
    case: str | None,
    *,
    passed: bool | None,
    trial: int = 0,
    calls: Sequence[Mapping[str, Any]] = ({},),
    findings: Sequence[tuple[Category, int, str]] = (),
    **verdict: Any,
) -> Played:
    """A trajectory of a case that called nothing wrong but what ``verdict`` says.

    ``calls`` are columns of each call; each calls ``search`` and ends well unless they say
    otherwise.
    """
    name = f"{case or 'live'}-{trial}"
    right = float(bool(passed))
    return Played(
        name,
        {
            "case_id": case,
            "passed": passed,
            "reason": None if passed else "wrong_tool",
            "selection": right,
            "arguments": right,
            "arguments_first_attempt": right,
            "order": right,
            "safety": 1.0,
            "need": "tp",
            "weight": 1.0,
            "forbidden_attempted": 0,
            "forbidden_executed": 0,
            "retry_waste": 0,
            **verdict,
        },
        calls,
        findings,
    )


def write_out(
    out: Path,
    trajectories: Iterable[Played],
    *,
    cases: int | None = None,
    not_run: Sequence[str] = (),
    policy: Mapping[str, str] | None = None,
) -> Path:
    """Writes an ``OUT`` as ``score`` does, with these trajectories; returns its folder."""
    trajectories = list(trajectories)
    calls = [row for one in trajectories for row in _calls(one)]
    findings = [row for one in trajectories for row in _findings(one)]
    verdicts = [
        {"trajectory_id": one.trajectory_id, "trace_id": one.trajectory_id, **one.verdict}
        for one in trajectories
    ]
    for kind, rows, schema in (
        ("calls", calls, CALL_COLUMNS),
        ("findings", findings, FINDINGS),
        ("verdicts", verdicts, VERDICTS),
    ):
        (out / kind).mkdir(parents=True, exist_ok=True)
        kept = schema
        if "shares" in schema.names:
            kept = schema.remove(schema.get_field_index("shares"))
        pq.write_table(pa.Table.from_pylist(rows, kept), out / kind / "unit-000.parquet")
    ids = {one.verdict["case_id"] for one in trajectories} - {None}
    summary = {
        "version": 1,
        "counts": {"trajectories": len(trajectories), "calls": len(calls)},
        "cases": {"digest": "", "count": len(ids) + len(not_run) if cases is None else cases},
        "policy": policy,
        "cases_not_run": list(not_run),
    }
    (out / SUMMARY).write_text(json.dumps(summary))
    return out


def scored(
    name: str,
    shares: Mapping[str, Share],
    *,
    case: str | None = None,
    calls: int = 1,
    passed: bool | None = None,
    weight: float | None = 1.0,
) -> Scored:
    """A trajectory of which only the shares matter."""
    return Scored(
        trajectory_id=name,
        trace_id=name,
        case_id=case,
        cluster=f"case {case}" if case is not None else f"conversation {name}",
        passed=passed,
        reason=None,
        weight=weight,
        shares={**shares, CALLS: Share(calls, 1)},
    )


def _calls(one: Played) -> Iterable[dict[str, Any]]:
    for index, call in enumerate(one.calls):
        yield {
            "trajectory_id": one.trajectory_id,
            "trace_id": one.trajectory_id,
            "span_id": f"{one.trajectory_id}.{index}",
            "index": index,
            "tool": "search",
            "outcome": "ok",
            "labels": "[]",
            "arguments_state": "captured",
            "args_hash": "sha256:0",
            "policy_decision": "allow",
            "executed": True,
            "weight": one.verdict["weight"],
            **call,
        }


def _findings(one: Played) -> Iterable[dict[str, Any]]:
    for place, (category, index, message) in enumerate(one.findings):
        yield {
            "trajectory_id": one.trajectory_id,
            "trace_id": one.trajectory_id,
            "span_id": f"{one.trajectory_id}.{index}",
            "call_index": index,
            "category": category.value,
            "message": message,
            "repaired": False,
            "root_cause": place == 0 and one.verdict["passed"] is False,
        }
