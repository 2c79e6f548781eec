"""Codex CLI: the record of a call is a log event; of its thousand spans a few are about tools."""

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import Dialect, Role, ToolEvent
from toolverdict.scoring.dialects.values import decoded
from toolverdict.scoring.model import Json

_HEAD = "Wall time: "
_OUTPUT = "\nOutput:\n"


def _result(value: Json) -> Json:
    """The output of a tool without the line about its time; a text was put into an object."""
    if isinstance(value, str) and value.startswith(_HEAD):
        _, found, output = value.partition(_OUTPUT)
        value = decoded(output) if found else value
    return value["result"] if isinstance(value, dict) and set(value) == {"result"} else value


DIALECT = Dialect(
    name="codex",
    rank=490,
    marks=("codex.tool.phase", "codex.turn.phase", "conversation.id", "tool_result_seq"),
    roles={
        "codex.tool.phase": {"dispatch": Role.TOOL},
        "codex.turn.phase": {"sampling": Role.MODEL},
    },
    tool=("tool_name",),
    call_id=("call_id", "tool.call_id"),
    result_of=_result,
    conversation=("conversation.id", semconv.SESSION_ID),
    tool_events=(
        ToolEvent(
            names=frozenset({"codex.tool_result"}),
            tool=("tool_name",),
            server=("mcp_server",),
            namespace=("tool_namespace",),
            call_id=("call_id",),
            arguments=("arguments",),
            result=("output",),
            success=("success",),
        ),
        ToolEvent(
            names=frozenset({"codex.tool_decision"}),
            tool=("tool_name",),
            call_id=("call_id",),
            decision=("decision",),
            is_decision=True,
        ),
    ),
)
