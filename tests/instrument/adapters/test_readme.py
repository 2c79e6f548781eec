"""The examples in the adapters' README are run as they are written."""

import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from toolverdict.instrument.testing import capture_spans

README = (
    Path(__file__).parents[3] / "instrument" / "toolverdict" / "instrument" / "adapters"
) / "README.md"
BLOCKS = dict(
    re.findall(r"^## ([^\n]+)\n+```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
)
GIVEN = {"order_id": "o-1", "amount": 12.5}
PAID = "paid 12.5 back for o-1"


def run(title: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(BLOCKS[title], f"README: {title}", "exec"), names)
    return names


def check(spans: Any, calls: int = 1) -> None:
    for span in spans.tool_calls:
        attributes = span.attributes or {}
        assert attributes["gen_ai.tool.call.id"] == "call_1"
        assert attributes["tool.labels"] == ("payment",)
        assert attributes["tool.outcome"] == "ok"
    assert len(spans.tool_calls) == calls


def test_every_block_has_a_test() -> None:
    assert README.read_text().count("```python") == len(BLOCKS) == 7


async def test_openai_agents() -> None:
    pytest.importorskip("agents", reason="openai-agents is not installed")
    from agents import RunConfig, Runner
    from agents.testing import ScriptedModel, assistant_message, function_call

    requests = [[function_call("refund", GIVEN, call_id="call_1")], [assistant_message(PAID)]]
    agent = run("OpenAI Agents SDK")["agent"].clone(model=ScriptedModel(requests))
    with capture_spans() as spans:
        result = await Runner.run(agent, "", run_config=RunConfig(tracing_disabled=True))
    assert result.final_output == PAID
    check(spans)


def test_langchain() -> None:
    pytest.importorskip("langchain", reason="langchain is not installed")
    from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
    from langchain_core.messages import AIMessage

    class Model(FakeMessagesListChatModel):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

    request = AIMessage("", tool_calls=[{"name": "refund", "args": GIVEN, "id": "call_1"}])
    agent = run("LangChain and LangGraph")["make_agent"](
        Model(responses=[request, AIMessage("done")])
    )
    with capture_spans() as spans:
        state = agent.invoke(
            {"messages": [("user", "please")]}, {"configurable": {"thread_id": "1"}}
        )
    assert PAID in [message.content for message in state["messages"]]
    check(spans)


async def test_google_adk() -> None:
    pytest.importorskip("google.adk", reason="google-adk is not installed")
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    class Model(BaseLlm):
        async def generate_content_async(
            self, llm_request: Any, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            part = types.Part(text="done")
            if len(llm_request.contents) == 1:
                call = types.FunctionCall(id="call_1", name="refund", args=GIVEN)
                part = types.Part(function_call=call)
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    agent = run("Google ADK")["agent"].clone(update={"model": Model(model="scripted")})
    runner = InMemoryRunner(agent=agent)
    with capture_spans() as spans:
        events = await runner.run_debug("please", quiet=True)
    told = [answer for event in events for answer in event.get_function_responses()]
    assert [answer.response for answer in told] == [{"result": PAID}]
    check(spans)


async def test_pydantic_ai() -> None:
    pytest.importorskip("pydantic_ai", reason="pydantic-ai is not installed")
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if any(isinstance(message, ModelResponse) for message in messages):
            return ModelResponse([TextPart("done")])
        return ModelResponse([ToolCallPart("refund", GIVEN, tool_call_id="call_1")])

    with capture_spans() as spans:
        result = await run("Pydantic AI")["agent"].run("", model=FunctionModel(answer))
    assert result.output == "done"
    check(spans)


async def test_mcp() -> None:
    pytest.importorskip("mcp.server.mcpserver", reason="mcp 2 is not installed")
    with capture_spans() as spans:
        result = await run("MCP")["call_it"]()
    assert result.structured_content == {"result": PAID}
    check(spans, calls=2)


async def test_fastmcp() -> None:
    fastmcp = pytest.importorskip("fastmcp", reason="fastmcp is not installed")
    async with fastmcp.Client(run("FastMCP")["server"]) as client:
        with capture_spans() as spans:
            result = await client.call_tool("refund", GIVEN, meta={"toolverdict/call_id": "call_1"})
    assert result.data == PAID
    check(spans)


def test_a_loop_of_your_own() -> None:
    message = {"content": [{"type": "tool_use", "id": "call_1", "name": "refund", "input": GIVEN}]}
    with capture_spans() as spans:
        messages = run("A loop of your own")["answer"]([], message)
    assert messages[-1]["content"][0]["content"] == PAID
    check(spans)
