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
    "LLM": Role.MODEL,
    "AGENT": Role.AGENT,
    "CHAIN": Role.OTHER,
    "RETRIEVER": Role.OTHER,
    "EMBEDDING": Role.OTHER,
    "RERANKER": Role.OTHER,
    "GUARDRAIL": Role.OTHER,
    "EVALUATOR": Role.OTHER,
}


_MOMENTS = frozenset({"start", "success", "error", "retry", "finish"})
_HAND_OVER = "handoff to "
_PROPERTY = {"type", "description"}


def _arguments(value: Json) -> Json:
    """Arguments without the wrapping of a Python call."""
    if isinstance(value, dict):
        if isinstance(value.get("kwargs"), dict) and set(value) <= {
            "args",
            "kwargs",
            "sanitize_inputs_outputs",
        }:
            # Arguments by place have no names here: the model's request has them.
            return None if value.get("args") else value["kwargs"]
        if set(value) == {"input", "options"} and isinstance(value["input"], dict):
            return value["input"]
        if "properties" in value and "type" in value:
            return None  # a schema
        if value and all(isinstance(v, dict) and v.keys() >= _PROPERTY for v in value.values()):
            return None  # the properties of one
        return value
    # The only argument of a tool that has one, without its name: the model's request has it.
    return None


def _tool_name(name: str) -> str:
    """The tool's name in a span name such as ``agent.X``, ``X.run`` or ``X.__call__``."""
    return name.removesuffix("()").removesuffix(".__call__").removesuffix(".run").rpartition(".")[2]


def _agent_name(span: Span) -> str | None:
    """The node of a graph, or the name in ``NAME.run`` unless it is that of a class.

    Asked last: some emitters name every node alike, beside the agent's name in another dialect.
    """
    node = span.text("graph.node.id")
    name = span.name.removesuffix(".run")
    if node or name == span.name or span.text(semconv.OPENINFERENCE_SPAN_KIND) != "AGENT":
        return node
    return name if name.isidentifier() and not name[0].isupper() else None


def _role(span: Span) -> Role | None:
    """What a span of a tool is: not a tool where it is a hand-over, or a moment of a call.

    The model's request for a hand-over is the call. Some emitters make a span of each event of a
    run, named after it, with the kind of what it is about.
    """
    if span.text(semconv.OPENINFERENCE_SPAN_KIND) != "TOOL":
        return None
    is_moment = span.name in _MOMENTS and semconv.TOOL_NAME not in span.attributes
    return Role.OTHER if is_moment or span.name.startswith(_HAND_OVER) else Role.TOOL


def _decisions(span: Span) -> Iterator[Decision]:
    if span.text(semconv.OPENINFERENCE_SPAN_KIND) == "CHAIN":
        yield from langchain.decisions(span)


DIALECT = Dialect(
    name="openinference",
    rank=300,
    marks=(semconv.OPENINFERENCE_SPAN_KIND,),
    roles={semconv.OPENINFERENCE_SPAN_KIND: _KINDS},
    role_of=_role,
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
    agent=("agent.name", "graph.node.name"),
    agent_of=_agent_name,
    model=("llm.model_name",),
    metadata=("metadata",),
    approvals=_decisions,
)
