"""The rows of the calls of plain traces, from the columns of their spans.

What the judge finds of a call, and which attempt it is, is not here: see :mod:`quiet` and
:mod:`toolverdict.scoring.attempts`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.instrument import semconv
from toolverdict.scoring.columns.arrays import Column, Rows, column_of, taken
from toolverdict.scoring.columns.read import PlainTraces
from toolverdict.scoring.columns.texts import Texts, encoded
from toolverdict.scoring.dialects.values import content, result
from toolverdict.scoring.model import Captured, Json, ToolCall
from toolverdict.scoring.values import as_text

_PER_US: Final = 1000


def call_columns(plain: PlainTraces) -> dict[str, Column]:
    """The columns of :data:`toolverdict.scoring.tables.CALLS` that spans alone fill, by name."""
    calls, traces, table = plain.calls, plain.traces, plain.table

    def carried(name: str) -> Column:
        return taken(column_of(table, name), calls.row)

    def known(texts: Texts) -> Column:
        return texts.of(texts.codes[calls.trace]).array()

    trace_id, start = carried("trace_id"), carried("start_time_unix_nano")
    end, args_hash = carried("end_time_unix_nano"), carried(semconv.TOOL_ARGS_HASH)
    arguments, arguments_state = _values(carried(semconv.GEN_AI_TOOL_CALL_ARGUMENTS), content)
    output, result_state = _values(carried(semconv.GEN_AI_TOOL_CALL_RESULT), _result)
    hashed = pc.and_(pc.is_valid(args_hash), pc.equal(arguments_state, pa.scalar(_NOT_CAPTURED)))
    return {
        "trace_id": trace_id,
        "span_id": carried("span_id"),
        "parent_span_id": carried("parent_span_id"),
        "conversation_id": known(traces.conversation),
        "trajectory_id": trace_id,
        "agent": calls.agent.array(),
        "model": known(traces.model),
        "service_version": known(traces.version),
        "turn": numbers(calls.turn),
        "index": numbers(calls.index),
        "parallel_group": numbers(calls.group),
        "call_id": carried(semconv.GEN_AI_TOOL_CALL_ID),
        "arguments": arguments,
        "arguments_state": pc.if_else(hashed, Captured.HASHED.value, arguments_state),
        "args_hash": args_hash,
        "result": output,
        "result_state": result_state,
        "start_time": pa.array(start.to_numpy() // _PER_US),
        "end_time": pa.array(end.to_numpy() // _PER_US),
        "start_time_unix_nano": start,
        "end_time_unix_nano": end,
        "approval_id": carried(semconv.APPROVAL_ID),
        "idempotency_key_hash": carried(semconv.IDEMPOTENCY_KEY_HASH),
        "user_id": known(traces.user),
        **_of_kinds(plain),
    }


_NOT_CAPTURED: Final = Captured.NOT_CAPTURED.value

_TOLD: Final[Mapping[str, Callable[[ToolCall], Any]]] = {
    "tool": lambda call: call.tool,
    "outcome": lambda call: call.outcome.value,
    "error_kind": lambda call: call.error_kind,
    "error_type": lambda call: call.error_type,
    "executed": lambda call: call.executed,
    "policy_decision": lambda call: call.policy_decision,
    "policy_reason_code": lambda call: call.policy_reason_code,
    "approval_status": lambda call: call.approval_status,
    "idempotency_status": lambda call: call.idempotency_status,
    "schema_version": lambda call: call.schema_version,
    "labels": lambda call: as_text(list(call.labels)),
    "dialect": lambda call: call.dialect,
    "weight": lambda call: call.weight,
    "exposed_as": lambda call: call.exposed_as,
}
"""The columns that are the same for every call of a kind."""


def _of_kinds(plain: PlainTraces) -> dict[str, Column]:
    calls = [kind.call for kind in plain.kinds.kinds]
    of_row = plain.kinds.of_row[plain.calls.row]
    return {
        name: taken(pa.array([None if call is None else tell(call) for call in calls]), of_row)
        for name, tell in _TOLD.items()
    }


def _result(raw: Json) -> tuple[Json, Captured]:
    value, state = content(raw)
    return (result(value), state) if state is Captured.CAPTURED else (None, state)


def _values(column: Column, read: Callable[[Json], tuple[Json, Captured]]) -> tuple[Column, Column]:
    """Captured values as JSON text, and how much of each is known; each distinct one read once."""
    raw = encoded(column)
    state = Captured.CAPTURED.value

    def text(value: str) -> str | None:
        found, captured = read(value)
        return as_text(found) if captured is Captured.CAPTURED else None

    texts = raw.each(text)
    known = pc.if_else(pa.array(texts.codes >= 0), state, _NOT_CAPTURED)
    return texts.array(), known


def numbers(values: Rows) -> Column:
    """Numbers as a column, -1 as null."""
    return pa.array(values.astype(np.int32), mask=values < 0)
