"""Langfuse: observations, with inputs and outputs as JSON and metadata as JSON texts."""

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import Dialect, Role
from toolverdict.scoring.model import Json
from toolverdict.scoring.spans import Span


def _arguments(value: Json) -> Json:
    """Arguments without the wrapping of a Python call."""
    if isinstance(value, dict) and set(value) == {"args", "kwargs"} and value["args"] == []:
        return value["kwargs"]
    return value if isinstance(value, dict) else None


def _agent_name(span: Span) -> str | None:
    return span.name if span.text("langfuse.observation.type") == "agent" else None


_METADATA = "langfuse.observation.metadata."

DIALECT = Dialect(
    name="langfuse",
    rank=100,
    marks=("langfuse.observation.type",),
    roles={
        "langfuse.observation.type": {
            "tool": Role.TOOL,
            "generation": Role.MODEL,
            "agent": Role.AGENT,
            "chain": Role.OTHER,
            "retriever": Role.OTHER,
            "embedding": Role.OTHER,
            "evaluator": Role.OTHER,
            "guardrail": Role.OTHER,
        }
    },
    tool_from_name=lambda name: name,
    call_id=(f"{_METADATA}tool_call_id",),
    arguments=("langfuse.observation.input",),
    arguments_of=_arguments,
    result=("langfuse.observation.output",),
    failure={"langfuse.observation.level": frozenset({"ERROR"})},
    error_text=("langfuse.observation.status_message",),
    asked=("langfuse.observation.output",),
    given=("langfuse.observation.input",),
    conversation=(semconv.SESSION_ID, f"{_METADATA}thread_id"),
    user=("user.id",),
    agent=(f"{_METADATA}lc_agent_name", "langfuse.trace.metadata.lc_agent_name"),
    agent_of=_agent_name,
    model=("langfuse.observation.model.name",),
    version=("langfuse.version", "langfuse.release"),
)
