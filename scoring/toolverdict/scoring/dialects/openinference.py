"""OpenInference: one span kind per span, messages flattened into attributes.

Source: OpenInference semantic conventions, ``spec/tool_calling.md``. ``tool.parameters`` holds a
schema in some instrumentations and the arguments in others, so it is read only where there is no
``input.value`` and it is no schema.
"""

from collections.abc import Iterator

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects import langchain
from toolverdict.scoring.dialects.dialect import Decision, Dialect, Role
from toolverdict.scoring.model import Json
from toolverdict.scoring.spans import Span

_KINDS = {
    "TOOL": Role.TOOL,
    "LLM": Role.MODEL,
    "AGENT": Role.AGENT,
    "CHAIN": Role.OTHER,
    "RETRIEVER": Role.OTHER,
    "EMBEDDING": Role.OTHER,
    "RERANKER": Role.OTHER,
    "GUARDRAIL": Role.OTHER,
    "EVALUATOR": Role.OTHER,
}


def _arguments(value: Json) -> Json:
    """Arguments without the wrapping of a Python call."""
    if isinstance(value, dict):
        if isinstance(value.get("kwargs"), dict) and set(value) <= {
            "args",
            "kwargs",
            "sanitize_inputs_outputs",
        }:
            return value["kwargs"]
        if "properties" in value and "type" in value:
            return None  # a schema
        return value
    # The only argument of a tool that has one, without its name: the model's request has it.
    return None


def _tool_name(name: str) -> str:
    """The tool's name in a span name such as ``agent.X``, ``X.run`` or ``X.__call__``."""
    return name.removesuffix("()").removesuffix(".__call__").removesuffix(".run").rpartition(".")[2]


def _decisions(span: Span) -> Iterator[Decision]:
    if span.text(semconv.OPENINFERENCE_SPAN_KIND) == "CHAIN":
        yield from langchain.decisions(span)


DIALECT = Dialect(
    name="openinference",
    rank=300,
    marks=(semconv.OPENINFERENCE_SPAN_KIND,),
    roles={semconv.OPENINFERENCE_SPAN_KIND: _KINDS},
    pseudo_tools=frozenset({"final_answer", "finish"}),
    tool=(semconv.TOOL_NAME,),
    tool_from_name=_tool_name,
    call_id=("tool_call.id", "tool.id"),
    arguments=(semconv.INPUT_VALUE, "tool.parameters"),
    arguments_of=_arguments,
    result=(semconv.OUTPUT_VALUE,),
    tells_output=True,
    asked=("llm.output_messages.", semconv.OUTPUT_VALUE),
    given=("llm.input_messages.", semconv.INPUT_VALUE),
    conversation=(semconv.SESSION_ID,),
    user=("user.id",),
    agent=("agent.name", "graph.node.name", "graph.node.id"),
    model=("llm.model_name",),
    metadata=("metadata",),
    approvals=_decisions,
)
