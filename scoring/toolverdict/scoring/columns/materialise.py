"""Trajectories as the judge sees them, out of columns: of those that are looked at one by one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
import orjson
import pyarrow.compute as pc

from toolverdict.collector.typed_json import load_attributes
from toolverdict.instrument import semconv
from toolverdict.scoring.attempts import place_attempts
from toolverdict.scoring.columns.arrays import Column, Rows, column_of, flags, taken
from toolverdict.scoring.columns.read import PlainTraces
from toolverdict.scoring.model import Captured, ModelTurn, Placed, ToolCall, Trajectory
from toolverdict.scoring.noted import atoms_of
from toolverdict.scoring.sampling import adjusted_count
from toolverdict.scoring.spans import STATUS_ERROR
from toolverdict.scoring.usage import tokens_of

_CARRIED: Final = {
    "trace_id": "trace_id",
    "span_id": "span_id",
    "parent_span_id": "parent_span_id",
    "start_ns": "start_time_unix_nano",
    "end_ns": "end_time_unix_nano",
    "call_id": "call_id",
    "arguments": "arguments",
    "arguments_state": "arguments_state",
    "args_hash": "args_hash",
    "result": "result",
    "result_state": "result_state",
    "approval_id": "approval_id",
    "idempotency_key_hash": "idempotency_key_hash",
}
"""Fields of a call that are its own, and the columns that hold them."""

_ATOMS: Final = {
    "argument_atoms": semconv.TAINT_ARGUMENT_ATOMS,
    "result_atoms": semconv.TAINT_RESULT_ATOMS,
}
_NOTED: Final = ("agent", *_ATOMS)
"""Fields of a call that are its own and in no column."""

_FIELDS: Final = [field.name for field in fields(ToolCall)]
_PLACES: Final = [_FIELDS.index(name) for name in (*_CARRIED, *_NOTED)]


def trajectories(
    plain: PlainTraces, call_columns: Mapping[str, Column], entries: Rows
) -> Iterator[Trajectory]:
    """Some trajectories of plain traces.

    Args:
        plain: the traces.
        call_columns: what :func:`toolverdict.scoring.columns.calls.call_columns` made of them.
        entries: which ones, as entries of ``plain.traces``, ascending.
    """
    traces = plain.traces
    chosen = np.flatnonzero(np.isin(plain.calls.trace, entries))
    placed = _placed(plain, call_columns, chosen)
    bounds = np.searchsorted(plain.calls.trace[chosen], [entries, entries + 1]).T.tolist()
    root = traces.root[entries]
    about = zip(
        *(taken(column_of(plain.table, name), root).to_pylist() for name in _OF_ROOT), strict=True
    )
    known = zip(
        *(
            texts.of(texts.codes[entries]).list()
            for texts in (
                traces.conversation,
                traces.case,
                traces.user,
                traces.agent,
                traces.model,
                traces.version,
            )
        ),
        strict=True,
    )
    turns = _turns(plain, traces.number[entries])
    noted = _attributes(plain, root, _TAINT)
    for (begin, end), own, named, around, attributes in zip(
        bounds, about, known, turns, noted, strict=True
    ):
        trace_id, root_span_id, status, trace_state = own
        conversation, case, user, agent, model, version = named
        yield Trajectory(
            trajectory_id=trace_id,
            trace_id=trace_id,
            root_span_id=root_span_id,
            calls=place_attempts(placed[begin:end]),
            turns=around,
            conversation_id=conversation,
            case_id=case,
            user_id=user,
            agent=agent,
            model=model,
            service_version=version,
            root_failed=status == STATUS_ERROR,
            weight=adjusted_count(trace_state or ""),
            user_atoms=atoms_of(attributes, semconv.TAINT_USER_ATOMS),
        )


_OF_ROOT: Final = ("trace_id", "span_id", "status_code", "trace_state")


def _placed(plain: PlainTraces, call_columns: Mapping[str, Column], chosen: Rows) -> list[Placed]:
    """Some calls, each with its place in its trajectory."""
    calls = plain.calls
    row = calls.row[chosen]
    own = {
        name: taken(call_columns[column], chosen).to_pylist() for name, column in _CARRIED.items()
    }
    for name in ("arguments", "result"):
        own[name] = [None if text is None else orjson.loads(text) for text in own[name]]
    for name in ("arguments_state", "result_state"):
        own[name] = [_STATES[state] for state in own[name]]
    own["agent"] = plain.agents.of(plain.agents.codes[row]).list()
    noted = _attributes(plain, row, _TAINT)
    for name, key in _ATOMS.items():
        own[name] = [atoms_of(one, key) if one else None for one in noted]
    kind_of = plain.kinds.of_row[row].tolist()
    shared = {kind: _shared(plain.kinds.kinds[kind].call) for kind in set(kind_of)}
    places = (
        [None if number < 0 else number for number in numbers[chosen].tolist()]
        for numbers in (calls.turn, calls.group)
    )
    found = []
    for kind, index, turn, group, values in zip(
        kind_of, calls.index[chosen].tolist(), *places, zip(*own.values(), strict=True), strict=True
    ):
        whole = shared[kind].copy()
        for place, value in zip(_PLACES, values, strict=True):
            whole[place] = value
        found.append(Placed(ToolCall(*whole), index, turn, group))
    return found


_STATES: Final = {state.value: state for state in Captured}


_NOTHING: Final[Mapping[str, Any]] = {}
_TAINT: Final = '"taint.'
_USAGE: Final = "token"  # every name that tells how many were paid for has it


def _attributes(plain: PlainTraces, row: Rows, sign: str) -> list[Mapping[str, Any]]:
    """The attributes of rows that have no column; none of rows in which a sign does not occur."""
    texts = taken(column_of(plain.table, "attributes"), row)
    marked = np.flatnonzero(flags(pc.match_substring(texts, sign)))
    found: list[Mapping[str, Any]] = [_NOTHING] * len(row)
    for place, text in zip(marked.tolist(), taken(texts, marked).to_pylist(), strict=True):
        found[place] = load_attributes(text)
    return found


def _shared(kind: ToolCall | None) -> list[Any]:
    """The fields of a call in their order, as all calls of its kind have them."""
    return [getattr(kind, name) for name in _FIELDS]


def _turns(plain: PlainTraces, numbers: Rows) -> Sequence[tuple[ModelTurn, ...]]:
    """The model turns of each of these traces."""
    forest = plain.forest
    row = np.flatnonzero(plain.is_model & np.isin(forest.trace, numbers))
    columns = (
        taken(column_of(plain.table, name), row).to_pylist()
        for name in ("span_id", "start_time_unix_nano", "end_time_unix_nano")
    )
    paid = (tokens_of(one) for one in _attributes(plain, row, _USAGE))
    found = [
        ModelTurn(span_id, start, end or None, tokens=tokens)
        for span_id, start, end, tokens in zip(*columns, paid, strict=True)
    ]
    bounds = np.searchsorted(forest.trace[row], [numbers, numbers + 1]).T.tolist()
    return [tuple(found[begin:end]) for begin, end in bounds]
