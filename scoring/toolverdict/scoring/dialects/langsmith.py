"""LangSmith's OpenTelemetry export: GenAI names for tools, runs as prompt and completion."""

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import Dialect, Role
from toolverdict.scoring.dialects.values import decoded
from toolverdict.scoring.model import Json


def _result(value: Json) -> Json:
    """The output of a run; an empty one is what is written when it failed."""
    if isinstance(value, dict) and "output" in value:
        return value["output"]
    return None if value == {} else value


def _arguments(value: Json) -> Json:
    if isinstance(value, dict) and set(value) == {"input"}:
        inner = decoded(value["input"])
        value = inner if isinstance(inner, dict) else value
    return value if isinstance(value, dict) else None


DIALECT = Dialect(
    name="langsmith",
    rank=430,
    marks=("langsmith.span.kind",),
    roles={
        "langsmith.span.kind": {
            "tool": Role.TOOL,
            "llm": Role.MODEL,
            "chain": Role.OTHER,
            "retriever": Role.OTHER,
            "embedding": Role.OTHER,
            "prompt": Role.OTHER,
            "parser": Role.OTHER,
        }
    },
    tool=(semconv.GEN_AI_TOOL_NAME,),
    tool_from_name=lambda name: name,
    arguments=("gen_ai.prompt",),
    arguments_of=_arguments,
    result=("gen_ai.completion",),
    result_of=_result,
    asked=("gen_ai.completion",),
    given=("gen_ai.prompt",),
    conversation=("langsmith.metadata.thread_id", "langsmith.metadata.session_id"),
    user=("langsmith.metadata.user_id",),
    agent=("langsmith.metadata.lc_agent_name",),
    model=("langsmith.metadata.ls_model_name",),
    version=("langsmith.metadata.app_version",),
)
