"""FastMCP's own server, called by the MCP SDK's client in memory."""

from typing import Any

import pytest

from toolverdict.instrument import Refused, tool_call
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import capture_spans

pytest.importorskip("fastmcp", reason="fastmcp is not installed")

from fastmcp import Client, FastMCP

from toolverdict.instrument.adapters.fastmcp import instrument_tools


def get_order(order_id: str, verbose: bool = False) -> str:
    """Look an order up."""
    return f"{order_id}: paid"


async def refund(order_id: str, amount: float) -> str:
    """Pay an order back."""
    return "refunded"


def delete_user(user: str) -> str:
    """Delete a user."""
    raise AssertionError("never runs")


def cancel() -> str:
    """Cancel."""
    raise Refused("secret")


def shop(*, instrumented: bool = True) -> FastMCP[Any]:
    labels = {"refund": ["payment"]}
    middleware = [instrument_tools(labels=labels)] if instrumented else []
    server: FastMCP[Any] = FastMCP("shop", middleware=middleware)
    for function in (get_order, refund, delete_user, cancel):
        server.tool(function)
    return server


async def test_a_call_is_one_span(seen: Any) -> None:
    async with Client(shop()) as client:
        with capture_spans(capture="full") as spans, tool_call("call_9"):
            result = await client.call_tool(
                "get_order", {"order_id": "o-1"}, meta={"toolverdict/call_id": "call_1"}
            )
    assert result.data == "o-1: paid"
    (call,) = seen(spans.tool_calls)
    assert call["tool.outcome"] == "ok"
    assert call["gen_ai.tool.call.id"] == "call_1"
    assert call["gen_ai.tool.call.arguments"] == '{"order_id":"o-1"}'


async def test_clients_see_the_same_tools() -> None:
    shown = []
    for instrumented in (False, True):
        async with Client(shop(instrumented=instrumented)) as client:
            shown.append(await client.list_tools())
    assert shown[0] == shown[1]


async def test_what_is_denied_is_told(policy: Policy, seen: Any) -> None:
    async with Client(shop()) as client:
        with capture_spans(policy=policy) as spans:
            denied = await client.call_tool("delete_user", {"user": "u"}, raise_on_error=False)
            asking = await client.call_tool(
                "refund", {"order_id": "o", "amount": 1}, raise_on_error=False
            )
    assert denied.is_error
    assert "denied by never-delete" in str(denied.content)
    assert "needs approval" in str(asking.content)
    assert seen(spans.tool_calls, "tool.outcome") == ["denied", "pending_approval"]


async def test_outcomes(seen: Any) -> None:
    async with Client(shop()) as client:
        with capture_spans() as spans:
            for name in ("cancel", "get_order", "nowhere"):
                result = await client.call_tool(name, {}, raise_on_error=False)
                assert result.is_error
    assert seen(spans.tool_calls, "tool.outcome", "tool.executed") == [
        ("refused", True),
        ("invalid_arguments", False),
    ]
    assert spans.body_of(spans.tool_calls[1]) is None
