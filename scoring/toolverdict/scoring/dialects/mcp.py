"""The Model Context Protocol: spans of clients and servers, by OpenTelemetry's MCP convention.

Source: OpenTelemetry semantic conventions, ``gen-ai/mcp.md``. ``mcp.session.id`` is a transport's
session and no conversation. The server's own name stands only where somebody writes it down.
"""

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import Dialect, Role
from toolverdict.scoring.spans import Span

_CALL = "tools/call"


def _tool_name(name: str) -> str:
    return name.rpartition(f"{_CALL} ")[2]


def _role(span: Span) -> Role | None:
    method = span.attributes.get("mcp.method.name")
    if method is None and span.attributes.get("rpc.system") == "jsonrpc":
        # A client that speaks RPC and names the tool in words of its own.
        method = span.attributes.get("rpc.method")
        return Role.TOOL if method == _CALL and "tool.name" in span.attributes else None
    if method is None:
        return None
    return Role.TOOL if method == _CALL else Role.OTHER


DIALECT = Dialect(
    name="mcp",
    rank=500,
    marks=("mcp.method.name", "mcp.server.name"),
    role_of=_role,
    tool=(semconv.GEN_AI_TOOL_NAME, "tool.name"),
    tool_from_name=_tool_name,
    server=("mcp.server.name",),
    call_id=(semconv.GEN_AI_TOOL_CALL_ID, "tool.call_id"),
    arguments=(semconv.GEN_AI_TOOL_CALL_ARGUMENTS,),
    result=(semconv.GEN_AI_TOOL_CALL_RESULT,),
    error_type=(semconv.ERROR_TYPE,),
    user=("enduser.id",),
)
