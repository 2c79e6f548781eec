"""Pydantic AI, instrumentation versions 1 to 6.

Version 1 writes the older GenAI events as one attribute; 2 renames fields; from 3 on tool spans
follow the convention. A deferred call leaves no span: the agent's result names it.
"""

from collections.abc import Iterator

from toolverdict.scoring.dialects.dialect import REQUESTED, Decision, Dialect, Role
from toolverdict.scoring.dialects.values import decoded
from toolverdict.scoring.spans import Span


def _decisions(span: Span) -> Iterator[Decision]:
    """Calls that a run ended on, because they need an approval."""
    final = span.attributes.get("final_result")
    if not isinstance(final, str) or '"approvals"' not in final:
        return
    read = decoded(final)
    deferred = read.get("approvals") if isinstance(read, dict) else None
    for call in deferred if isinstance(deferred, list) else ():
        call_id = call.get("tool_call_id") if isinstance(call, dict) else None
        if isinstance(call_id, str):
            yield Decision(REQUESTED, call_id)


DIALECT = Dialect(
    name="pydantic_ai",
    rank=700,
    marks=(
        "model_request_parameters",
        "tool_arguments",
        "tool_response",
        "final_result",
        "agent_name",
        "pydantic_ai.tool.failure_stage",
        "pydantic_ai.tool.retry.cause",
    ),
    pseudo_tools=frozenset({"final_result"}),
    role_of=lambda span: Role.AGENT if "final_result" in span.attributes else None,
    arguments=("tool_arguments",),
    result=("tool_response",),
    invalid_arguments={
        "pydantic_ai.tool.failure_stage": frozenset({"validation"}),
        "pydantic_ai.tool.retry.cause": frozenset({"validation_error"}),
    },
    asked=("events",),
    given=("events",),
    agent=("agent_name",),
    model=("model_name",),
    metadata=("metadata",),
    approvals=_decisions,
)
