"""One trace read: its parts, each with what was witnessed, asked for, answered and decided.

A trace has one part, unless several conversations or cases share it: two runs under one trace id
are two tasks. Nothing is concluded here; :mod:`joining` makes calls of it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from toolverdict.instrument import semconv
from toolverdict.scoring.decisions import decisions
from toolverdict.scoring.dialects.dialect import Role, first_text
from toolverdict.scoring.folding import SERVER_DIALECT, fold
from toolverdict.scoring.noted import atoms_of, definitions_of
from toolverdict.scoring.part import Part
from toolverdict.scoring.sampling import adjusted_count
from toolverdict.scoring.spans import Event, LogRecord, Span, Tree
from toolverdict.scoring.spoken import (
    Witness,
    conversations,
    read_text,
    told_by_event,
    tool_call,
)
from toolverdict.scoring.spoken_trace import SpokenTrace
from toolverdict.scoring.turns import Turns

Key: TypeAlias = tuple[str | None, str | None]
"""Conversation and case."""

_SERVER = 2  # SPAN_KIND_SERVER
_RESPONSE_ID = "gen_ai.response.id"
USER_KEYS = ("enduser.id", "user.id")
"""Attributes of events that name the user of the whole conversation."""
_MAX_REPEATED = 64


def read_trace(spans: Sequence[Span], logs: Sequence[LogRecord] = ()) -> list[Part]:
    """The parts of one trace, in time order.

    Args:
        spans: all spans of one trace, deduplicated, in any order; at least one.
        logs: the log records that name it.
    """
    return _Trace(_with_logs(spans, logs)).parts()


def _with_logs(spans: Sequence[Span], logs: Sequence[LogRecord]) -> list[Span]:
    """The spans with the log records that name them as further events.

    A record of the trace that names no span of it belongs to the first one.
    """
    if not logs:
        return list(spans)
    ids = {span.span_id for span in spans}
    home = min(
        spans, key=lambda span: (span.parent_span_id is not None, span.start_ns, span.span_id)
    )
    events: dict[str, list[Event]] = {}
    for log in sorted(logs, key=lambda log: log.event.at_ns):
        span_id = log.span_id if log.span_id in ids else home.span_id
        recorded = events.setdefault(span_id or home.span_id, [])
        # A request that was sent again brings its records again; they have no id.
        if log.event not in recorded[-_MAX_REPEATED:]:
            recorded.append(log.event)
    return [
        replace(span, events=(*span.events, *events[span.span_id]))
        if span.span_id in events
        else span
        for span in spans
    ]


class _Trace(SpokenTrace):
    """A trace on its way to its parts."""

    def parts(self) -> list[Part]:
        groups = self._groups()
        group_of = {span.span_id: key for key, members in groups.items() for span in members}
        witnesses: dict[Key, list[Witness]] = {}
        for witness in self._witnesses():
            key = group_of.get(witness.call.span_id) or next(iter(groups))
            witnesses.setdefault(key, []).append(witness)
        # Spans that name no conversation while others name several (a server's own, a library's)
        # are nobody's trajectory, unless they made calls: then they are judged on their own.
        keys = [
            key for key in groups if len(groups) == 1 or key != (None, None) or key in witnesses
        ]
        gaps = _gaps(self.tree, group_of, witnesses)
        return [
            self._part(key, groups[key], witnesses.get(key, []), gaps.get(key, []), number, keys)
            for number, key in enumerate(keys)
        ]

    def _part(
        self,
        key: Key,
        members: list[Span],
        witnesses: list[Witness],
        gaps: list[str],
        number: int,
        keys: Sequence[Key],
    ) -> Part:
        root = self._root(members)
        part = Part(
            trace_id=root.trace_id,
            root_span_id=root.span_id,
            start_ns=members[0].start_ns,
            number=number,
            parts=len(keys),
            conversation_id=key[0],
            case_id=key[1],
            user_id=_first(self.users, root, members) or _of_events(members, USER_KEYS),
            agent=self._agent(root, members),
            model=_first(self.models, root, members) or _of_events(members, ("model",)),
            version=self._version(root, members),
            root_failed=root.failed,
            user_atoms=atoms_of(root.attributes, semconv.TAINT_USER_ATOMS),
            tool_definitions=definitions_of(members),
            weight=adjusted_count(root.trace_state),
            process=_process(root),
            has_agent=any(self.roles[span.span_id] is Role.AGENT for span in members),
            gaps=gaps,
            witnesses=[
                w
                if w.call.agent == (agent := self.agents.get(w.call.span_id))
                else replace(w, call=replace(w.call, agent=agent))
                for w in witnesses
            ],
        )
        Turns(self).read(part, members)
        part.decisions.extend(decisions(self, members))
        self._find_namesakes(part, members)
        return part

    def _witnesses(self) -> list[Witness]:
        witnessed: dict[str, Witness] = {}
        records: list[Witness] = []
        borders: set[str] = set()
        for span in self.tree.spans:
            role = self.roles[span.span_id]
            if role in (Role.TOOL, Role.INSIDE):
                witness = tool_call(span, self.spoken[span.span_id])
                if witness is not None:
                    if witness.call.dialect == SERVER_DIALECT and witness.call.tool_server is None:
                        server = self._server(span)
                        witness = replace(witness, call=replace(witness.call, tool_server=server))
                    witnessed[span.span_id] = replace(witness, requested=role is Role.TOOL)
            elif role in (Role.AGENT, Role.MODEL):
                borders.add(span.span_id)
            if role is not Role.TOOL:
                for event in span.events:
                    told = told_by_event(event, span.trace_id, span.span_id)
                    if told is not None and not told[0].is_decision:
                        records.append(told[1])
        return fold(self.tree, witnessed, frozenset(borders), records)

    def _server(self, span: Span) -> str | None:
        """The service that a server's span is from, where its client is another one."""
        parent = self.tree.parent(span)
        if parent is None or span.kind != _SERVER:
            return None
        name, client = (one.resource.get(semconv.SERVICE_NAME) for one in (span, parent))
        return name if isinstance(name, str) and name and name != client else None

    def _find_namesakes(self, part: Part, members: Sequence[Span]) -> None:
        """Spans that are named like a tool that was asked for, and of which nothing else is known.

        Frameworks that trace plain functions say no more, and some say nothing else of a call that
        raised. Such a span makes no call, it only tells of one.
        """
        wanted = {request.tool for request in (*part.requests, *part.transcript)}
        for span in members if wanted else ():
            name = span.name.removeprefix("execute_tool ")
            parent = self.tree.parent(span)
            if (
                name in wanted
                and self.roles[span.span_id] is None
                and (parent is None or self.roles[parent.span_id] is not Role.TOOL)
            ):
                witness = tool_call(span, self.spoken[span.span_id])
                if witness is not None and witness.call.tool == name:
                    part.namesakes.append(replace(witness, requested=False))

    def _agent(self, root: Span, members: Sequence[Span]) -> str | None:
        """The agent of the task: the root's, else that of the first run that names one.

        A root may be named as its caller liked; what is handed down inside it is exact.
        """
        for span in members:
            name = self.runs[span.span_id]
            if name is not None:
                return name
        runs = [span for span in members if self.roles[span.span_id] is Role.AGENT]
        for span in (root, *runs, *members):
            name = self.agents[span.span_id]
            if name is not None:
                return name
        return None

    def _groups(self) -> dict[Key, list[Span]]:
        """The spans by conversation and case.

        A span that names neither belongs to the trace's only conversation and case, where there is
        only one: conventions put the id on the root or on some spans, not on each. Of several
        attributes that may name the conversation, the one that comes first anywhere counts.
        """
        named = {
            span.span_id: dict(reversed(list(conversations(span, self.spoken[span.span_id]))))
            for span in self.tree.spans
        }
        best: dict[str, int] = {}
        for own in named.values():
            for rank, key in enumerate(reversed(own)):
                best[key] = min(best.get(key, rank), rank)
        # Where the vendor keeps the history, a request names the answer before it as if it were one.
        answers = {span.attributes.get(_RESPONSE_ID) for span in self.tree.spans}
        for own in named.values():
            for key in [key for key, value in own.items() if value in answers]:
                del own[key]
        exact = semconv.GEN_AI_CONVERSATION_ID
        order = sorted(best, key=lambda key: (key != exact, best[key], key))
        found: dict[str, str | None] = {}
        in_tool: set[str] = set()
        for span in self.tree.top_down:
            parent = span.parent_span_id or ""
            inherited = found.get(parent)
            if parent in in_tool or self.roles[span.span_id] is Role.TOOL:
                in_tool.add(span.span_id)
            # An agent that runs as another's tool has a conversation with that one, not a task.
            own_counts = parent not in in_tool or inherited is None
            value = named[span.span_id].get(order[0]) if order and own_counts else None
            found[span.span_id] = value or inherited
        cases = self.tree.inherited(semconv.TEST_CASE_NAME)
        only_conversation, only_case = _only(found.values()), _only(cases.values())
        groups: dict[Key, list[Span]] = {}
        for span in self.tree.spans:
            conversation = found[span.span_id] or only_conversation
            case = cases[span.span_id] or only_case
            groups.setdefault((conversation, case), []).append(span)
        return groups

    def _root(self, members: Sequence[Span]) -> Span:
        """The first span without a parent here; an agent's run is preferred, it stands for the task."""
        roots = [span for span in members if self.tree.parent(span) is None] or list(members[:1])
        runs = (span for span in roots if self.roles[span.span_id] is Role.AGENT)
        return next(runs, roots[0])

    def _version(self, root: Span, members: Sequence[Span]) -> str | None:
        for span in (root, *members):
            value = read_text(span, self.spoken[span.span_id], "version")
            if value is not None:
                return value
        if any(d.resource_is_frameworks for span in members for d in self.spoken[span.span_id]):
            return None
        value = root.resource.get(semconv.SERVICE_VERSION)
        return value if isinstance(value, str) and value else None


def _of_events(members: Sequence[Span], keys: Sequence[str]) -> str | None:
    """What only events and log records say of the whole conversation."""
    for span in members:
        for event in span.events:
            value = first_text(event.attributes, keys)
            if value is not None:
                return value
    return None


def _process(span: Span) -> str | None:
    for key in ("service.instance.id", "service.name"):
        value = span.resource.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def _first(values: Mapping[str, str | None], root: Span, members: Sequence[Span]) -> str | None:
    return values[root.span_id] or next(
        (value for span in members if (value := values[span.span_id])), None
    )


def _only(values: Iterable[str | None]) -> str | None:
    distinct = {value for value in values if value}
    return distinct.pop() if len(distinct) == 1 else None


def _gaps(
    tree: Tree, group_of: Mapping[str, Key], witnesses: Mapping[Key, Sequence[Witness]]
) -> dict[Key, list[str]]:
    """What is missing, in words: an incomplete trajectory is never judged as a whole one."""
    gaps: dict[Key, list[str]] = {}

    def say(what: str, spans: Iterable[Span]) -> None:
        found: dict[Key, list[Span]] = {}
        for span in spans:
            found.setdefault(group_of[span.span_id], []).append(span)
        for key, members in found.items():
            gaps.setdefault(key, []).append(f"{len(members)} {what}, first {members[0].span_id}")

    say("spans whose parent is missing", tree.orphans)
    say("spans whose parents run in a circle", tree.circular)
    for key, made in witnesses.items():
        calls = [witness.call for witness in made]
        unfinished = sum(call.end_ns is None for call in calls)
        backwards = sum(call.end_ns is not None and call.end_ns < call.start_ns for call in calls)
        if unfinished:
            gaps.setdefault(key, []).append(f"{unfinished} calls without an end")
        if backwards:
            gaps.setdefault(key, []).append(f"{backwards} calls that end before they start")
    return gaps
