"""The MCP SDK's client over HTTP, where the trace has two ways to travel."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import propagate, trace

from toolverdict.instrument.testing import capture_spans

pytest.importorskip("mcp.server.mcpserver", reason="mcp 2 is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

import httpx2
import uvicorn
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import Context, MCPServer

from toolverdict.instrument.adapters.mcp import instrument_client


def server() -> MCPServer[Any]:
    made: MCPServer[Any] = MCPServer("shop", log_level="CRITICAL")

    @made.tool()
    def travelled(ctx: Context[Any, Any]) -> dict[str, str]:
        """What came along, by either way."""
        request, meta = ctx.request_context.request, ctx.request_context.meta
        headers = request.headers if request is not None else {}
        return {
            "header": headers.get("traceparent", ""),
            "other header": headers.get("x-theirs", ""),
            "meta": str((meta or {}).get("traceparent", "")),
        }

    return made


@contextmanager
def served(app: Any) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = uvicorn.Server(uvicorn.Config(app, log_level="critical", ws="none"))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        finally:
            running.should_exit = True
            thread.join()


async def as_an_instrumentation_does(request: Any) -> None:
    """What an instrumentation of the HTTP client does to each request."""
    propagate.inject(request.headers)
    request.headers["x-theirs"] = "kept"


async def test_the_trace_travels_in_headers_and_in_meta() -> None:
    """B5: a server that reads headers only is in the same trace as one that reads ``_meta``."""
    hooks = {"request": [as_an_instrumentation_does]}
    with served(server().streamable_http_app()) as url:
        async with (
            httpx2.AsyncClient(event_hooks=hooks) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            instrument_client(client)
            with capture_spans() as spans:
                result = await client.call_tool("travelled", {})
    (call,) = spans.tool_calls
    context = call.get_span_context()
    assert context is not None
    found = result.structured_content
    assert found is not None
    assert found["other header"] == "kept"
    for way in ("header", "meta"):
        _, trace_id, span_id, _ = found[way].split("-")
        assert trace_id == trace.format_trace_id(context.trace_id), way
        assert span_id in {
            trace.format_span_id(span.get_span_context().span_id)  # type: ignore[union-attr]
            for span in spans
        }, way
