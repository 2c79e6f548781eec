"""OpenLLMetry (Traceloop): 0.40 with ``traceloop.entity.*``, 0.62 with GenAI names beside them.

LangChain's callback data is passed on as it is: ``metadata`` in it repeats users and threads and is
never an argument.
"""

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import Dialect, Role
from toolverdict.scoring.dialects.values import literal
from toolverdict.scoring.model import Json
from toolverdict.scoring.spans import Span

_KINDS = {
    "tool": Role.TOOL,
    "agent": Role.AGENT,
    "workflow": Role.AGENT,
    "task": Role.OTHER,
    "session": Role.OTHER,
}


def _arguments(value: Json) -> Json:
    if not isinstance(value, dict):
        return value
    if "input_str" in value:
        inputs = value.get("inputs")
        if isinstance(inputs, dict):
            return inputs
        text = value["input_str"]
        read = literal(text) if isinstance(text, str) else text
        return read if isinstance(read, dict) else None
    if set(value) == {"args", "kwargs"} and value["args"] == []:
        return value["kwargs"]
    if set(value) == {"tool_name", "arguments"}:
        return value["arguments"]
    return value


def _result(value: Json) -> Json:
    if isinstance(value, dict) and "output" in value and set(value) <= {"output", "kwargs"}:
        return value["output"]
    if isinstance(value, dict) and set(value) == {"result"}:
        return value["result"]
    return value


def _agent_name(span: Span) -> str | None:
    is_agent = span.text("traceloop.span.kind") == "agent"
    return span.text("traceloop.entity.name") if is_agent else None


def _role(span: Span) -> Role | None:
    if "traceloop.span.kind" in span.attributes:
        return None
    if span.text("llm.request.type") in ("chat", "completion"):
        return Role.MODEL
    flattened = ("gen_ai.completion.0.role", "gen_ai.prompt.0.role")
    return Role.MODEL if any(key in span.attributes for key in flattened) else None


_PROPERTIES = "traceloop.association.properties."

DIALECT = Dialect(
    name="openllmetry",
    rank=400,
    marks=(
        "traceloop.span.kind",
        "llm.request.type",
        "gen_ai.completion.0.role",
        "gen_ai.prompt.0.role",
        "traceloop.workflow.name",
    ),
    roles={"traceloop.span.kind": _KINDS},
    role_of=_role,
    tool=(semconv.GEN_AI_TOOL_NAME, "traceloop.entity.name"),
    tool_from_name=lambda name: name.removesuffix(".tool"),
    arguments=(semconv.GEN_AI_TOOL_CALL_ARGUMENTS, "traceloop.entity.input"),
    arguments_of=_arguments,
    result=(semconv.GEN_AI_TOOL_CALL_RESULT, "traceloop.entity.output"),
    result_of=_result,
    failure={"gen_ai.task.status": frozenset({"failure"})},
    asked=("gen_ai.completion.",),
    given=("gen_ai.prompt.",),
    conversation=(f"{_PROPERTIES}session_id", f"{_PROPERTIES}thread_id"),
    user=(f"{_PROPERTIES}user_id",),
    agent=(f"{_PROPERTIES}lc_agent_name",),
    agent_of=_agent_name,
    version=(f"{_PROPERTIES}app_version",),
)
