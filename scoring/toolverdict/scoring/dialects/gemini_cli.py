"""Gemini CLI: every request and every batch of tools is a trace of its own; logs tell outcomes.

Names are ``mcp_<server>_<tool>``, ids ``<name>__<id>`` on its side and bare in the model's input.
"""

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import Dialect, Role, ToolEvent
from toolverdict.scoring.model import Json
from toolverdict.scoring.spans import Span

_CALL_ID = "gen_ai.tool.call_id"


def server_of(name: str, span: Span | None = None) -> tuple[str | None, str]:
    """Server and tool of ``mcp_<server>_<tool>``; the server is told by an attribute, else short."""
    if not name.startswith("mcp_") or name.startswith("mcp__"):
        return None, name
    known = span.text("mcp_server_name", "mcp.server.name") if span is not None else None
    if known and name.startswith(f"mcp_{known}_"):
        return known, name.removeprefix(f"mcp_{known}_")
    server, found, tool = name.removeprefix("mcp_").partition("_")
    return (server, tool) if found and tool else (None, name)


def _arguments(value: Json) -> Json:
    """Arguments of ``{callId, name, args}``, or of a list of one such."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, dict) and isinstance(value.get("request"), dict):
        value = value["request"]
    return value.get("args") if isinstance(value, dict) and "callId" in value else value


def _result(value: Json) -> Json:
    """The response of ``{status, request, response}``; an error is said in so many words."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict) or "status" not in value or "request" not in value:
        return value
    response = value.get("response")
    if value["status"] in ("error", "cancelled"):
        return {"error": _message(response) or value["status"]}
    return _message(response) if isinstance(response, dict) else response


def _message(response: Json) -> Json:
    if not isinstance(response, dict):
        return response
    error = response.get("error")
    if isinstance(error, dict):
        return error.get("message")
    return error or response.get("output") or response.get("resultDisplay") or response


DIALECT = Dialect(
    name="gemini_cli",
    rank=495,
    marks=(_CALL_ID,),
    names=("tool_call", "llm_call", "agent_call", "schedule_tool_calls"),
    roles={
        semconv.GEN_AI_OPERATION_NAME: {
            "tool_call": Role.TOOL,
            "llm_call": Role.MODEL,
            "agent_call": Role.AGENT,
            "schedule_tool_calls": Role.OTHER,
        }
    },
    resource_is_frameworks=True,
    tool=(semconv.GEN_AI_TOOL_NAME,),
    server_of=server_of,
    call_id=(_CALL_ID,),
    arguments=(semconv.GEN_AI_INPUT_MESSAGES,),
    arguments_of=_arguments,
    result=(semconv.GEN_AI_OUTPUT_MESSAGES,),
    result_of=_result,
    tool_events=(
        ToolEvent(
            names=frozenset({"gemini_cli.tool_call"}),
            tool=("function_name",),
            server=("mcp_server_name",),
            call_id=("call_id", "prompt_call_id"),
            arguments=("function_args",),
            success=("success",),
            error_type=("error_type",),
            error_text=("error",),
            decision=("decision",),
        ),
    ),
)
