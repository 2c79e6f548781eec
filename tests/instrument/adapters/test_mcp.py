"""The MCP SDK's own client and server, in memory and in two processes."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import StatusCode

from toolverdict.instrument import ApprovalRequired, Refused, tool, tool_call, trajectory
from toolverdict.instrument.approvals import Approval, ApprovalRequest
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import CapturedSpans, capture_spans

pytest.importorskip("mcp.server.mcpserver", reason="mcp 2 is not installed")

from mcp import StdioServerParameters
from mcp.client import Client
from mcp.server.mcpserver import Context, MCPServer

from toolverdict.instrument.adapters.mcp import instrument_client, instrument_server

LABELS = {"refund": ["payment"]}


def shop() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("shop", log_level="CRITICAL")

    @server.tool()
    def get_order(order_id: str, verbose: bool = False) -> str:
        """Look an order up."""
        return f"{order_id}: paid"

    @server.tool()
    async def refund(order_id: str, amount: float) -> str:
        """Pay an order back."""
        return "refunded"

    @server.tool()
    def delete_user(user: str) -> str:
        """Delete a user."""
        raise AssertionError("never runs")

    @server.tool()
    def cancel(order_id: str) -> str:
        """Cancel."""
        raise Refused("secret")

    @server.tool()
    def meta(ctx: Context[Any]) -> dict[str, Any]:
        """Show what came along."""
        return dict(ctx.request_context.meta or {})

    return server


async def test_the_call_of_a_client_is_one_span(seen: Any) -> None:
    async with Client(shop()) as client:
        instrument_client(client, server="shop", labels=LABELS)
        with capture_spans(capture="full") as spans, trajectory("agent"), tool_call("call_1"):
            result = await client.call_tool("get_order", {"order_id": "o-1"})
    assert result.structured_content == {"result": "o-1: paid"}
    (call,) = seen(spans.tool_calls)
    assert call["tool.name"] == "shop.get_order"
    assert call["gen_ai.tool.call.id"] == "call_1"
    assert call["gen_ai.tool.call.arguments"] == '{"order_id":"o-1"}'
    assert (call["tool.outcome"], call["gen_ai.agent.name"]) == ("ok", "agent")


async def test_a_failure_in_band_is_an_error(seen: Any) -> None:
    async with Client(shop()) as client:
        instrument_client(client)
        with capture_spans() as spans:
            result = await client.call_tool("cancel", {"order_id": "o-1"})
            await client.call_tool("get_order", {})
    assert result.is_error
    assert seen(spans.tool_calls, "tool.outcome", "error.type") == [("error", "tool_error")] * 2
    assert spans.tool_calls[0].status.status_code is StatusCode.ERROR
    assert "secret" not in spans.tool_calls[0].to_json()


async def test_a_client_does_not_send_what_is_denied(policy: Policy, seen: Any) -> None:
    async with Client(shop()) as client:
        instrument_client(client, server="shop", labels=LABELS)
        with capture_spans(policy=policy) as spans:
            result = await client.call_tool("delete_user", {"user": "u"})
            with pytest.raises(ApprovalRequired):
                await client.call_tool("refund", {"order_id": "o-1", "amount": 1})
    assert result.is_error
    assert "denied by never-delete" in str(result.content)
    assert seen(spans.tool_calls, "tool.outcome") == ["denied", "pending_approval"]


async def test_a_server_decides_as_well(policy: Policy, seen: Any) -> None:
    answers: list[Approval | None] = [None]

    def approver(request: ApprovalRequest) -> Approval | None:
        return request.approve("alice") if not answers else answers.pop()

    async with Client(instrument_server(shop(), labels=LABELS)) as client:
        with capture_spans(policy=policy, approver=approver) as spans:
            results = [
                await client.call_tool("delete_user", {"user": "u"}),
                await client.call_tool("refund", {"order_id": "o-1", "amount": 1}),
                await client.call_tool("refund", {"order_id": "o-1", "amount": 1}),
                await client.call_tool("get_order", {"order_id": "o-1"}),
            ]
    assert [result.is_error for result in results] == [True, True, False, False]
    assert "denied by never-delete" in str(results[0].content)
    assert "needs approval appr_" in str(results[1].content)
    outcomes = seen(spans.tool_calls, "tool.outcome")
    assert outcomes == ["denied", "pending_approval", "ok", "ok"]


async def test_a_server_names_outcomes_by_what_the_tool_raised(seen: Any) -> None:
    async with Client(instrument_server(shop())) as client:
        with capture_spans() as spans:
            failed = await client.call_tool("cancel", {"order_id": "o-1"})
            wrong = await client.call_tool("get_order", {"order_id": [7]})
            nowhere = await client.call_tool("nowhere", {})
    assert failed.is_error
    assert wrong.is_error
    assert "validation error" in str(wrong.content)
    assert nowhere.is_error
    assert seen(spans.tool_calls, "tool.outcome", "tool.executed") == [
        ("refused", True),
        ("invalid_arguments", False),
    ]
    assert "tool.args_hash" in seen(spans.tool_calls)[1]


def parents(spans: Any, call: Any) -> list[str]:
    """The names of the spans around one, from the inside."""
    by_id = {span.context.span_id: span for span in spans}
    found = []
    while call.parent is not None and call.parent.span_id in by_id:
        call = by_id[call.parent.span_id]
        found.append(call.name)
    return found


async def test_both_ends_are_one_trace_and_one_call(seen: Any) -> None:
    async with Client(instrument_server(shop())) as client:
        instrument_client(client)
        with capture_spans() as spans, trajectory("agent"), tool_call("call_1"):
            await client.call_tool("get_order", {"order_id": "o-1"})
    inner, outer = spans.tool_calls
    assert inner.context is not None
    assert outer.context is not None
    assert inner.context.trace_id == outer.context.trace_id
    assert "tool.call get_order" in parents(spans, inner)
    assert seen([inner, outer], "gen_ai.tool.call.id") == ["call_1", "call_1"]
    hashes = seen([inner, outer], "tool.args_hash")
    assert hashes[0] == hashes[1]


async def test_the_sdks_own_spans_stand_between_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = CapturedSpans()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(theirs))
    shared = provider.get_tracer("mcp-python-sdk")
    monkeypatch.setattr("mcp.shared._otel._tracer", shared)
    async with Client(instrument_server(shop())) as client:
        instrument_client(client)
        with capture_spans() as spans:
            await client.call_tool("get_order", {"order_id": "o-1"})
    inner, outer = spans.tool_calls
    around = parents([*spans, *theirs], inner)
    assert around[-1] == "tool.call get_order"
    assert "tools/call get_order" in around
    assert outer.parent is None


@pytest.mark.parametrize("traceparent", ["", "00-zz", "x" * 9999, "00-" + "0" * 32 + "-1-01"])
async def test_what_comes_along_in_meta(traceparent: str, seen: Any) -> None:
    """A user's keys arrive, and a trace context that is none does no harm."""
    monkey: Any = {"traceparent": traceparent, "mine": {"a": 1}}
    async with Client(instrument_server(shop())) as client:
        with capture_spans() as spans:
            plain = await client.call_tool("meta", {}, meta=monkey)
        instrument_client(client)
        with capture_spans() as ours, tool_call("call_1"):
            result = await client.call_tool("meta", {}, meta=monkey)
    assert plain.structured_content["mine"] == {"a": 1}
    assert seen(spans.tool_calls, "tool.outcome") == ["ok"]
    assert result.structured_content["mine"] == {"a": 1}
    assert result.structured_content["toolverdict/call_id"] == "call_1"
    span = ours.tool_calls[-1].context
    assert span is not None
    assert trace.format_trace_id(span.trace_id) in result.structured_content["traceparent"]


async def test_two_processes_are_one_trace(tmp_path: Path) -> None:
    written = tmp_path / "server.txt"
    (tmp_path / "server.py").write_text(
        "import sys\n"
        "from mcp.server.mcpserver import MCPServer\n"
        "from toolverdict.instrument.adapters.mcp import instrument_server\n"
        "from toolverdict.instrument.testing import capture_spans\n"
        "server = MCPServer('shop')\n"
        "@server.tool()\n"
        "def get_order(order_id: str) -> str:\n"
        "    return order_id\n"
        "with capture_spans() as spans:\n"
        "    instrument_server(server).run()\n"
        "    with open(sys.argv[1], 'w') as file:\n"
        "        for span in spans.tool_calls:\n"
        "            print(format(span.context.trace_id, 'x'), span.attributes['gen_ai.tool.call.id'],"
        " file=file)\n"
    )
    started = StdioServerParameters(
        command=sys.executable, args=[str(tmp_path / "server.py"), str(written)], env=_environment()
    )
    async with Client(started) as client:
        instrument_client(client)
        with capture_spans() as spans, tool_call("call_1"):
            await client.call_tool("get_order", {"order_id": "o-1"})
    (call,) = spans.tool_calls
    assert call.context is not None
    assert written.read_text().split() == [format(call.context.trace_id, "x"), "call_1"]


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key in ("PYTHONPATH", "PATH")}


async def test_a_function_is_witnessed_once(seen: Any) -> None:
    server: MCPServer[Any] = MCPServer("shop", log_level="CRITICAL")

    @server.tool()
    @tool
    def get_order(order_id: str) -> str:
        """Look up."""
        return order_id

    async with Client(server) as client:
        with capture_spans() as spans:
            await client.call_tool("get_order", {"order_id": "o-1"})
    assert seen(spans.tool_calls, "tool.outcome") == ["ok"]
    with pytest.raises(TypeError, match="decorated with @tool"):
        await instrument_server(server).call_tool("get_order", {"order_id": "o-1"})
    with pytest.raises(TypeError, match="instrumented already"):
        instrument_server(server)
