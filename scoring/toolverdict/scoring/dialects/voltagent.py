"""VoltAgent: its own types of spans, each with the entity that it belongs to.

A call that never reached its tool has no span; of it only the messages that are stored tell.
"""

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import Dialect, Role
from toolverdict.scoring.spans import Span


def _role(span: Span) -> Role | None:
    """An agent's own span has no type; what it is stands with the entity."""
    if "span.type" in span.attributes:
        return Role.OTHER
    return Role.AGENT if "agent.state" in span.attributes else None


DIALECT = Dialect(
    name="voltagent",
    rank=470,
    marks=("entity.type",),
    roles={"span.type": {"tool": Role.TOOL, "llm": Role.MODEL, "agent": Role.AGENT}},
    role_of=_role,
    tool=(semconv.TOOL_NAME,),
    call_id=("tool.call.id",),
    arguments=("input",),
    result=("output",),
    error_text=("error.message",),
    asked=("llm.response.toolCalls",),
    given=("llm.messages", "agent.messages"),
    conversation=("conversation.id", "voltagent.conversation_id"),
    user=("user.id",),
    agent=("entity.name",),
    model=("llm.model", "ai.model.name"),
    resource_is_frameworks=True,
)
