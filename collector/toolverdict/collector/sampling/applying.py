"""Pure: decisions to tables. Whole traces go; the spans that stay say what they stand for."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from toolverdict.collector.sampling.columns import (
    LATEST,
    Bools,
    Ints,
    ids_of,
    randomness_of_ids,
    words_of,
)
from toolverdict.collector.sampling.deciding import Decisions
from toolverdict.collector.sampling.thresholds import NEVER, Sampled, read_sampled, write_sampled
from toolverdict.collector.sampling.traces import NO_RANDOMNESS


class Applied(NamedTuple):
    """A table after sampling, and what happened to its rows."""

    table: pa.Table
    kept: int
    """Rows of traces that were kept."""
    dropped: int
    late: int
    """Of those dropped, the ones received after their trace was decided."""
    undecided: int
    """Rows that pass as they are, as their trace is not decided (or they have none)."""


def apply_to_spans(spans: pa.Table, decisions: Decisions) -> Applied:
    """Drop the spans of dropped traces, and write the threshold into ``trace_state`` of the others.

    A span keeps a larger threshold that it came with, since a sampler can only raise it. Where that
    cannot be believed, it is erased and the span marked: the probability of both is unknown.

    Raises:
        LakeError: when a trace id is not one.
    """
    decision = _decisions_of_rows(spans, decisions)
    applied, stays = _without_dropped(spans, decisions, decision)
    if not applied.kept:
        return applied
    table = applied.table
    column = table.schema.get_field_index("trace_state")
    written = _trace_states(table, decisions, decision[stays])
    table = table.set_column(column, table.schema.field(column), written)
    return applied._replace(table=table)


def apply_to_logs(logs: pa.Table, decisions: Decisions) -> Applied:
    """Drop the log records of dropped traces; those without a trace stay.

    Raises:
        LakeError: when a trace id is not one.
    """
    return _without_dropped(logs, decisions, _decisions_of_rows(logs, decisions))[0]


def _decisions_of_rows(table: pa.Table, decisions: Decisions) -> Ints:
    """For every row the number of the decision on its trace, -1 for none."""
    trace = words_of(table.column("trace_id"))
    # The last is where the code of no trace leads.
    return np.append(decisions.find(ids_of(trace.values)), -1)[trace.codes]


def _without_dropped(
    table: pa.Table, decisions: Decisions, decision: Ints
) -> tuple[Applied, Bools]:
    # The last is where no decision leads: it stays, and nothing is late.
    dropped = ~np.append(decisions.kept, True)[decision]
    decided_at = np.append(decisions.decided_at, LATEST)[decision]
    late = dropped & (table.column("received_time_unix_nano").to_numpy() >= decided_at)
    stays = ~dropped
    return (
        Applied(
            table.filter(pa.array(stays)) if dropped.any() else table,
            int(np.count_nonzero(stays & (decision >= 0))),
            int(np.count_nonzero(dropped)),
            int(np.count_nonzero(late)),
            int(np.count_nonzero(decision < 0)),
        ),
        stays,
    )


def _trace_states(spans: pa.Table, decisions: Decisions, decision: Ints) -> "pa.ChunkedArray[Any]":
    """The new column: each combination of old text and decision is written once."""
    state = words_of(spans.column("trace_state"))
    # What is to be written is the same for all traces with the same threshold and randomness.
    used, which = np.unique(decision, return_inverse=True)
    traits = np.column_stack(
        [decisions.threshold[used], decisions.randomness[used], decisions.unknown[used], used >= 0]
    )
    kinds, kind = np.unique(traits, axis=0, return_inverse=True)
    # The last is that of no text.
    values = [*state.values, ""]
    said = [read_sampled(value) for value in values]
    thresholds = np.array([one.threshold or 0 for one in said], np.int64)
    impossible = _randomness(spans, decisions, decision) < thresholds[state.codes]
    # One number for a row's old text (none included), kind and whether its threshold is impossible.
    texts = len(state.values) + 1
    combination = ((state.codes + 1) + texts * kind.ravel()[which]) * 2 + impossible
    found, codes = np.unique(combination, return_inverse=True)
    written = []
    for number in found.tolist():
        text = (number // 2) % texts - 1
        threshold, randomness, unknown, decided = kinds[number // 2 // texts].tolist()
        doubtful = bool(unknown or number % 2)
        written.append(
            _written(values[text], said[text], threshold, randomness, doubtful)
            if decided
            else None
            if text < 0
            else values[text]
        )
    words = pa.array(written, pa.string()).dictionary_encode()
    indices = words.indices.take(pa.array(codes.ravel()))
    column = pa.chunked_array([pa.DictionaryArray.from_arrays(indices, words.dictionary)])
    return column.cast(spans.schema.field("trace_state").type)


def _randomness(spans: pa.Table, decisions: Decisions, decision: Ints) -> Ints:
    """The randomness of every row's trace; as large as can be where none is decided."""
    trace = words_of(spans.column("trace_id"))
    own = randomness_of_ids(ids_of(trace.values))
    explicit = decisions.randomness[decision]
    randomness = np.where(explicit == NO_RANDOMNESS, own[trace.codes], explicit)
    return np.where(decision >= 0, randomness, NEVER)


def _written(state: str, said: Sampled, threshold: int, randomness: int, doubtful: bool) -> str:
    known = None if doubtful or said.unknown else max(threshold, said.threshold or 0)
    return write_sampled(state, known, None if randomness == NO_RANDOMNESS else randomness)
