"""What spans say, told once for all that say the same.

Spans that differ only in ids, times and a few values that are carried over as they are (arguments,
hashes, call ids) are of one *kind*. One span of each kind is read by the same functions that read
any span, so that there is no second opinion about what a dialect means. Production traffic has
millions of spans and some hundred kinds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.collector import schema
from toolverdict.instrument import semconv
from toolverdict.scoring.columns.arrays import (
    NONE,
    Column,
    Flags,
    Rows,
    column_of,
    rows_of,
    words_of,
)
from toolverdict.scoring.columns.texts import Texts, distinct
from toolverdict.scoring.dialects import dialects, ours
from toolverdict.scoring.dialects.dialect import Role, first_text
from toolverdict.scoring.joining import join
from toolverdict.scoring.model import ToolCall
from toolverdict.scoring.noted import TOOL_DEFINITIONS
from toolverdict.scoring.part import Part
from toolverdict.scoring.reading import USER_KEYS
from toolverdict.scoring.spans import Span, span_of
from toolverdict.scoring.spoken import (
    is_ours,
    read_text,
    role_of,
    spoken,
    told_by_event,
    tool_call,
)

CARRIED: Final = (
    semconv.GEN_AI_TOOL_CALL_ARGUMENTS,
    semconv.GEN_AI_TOOL_CALL_ID,
    semconv.TOOL_ARGS_HASH,
    semconv.APPROVAL_ID,
    semconv.IDEMPOTENCY_KEY_HASH,
)
"""Attributes whose values make no kind: they are carried over row by row."""

OF_TRACES: Final = (
    semconv.GEN_AI_CONVERSATION_ID,
    semconv.SESSION_ID,
    semconv.TEST_CASE_NAME,
)
"""Attributes that say what a trace belongs to, and nothing about a call."""

MESSAGES: Final = (semconv.GEN_AI_INPUT_MESSAGES, semconv.GEN_AI_OUTPUT_MESSAGES)
"""Attributes that hold what was said: a trace with one is read span by span."""

_RESULT: Final = semconv.GEN_AI_TOOL_CALL_RESULT
_APART: Final = frozenset({*CARRIED, *OF_TRACES, *MESSAGES, _RESULT})
_TELLING: Final = (
    "name",
    "kind",
    "status_code",
    "status_message",
    "trace_state",
    *(key for key in schema.PROMOTED if key not in _APART),
)
_PRESENT: Final = (*CARRIED, _RESULT, *MESSAGES, "parent_span_id")
_PLAIN_DIALECTS: Final = frozenset({ours.NAME, dialects()[-1].name})
_PROMOTED: Final = frozenset(schema.PROMOTED)
_SPEAKING_EVENTS: Final = "gen_ai."

# Keyed hashes of single values, tokens that were paid for, ids of responses and times of events differ
# on every span and tell no kinds apart.
# (A quote that begins a key stands behind a brace or a comma; one within a text is escaped.)
_COUNTS_AND_ATOMS: Final = (
    r'([{,])(?:"taint\.[a-z_]+_atoms":\[[^\]\\]*\]|"gen_ai\.usage\.[a-z_.]+":[0-9]+'
    r'|"gen_ai\.response\.id":"[^"\\]*")'
)
RESPONSE_ID: Final = r'[{,]"gen_ai\.response\.id":"(?P<id>[^"\\]*)"'
"""The id of a response where it stands in ``attributes``: of each request to the model another one."""
_TIMES: Final = r'([{,])"time_unix_nano":"?[0-9]+"?'
_MOST_CODES: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Kind:
    """What every span of a kind is and says.

    ``plain`` is False where a span says more than columns hold (another dialect, messages, events
    that tell of calls): its trace is read span by span.
    """

    role: Role | None
    plain: bool
    is_ours: bool
    names_operation: bool
    agent: str | None
    model: str | None
    user: str | None
    version: str | None
    call: ToolCall | None


class Kinds:
    """The kinds of a table's spans, and which row is of which."""

    def __init__(self, table: pa.Table) -> None:
        """Find the kinds and read one span of each.

        Args:
            table: at least one row with :data:`toolverdict.scoring.spans.COLUMNS`, unchunked.
        """
        codes, telling = _signatures(table)
        _, first, of_row = np.unique(codes, return_index=True, return_inverse=True)
        self.of_row: Final[Rows] = of_row.reshape(-1)
        self.kinds: Final = _kinds(rows_of(table, first), rows_of(telling, first))

    def flags(self, tell: Callable[[Kind], bool]) -> Flags:
        """For each row, whether something holds of its kind."""
        return np.array([tell(kind) for kind in self.kinds], dtype=np.bool_)[self.of_row]

    def texts(self, tell: Callable[[Kind], str | None]) -> Texts:
        """For each row a text that its kind has."""
        told = distinct([tell(kind) for kind in self.kinds])
        return told.of(told.codes[self.of_row])


def _kind(span: Span, holds_columns: bool) -> Kind:
    speaking = spoken(span)
    role = role_of(span, speaking)
    witness = tool_call(span, speaking) if role is Role.TOOL else None
    call = None
    if witness is not None:
        alone = Part(span.trace_id, span.span_id, span.start_ns, witnesses=[witness])
        call = join([alone], ()).calls[0].call
    return Kind(
        role=role,
        plain=not holds_columns
        and _is_plain(span, [dialect.name for dialect in speaking], role, call),
        is_ours=is_ours(span),
        names_operation=semconv.GEN_AI_OPERATION_NAME in span.attributes,
        agent=read_text(span, speaking, "agent"),
        model=read_text(span, speaking, "model"),
        user=read_text(span, speaking, "user"),
        version=read_text(span, speaking, "version"),
        call=call,
    )


def _is_plain(
    span: Span, speaking: Sequence[str], role: Role | None, call: ToolCall | None
) -> bool:
    if not _PLAIN_DIALECTS.issuperset(speaking) or role is Role.INSIDE:
        return False
    if not span.attributes.keys().isdisjoint(TOOL_DEFINITIONS):
        return False
    if role is Role.TOOL and (call is None or call.tool_server is not None):
        return False  # other traces may hold a server's side of it
    if any(approval for d in dialects() if d.approvals for approval in d.approvals(span)):
        return False
    return not any(
        event.name.startswith(_SPEAKING_EVENTS)
        or told_by_event(event, span.trace_id, span.span_id) is not None
        or first_text(event.attributes, USER_KEYS) is not None
        for event in span.events
    )


def _holds_columns(row: Mapping[str, Any]) -> bool:
    """Whether a value that has a column is none that the column can hold."""
    return not _PROMOTED.isdisjoint(schema.attributes_of({"attributes": row["attributes"]}))


def _kinds(examples: pa.Table, telling: pa.Table) -> list[Kind]:
    """The kind of each example: as it was read when its like was first met, in this process."""
    keys = list(zip(*(column.to_pylist() for column in telling.columns), strict=True))
    unread = [number for number, key in enumerate(keys) if key not in _READ]
    if len(_READ) + len(unread) > _MOST_KINDS:
        _READ.clear()
        unread = list(range(len(keys)))
    rows = rows_of(examples, np.array(unread, np.int64)).to_pylist()
    for number, row in zip(unread, rows, strict=True):
        _READ[keys[number]] = _kind(span_of(row), _holds_columns(row))
    return [_READ[key] for key in keys]


_READ: Final[dict[tuple[Any, ...], Kind]] = {}
_MOST_KINDS: Final = 100_000


def _signatures(table: pa.Table) -> tuple[Rows, pa.Table]:
    """A number for each row, the same for rows of one kind, and the columns that tell kinds apart."""
    # What our own span states does not depend on its result; what others leave does.
    stated = pc.is_valid(column_of(table, semconv.TOOL_OUTCOME))
    telling = {
        **{name: column_of(table, name) for name in _TELLING},
        "attributes": _without(column_of(table, "attributes"), _COUNTS_AND_ATOMS),
        "events": _without(column_of(table, "events"), _TIMES),
        _RESULT: pc.if_else(stated, None, column_of(table, _RESULT)),
        **{f"has {name}": pc.is_valid(column_of(table, name)) for name in _PRESENT},
        "ended": pc.not_equal(column_of(table, "end_time_unix_nano"), pa.scalar(0)),
    }
    found = _Combined(table.num_rows)
    for column in telling.values():
        found.add(column)
    return found.codes, pa.table(telling)


class _Combined:
    """Codes of several columns as one code."""

    def __init__(self, rows: int) -> None:
        self.codes: Rows = np.zeros(rows, dtype=np.int64)
        self._size = 1

    def add(self, column: Column) -> None:
        """Tell rows apart by one more column."""
        if column.null_count == len(column):
            return
        if pa.types.is_boolean(column.type):
            codes, size = column.to_numpy().astype(np.int64), 2
        else:
            array = words_of(column)
            indices = pc.fill_null(array.indices, NONE).to_numpy(zero_copy_only=False)
            codes, size = indices.astype(np.int64) + 1, len(array.dictionary) + 1
        if self._size > _MOST_CODES // size:
            kept, self.codes = np.unique(self.codes, return_inverse=True)
            self._size = len(kept)
        self.codes = self.codes * size + codes
        self._size *= size


def _without(column: Column, pattern: str) -> Column:
    """The texts of a column without what fits a pattern, as codes."""
    if column.null_count == len(column):
        return column
    array = words_of(column)
    cleaned = pc.replace_substring_regex(array.dictionary, pattern, r"\1").dictionary_encode()
    return pa.chunked_array(
        [pa.DictionaryArray.from_arrays(cleaned.indices.take(array.indices), cleaned.dictionary)]
    )
