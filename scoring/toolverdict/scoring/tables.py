"""The output contract: the Arrow schema of calls, findings and verdicts, and their rows.

Ids are lower-case hex texts, times ``timestamp[us, UTC]`` with the exact nanoseconds beside them,
anything structured is JSON text. Columns are only ever added: people join on them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from toolverdict.scoring.model import Captured, Json, Trajectory, Verdict
from toolverdict.scoring.per_call import found_of
from toolverdict.scoring.rates.case_scores import case_shares
from toolverdict.scoring.values import as_text
from toolverdict.scoring.verdicts import Judged

VERSION = 1
"""Version of these schemas, in the metadata of every file."""

_ID = pa.string()
_WORD = pa.dictionary(pa.int32(), pa.string())
_TIME = pa.timestamp("us", tz="UTC")

_METADATA: dict[bytes | str, bytes | str] = {"toolverdict.results.version": str(VERSION)}


def _schema(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in fields], metadata=_METADATA)


CALLS = _schema(
    ("trace_id", _ID),
    ("span_id", _ID),
    ("parent_span_id", _ID),
    ("conversation_id", pa.string()),
    ("trajectory_id", pa.string()),
    ("agent", _WORD),
    ("model", _WORD),
    ("service_version", _WORD),
    ("turn", pa.int32()),
    ("index", pa.int32()),
    ("attempt", pa.int32()),
    ("retry_of", pa.int32()),
    ("parallel_group", pa.int32()),
    ("tool", _WORD),
    ("tool_server", _WORD),
    ("call_id", pa.string()),
    ("arguments", pa.string()),
    ("arguments_state", _WORD),
    ("args_hash", pa.string()),
    ("result", pa.string()),
    ("result_state", _WORD),
    ("outcome", _WORD),
    ("error_kind", _WORD),
    ("error_type", _WORD),
    ("executed", pa.bool_()),
    ("start_time", _TIME),
    ("end_time", _TIME),
    ("start_time_unix_nano", pa.int64()),
    ("end_time_unix_nano", pa.int64()),
    ("policy_decision", _WORD),
    ("policy_reason_code", _WORD),
    ("approval_id", pa.string()),
    ("approval_status", _WORD),
    ("idempotency_key_hash", pa.string()),
    ("idempotency_status", _WORD),
    ("schema_version", _WORD),
    ("labels", pa.string()),
    ("dialect", _WORD),
    ("weight", pa.float64()),
    ("user_id", pa.string()),
    ("exposed_as", _WORD),
    ("requested_arguments", pa.string()),
    ("forbidden", _WORD),
    ("compliant", pa.bool_()),
    ("needs_approval", pa.bool_()),
    ("approval_missing", pa.bool_()),
    ("repeat", _WORD),
    ("handling", _WORD),
    ("reaction", _WORD),
    ("repeat_tokens", pa.int64()),
)

FINDINGS = _schema(
    ("trajectory_id", pa.string()),
    ("trace_id", _ID),
    ("span_id", _ID),
    ("call_index", pa.int32()),
    ("category", _WORD),
    ("severity", _WORD),
    ("grade", _WORD),
    ("key_path", pa.string()),
    ("expected", pa.string()),
    ("actual", pa.string()),
    ("comparator", _WORD),
    ("message", pa.string()),
    ("repaired", pa.bool_()),
    ("root_cause", pa.bool_()),
    ("rank", pa.int32()),
    ("confidence", pa.float64()),
    ("code", _WORD),
    ("caused_by", _ID),
    ("source_kind", _WORD),
)

VERDICTS = _schema(
    ("trajectory_id", pa.string()),
    ("trace_id", _ID),
    ("case_id", pa.string()),
    ("agent", _WORD),
    ("passed", pa.bool_()),
    ("reason", _WORD),
    ("selection", pa.float64()),
    ("selection_precision", pa.float64()),
    ("selection_recall", pa.float64()),
    ("arguments", pa.float64()),
    ("arguments_first_attempt", pa.float64()),
    ("order", pa.float64()),
    ("result_handling", pa.float64()),
    ("safety", pa.float64()),
    ("need", _WORD),
    ("forbidden_attempted", pa.int32()),
    ("forbidden_executed", pa.int32()),
    ("retries", pa.int32()),
    ("retry_waste", pa.int32()),
    ("root_cause_span_id", _ID),
    ("root_cause_category", _WORD),
    ("confidence", pa.float64()),
    ("complete", pa.bool_()),
    ("weight", pa.float64()),
    ("selection_precision_raw", pa.float64()),
    ("argument_key_score", pa.float64()),
    ("call_f1", pa.float64()),
    ("way", _WORD),
    ("shares", _WORD),
    ("model", _WORD),
    ("service_version", _WORD),
    ("start_time", _TIME),
    ("parts", pa.string()),
    ("needs", _WORD),
    ("measured", pa.string()),
)


def calls_table(judged: Sequence[Judged]) -> pa.Table:
    """One row per tool call."""
    return pa.Table.from_pylist([row for one in judged for row in _calls(one)], schema=CALLS)


def findings_table(judged: Sequence[Judged]) -> pa.Table:
    """One row per finding, the root cause of each failed trajectory first."""
    return pa.Table.from_pylist([row for one in judged for row in _findings(one)], schema=FINDINGS)


def verdicts_table(judged: Sequence[Judged]) -> pa.Table:
    """One row per trajectory; ``shares`` hold what its case alone adds to rates, or null.

    :func:`toolverdict.scoring.rates.shares.with_shares` adds the others.
    """
    return pa.Table.from_pylist([_verdict(one) for one in judged], schema=VERDICTS)


def _calls(judged: Judged) -> Iterator[dict[str, Any]]:
    trajectory = judged.trajectory
    for place, found in zip(trajectory.calls, found_of(judged), strict=True):
        call = place.call
        yield {
            "trace_id": call.trace_id,
            "span_id": call.span_id,
            "parent_span_id": call.parent_span_id,
            "conversation_id": trajectory.conversation_id,
            "trajectory_id": trajectory.trajectory_id,
            "agent": call.agent or trajectory.agent,
            "model": trajectory.model,
            "service_version": trajectory.service_version,
            "turn": place.turn,
            "index": place.index,
            "attempt": place.attempt,
            "retry_of": place.retry_of,
            "parallel_group": place.parallel_group,
            "tool": call.tool,
            "tool_server": call.tool_server,
            "call_id": call.call_id,
            "arguments": _json(call.arguments, call.arguments_state),
            "arguments_state": call.arguments_state.value,
            "args_hash": call.args_hash,
            "result": _json(call.result, call.result_state),
            "result_state": call.result_state.value,
            "outcome": call.outcome.value,
            "error_kind": call.error_kind,
            "error_type": call.error_type,
            "executed": call.executed,
            "start_time": call.start_ns // 1000,
            "end_time": call.end_ns // 1000 if call.end_ns is not None else None,
            "start_time_unix_nano": call.start_ns,
            "end_time_unix_nano": call.end_ns,
            "policy_decision": call.policy_decision,
            "policy_reason_code": call.policy_reason_code,
            "approval_id": call.approval_id,
            "approval_status": call.approval_status,
            "idempotency_key_hash": call.idempotency_key_hash,
            "idempotency_status": call.idempotency_status,
            "schema_version": call.schema_version,
            "labels": as_text(list(call.labels)),
            "dialect": call.dialect,
            "weight": call.weight,
            "user_id": trajectory.user_id,
            "exposed_as": call.exposed_as,
            "requested_arguments": None
            if call.requested_arguments is None
            else as_text(call.requested_arguments),
            **found,
        }


def _findings(judged: Judged) -> Iterator[dict[str, Any]]:
    for finding in judged.findings:
        yield {
            "trajectory_id": judged.trajectory.trajectory_id,
            "trace_id": judged.trajectory.trace_id,
            "span_id": finding.span_id,
            "call_index": finding.call_index,
            "category": finding.category.value,
            "severity": finding.severity.value,
            "grade": finding.grade,
            "key_path": finding.key_path,
            "expected": None if finding.expected is None else as_text(finding.expected),
            "actual": None if finding.actual is None else as_text(finding.actual),
            "comparator": finding.comparator,
            "message": finding.message,
            "repaired": finding.repaired,
            "root_cause": finding.root_cause,
            "rank": finding.rank,
            "confidence": finding.confidence,
            "code": finding.code,
            "caused_by": finding.caused_by,
            "source_kind": finding.source_kind,
        }


def _verdict(judged: Judged) -> dict[str, Any]:
    verdict, trajectory, scores = judged.verdict, judged.trajectory, judged.verdict.scores
    cause = verdict.root_cause_category
    return {
        "trajectory_id": trajectory.trajectory_id,
        "trace_id": trajectory.trace_id,
        "case_id": trajectory.case_id,
        "agent": trajectory.agent,
        "passed": verdict.passed,
        "reason": verdict.reason,
        "selection": scores.selection if scores else None,
        "selection_precision": scores.selection_precision if scores else None,
        "selection_recall": scores.selection_recall if scores else None,
        "arguments": scores.arguments.value if scores else None,
        "arguments_first_attempt": scores.arguments_first_attempt.value if scores else None,
        "order": scores.order.value if scores else None,
        "result_handling": verdict.result_handling,
        "safety": verdict.safety,
        "need": verdict.need,
        "forbidden_attempted": verdict.forbidden_attempted,
        "forbidden_executed": verdict.forbidden_executed,
        "retries": verdict.retries,
        "retry_waste": verdict.retry_waste,
        "root_cause_span_id": verdict.root_cause_span_id,
        "root_cause_category": cause.value if cause else None,
        "confidence": verdict.confidence,
        "complete": trajectory.complete,
        "weight": trajectory.weight,
        "selection_precision_raw": scores.selection_precision_raw if scores else None,
        "argument_key_score": scores.keys.value if scores else None,
        "call_f1": scores.call_f1 if scores else None,
        "way": scores.way if scores else None,
        "shares": _case_shares(verdict),
        "model": trajectory.model,
        "service_version": trajectory.service_version,
        "start_time": _start_us(trajectory),
        "parts": _parts(judged),
        "needs": _needs(judged),
        "measured": _measured(judged),
    }


def _start_us(trajectory: Trajectory) -> int | None:
    """When the first thing began that the trajectory holds."""
    starts = (place.call.start_ns for place in trajectory.calls)
    first = min((*starts, *(turn.start_ns for turn in trajectory.turns)), default=None)
    return first // 1000 if first is not None else None


def _case_shares(verdict: Verdict) -> str | None:
    shares = case_shares(verdict)
    if not shares:
        return None
    return as_text({name: [one.hits, one.of, one.unseen] for name, one in shares.items()})


def _needs(judged: Judged) -> str | None:
    """The cell of each decision whether to call a tool; null without a case."""
    scores = judged.verdict.scores
    return None if scores is None else as_text(list(scores.needs))


def _measured(judged: Judged) -> str | None:
    """The arguments that were compared by how near they are; null where none was."""
    scores = judged.verdict.scores
    if scores is None or not scores.measured:
        return None
    return as_text(
        [
            {
                "call_index": index,
                "key_path": one.key_path,
                "comparator": one.comparator,
                "score": one.score,
                "method": one.method,
            }
            for index, one in scores.measured
        ]
    )


def _parts(judged: Judged) -> str | None:
    """What single calls add to the sub-metrics of a case; null without one."""
    scores = judged.verdict.scores
    if scores is None:
        return None
    return as_text(
        [
            [p.rate, p.tool, p.call_index, p.share.hits, p.share.of, p.share.unseen]
            for p in scores.parts
        ]
    )


def _json(value: Json, state: Captured) -> str | None:
    return as_text(value) if state is Captured.CAPTURED else None
