"""Claude Code and its Agent SDK: spans of tools with the wait and the run inside, and log events.

Arguments are on the log event ``tool_result`` only, results in an event of the span.
``user.id`` is a random number of the installation, not a user.
"""

from collections.abc import Iterator

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import (
    APPROVED,
    REJECTED,
    Decision,
    Dialect,
    Role,
    ToolEvent,
)
from toolverdict.scoring.spans import Span

_WAIT = "tool.blocked_on_user"
_RUN = "tool.execution"
_PLACEHOLDERS = frozenset({"mcp_tool", "custom_tool"})
_WORDS = {"accept": APPROVED, "reject": REJECTED}


def decision(word: object) -> str | None:
    """A value of ``approval.status`` for this family's words; None for one that decides nothing."""
    return _WORDS.get(word) if isinstance(word, str) else None


def _decisions(span: Span) -> Iterator[Decision]:
    """What the wait for a person ended in; the call is the span around it."""
    status = decision(span.attributes.get("decision"))
    if status is not None and span.attributes.get("span.type") == _WAIT:
        yield Decision(status, call_id=None, tool="")


DIALECT = Dialect(
    name="claude_code",
    rank=480,
    marks=("span.type",),
    roles={
        "span.type": {
            "tool": Role.TOOL,
            _RUN: Role.INSIDE,
            _WAIT: Role.OTHER,
            "llm_request": Role.MODEL,
            "interaction": Role.AGENT,
        }
    },
    tool=("tool_name", semconv.GEN_AI_TOOL_NAME),
    call_id=("tool_use_id", semconv.GEN_AI_TOOL_CALL_ID),
    failure={"success": frozenset({False, "false"})},
    error_type=("error_class", semconv.ERROR_TYPE),
    error_text=("error",),
    conversation=(semconv.SESSION_ID,),
    user=("enduser.id",),
    model=("model",),
    version=("service.version.app",),
    resource_is_frameworks=True,
    approvals=_decisions,
    tool_events=(
        ToolEvent(
            names=frozenset({"claude_code.tool_result"}),
            tool=("mcp_tool_name", "tool_name"),
            placeholders=_PLACEHOLDERS,
            server=("mcp_server_name",),
            call_id=("tool_use_id",),
            arguments=("tool_input",),
            success=("success",),
            error_type=("error_type",),
            error_text=("error",),
        ),
        ToolEvent(
            names=frozenset({"claude_code.tool_decision"}),
            tool=("mcp_tool_name", "tool_name"),
            placeholders=_PLACEHOLDERS,
            server=("mcp_server_name",),
            call_id=("tool_use_id",),
            decision=("decision",),
            is_decision=True,
        ),
        ToolEvent(names=frozenset({"tool.output"}), result=("output",)),
    ),
)
