"""Vercel's AI SDK 5 and 6, and the legacy integration of 7; the new one speaks GenAI."""

from toolverdict.scoring.dialects.dialect import Dialect, Role
from toolverdict.scoring.spans import Span


def _role(span: Span) -> Role | None:
    operation = span.attributes.get("ai.operationId")
    if not isinstance(operation, str):
        return None
    if operation == "ai.toolCall":
        return Role.TOOL
    if operation.endswith((".doGenerate", ".doStream")):
        return Role.MODEL
    return Role.AGENT if operation.startswith(("ai.generate", "ai.stream")) else Role.OTHER


DIALECT = Dialect(
    name="vercel_ai",
    rank=450,
    marks=("ai.operationId", "ai.settings.context.sessionId", "ai.settings.context.userId"),
    role_of=_role,
    tool=("ai.toolCall.name",),
    call_id=("ai.toolCall.id",),
    arguments=("ai.toolCall.args",),
    result=("ai.toolCall.result",),
    result_is_success=True,
    asked=("ai.response.toolCalls",),
    given=("ai.prompt.messages",),
    conversation=("ai.telemetry.metadata.sessionId", "ai.settings.context.sessionId"),
    user=("ai.telemetry.metadata.userId", "ai.settings.context.userId"),
    agent=("ai.telemetry.functionId",),
    model=("ai.response.model", "ai.model.id"),
    version=("ai.telemetry.metadata.appVersion", "ai.settings.context.appVersion"),
)
