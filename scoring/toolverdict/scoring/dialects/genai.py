"""The OpenTelemetry GenAI dialect, and our own attributes beside it.

A tool span is one that says ``gen_ai.operation.name = execute_tool`` or carries our
``tool.name`` together with ``tool.outcome``. Arguments and results are JSON text or a structured
value; both are opt-in, so their absence is "not captured", never "empty".

Source: OpenTelemetry GenAI semantic conventions, span "execute tool"; gen-ai-events for messages.
"""

from collections.abc import Iterator

from toolverdict.instrument import semconv
from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.model import Captured, Json, ToolCall
from toolverdict.scoring.sampling import adjusted_count
from toolverdict.scoring.spans import Span
from toolverdict.scoring.values import parse, plain

DIALECT = "gen_ai"
OURS = "toolverdict"

_AGENT_OPERATIONS = frozenset({"invoke_agent", "create_agent", "invoke_workflow"})
_MODEL_OPERATIONS = frozenset({"chat", "generate_content", "text_completion"})

# What the released conventions call a failure is free text: only its telling words are read.
_ERROR_WORDS = (
    ("timeout", Outcome.TIMEOUT),
    ("timedout", Outcome.TIMEOUT),
    ("deadline", Outcome.TIMEOUT),
    ("validation", Outcome.INVALID_ARGUMENTS),
    ("invalidargument", Outcome.INVALID_ARGUMENTS),
    ("permission", Outcome.PERMISSION_DENIED),
    ("forbidden", Outcome.PERMISSION_DENIED),
    ("unauthorized", Outcome.PERMISSION_DENIED),
    ("ratelimit", Outcome.RATE_LIMITED),
    ("toomanyrequests", Outcome.RATE_LIMITED),
    ("cancel", Outcome.CANCELLED),
)


def is_tool_call(span: Span) -> bool:
    """Whether this span witnesses one call of one tool."""
    if span.attributes.get(semconv.GEN_AI_OPERATION_NAME) == semconv.OPERATION_EXECUTE_TOOL:
        return True
    return semconv.TOOL_NAME in span.attributes and semconv.TOOL_OUTCOME in span.attributes


def is_model_turn(span: Span) -> bool:
    """Whether this span is one request to the model."""
    return span.text(semconv.GEN_AI_OPERATION_NAME) in _MODEL_OPERATIONS


def is_agent_run(span: Span) -> bool:
    """Whether this span is a run of an agent."""
    return span.text(semconv.GEN_AI_OPERATION_NAME) in _AGENT_OPERATIONS


def read(span: Span) -> ToolCall:
    """The tool call this span witnesses."""
    attributes = span.attributes
    ours = semconv.TOOL_OUTCOME in attributes
    arguments, arguments_state = _content(attributes.get(semconv.GEN_AI_TOOL_CALL_ARGUMENTS))
    result, result_state = _content(attributes.get(semconv.GEN_AI_TOOL_CALL_RESULT))
    args_hash = span.text(semconv.TOOL_ARGS_HASH)
    if arguments_state is Captured.NOT_CAPTURED and args_hash:
        arguments_state = Captured.HASHED
    outcome = _outcome(span, result, result_state)
    return ToolCall(
        trace_id=span.trace_id,
        span_id=span.span_id,
        parent_span_id=span.parent_span_id,
        tool=span.text(semconv.GEN_AI_TOOL_NAME, semconv.TOOL_NAME) or _name_of(span),
        start_ns=span.start_ns,
        end_ns=span.end_ns,
        outcome=outcome,
        dialect=OURS if ours else DIALECT,
        call_id=span.text(semconv.GEN_AI_TOOL_CALL_ID),
        arguments=arguments,
        arguments_state=arguments_state,
        args_hash=args_hash,
        result=result,
        result_state=result_state,
        error_type=span.text(semconv.ERROR_TYPE),
        executed=_stated_executed(span),
        policy_decision=span.text(semconv.POLICY_DECISION),
        policy_reason_code=span.text(semconv.POLICY_REASON_CODE),
        approval_id=span.text(semconv.APPROVAL_ID),
        approval_status=span.text(semconv.APPROVAL_STATUS),
        idempotency_key_hash=span.text(semconv.IDEMPOTENCY_KEY_HASH),
        idempotency_status=span.text(semconv.IDEMPOTENCY_STATUS),
        schema_version=span.text(semconv.TOOL_SCHEMA_VERSION),
        labels=_labels(attributes.get(semconv.TOOL_LABELS)),
        weight=adjusted_count(span.trace_state),
    )


def said(span: Span) -> Iterator[tuple[str, str]]:
    """Who says what in the span's input messages: a role (``user``, ``system``, ...) and a text."""
    messages, _ = _content(span.attributes.get(semconv.GEN_AI_INPUT_MESSAGES))
    for message in messages if isinstance(messages, list) else ():
        if not isinstance(message, dict) or not isinstance(role := message.get("role"), str):
            continue
        parts = message.get("parts")
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict) and isinstance(part.get("content"), str):
                yield role, part["content"]


def _content(value: Json) -> tuple[Json, Captured]:
    """A captured value; JSON text is decoded, and again where an exporter encoded it twice."""
    if value is None:
        return None, Captured.NOT_CAPTURED
    for _ in range(2):
        if not isinstance(value, str):
            break
        decoded = parse(value)
        # A bare text such as "42" is a text, not a number: only containers and texts unfold.
        if not isinstance(decoded, dict | list | str):
            break
        value = decoded
    return plain(value), Captured.CAPTURED


def _outcome(span: Span, result: Json, result_state: Captured) -> Outcome:
    stated = span.attributes.get(semconv.TOOL_OUTCOME)
    if isinstance(stated, str):
        try:
            return Outcome(stated)
        except ValueError:  # a word of somebody else's
            return Outcome.ERROR if span.failed else Outcome.UNKNOWN
    error_type = span.text(semconv.ERROR_TYPE)
    if span.failed or error_type:
        words = (error_type or "").lower().replace("_", "").replace(" ", "")
        return next((outcome for word, outcome in _ERROR_WORDS if word in words), Outcome.ERROR)
    if span.end_ns is None:
        return Outcome.UNKNOWN
    if result_state is Captured.CAPTURED and _holds_nothing(result):
        return Outcome.EMPTY
    return Outcome.OK


def _holds_nothing(result: Json) -> bool:
    if isinstance(result, str):
        return result.strip() in ("", "null")
    return result in (None, [], {})


def _stated_executed(span: Span) -> bool | None:
    stated = span.attributes.get(semconv.TOOL_EXECUTED)
    return stated if isinstance(stated, bool) else None


def _name_of(span: Span) -> str:
    """The tool's name in a span name ``execute_tool {name}``, the convention's own form."""
    return span.name.removeprefix(f"{semconv.OPERATION_EXECUTE_TOOL} ")


def _labels(value: Json) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, list) else ()
