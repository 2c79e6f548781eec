"""One trace read: what each span is, and what was witnessed, asked for, answered and decided.

A trace has one part, unless several conversations or cases share it: two runs under one trace id
are two tasks. Nothing is concluded here; :mod:`joining` makes calls of it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import Decision, Dialect, Role, first_text
from toolverdict.scoring.dialects.failures import Signs, texts
from toolverdict.scoring.dialects.messages import Answer, Asked, Item, Said, items, nested
from toolverdict.scoring.dialects.values import decoded
from toolverdict.scoring.folding import SERVER_DIALECT, fold
from toolverdict.scoring.model import Json, ModelTurn
from toolverdict.scoring.sampling import adjusted_count
from toolverdict.scoring.spans import Event, LogRecord, Span, Tree
from toolverdict.scoring.spoken import (
    Witness,
    conversations,
    is_ours,
    read_text,
    role_of,
    split_name,
    spoken,
    told_by_event,
    tool_call,
)
from toolverdict.scoring.values import as_text

Key: TypeAlias = tuple[str | None, str | None]
"""Conversation and case."""

HistoryKey: TypeAlias = tuple[str | None, str, str]
"""A call in a message: its id, its tool and its arguments as text."""

_MESSAGE_EVENTS = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}
_SERVER = 2  # SPAN_KIND_SERVER
_CHOICE = "gen_ai.choice"
_DETAILS = "gen_ai.client.inference.operation.details"
_MAX_TEXTS = 10_000
_MAX_REPEATED = 64


@dataclass(frozen=True, slots=True)
class Request:
    """A call that the model asked for, and where: the turn's span and the place in its answer.

    ``tool`` is the bare name of what was asked for, ``server`` where it is, if the name says so.
    ``step`` is how a step of the framework around the turn ended, where that failed.
    """

    asked: Asked
    tool: str
    server: str | None
    trace_id: str
    span_id: str
    at_ns: int
    ended_ns: int
    position: int
    dialect: str
    agent: str | None
    weight: float | None
    step: Signs = field(default_factory=Signs)


@dataclass(slots=True)
class Part:
    """What one trace tells of one conversation and case.

    ``answers`` are by call id (else by tool), the n-th one to the n-th call that has it.
    ``history`` are the calls that the first request to the model already knew of.
    """

    trace_id: str
    root_span_id: str
    start_ns: int
    name: str | None = None
    """The trajectory's id, where the trace's is none."""
    number: int = 0
    parts: int = 1
    conversation_id: str | None = None
    case_id: str | None = None
    user_id: str | None = None
    agent: str | None = None
    model: str | None = None
    version: str | None = None
    root_failed: bool = False
    weight: float | None = 1.0
    process: str | None = None
    has_agent: bool = False
    gaps: list[str] = field(default_factory=list)
    said: dict[str, dict[str, None]] = field(default_factory=dict)
    turns: list[ModelTurn] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    transcript: list[Request] = field(default_factory=list)
    history: list[HistoryKey] = field(default_factory=list)
    answers: dict[tuple[str, int], Answer] = field(default_factory=dict)
    witnesses: list[Witness] = field(default_factory=list)
    namesakes: list[Witness] = field(default_factory=list)
    decisions: list[tuple[int, Decision]] = field(default_factory=list)
    plugins: bool = False
    """Names of tools are ``Plugin-tool``."""


def history_key(asked: Asked) -> HistoryKey:
    """What a call in a message is known by, in whichever request it stands."""
    return asked.call_id, asked.tool, as_text(asked.arguments)[:4_096]


def answer_key(call_id: str | None, tool: str | None) -> str:
    """What an answer belongs to: a call id, else a tool."""
    return call_id or f"tool {tool}"


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


class _Trace:
    """The spans of a trace with their dialects and roles, told once."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self.tree = Tree(spans)
        self.spoken: dict[str, tuple[Dialect, ...]] = {}
        self.roles: dict[str, Role | None] = {}
        for span in self.tree.spans:
            dialects = self.spoken[span.span_id] = spoken(span)
            self.roles[span.span_id] = role_of(span, dialects)
        for span in self.tree.spans:
            # Inside one of our own attempts a span without an operation only shows that it ran.
            parent = self.tree.parent(span)
            if (
                self.roles[span.span_id] is Role.TOOL
                and semconv.GEN_AI_OPERATION_NAME not in span.attributes
                and parent is not None
                and is_ours(parent)
                and not is_ours(span)
                and len(self.spoken[span.span_id]) == 1
            ):
                self.roles[span.span_id] = Role.OTHER
        self.agents = self._agents()
        self.models = self._inherited("model")
        self.users = self._inherited("user")

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
            user_id=_first(self.users, root, members) or _of_events(members, _USER_KEYS),
            agent=self._agent(root, members),
            model=_first(self.models, root, members) or _of_events(members, ("model",)),
            version=self._version(root, members),
            root_failed=root.failed,
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
        self._read_models(part, members)
        self._read_decisions(part, members)
        self._find_namesakes(part, members)
        return part

    # --- witnesses ------------------------------------------------------------------------------

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

    # --- messages -------------------------------------------------------------------------------

    def _read_models(self, part: Part, members: Sequence[Span]) -> None:
        models = [span for span in members if self.roles[span.span_id] is Role.MODEL]
        answered = {span.span_id: self._asked_in(span) for span in models}
        given = _Given(part)
        first_given = True
        speaking = {span_id for span_id, found in answered.items() if found}
        for span in models:
            messages = self._given_to(span)
            if messages is not None:
                if next(items(messages, generated=False), None) is not None:
                    speaking.add(span.span_id)
                given.read(messages, keep_history=first_given)
                first_given = False
        counted = speaking or set(answered)
        asking = {
            span_id
            for span_id, found in answered.items()
            if any(isinstance(item, Asked) for item in found)
        }
        doubled = self._nested(counted, asking)
        for span in models:
            if span.span_id in doubled or span.span_id not in counted:
                continue
            part.turns.append(ModelTurn(span.span_id, span.start_ns, span.end_ns))
            part.requests.extend(self._requests(span, answered[span.span_id]))
            part.plugins = part.plugins or _uses_plugins(span)
        for span in members:
            role = self.roles[span.span_id]
            if role is Role.AGENT:
                self._read_agent(part, span)
            elif role is not Role.MODEL and semconv.GEN_AI_INPUT_MESSAGES in span.attributes:
                given.read_texts(
                    items(decoded(span.attributes[semconv.GEN_AI_INPUT_MESSAGES]), generated=False)
                )

    def _read_agent(self, part: Part, span: Span) -> None:
        """What an agent's own span repeats of its run: used where no request to a model is seen."""
        found = self._asked_in(span)
        for item in self._items_given(span):
            if isinstance(item, Said):
                _say(part.said, item)
        requests = self._requests(span, found)
        if not part.requests and len(requests) > len(part.transcript):
            part.transcript = requests
            given = _Given(part)
            given.read(found, keep_history=False)

    def _requests(self, span: Span, found: Sequence[Item]) -> list[Request]:
        step = self._step(span)
        seen: set[tuple[str, str]] = set()
        requests: list[Request] = []
        pseudo = {name for d in self.spoken[span.span_id] for name in d.pseudo_tools}
        for item in found:
            if not isinstance(item, Asked) or item.tool in pseudo:
                continue
            if item.call_id is not None:
                if (item.call_id, item.tool) in seen:
                    continue
                seen.add((item.call_id, item.tool))
            server, tool = split_name(item.tool, span, self.spoken[span.span_id])
            requests.append(
                Request(
                    asked=item,
                    tool=tool,
                    server=server,
                    trace_id=span.trace_id,
                    span_id=span.span_id,
                    at_ns=span.start_ns,
                    ended_ns=span.end_ns or span.start_ns,
                    position=len(requests),
                    dialect=self.spoken[span.span_id][0].name,
                    agent=self.agents.get(span.span_id),
                    weight=adjusted_count(span.trace_state),
                    step=step,
                )
            )
        return requests

    def _step(self, span: Span) -> Signs:
        """How the step around a turn ended, where it failed: some calls leave no other trace."""
        parent = self.tree.parent(span)
        if parent is None or not parent.failed or self.roles[parent.span_id] is Role.AGENT:
            return Signs()
        exceptions = [e for e in parent.events if e.name == semconv.EXCEPTION_EVENT][:8]
        kinds = [event.attributes.get(semconv.EXCEPTION_TYPE) for event in exceptions]
        said = [event.attributes.get("exception.message") for event in exceptions]
        return Signs(
            failed=True,
            ended=True,
            classes=tuple(kind for kind in kinds if isinstance(kind, str)),
            texts=texts(parent.status_message, *said),
        )

    def _asked_in(self, span: Span) -> list[Item]:
        """The model's answer: from the first attribute that holds one, else from events."""
        best: list[Item] = []
        for value in self._values(span, lambda dialect: dialect.asked):
            found = list(items(_generated(value), generated=True))
            if any(isinstance(item, Asked) for item in found):
                return found
            best = best or found
        found = []
        for event in span.events:
            if event.name == _CHOICE:
                found.extend(items(_message(event), generated=True))
            elif event.name == _DETAILS:
                value = event.attributes.get(semconv.GEN_AI_OUTPUT_MESSAGES)
                found.extend(items(decoded(value), generated=True))
        return found if any(isinstance(item, Asked) for item in found) else best or found

    def _given_to(self, span: Span) -> Json:
        """The messages that the model was given, in any shape; None where none were recorded."""
        for value in self._values(span, lambda dialect: dialect.given):
            return _received(value)
        messages: list[Json] = []
        for event in span.events:
            if event.name in _MESSAGE_EVENTS and event.name != _CHOICE:
                messages.append(_message(event))
            elif event.name == _DETAILS:
                value = decoded(event.attributes.get(semconv.GEN_AI_INPUT_MESSAGES))
                messages.extend(value if isinstance(value, list) else ())
        return messages or None

    def _items_given(self, span: Span) -> Iterator[Item]:
        return items(self._given_to(span), generated=False)

    def _values(self, span: Span, keys_of: Callable[[Dialect], Sequence[str]]) -> Iterator[Json]:
        for dialect in self.spoken[span.span_id]:
            for key in keys_of(dialect):
                if key.endswith("."):
                    if any(name.startswith(key) for name in span.attributes):
                        yield nested(span.attributes, key)
                elif (value := span.attributes.get(key)) is not None:
                    yield decoded(value)

    def _nested(self, counted: set[str], asking: set[str]) -> set[str]:
        """Requests seen twice, one span in the other: the outer counts, unless only the inner asks.

        Args:
            counted: the spans that stand for a request to the model.
            asking: those whose answer asks for calls.
        """
        doubled: set[str] = set()
        nearest: dict[str, str | None] = {}
        for span in self.tree.top_down:
            outer = nearest.get(span.parent_span_id or "")
            if span.span_id in counted:
                if outer is None or (outer not in asking and span.span_id in asking):
                    doubled |= {outer} if outer is not None else set()
                    outer = span.span_id
                else:
                    doubled.add(span.span_id)
            elif self.roles[span.span_id] in (Role.AGENT, Role.TOOL):
                outer = None
            nearest[span.span_id] = outer
        return doubled

    # --- decisions ------------------------------------------------------------------------------

    def _read_decisions(self, part: Part, members: Sequence[Span]) -> None:
        for span in members:
            at = span.end_ns or span.start_ns
            for dialect in self.spoken[span.span_id]:
                for decision in dialect.approvals(span) if dialect.approvals is not None else ():
                    if decision.tool == "":
                        decision = replace(decision, tool=None, call_id=self._call_id_above(span))
                    part.decisions.append((at, decision))
            for event in span.events:
                told = told_by_event(event, span.trace_id, span.span_id)
                if told is not None and told[0].decision:
                    status = _status(event, told[0].decision)
                    if status is not None and told[1].call.call_id is not None:
                        part.decisions.append((event.at_ns, Decision(status, told[1].call.call_id)))

    def _call_id_above(self, span: Span) -> str | None:
        parent = self.tree.parent(span)
        if parent is None or self.roles[parent.span_id] is not Role.TOOL:
            return None
        witness = tool_call(parent, self.spoken[parent.span_id])
        return witness.call.call_id if witness is not None else None

    # --- what is inherited ----------------------------------------------------------------------

    def _inherited(self, name: str) -> dict[str, str | None]:
        values: dict[str, str | None] = {}
        for span in self.tree.top_down:
            own = read_text(span, self.spoken[span.span_id], name)
            values[span.span_id] = own or values.get(span.parent_span_id or "")
        return values

    def _agents(self) -> dict[str, str | None]:
        """The agent of each span: the run it lies in, else what it says itself.

        The run is asked first: some emitters write a constant on every other span.
        """
        running: dict[str, str | None] = {}
        named: dict[str, str | None] = {}
        for span in self.tree.top_down:
            parent = span.parent_span_id or ""
            own = read_text(span, self.spoken[span.span_id], "agent")
            run = own if self.roles[span.span_id] is Role.AGENT else None
            running[span.span_id] = run or running.get(parent)
            named[span.span_id] = running[span.span_id] or own or named.get(parent)
        return named

    def _agent(self, root: Span, members: Sequence[Span]) -> str | None:
        """The agent of the task: the root's, else that of the first run that names one."""
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
        exact = semconv.GEN_AI_CONVERSATION_ID
        order = sorted(best, key=lambda key: (key != exact, best[key], key))
        found: dict[str, str | None] = {}
        for span in self.tree.top_down:
            own = named[span.span_id]
            value = own.get(order[0]) if order else None
            found[span.span_id] = value or found.get(span.parent_span_id or "")
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


class _Given:
    """Messages given to the model, read request by request; what was already read is passed over."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._before: list[Json] = []
        self._counts: dict[str, int] = {}
        self._last: Asked | None = None

    def read(self, messages: Json, *, keep_history: bool) -> None:
        """Add the answers, decisions and texts of one request's messages.

        Args:
            messages: decoded messages, or items that were read already.
            keep_history: these are of the first request, so that their calls are older than it.
        """
        part = self._part
        if isinstance(messages, list) and messages and isinstance(messages[0], Item):
            found: Iterable[Item] = messages
        else:
            found = items(self._new(messages), generated=False)
        for item in found:
            if isinstance(item, Said):
                _say(part.said, item)
            elif isinstance(item, Asked):
                self._last = item
                if keep_history:
                    part.history.append(history_key(item))
            elif isinstance(item, Answer):
                key = answer_key(item.call_id, item.tool)
                count = self._counts.get(key, 0)
                self._counts[key] = count + 1
                part.answers.setdefault((key, count), item)
            else:
                if item.call_id is None and self._last is not None:
                    item = replace(item, call_id=self._last.call_id)
                part.decisions.append((0, item))

    def read_texts(self, found: Iterable[Item]) -> None:
        """Add texts only."""
        for item in found:
            if isinstance(item, Said):
                _say(self._part.said, item)

    def _new(self, messages: Json) -> Json:
        """The messages that follow those of the request before; all, where they do not repeat it."""
        if not isinstance(messages, list):
            self._counts.clear()
            self._before = []
            return messages
        known = len(self._before)
        before, self._before = self._before, messages
        if known and messages[:known] == before:
            return messages[known:]
        self._counts.clear()
        return messages


def _generated(value: Json) -> Json:
    """Of a list of events as one attribute, the model's answer; anything else as it is."""
    events = _event_list(value)
    if events is None:
        return value
    choices = [event for event in events if event.get("event.name") == _CHOICE]
    if choices:
        return choices
    tail: deque[Json] = deque()
    for event in reversed(events):
        if event.get("event.name") != "gen_ai.assistant.message":
            break
        tail.appendleft(event)
    return list(tail)


def _received(value: Json) -> Json:
    events = _event_list(value)
    if events is None:
        return value
    answer = _generated(value)
    given = events[: len(events) - len(answer)] if isinstance(answer, list) else events
    return [
        {"role": _MESSAGE_EVENTS.get(str(event.get("event.name")), ""), **event} for event in given
    ]


def _event_list(value: Json) -> list[dict[str, Json]] | None:
    if not isinstance(value, list) or not value:
        return None
    if not all(isinstance(item, dict) and "event.name" in item for item in value):
        return None
    return value


def _message(event: Event) -> Json:
    """An event of the older GenAI conventions as the message that it stands for."""
    role = _MESSAGE_EVENTS[event.name]
    body = decoded(event.body)
    if isinstance(body, dict):
        return {"role": role, **body}
    attributes = event.attributes
    content = decoded(attributes.get("content", attributes.get("message")))
    message = {"role": role, "content": content}
    if isinstance(attributes.get("id"), str):
        message["id"] = attributes["id"]
    return message


def _status(event: Event, keys: Sequence[str]) -> str | None:
    """A decision about a call, in the words of command-line agents."""
    for key in keys:
        word = event.attributes.get(key)
        if isinstance(word, str):
            return _DECISION_WORDS.get(word.lower())
    return None


_DECISION_WORDS = {
    "accept": "approved",
    "accepted": "approved",
    "approved": "approved",
    "approved_for_session": "approved",
    "auto_accept": "approved",
    "modify": "approved",
    "reject": "rejected",
    "rejected": "rejected",
    "denied": "rejected",
    "abort": "rejected",
    "cancel": "rejected",
}


def _uses_plugins(span: Span) -> bool:
    """Whether the request is Semantic Kernel's: by its word for one, or by its form of events."""
    operation = span.text(semconv.GEN_AI_OPERATION_NAME) or ""
    if operation.startswith(("chat.", "text.")) and operation.endswith("completions"):
        return True
    return any(e.name in _MESSAGE_EVENTS and isinstance(e.body, str) for e in span.events)


_FED_BACK = ("Observation:", "Observation\n")


def _say(said: dict[str, dict[str, None]], item: Said) -> None:
    """Keep a text with its role; what a tool said and a framework passes on as the user is nobody's.

    Trusted text decides whether a value may come from elsewhere: a tool must not get in there.
    """
    if item.text.startswith(_FED_BACK):
        return
    spoken_texts = said.setdefault(item.role, {})
    if len(spoken_texts) < _MAX_TEXTS:
        spoken_texts[item.text] = None


_USER_KEYS = ("enduser.id", "user.id")


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
