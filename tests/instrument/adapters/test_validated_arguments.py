"""Every adapter decides about what the body gets, whatever names the model gave it by."""

import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from uuid import uuid4

import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, HttpUrl, RootModel

from toolverdict.instrument.adapters.validated import plain_arguments, plain_fields
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import capture_spans


class Request(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    amount: float = Field(alias="amt")


class Choosy(BaseModel):
    amount: float = Field(validation_alias=AliasChoices("value", "amount"))
    note: str = "none"
    id: str = Field(default_factory=lambda: str(uuid4()))


def pay(req: Request, other: Choosy) -> str:
    """Pay."""
    got.append((req.amount, other.amount))
    return "paid"


got: list[tuple[float, float]] = []
SMALL = {"req": {"amount": 5}, "other": {"amount": 5}}
BY_ALIAS = {"req": {"amt": 5}, "other": {"value": 5}}
LARGE = {"req": {"amt": 1_000_000, "amount": 5}, "other": {"amount": 5}}
CHOSEN = {"req": {"amount": 5}, "other": {"value": 1_000_000, "amount": 5}}
LABELS = {"pay": ["payment"]}
Caller = Callable[[dict[str, Any]], Awaitable[object]]


async def langchain(given: dict[str, Any]) -> object:
    tools = pytest.importorskip("langchain_core.tools", reason="langchain-core is not installed")
    from toolverdict.instrument.adapters.langchain import instrument_tools

    (made,) = instrument_tools([tools.StructuredTool.from_function(pay)], labels=LABELS)
    return await made.ainvoke({"type": "tool_call", "name": "pay", "id": "1", "args": given})


async def openai_agents(given: dict[str, Any]) -> object:
    agents = pytest.importorskip("agents", reason="openai-agents is not installed")
    from agents.testing import ScriptedModel, assistant_message, function_call

    from toolverdict.instrument.adapters.openai_agents import instrument_tools

    tools = instrument_tools([agents.function_tool(pay, strict_mode=False)], labels=LABELS)
    model = ScriptedModel([[function_call("pay", given, call_id="1")], [assistant_message("")]])
    agent = agents.Agent(name="shop", model=model, tools=tools)
    quiet = agents.RunConfig(tracing_disabled=True)
    return await agents.Runner.run(agent, "", run_config=quiet)


async def pydantic_ai(given: dict[str, Any]) -> object:
    ai = pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from toolverdict.instrument.adapters.pydantic_ai import instrument_tools

    turns = iter([ModelResponse([ToolCallPart("pay", given)]), ModelResponse([TextPart("done")])])
    model = FunctionModel(lambda messages, info: next(turns))
    agent = ai.Agent(model, tools=[pay], capabilities=[instrument_tools(labels=LABELS)])
    return await agent.run("")


async def google_adk(given: dict[str, Any]) -> object:
    pytest.importorskip("google.adk", reason="google-adk is not installed")
    from types import SimpleNamespace

    from toolverdict.instrument.adapters.google_adk import instrument_tools

    (made,) = instrument_tools([pay], labels=LABELS)
    context: Any = SimpleNamespace(
        function_call_id="1",
        tool_confirmation=None,
        _invocation_context=SimpleNamespace(),
        actions=SimpleNamespace(requested_tool_confirmations={}, requested_auth_configs={}),
    )
    return await made.run_async(args=given, tool_context=context)  # type: ignore[union-attr]


async def mcp(given: dict[str, Any]) -> object:
    pytest.importorskip("mcp.server.mcpserver", reason="mcp 2 is not installed")
    from mcp.client import Client
    from mcp.server.mcpserver import MCPServer

    from toolverdict.instrument.adapters.mcp import instrument_server

    server: Any = instrument_server(MCPServer("shop", log_level="CRITICAL"), labels=LABELS)
    server.tool()(pay)
    async with Client(server) as client:
        return await client.call_tool("pay", given)


async def fastmcp(given: dict[str, Any]) -> object:
    package = pytest.importorskip("fastmcp", reason="fastmcp is not installed")
    from toolverdict.instrument.adapters.fastmcp import instrument_tools

    server = package.FastMCP("shop", middleware=[instrument_tools(labels=LABELS)])
    server.tool(pay)
    async with package.Client(server) as client:
        return await client.call_tool("pay", given, raise_on_error=False)


CALLERS: list[Caller] = [langchain, openai_agents, pydantic_ai, google_adk, mcp, fastmcp]


@pytest.fixture
def small_sums() -> Policy:
    """Payments of up to 100."""
    return Policy.parse(
        "version: 1\nid: shop\nrules:\n  - id: small\n    effect: allow\n    labels: [payment]\n"
        "    args: {req.amount: {range: {max: 100}}, other.amount: {range: {max: 100}}}\n"
    )


@pytest.mark.parametrize("call", CALLERS)
async def test_a_name_that_is_preferred_hides_nothing(
    small_sums: Policy, seen: Any, call: Caller
) -> None:
    got.clear()
    with capture_spans(policy=small_sums, capture="full") as spans:
        for given in (SMALL, BY_ALIAS, LARGE, CHOSEN):
            await call(given)
    assert got == [(5, 5), (5, 5)]
    assert seen(spans.tool_calls, "tool.outcome") == ["ok", "ok", "denied", "denied"]
    hashes = seen(spans.tool_calls, "tool.args_hash")
    assert hashes[0] == hashes[1]
    recorded = [json.loads(a) for a in seen(spans.tool_calls, "gen_ai.tool.call.arguments")]
    assert [(a["req"], a["other"]) for a in recorded] == [
        ({"amount": 5}, {"amount": 5}),
        ({"amount": 5}, {"amount": 5}),
        ({"amount": 1_000_000}, {"amount": 5}),
        ({"amount": 5}, {"amount": 1_000_000}),
    ]


def test_a_field_of_the_tool_itself_has_a_name_of_its_own(seen: Any) -> None:
    tools = pytest.importorskip("langchain_core.tools", reason="langchain-core is not installed")
    from toolverdict.instrument.adapters.langchain import instrument_tools

    def pay(**given: Any) -> str:
        """Pay."""
        return "paid"

    tool = tools.StructuredTool.from_function(pay, args_schema=Choosy)
    (made,) = instrument_tools([tool])
    with capture_spans(capture="full") as spans:
        made.invoke({"value": 7, "amount": 5})
        made.invoke({"amount": 7})
    assert seen(spans.tool_calls, "gen_ai.tool.call.arguments") == ['{"amount":7}'] * 2


@dataclasses.dataclass
class Line:
    sku: str
    count: int = 1


class Lines(RootModel[list[Line]]):
    pass


class Order(BaseModel):
    model_config = ConfigDict(extra="allow")
    lines: Lines
    where: HttpUrl | None = None
    pair: tuple[Choosy, int] | None = None


def test_what_is_given_is_plain() -> None:
    order = Order.model_validate(
        {
            "lines": [{"sku": "a"}],
            "where": "https://example.com",
            "pair": [{"value": 1}, 2],
            "more": {"x": 1},
        }
    )
    expected = {
        "lines": [{"sku": "a", "count": 1}],
        "where": "https://example.com/",
        "pair": ({"amount": 1.0}, 2),
        "more": {"x": 1},
    }
    assert plain_fields(order) == expected
    assert plain_arguments({"order": order, "n": None}) == {"order": expected, "n": None}


def test_what_holds_itself_or_is_deep_comes_to_an_end() -> None:
    cycle: list[Any] = []
    cycle += [cycle, cycle]
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep, deep]
    made = plain_arguments({"cycle": cycle, "deep": deep})
    assert made["cycle"] == [cycle, cycle]


class Secret(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    token: str = Field(alias="tok")
    order: str = Field(validation_alias=AliasChoices("ord", "order"))


Given = dict[str, Any]


def by_langchain(exclude: Any, keys: Any) -> Callable[[Given], Awaitable[object]]:
    tools = pytest.importorskip("langchain_core.tools", reason="langchain-core is not installed")
    from toolverdict.instrument.adapters.langchain import instrument_tools

    def pay(**given: Any) -> str:
        """Pay."""
        return "paid"

    tool = tools.StructuredTool.from_function(pay, args_schema=Secret)
    (made,) = instrument_tools([tool], exclude=exclude, idempotency_keys=keys)
    return lambda given: made.ainvoke(
        {"type": "tool_call", "name": "pay", "id": "1", "args": given}
    )


def pay_secretly(
    token: Annotated[str, Field(validation_alias=AliasChoices("tok", "token"))],
    order: Annotated[str, Field(validation_alias=AliasChoices("ord", "order"))],
) -> str:
    """Pay."""
    return "paid"


def by_mcp(exclude: Any, keys: Any) -> Callable[[Given], Awaitable[object]]:
    pytest.importorskip("mcp.server.mcpserver", reason="mcp 2 is not installed")
    from mcp.server.mcpserver import MCPServer

    from toolverdict.instrument.adapters.mcp import instrument_server

    made: Any = MCPServer("shop", log_level="CRITICAL")
    instrument_server(made, exclude=exclude, idempotency_keys=keys)
    made.tool(name="pay")(pay_secretly)
    return lambda given: made.call_tool("pay", given)


def by_fastmcp(exclude: Any, keys: Any) -> Callable[[Given], Awaitable[object]]:
    package = pytest.importorskip("fastmcp", reason="fastmcp is not installed")
    from toolverdict.instrument.adapters.fastmcp import instrument_tools

    middleware = instrument_tools(exclude=exclude, idempotency_keys=keys)
    server = package.FastMCP("shop", middleware=[middleware])
    server.tool(pay_secretly, name="pay")
    return lambda given: server.call_tool("pay", given)


@pytest.mark.parametrize("make", [by_langchain, by_mcp, by_fastmcp])
@pytest.mark.parametrize(("secret", "key"), [("token", "order"), ("tok", "ord")])
async def test_settings_hold_for_an_argument_by_each_of_its_names(
    make: Any, secret: str, key: str, seen: Any
) -> None:
    call = make({"pay": [secret]}, {"pay": key})
    with capture_spans(capture="full") as spans:
        for given in ({"tok": "s1", "ord": "o"}, {"token": "s2", "order": "o"}):
            await call(given)
        for wrong in ({"tok": "s3", "ord": [1]}, {"token": "s4", "order": [1]}):
            with pytest.raises(Exception, match=r"(?i)validation error|string"):
                await call(wrong)
    calls = seen(spans.tool_calls)
    recorded = [json.loads(c["gen_ai.tool.call.arguments"]) for c in calls]
    assert recorded == [{"order": "o"}] * 2 + [{"ord": [1]}, {"order": [1]}]
    assert len({c["idempotency.key_hash"] for c in calls[:2]}) == 1
