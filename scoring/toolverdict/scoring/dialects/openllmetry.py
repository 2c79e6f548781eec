"""OpenLLMetry (Traceloop): 0.40 with ``traceloop.entity.*``, 0.62 with GenAI names beside them.

LangChain's callback data is passed on as it is: ``metadata`` in it repeats users and threads and is
never an argument.
"""

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import Dialect, Role
from toolverdict.scoring.dialects.values import literal, result
from toolverdict.scoring.model import Json
from toolverdict.scoring.spans import Span

_KINDS = {
    "tool": Role.TOOL,
    "agent": Role.AGENT,
    "workflow": Role.AGENT,
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
    if isinstance(value, str):
        return _agno_result(value)
    if isinstance(value, dict) and "tool_output" in value:
        return _llama_result(value["tool_output"])
    if isinstance(value, dict) and "output" in value and set(value) <= {"output", "kwargs"}:
        return value["output"]
    if isinstance(value, dict) and set(value) == {"result"}:
        return value["result"]
    return value


def _llama_result(output: Json) -> Json:
    """The result, or the error, in LlamaIndex's own object."""
    if not isinstance(output, dict) or "raw_output" not in output:
        return output
    if output.get("is_error") is True:
        return {"error": result(output.get("blocks"))}
    return output["raw_output"]


_SUCCESS, _FAILURE = "status='success' result=", "status='failure' result=None error="
_AFTER = " updated_session_state="


def _agno_result(text: str) -> Json:
    """The result, or the error, in the text of Agno's own object; other texts as they are."""
    end = text.rfind(_AFTER)
    if end < 0:
        return text
    if text.startswith(_SUCCESS):
        return literal(text[len(_SUCCESS) : end].removesuffix(" error=None"))
    if text.startswith(_FAILURE):
        return {"error": literal(text[len(_FAILURE) : end])}
    return text


def _agent_name(span: Span) -> str | None:
    is_agent = span.text("traceloop.span.kind") == "agent"
    return span.text("traceloop.entity.name") if is_agent else None


def _role(span: Span) -> Role | None:
    kind = span.text("traceloop.span.kind")
    if kind == "task":
        # LlamaIndex's step that runs a tool; the task inside it is the tool's own.
        return Role.TOOL if "tool.arguments" in span.attributes else Role.OTHER
    if kind is not None:
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
    tool=(semconv.GEN_AI_TOOL_NAME, semconv.TOOL_NAME, "traceloop.entity.name"),
    tool_from_name=lambda name: name.removesuffix(".tool"),
    arguments=(semconv.GEN_AI_TOOL_CALL_ARGUMENTS, "tool.arguments", "traceloop.entity.input"),
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
