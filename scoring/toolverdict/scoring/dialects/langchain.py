"""What LangChain's own objects say, in whatever dialect carries them.

``HumanInTheLoopMiddleware`` stops a graph by ``GraphInterrupt`` and, when it goes on, returns what
the person decided: calls that were edited by id, and a tool message for each refusal.
"""

from collections.abc import Iterator

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import (
    APPROVED,
    REJECTED,
    REQUESTED,
    Decision,
)
from toolverdict.scoring.dialects.values import decoded
from toolverdict.scoring.model import Json
from toolverdict.scoring.spans import Span

_EDITED = "hitl_edited_tool_calls"
_INTERRUPTS = ("GraphInterrupt", "GraphBubbleUp", "NodeInterrupt")
_MAX_MESSAGES = 1_000


def decisions(span: Span) -> Iterator[Decision]:
    """What a person decided, or that one was asked, as the span of a middleware tells it."""
    for event in span.events:
        kind = event.attributes.get(semconv.EXCEPTION_TYPE)
        if isinstance(kind, str) and kind.rsplit(".", 1)[-1] in _INTERRUPTS:
            yield Decision(REQUESTED)
    output = span.attributes.get(semconv.OUTPUT_VALUE)
    # Looked for as text first: most outputs of a graph are large and say nothing of this.
    if isinstance(output, str) and (_EDITED in output or "hitl_interrupt_decision" in output):
        yield from _decided(decoded(output))


def _decided(output: Json) -> Iterator[Decision]:
    if not isinstance(output, dict):
        return
    edited = output.get(_EDITED)
    for call_id, call in list(edited.items())[:_MAX_MESSAGES] if isinstance(edited, dict) else ():
        arguments = call.get("args") if isinstance(call, dict) else None
        yield Decision(APPROVED, call_id, arguments=arguments)
    messages = output.get("messages")
    for message in messages[-_MAX_MESSAGES:] if isinstance(messages, list) else ():
        body = message.get("data", message) if isinstance(message, dict) else None
        if not isinstance(body, dict):
            continue
        more = body.get("additional_kwargs")
        data = more.get("lc_data") if isinstance(more, dict) else None
        decision = data.get("decision") if isinstance(data, dict) else None
        call_id = body.get("tool_call_id")
        if decision in ("reject", "rejected") and isinstance(call_id, str):
            yield Decision(REJECTED, call_id)
