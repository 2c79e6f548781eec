"""Whole traces read as columns: which of them can be, and the calls of those.

A trace is *plain* when every span of it is: our own attempts, GenAI's tool, agent and model spans
without messages, spans of other libraries. What makes a trace more than that (another dialect,
messages, several conversations, a call inside a call, missing parents, log records) is read span by
span, by :mod:`toolverdict.scoring.reading`. Both give the same rows; what a span means is told by
the same functions (see :mod:`kinds`), only the structure around it is told here a second time.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.instrument import semconv
from toolverdict.scoring.columns.arrays import (
    NONE,
    Column,
    Flags,
    Rows,
    among,
    column_of,
    equals,
    flags,
    taken,
)
from toolverdict.scoring.columns.at_once import at_once
from toolverdict.scoring.columns.forest import Forest
from toolverdict.scoring.columns.kinds import CARRIED, MESSAGES, RESPONSE_ID, Kinds
from toolverdict.scoring.columns.texts import Texts, encoded, names
from toolverdict.scoring.dialects.dialect import Role
from toolverdict.scoring.spans import resource_of

_ID_MARKS: Final = r'^$|^"|__'
"""Call ids that are not taken as they stand: see ``call_id`` in :func:`spoken.tool_call`."""
_ID_IN_RESULT: Final = '"tool_call_id"'


@dataclass(frozen=True, slots=True)
class Traces:
    """The plain traces of a table, one entry each: what their trajectories are known by.

    ``number`` counts all traces of the table; ``root`` is a row.
    """

    number: Rows
    root: Rows
    conversation: Texts
    case: Texts
    agent: Texts
    model: Texts
    user: Texts
    version: Texts


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls of the plain traces, in order.

    ``row`` is a row of the table, ``trace`` an entry of :class:`Traces`, ``index``, ``turn`` and
    ``group`` the place in the trajectory (-1: none).
    """

    row: Rows
    trace: Rows
    index: Rows
    turn: Rows
    group: Rows
    agent: Texts


class PlainTraces:
    """A table of whole traces: ``plain`` says which rows are read here, the others are not."""

    def __init__(
        self,
        table: pa.Table,
        with_logs: Collection[str] = (),
        awaited: Collection[str] = (),
    ) -> None:
        """Read the plain traces of a table.

        Args:
            table: at least one row with :data:`toolverdict.scoring.spans.COLUMNS`, sorted by trace
                id, start and span id.
            with_logs: ids of traces that log records name.
            awaited: ids of conversations that records without a trace belong to.
        """
        table = table.unify_dictionaries().combine_chunks()
        self.table: Final = table
        self.forest: Final = Forest(table)
        self.kinds: Final = Kinds(table)
        self._tell_roles()
        conversation = names(column_of(table, semconv.GEN_AI_CONVERSATION_ID))
        session = names(column_of(table, semconv.SESSION_ID))
        case = names(column_of(table, semconv.TEST_CASE_NAME))
        self._odd = self._odd_traces(conversation, session, case)
        if with_logs:
            self._odd |= among(taken(column_of(table, "trace_id"), self.forest.first), with_logs)
        conversations = self._conversations(conversation, session)
        if awaited:
            self._odd |= among(conversations.array(), awaited)
        self._odd |= self._may_go_on(conversations) | self._named_after_answers(conversations)
        self.plain: Final[Flags] = ~self._odd[self.forest.trace]
        self.traces: Final = self._traces(conversations, case)
        self.calls: Final = self._calls()

    @property
    def without_calls(self) -> int:
        """How many plain traces called nothing."""
        return len(self.traces.number) - len(np.unique(self.calls.trace))

    @cached_property
    def trace_ids(self) -> Column:
        """The id of each plain trace."""
        first = self.forest.first[self.traces.number]
        return taken(column_of(self.table, "trace_id"), first)

    def begins(self, entries: Rows) -> Rows:
        """When the first call or model turn of some plain traces began, in nanoseconds."""
        forest = self.forest
        rows = np.where(self.is_call | self.is_model, np.arange(forest.size), NONE)
        return forest.start[forest.first_code(rows)[self.traces.number[entries]]]

    # --- what the spans are ---------------------------------------------------------------------

    def _tell_roles(self) -> None:
        kinds, forest = self.kinds, self.forest
        self.is_model = kinds.flags(lambda kind: kind.role is Role.MODEL)
        self.is_agent = kinds.flags(lambda kind: kind.role is Role.AGENT)
        is_ours = kinds.flags(lambda kind: kind.is_ours)
        is_tool = kinds.flags(lambda kind: kind.role is Role.TOOL)
        # Inside one of our own attempts a span without an operation only shows that it ran.
        inside = is_tool & ~is_ours & kinds.flags(lambda kind: not kind.names_operation)
        inside &= (forest.parent >= 0) & is_ours[forest.parent]
        self.is_call = is_tool & ~inside
        self.is_ours = is_ours

    def _odd_traces(self, conversation: Texts, session: Texts, case: Texts) -> Flags:
        forest, table = self.forest, self.table
        start = forest.start
        end = column_of(table, "end_time_unix_nano").to_numpy()
        odd_rows = ~self.kinds.flags(lambda kind: kind.plain)
        for name in MESSAGES:
            odd_rows |= flags(pc.is_valid(column_of(table, name)))
        odd_rows |= self.is_call & (end < start)  # unfinished (0), or backwards
        borders = self.is_agent | self.is_model
        rows = np.arange(forest.size)
        inside_call = forest.above(np.where(self.is_call, rows, NONE), borders) >= 0
        odd_rows |= self.is_call & inside_call
        ends = self.is_agent | self.is_call
        inside_model = forest.above(np.where(self.is_model, rows, NONE), ends) >= 0
        odd_rows |= self.is_model & inside_model
        for name in CARRIED:
            odd_rows |= equals(column_of(table, name), "")
        call_id = column_of(table, semconv.GEN_AI_TOOL_CALL_ID)
        odd_rows |= flags(pc.match_substring_regex(call_id, _ID_MARKS))
        result = column_of(table, semconv.GEN_AI_TOOL_CALL_RESULT)
        odd_rows |= flags(pc.match_substring(result, _ID_IN_RESULT))
        odd = forest.odd | forest.any_of(odd_rows)
        for texts in (conversation, session, case):
            odd |= forest.differing(texts.codes)
        odd[self._trace_of_repeated_ids()] = True
        return odd

    def _trace_of_repeated_ids(self) -> Rows:
        """Traces in which two calls of one tool have one call id: they may be one call."""
        column = column_of(self.table, semconv.GEN_AI_TOOL_CALL_ID)
        row = np.flatnonzero(self.is_call & flags(pc.is_valid(column)))
        ids, trace = encoded(taken(column, row)), self.forest.trace[row]
        size = max(1, len(ids.texts))
        keys = np.sort(trace * size + ids.codes)
        return np.unique(keys[1:][keys[1:] == keys[:-1]] // size)

    def _may_go_on(self, conversations: Texts) -> Flags:
        """Traces that another one may go on with, or come before: never those of our own calls."""
        forest = self.forest
        others = np.where(self.is_call & ~self.is_ours, np.arange(forest.size), NONE)
        first = forest.first_code(others)
        turn = forest.first_code(np.where(self.is_model, np.arange(forest.size), NONE))
        unled = (turn < 0) & ~forest.any_of(self.is_agent)
        has_id = flags(pc.is_valid(column_of(self.table, semconv.GEN_AI_TOOL_CALL_ID)))
        before = (turn < 0) | (forest.start[first] < forest.start[turn])
        goes_on = (conversations.codes >= 0) & has_id[first] & before
        return (first >= 0) & (unled | goes_on)

    def _named_after_answers(self, conversations: Texts) -> Flags:
        """Traces whose conversation is called like an answer of the model: that is no conversation."""
        attributes = column_of(self.table, "attributes")
        row = np.flatnonzero(flags(pc.match_substring(attributes, '"gen_ai.response.id":')))
        named = np.zeros(self.forest.count, np.bool_)
        if len(row):
            found: Column = pc.extract_regex(taken(attributes, row), RESPONSE_ID)
            trace = self.forest.trace[row]
            called = taken(conversations.array(), trace)
            same = pc.equal(pc.struct_field(found, "id").cast(pa.string()), called)
            named[trace[flags(same)]] = True
        return named

    # --- trajectories ---------------------------------------------------------------------------

    def _conversations(self, conversation: Texts, session: Texts) -> Texts:
        """The conversation of each trace: as the convention names it, else the session."""
        exact = conversation.of(self.forest.first_code(conversation.codes))
        return exact.or_else(session.of(self.forest.first_code(session.codes)))

    def _traces(self, conversations: Texts, case: Texts) -> Traces:
        forest, kinds = self.forest, self.kinds
        number = np.flatnonzero(~self._odd)
        rows = np.arange(forest.size)
        is_root = forest.parent == NONE
        root = forest.first_code(np.where(is_root & self.is_agent, rows, NONE))
        root = np.where(root >= 0, root, forest.first_code(np.where(is_root, rows, NONE)))
        agents = kinds.texts(lambda kind: kind.agent)
        running = forest.handed_down(np.where(self.is_agent, agents.codes, NONE))
        self.agents = agents.of(forest.handed_down(np.where(running >= 0, running, agents.codes)))
        of_runs = np.where(self.is_agent, self.agents.codes, NONE)
        models = kinds.texts(lambda kind: kind.model)
        users = kinds.texts(lambda kind: kind.user)
        versions = kinds.texts(lambda kind: kind.version)

        def told(texts: Texts, *codes: Rows) -> Texts:
            """By the root, else by the first row that tells."""
            found = texts.codes[root]
            for more in (*codes, texts.codes):
                found = np.where(found >= 0, found, forest.first_code(more))
            return texts.of(found[number])

        version = told(versions).or_else(self._service_versions(root[number]))
        return Traces(
            number=number,
            root=root[number],
            conversation=conversations.of(conversations.codes[number]),
            case=case.of(forest.first_code(case.codes)[number]),
            agent=told(self.agents, of_runs),
            model=told(models.of(forest.handed_down(models.codes))),
            user=told(users.of(forest.handed_down(users.codes))),
            version=version,
        )

    def _service_versions(self, rows: Rows) -> Texts:
        resources = encoded(column_of(self.table, "resource_attributes"))
        return resources.of(resources.codes[rows]).each(_service_version)

    def _calls(self) -> Calls:
        forest = self.forest
        row = np.flatnonzero(self.is_call & self.plain)
        entry = np.full(forest.count, NONE)
        entry[self.traces.number] = np.arange(len(self.traces.number))
        trace = entry[forest.trace[row]]
        first_of = np.searchsorted(trace, trace)
        turn = self._turns(row)
        return Calls(
            row=row,
            trace=trace,
            index=np.arange(len(row)) - first_of,
            turn=turn,
            group=self._groups(row, trace, turn),
            agent=self.agents.of(self.agents.codes[row]).or_else(
                self.traces.agent.of(self.traces.agent.codes[trace])
            ),
        )

    def _turns(self, row: Rows) -> Rows:
        """The number of the last model turn of the trace that had begun when the call began."""
        forest = self.forest
        models = np.flatnonzero(self.is_model)
        begins = (np.diff(forest.trace, prepend=-1) != 0) | (np.diff(forest.start, prepend=0) != 0)
        moment = np.cumsum(begins)  # counts up where trace or start changes
        begun = np.searchsorted(moment[models], moment[row], side="right")
        return begun - np.searchsorted(models, forest.first[forest.trace[row]]) - 1

    def _groups(self, row: Rows, trace: Rows, turn: Rows) -> Rows:
        """The turn of calls that were asked for at once; where no turn is seen, by overlap."""
        group = np.full(len(row), NONE)
        if not len(row):
            return group
        same = (np.diff(trace) == 0) & (np.diff(turn) == 0) & (turn[1:] >= 0)
        shared = np.concatenate((same, [False])) | np.concatenate(([False], same))
        group[shared] = turn[shared]
        has_turn = np.zeros(len(self.traces.number), dtype=np.bool_)
        has_turn[trace[turn >= 0]] = True
        start = self.forest.start[row]
        end = column_of(self.table, "end_time_unix_nano").to_numpy()[row]
        together = (np.diff(trace) == 0) & (start[1:] < end[:-1]) & ~has_turn[trace[1:]]
        chosen = np.flatnonzero(np.isin(trace, trace[1:][together]))
        parent = self.forest.parent[row]
        group[chosen] = at_once(trace[chosen], start[chosen], end[chosen], parent[chosen])
        return group


def _service_version(resource: str) -> str | None:
    value = resource_of(resource).get(semconv.SERVICE_VERSION)
    return value if isinstance(value, str) and value else None
