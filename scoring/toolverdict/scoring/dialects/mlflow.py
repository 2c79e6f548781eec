"""MLflow's OTLP export: every attribute is the JSON text of its value, even a string."""

from toolverdict.scoring.dialects.dialect import Dialect, Role

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
    model=("mlflow.llm.model",),
    metadata=("metadata",),
)
