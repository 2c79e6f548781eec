"""Google's Agent Development Kit, 1 and 2.

Version 1 writes requests and answers of the model as JSON beside a few GenAI names; on an error its
tool span has no attribute at all. ``(merged tools)`` stands for several calls that have spans.
"""

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import Dialect, Role
from toolverdict.scoring.model import Json
from toolverdict.scoring.spans import Span


def _role(span: Span) -> Role | None:
    if semconv.GEN_AI_OPERATION_NAME in span.attributes:
        return None
    if span.name.startswith("agent_run ["):
        return Role.AGENT
    request = span.attributes.get("gcp.vertex.agent.llm_request")
    return Role.MODEL if request not in (None, "{}") else None


def _agent_name(span: Span) -> str | None:
    """The agent's name in a span name ``agent_run [name]``, which has no attribute beside it."""
    name = span.name.removeprefix("agent_run [").removesuffix("]")
    return name if span.name == f"agent_run [{name}]" else None


def _result(value: Json) -> Json:
    """A tool's result; what is no object is put into one."""
    if value == "<not serializable>":
        return None
    return value["result"] if isinstance(value, dict) and set(value) == {"result"} else value


DIALECT = Dialect(
    name="adk",
    rank=600,
    marks=("gcp.vertex.agent.event_id", "gcp.vertex.agent.llm_request"),
    names=("agent_run [",),
    role_of=_role,
    pseudo_tools=frozenset({"(merged tools)", "(merged)"}),
    arguments=("gcp.vertex.agent.tool_call_args", semconv.GEN_AI_TOOL_CALL_ARGUMENTS),
    arguments_of=lambda value: None if value == "N/A" else value,
    result=("gcp.vertex.agent.tool_response", semconv.GEN_AI_TOOL_CALL_RESULT),
    result_of=_result,
    asked=("gcp.vertex.agent.llm_response",),
    given=("gcp.vertex.agent.llm_request",),
    agent_of=_agent_name,
    conversation=("gcp.vertex.agent.session_id",),
)
