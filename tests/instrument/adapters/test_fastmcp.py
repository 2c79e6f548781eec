"""FastMCP's own server, called by the MCP SDK's client in memory."""

from typing import Any

import pytest

from toolverdict.instrument import Refused, tool_call
from toolverdict.instrument.guard import counts
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import capture_spans

pytest.importorskip("fastmcp", reason="fastmcp is not installed")

from fastmcp import Client, Context, FastMCP
from fastmcp.client.elicitation import ElicitResult
from fastmcp.dependencies import Depends
from mcp.types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult
from mcp.types import ElicitResult as MCPElicitResult

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


def shop(*, instrumented: bool = True, elicit: bool = False) -> FastMCP[Any]:
    labels = {"refund": ["payment"]}
    middleware = [instrument_tools(labels=labels, elicit=elicit)] if instrumented else []
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
        ("invalid_arguments", False),
    ]
    assert [spans.body_of(call) for call in spans.tool_calls[1:]] == [None, None]
    assert seen(spans.tool_calls)[2]["tool.name"] == "nowhere"
    assert seen(spans.tool_calls)[2]["error.type"].endswith(".UnknownTool")


@pytest.mark.parametrize("listing", [True, False])
async def test_a_name_that_no_tool_has_is_said(listing: bool) -> None:
    before = counts().get("adapter", 0)
    for right, name in enumerate(("refnd", "refund")):
        labels = {name: ["payment"]}
        server: FastMCP[Any] = FastMCP("shop", middleware=[instrument_tools(labels=labels)])
        server.tool(refund)
        async with Client(server) as client:
            if listing:
                await client.list_tools()
            else:
                await client.call_tool("refund", REFUND)
                await client.call_tool("refund", REFUND)
        assert counts()["adapter"] == before + 1, right


REFUND = {"order_id": "o-1", "amount": 1}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize(
    ("action", "approve", "outcome", "text"),
    [
        ("accept", True, "ok", "refunded"),
        ("accept", False, "denied", "approval_rejected"),
        ("decline", None, "denied", "approval_rejected"),
        ("cancel", None, "pending_approval", "needs approval"),
    ],
)
async def test_a_clients_user_is_asked(
    policy: Policy, seen: Any, mode: Any, action: Any, approve: Any, outcome: str, text: str
) -> None:
    asked = []

    async def user(message: str, kind: Any, params: Any, context: Any) -> Any:
        asked.append(message)
        return ElicitResult(
            action=action, content={"approve": approve} if approve is not None else None
        )

    server = shop(elicit=True)
    with capture_spans(policy=policy) as spans:
        async with Client(server, mode=mode, elicitation_handler=user) as client:
            result = await client.call_tool("refund", REFUND, raise_on_error=False)
    assert text in str(result.content)
    assert asked == ['Approve refund({"order_id": "o-1", "amount": 1.0})?']
    calls = seen(spans.tool_calls)
    first = ["pending_approval"] if mode == "auto" else []
    assert [call["tool.outcome"] for call in calls] == [*first, outcome]
    assert len({call["approval.id"] for call in calls}) == 1


async def test_a_client_that_cannot_ask_is_told(policy: Policy, seen: Any) -> None:
    with capture_spans(policy=policy) as spans:
        async with Client(shop(elicit=True)) as client:
            result = await client.call_tool("refund", REFUND, raise_on_error=False)
    assert "needs approval" in str(result.content)
    assert seen(spans.tool_calls, "tool.outcome") == ["pending_approval"]


async def test_a_tool_that_asks_by_itself_waits(seen: Any) -> None:
    def ship(ctx: Context) -> Any:
        """Ship."""
        if ctx.input_responses is None:
            return InputRequiredResult(
                input_requests={
                    "where": ElicitRequest(
                        params=ElicitRequestFormParams(
                            message="where?",
                            requested_schema={
                                "type": "object",
                                "properties": {"to": {"type": "string"}},
                            },
                        )
                    )
                }
            )
        return "shipped"

    async def user(message: str, kind: Any, params: Any, context: Any) -> Any:
        return ElicitResult(action="accept", content={"to": "home"})

    server: FastMCP[Any] = FastMCP("shop", middleware=[instrument_tools()])
    server.tool(ship)
    with capture_spans() as spans:
        async with Client(server, elicitation_handler=user) as client:
            await client.call_tool("ship", {})
    assert seen(spans.tool_calls, "tool.outcome") == ["pending_approval", "ok"]


async def test_an_answer_is_for_one_run(policy: Policy, seen: Any) -> None:
    answers: dict[str, Any] = {}

    async def user(message: str, kind: Any, params: Any, context: Any) -> Any:
        raise AssertionError("the test answers")

    yes = {"action": "accept", "content": {"approve": True}}
    results = []
    with capture_spans(policy=policy) as spans:
        async with Client(shop(elicit=True), elicitation_handler=user) as client:
            for _ in range(4):
                result = await client.session.call_tool(
                    "refund", REFUND, input_responses=answers or None, allow_input_required=True
                )
                results.append(isinstance(result, InputRequiredResult))
                if not answers:
                    assert isinstance(result, InputRequiredResult)
                    keys = result.input_requests or {}
                    answers = dict.fromkeys(keys, MCPElicitResult.model_validate(yes))
    assert results == [True, False, True, True]
    assert seen(spans.tool_calls, "tool.executed") == [False, True, False, False]


async def test_a_tool_that_came_after_the_labels_counts_as_dangerous(
    policy: Policy, seen: Any
) -> None:
    server = shop()
    async with Client(server) as client:
        await client.call_tool("get_order", {"order_id": "o-1"})
        server.tool(lambda amount: "refunded", name="refund_all")
        before = counts().get("adapter", 0)
        with capture_spans(policy=policy) as spans:
            for _ in range(2):
                await client.call_tool("refund_all", {"amount": 1}, raise_on_error=False)
    assert seen(spans.tool_calls, "tool.outcome", "tool.labels") == [("denied", ("write",))] * 2
    assert counts()["adapter"] == before + 1


async def test_what_does_not_fit_is_known_before_anybody_is_asked(
    policy: Policy, seen: Any
) -> None:
    async with Client(shop()) as client:
        with capture_spans(policy=policy) as spans:
            wrong = {"order_id": "o", "amount": "much"}
            result = await client.call_tool("refund", wrong, raise_on_error=False)
    assert result.is_error
    assert seen(spans.tool_calls, "tool.outcome") == ["invalid_arguments"]


async def test_what_fastmcp_injects_is_made_once_and_is_no_argument(seen: Any) -> None:
    made = []

    def connect() -> str:
        made.append("connection")
        return "shop.db"

    def get_order(order_id: str, ctx: Context, db: str = Depends(connect)) -> str:
        """Look up."""
        return f"{order_id} in {db} for {ctx.fastmcp.name}"

    server: FastMCP[Any] = FastMCP("shop", middleware=[instrument_tools()])
    server.tool(get_order)
    with capture_spans(capture="full") as spans:
        async with Client(server) as client:
            result = await client.call_tool("get_order", {"order_id": "o-1"})
    assert result.data == "o-1 in shop.db for shop"
    assert made == ["connection"]
    assert seen(spans.tool_calls, "gen_ai.tool.call.arguments") == ['{"order_id":"o-1"}']


async def test_a_given_default_is_given(seen: Any) -> None:
    server = shop()
    with capture_spans(capture="full") as spans:
        async with Client(server) as client:
            await client.call_tool("get_order", {"order_id": "o-1", "verbose": False})
    assert seen(spans.tool_calls, "gen_ai.tool.call.arguments") == [
        '{"order_id":"o-1","verbose":false}'
    ]
