"""OpenTelemetry's GenAI conventions: current ones, and the events that came before them.

Source: OpenTelemetry GenAI semantic conventions 1.41, spans "execute tool", "invoke agent" and
"inference"; gen-ai-events. ``chat.completions`` is Semantic Kernel's word for ``chat``.
"""

from collections.abc import Iterator

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import REJECTED, REQUESTED, Decision, Dialect, Role
from toolverdict.scoring.spans import Span

_OPERATIONS = {
    semconv.OPERATION_EXECUTE_TOOL: Role.TOOL,
    "chat": Role.MODEL,
    "generate_content": Role.MODEL,
    "text_completion": Role.MODEL,
    "chat.completions": Role.MODEL,
    "text.completions": Role.MODEL,
    "chat.streaming_completions": Role.MODEL,
    "invoke_agent": Role.AGENT,
    "create_agent": Role.AGENT,
    "invoke_workflow": Role.AGENT,
}

_TOOL_SPAN_NAMES = ("execute_tool ", "running tool")


def _role(span: Span) -> Role | None:
    """The role of a span that names a tool and no operation, by the form of its own name.

    Some emitters leave the attribute out. Ours do so on purpose, inside the span that counts: see
    :mod:`reading`.
    """
    if semconv.GEN_AI_OPERATION_NAME in span.attributes:
        return None
    named = semconv.GEN_AI_TOOL_NAME in span.attributes
    return Role.TOOL if named and span.name.startswith(_TOOL_SPAN_NAMES) else None


def _tool_name(name: str) -> str:
    """The tool's name in a span name ``execute_tool {name}``, the convention's own form."""
    return name.removeprefix(f"{semconv.OPERATION_EXECUTE_TOOL} ")


def _agent_name(span: Span) -> str | None:
    """The agent's name in a span name ``invoke_agent {name}``."""
    _, found, name = span.name.partition("invoke_agent ")
    return name if found and span.text(semconv.GEN_AI_OPERATION_NAME) == "invoke_agent" else None


def _decisions(span: Span) -> Iterator[Decision]:
    """What a guardrail decided about a call (draft of the convention's security spans)."""
    verdict = span.text("gen_ai.security.decision.type")
    if verdict is None or span.text("gen_ai.security.target.type") != "tool_call":
        return
    call_id = span.text("gen_ai.security.target.id")
    if verdict == "deny":
        yield Decision(REJECTED, call_id, by_policy=True)
    elif verdict == "require_approval":
        yield Decision(REQUESTED, call_id)


DIALECT = Dialect(
    name="gen_ai",
    rank=900,
    marks=(
        semconv.GEN_AI_OPERATION_NAME,
        semconv.GEN_AI_TOOL_NAME,
        semconv.GEN_AI_CONVERSATION_ID,
        semconv.GEN_AI_AGENT_NAME,
        "gen_ai.security.decision.type",
    ),
    roles={semconv.GEN_AI_OPERATION_NAME: _OPERATIONS},
    role_of=_role,
    tool=(semconv.GEN_AI_TOOL_NAME, semconv.TOOL_NAME),
    tool_from_name=_tool_name,
    call_id=(semconv.GEN_AI_TOOL_CALL_ID,),
    arguments=(semconv.GEN_AI_TOOL_CALL_ARGUMENTS,),
    result=(semconv.GEN_AI_TOOL_CALL_RESULT,),
    error_type=(semconv.ERROR_TYPE,),
    asked=(semconv.GEN_AI_OUTPUT_MESSAGES,),
    given=(semconv.GEN_AI_INPUT_MESSAGES,),
    conversation=(semconv.GEN_AI_CONVERSATION_ID,),
    agent=(semconv.GEN_AI_AGENT_NAME,),
    agent_of=_agent_name,
    model=(semconv.GEN_AI_RESPONSE_MODEL, semconv.GEN_AI_REQUEST_MODEL),
    version=("gen_ai.agent.version",),
    approvals=_decisions,
)
