"""What one span says, in whichever dialects are spoken on it: its role, and each canonical field."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from toolverdict.instrument import semconv
from toolverdict.instrument.names import bare_name
from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.dialects import dialects, ours
from toolverdict.scoring.dialects.dialect import Dialect, Role, ToolEvent, first, first_text
from toolverdict.scoring.dialects.failures import Signs, signs_of_result, texts
from toolverdict.scoring.dialects.values import (
    content,
    decoded,
    message_call_id,
    result,
    truth,
    unquoted,
)
from toolverdict.scoring.model import Captured, Json, ToolCall
from toolverdict.scoring.noted import atoms_of
from toolverdict.scoring.sampling import adjusted_count
from toolverdict.scoring.spans import Event, Span

_MCP = "mcp__"
_MAX_EVENTS = 64


@dataclass(frozen=True, slots=True)
class Witness:
    """What one span or record tells of one call. ``call.outcome`` is told later, from ``signs``.

    ``requested`` is False for evidence that makes no call of its own: it counts only beside others.
    """

    call: ToolCall
    signs: Signs
    requested: bool = True


def spoken(span: Span) -> tuple[Dialect, ...]:
    """The dialects that speak on this span, in order of rank; the last is always GenAI."""
    marks = _marks()
    found = frozenset(mark for mark in span.attributes if mark in marks)
    name = next((name for name in _names() if span.name.startswith(name)), None)
    return _spoken_by(found, name)


@lru_cache(maxsize=4096)
def _spoken_by(found: frozenset[str], name: str | None) -> tuple[Dialect, ...]:
    marked = [
        dialect
        for dialect in dialects()[:-1]
        if not found.isdisjoint(dialect.marks) or name in dialect.names
    ]
    return (*marked, _genai())


@lru_cache(maxsize=1)
def _marks() -> frozenset[str]:
    return frozenset(mark for dialect in dialects() for mark in dialect.marks)


@lru_cache(maxsize=1)
def _names() -> tuple[str, ...]:
    return tuple(name for dialect in dialects() for name in dialect.names)


def role_of(span: Span, spoken_here: tuple[Dialect, ...]) -> Role | None:
    """What the span is, by the first dialect that can say."""
    for dialect in spoken_here:
        for key, meanings in dialect.roles.items():
            value = span.attributes.get(key)
            if isinstance(value, str):
                role = meanings.get(value) or meanings.get(unquoted(value))
                if role is not None:
                    return role
        if dialect.role_of is not None:
            role = dialect.role_of(span)
            if role is not None:
                return role
    return None


def tool_call(span: Span, spoken_here: tuple[Dialect, ...]) -> Witness | None:
    """The call that a tool span witnesses; None for a pseudo-tool of a framework."""
    exposed = _tool_name(span, spoken_here)
    if any(exposed in dialect.pseudo_tools for dialect in spoken_here):
        return None
    attributes = span.attributes
    server, tool = split_name(exposed, span, spoken_here)
    stated_server = _text(span, spoken_here, "server")
    arguments, arguments_state = _value(span, spoken_here, "arguments")
    output, output_state = _value(span, spoken_here, "result")
    arguments, arguments_state, output, output_state = _from_events(
        span, arguments, arguments_state, output, output_state
    )
    args_hash = span.text(semconv.TOOL_ARGS_HASH)
    if arguments_state is Captured.NOT_CAPTURED and args_hash:
        arguments_state = Captured.HASHED
    call_id = _text(span, spoken_here, "call_id")
    call_id = call_id or _call_id_in_result(span, spoken_here)
    # Some put the tool's name before the id that the model gave.
    call_id = call_id.removeprefix(f"{exposed}__") if call_id else None
    signs = _signs(span, spoken_here)
    if signs.stated is None:
        signs += signs_of_result(output, output_state)
    if (
        spoken_here[0].tells_output
        and not any(key in attributes for key in spoken_here[0].result)
        and arguments_state is Captured.CAPTURED
        and not signs.failed
    ):
        signs = replace(signs, ended=False)
    stated_executed = attributes.get(semconv.TOOL_EXECUTED)
    call = ToolCall(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_span_id,
        tool=tool,
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        outcome=Outcome.UNKNOWN,
        dialect=spoken_here[0].name,
        tool_server=stated_server or server,
        call_id=call_id,
        arguments=arguments,
        arguments_state=arguments_state,
        args_hash=args_hash,
        result=output,
        result_state=output_state,
        executed=stated_executed if isinstance(stated_executed, bool) else None,
        policy_decision=span.text(semconv.POLICY_DECISION),
        policy_reason_code=span.text(semconv.POLICY_REASON_CODE),
        approval_id=span.text(semconv.APPROVAL_ID),
        approval_status=span.text(semconv.APPROVAL_STATUS),
        idempotency_key_hash=span.text(semconv.IDEMPOTENCY_KEY_HASH),
        idempotency_status=span.text(semconv.IDEMPOTENCY_STATUS),
        schema_version=span.text(semconv.TOOL_SCHEMA_VERSION),
        argument_atoms=atoms_of(attributes, semconv.TAINT_ARGUMENT_ATOMS),
        result_atoms=atoms_of(attributes, semconv.TAINT_RESULT_ATOMS),
        policy_enforced=False if attributes.get(semconv.POLICY_ENFORCED) is False else None,
        labels=_labels(attributes.get(semconv.TOOL_LABELS)),
        weight=adjusted_count(span.trace_state),
        exposed_as=None if exposed == tool else exposed,
    )
    return Witness(call, signs)


def told_by_event(event: Event, trace_id: str, span_id: str) -> tuple[ToolEvent, Witness] | None:
    """The call that an event or a log record tells of, with the table that read it; None: of none."""
    name = event.name
    body = event.body if isinstance(event.body, str) else ""
    for dialect, table in _tables().get(name, ()) or _tables().get(body, ()):
        return table, _witness_of_event(event, dialect, table, trace_id, span_id)
    return None


def read_text(span: Span, spoken_here: tuple[Dialect, ...], field: str) -> str | None:
    """A canonical text field (``agent``, ``user``, ``model``, ``version``) of this span."""
    value = _text(span, spoken_here, field)
    if value is not None:
        return value
    for dialect in spoken_here:
        tell = {"agent": dialect.agent_of, "model": dialect.model_of}.get(field)
        if tell is not None and (value := tell(span)):
            return value
    for dialect in spoken_here:
        for key in dialect.metadata:
            text = span.attributes.get(key)
            if isinstance(text, str) and (value := _metadata(text).get(field)):
                return value
    return None


def agent_of_run(span: Span, spoken_here: tuple[Dialect, ...]) -> str | None:
    """The agent of the run that a span lies in, where the span itself says so.

    LangChain hands it down to every span of a run; an agent's name elsewhere may be a constant.
    """
    for dialect in spoken_here:
        keys = _keys_of_run()[dialect.name]
        if keys and (value := first_text(span.attributes, keys)):
            return value
        for key in dialect.metadata:
            text = span.attributes.get(key)
            if isinstance(text, str) and (value := _metadata(text).get("run")):
                return value
    return None


@lru_cache(maxsize=1)
def _keys_of_run() -> Mapping[str, tuple[str, ...]]:
    """The attributes with the agent of a run, by dialect."""
    return {
        dialect.name: tuple(key for key in dialect.agent if key.endswith(_AGENT_OF_RUN))
        for dialect in dialects()
    }


def conversations(span: Span, spoken_here: tuple[Dialect, ...]) -> Iterator[tuple[str, str]]:
    """Each (attribute, id) that may name the conversation, the most exact first."""
    own = span.text(semconv.GEN_AI_CONVERSATION_ID)
    if own is not None:
        yield semconv.GEN_AI_CONVERSATION_ID, own
    for dialect in spoken_here:
        for key in dialect.conversation:
            value = first_text(span.attributes, (key,))
            if value is not None:
                yield key, value
    session = span.text(semconv.SESSION_ID)
    if session is not None:
        yield semconv.SESSION_ID, session
    for dialect in spoken_here:
        for key in dialect.metadata:
            text = span.attributes.get(key)
            if isinstance(text, str) and (value := _metadata(text).get("conversation")):
                yield f"{key}.thread_id", value


_AGENT_OF_RUN = "lc_agent_name"
_METADATA_KEYS = {
    "run": (_AGENT_OF_RUN,),
    "conversation": ("thread_id", "session_id", "conversation_id"),
    "user": ("user_id",),
    "agent": (_AGENT_OF_RUN, "agent_name"),
    "version": ("app_version",),
    "model": (),
}


@lru_cache(maxsize=1024)
def _metadata(text: str) -> Mapping[str, str]:
    """What an application wrote into a JSON object of its own, by canonical field."""
    read = decoded(text)
    if not isinstance(read, dict):
        return {}
    fields = {field: first_text(read, keys) for field, keys in _METADATA_KEYS.items()}
    return {field: value for field, value in fields.items() if value is not None}


def _text(span: Span, spoken_here: tuple[Dialect, ...], field: str) -> str | None:
    for dialect in spoken_here:
        value = first_text(span.attributes, getattr(dialect, field))
        if value is not None:
            return value
    return None


def _tool_name(span: Span, spoken_here: tuple[Dialect, ...]) -> str:
    name = _text(span, spoken_here, "tool")
    if name is not None:
        return name
    for dialect in spoken_here:
        if dialect.tool_from_name is not None:
            return dialect.tool_from_name(span.name)
    return span.name


def server_and_tool(name: str) -> tuple[str | None, str]:
    """Server and bare name of ``mcp__server__tool``; other names are as they are."""
    if not name.startswith(_MCP):
        return None, name
    bare = bare_name(name)
    return name[len(_MCP) : len(name) - len(bare)].rstrip("_") or None, bare


def split_name(name: str, span: Span, spoken_here: tuple[Dialect, ...]) -> tuple[str | None, str]:
    """Server and bare name of a tool, as the dialects spoken on a span spell it."""
    for dialect in spoken_here:
        if dialect.server_of is not None:
            return dialect.server_of(name, span)
    return server_and_tool(name)


def _value(span: Span, spoken_here: tuple[Dialect, ...], field: str) -> tuple[Json, Captured]:
    """Arguments or result, from the first attribute of the first dialect that has them."""
    for dialect in spoken_here:
        unwrap = dialect.arguments_of if field == "arguments" else dialect.result_of
        for key in getattr(dialect, field):
            raw = span.attributes.get(key)
            if raw is None:
                continue
            value, state = content(raw)
            if state is Captured.NOT_CAPTURED:
                continue
            if unwrap is not None:
                value = unwrap(value)
                if value is None:
                    continue
                value = decoded(value)
            if field == "result":
                value = result(value)
            return value, state
    return None, Captured.NOT_CAPTURED


def _call_id_in_result(span: Span, spoken_here: tuple[Dialect, ...]) -> str | None:
    """The call id in a tool message, which is the result in a framework's own callbacks."""
    for dialect in spoken_here:
        for key in dialect.result:
            raw = span.attributes.get(key)
            if isinstance(raw, str) and ('"tool_call_id"' in raw or '"tool_id"' in raw):
                return message_call_id(decoded(raw))
    return None


def _from_events(
    span: Span,
    arguments: Json,
    arguments_state: Captured,
    output: Json,
    output_state: Captured,
) -> tuple[Json, Captured, Json, Captured]:
    """Arguments and result, where the older GenAI events of the span have them."""
    for event in span.events[:_MAX_EVENTS]:
        attributes = event.attributes
        if event.name == "gen_ai.tool.message" and arguments_state is Captured.NOT_CAPTURED:
            arguments, arguments_state = content(attributes.get("content"))
        elif event.name == "gen_ai.choice" and output_state is Captured.NOT_CAPTURED:
            output, output_state = content(attributes.get("message"))
            output = result(output)
        elif (told := told_by_event(event, span.trace_id, span.span_id)) is not None:
            call = told[1].call
            if output_state is Captured.NOT_CAPTURED:
                output, output_state = call.result, call.result_state
    return arguments, arguments_state, output, output_state


def _signs(span: Span, spoken_here: tuple[Dialect, ...]) -> Signs:
    attributes = span.attributes
    classes = [name for name in (_text(span, (d,), "error_type") for d in spoken_here) if name]
    said: list[Json] = []
    has_result = any(d.result_is_success and first(attributes, d.result) for d in spoken_here)
    failed = (span.failed and not has_result) or bool(classes)
    invalid = False
    for dialect in spoken_here:
        failed = failed or _has(attributes, dialect.failure)
        invalid = invalid or _has(attributes, dialect.invalid_arguments)
        said.append(decoded(first(attributes, dialect.error_text)))
    for event in span.events[:_MAX_EVENTS]:
        if event.name == semconv.EXCEPTION_EVENT and failed:
            kind = event.attributes.get(semconv.EXCEPTION_TYPE)
            if isinstance(kind, str) and kind:
                classes.append(kind)
            said.append(event.attributes.get("exception.message"))
    if failed:
        said.append(span.status_message)
    stated = _stated(span)
    executed = attributes.get(semconv.TOOL_EXECUTED)
    return Signs(
        failed=failed and stated is None,
        ended=span.end_ns is not None,
        stated=stated,
        executed=executed if isinstance(executed, bool) else None,
        invalid_arguments=invalid,
        classes=tuple(dict.fromkeys(classes)),
        texts=texts(*said) if failed else (),
    )


def _stated(span: Span) -> Outcome | None:
    """The outcome as our own span states it."""
    stated = span.attributes.get(semconv.TOOL_OUTCOME)
    if not isinstance(stated, str):
        return None
    try:
        return Outcome(stated)
    except ValueError:  # a word of somebody else's
        return Outcome.ERROR if span.failed else Outcome.UNKNOWN


def _has(attributes: Mapping[str, Json], wanted: Mapping[str, frozenset[Json]]) -> bool:
    for key, values in wanted.items():
        value = attributes.get(key)
        if isinstance(value, str | bool) and value in values:
            return True
    return False


def _witness_of_event(
    event: Event, dialect: Dialect, table: ToolEvent, trace_id: str, span_id: str
) -> Witness:
    attributes = dict(event.attributes)
    more = decoded(attributes.get("tool_parameters"))
    if isinstance(more, dict):  # where a harness keeps the parts of a name
        attributes = {**attributes, **more}
    exposed = first_text(attributes, table.tool) or ""
    namespace = first_text(attributes, table.namespace)
    if namespace and namespace.startswith(_MCP) and not exposed.startswith(_MCP):
        exposed = f"{namespace}__{exposed}"
    server = first_text(attributes, table.server)
    if dialect.server_of is not None:
        own, tool = dialect.server_of(exposed, _NOBODY)
        if server and exposed.startswith(f"mcp_{server}_"):
            own, tool = server, exposed.removeprefix(f"mcp_{server}_")
    else:
        own, tool = server_and_tool(exposed)
    if exposed in table.placeholders:
        tool = ""
    arguments, arguments_state = content(first(attributes, table.arguments))
    output, output_state = content(first(attributes, table.result))
    if output_state is Captured.CAPTURED:
        output = decoded(dialect.result_of(output)) if dialect.result_of is not None else output
        output = result(output)
    success = truth(first(attributes, table.success))
    kind = first_text(attributes, table.error_type)
    said = texts(decoded(first(attributes, table.error_text)))
    failed = success is False or bool(kind)
    length = first(attributes, ("duration_ms",))
    call_id = first_text(attributes, table.call_id)
    call = ToolCall(
        trace_id=trace_id,
        span_id=span_id,
        parent_span_id=None,
        tool=tool,
        start_ns=event.at_ns - _nanoseconds(length),
        end_ns=event.at_ns if table.ends_call and not table.is_decision else None,
        outcome=Outcome.UNKNOWN,
        dialect=dialect.name,
        tool_server=own or server,
        call_id=call_id.removeprefix(f"{exposed}__") if call_id else None,
        arguments=arguments,
        arguments_state=arguments_state,
        result=output,
        result_state=output_state,
        exposed_as=None if exposed == tool else exposed,
    )
    signs = Signs(failed=failed, ended=success is not None, classes=(kind,) if kind else ())
    if failed:
        signs += Signs(failed=True, texts=said)
    signs += signs_of_result(output, output_state)
    return Witness(call, signs)


_NOBODY = Span("", "", None, "", 0, None, False, {}, {}, "")
_MAX_DURATION_MS = 10.0**9


def _nanoseconds(milliseconds: Json) -> int:
    try:
        number = float(milliseconds)
    except (TypeError, ValueError):
        return 0
    return round(number * 1e6) if 0 <= number <= _MAX_DURATION_MS else 0


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, tuple[tuple[Dialect, ToolEvent], ...]]:
    """The tables of tool events by the names of the events."""
    found: dict[str, tuple[tuple[Dialect, ToolEvent], ...]] = {}
    for dialect in dialects():
        for table in dialect.tool_events:
            for name in table.names:
                found[name] = (*found.get(name, ()), (dialect, table))
    return found


@lru_cache(maxsize=1)
def _genai() -> Dialect:
    return dialects()[-1]


def _labels(value: Json) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()


def is_ours(span: Span) -> bool:
    """Whether this is the span of one of our own attempts."""
    return ours.DIALECT.marks[0] in span.attributes
