"""MLflow's OTLP export: every attribute is the JSON text of its value, even a string."""

from toolverdict.scoring.dialects.dialect import Dialect, Role
from toolverdict.scoring.dialects.values import unquoted
from toolverdict.scoring.spans import Span


def _agent_name(span: Span) -> str | None:
    """The agent that a run inside another one is named after.

    The outermost has the name of a method (``Runner.run``), or whatever its caller gave it.
    """
    kind = span.text("mlflow.spanType")
    if kind is None or unquoted(kind) != "AGENT" or span.parent_span_id is None:
        return None
    return span.name if "." not in span.name else None


DIALECT = Dialect(
    name="mlflow",
    rank=200,
    marks=("mlflow.spanType",),
    roles={
        "mlflow.spanType": {
            "TOOL": Role.TOOL,
            "CHAT_MODEL": Role.MODEL,
            "LLM": Role.MODEL,
            "AGENT": Role.AGENT,
            "CHAIN": Role.OTHER,
            "RETRIEVER": Role.OTHER,
            "EMBEDDING": Role.OTHER,
            "PARSER": Role.OTHER,
            "UNKNOWN": Role.OTHER,
        }
    },
    tool_from_name=lambda name: name,
    call_id=("tool_call_id",),
    arguments=("mlflow.spanInputs",),
    arguments_of=lambda value: value if isinstance(value, dict) else None,
    result=("mlflow.spanOutputs",),
    asked=("mlflow.spanOutputs",),
    given=("mlflow.spanInputs",),
    agent_of=_agent_name,
    model=("mlflow.llm.model",),
    metadata=("metadata",),
)
