"""The MCP SDK's own client and server, in memory and in two processes."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.trace import StatusCode
from pydantic import AfterValidator

from toolverdict.instrument import ApprovalRequired, Refused, tool, tool_call, trajectory
from toolverdict.instrument.approvals import Approval, ApprovalRequest
from toolverdict.instrument.guard import counts
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import CapturedSpans, capture_spans

pytest.importorskip("mcp.server.mcpserver", reason="mcp 2 is not installed")

from mcp import StdioServerParameters
from mcp.client import Client
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import (
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
)

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
        ("invalid_arguments", False),
    ]
    assert all("tool.args_hash" in call for call in seen(spans.tool_calls)[1:])
    assert spans.tool_calls[2].name == "tool.call nowhere"
    assert seen(spans.tool_calls)[2]["error.type"].endswith(".UnknownTool")
    assert spans.body_of(spans.tool_calls[2]) is None


@pytest.mark.parametrize("name", ["", "a\nb", "\udcff" * 2, "x" * 100_000])
async def test_a_name_that_no_tool_can_have_leaves_a_span(name: str, seen: Any) -> None:
    server = instrument_server(shop())
    with capture_spans() as spans, pytest.raises(ToolError, match="Unknown tool"):
        await server.call_tool(name, {})
    (call,) = seen(spans.tool_calls)
    assert call["tool.outcome"] == "invalid_arguments"
    assert call["tool.name"].isprintable()
    assert 1 <= len(call["tool.name"]) <= 128


async def test_a_name_that_no_tool_has_is_said() -> None:
    before = counts().get("adapter", 0)
    async with Client(instrument_server(shop(), labels=LABELS)) as client:
        instrument_client(client, labels=LABELS)
        await client.list_tools()
        await client.call_tool("get_order", {"order_id": "o-1"})
    assert counts().get("adapter", 0) == before
    async with Client(shop()) as client:
        instrument_client(client, labels={"refnd": ["payment"]})
        await client.list_tools()
        await client.list_tools()
    assert counts()["adapter"] == before + 1
    async with Client(instrument_server(shop(), labels={"refnd": ["payment"]})) as client:
        await client.call_tool("get_order", {"order_id": "o-1"})
        await client.call_tool("get_order", {"order_id": "o-2"})
    assert counts()["adapter"] == before + 2


class User:
    """Answers what a server asks by elicitation."""

    def __init__(self, *answers: ElicitResult) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, context: Any, params: Any) -> ElicitResult:
        self.asked.append(params.message)
        return self._answers.pop(0)


YES = ElicitResult(action="accept", content={"approve": True})
REFUND = {"order_id": "o-1", "amount": 1}


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize(
    ("answer", "outcome", "text"),
    [
        (YES, "ok", "refunded"),
        (ElicitResult(action="accept", content={"approve": False}), "denied", "approval_rejected"),
        (ElicitResult(action="accept", content={}), "denied", "approval_rejected"),
        (ElicitResult(action="decline"), "denied", "approval_rejected"),
        (ElicitResult(action="cancel"), "pending_approval", "needs approval"),
    ],
)
async def test_a_clients_user_is_asked(
    policy: Policy, seen: Any, mode: Any, answer: ElicitResult, outcome: str, text: str
) -> None:
    user = User(answer)
    server = instrument_server(shop(), labels=LABELS, exclude={"refund": ["order_id"]}, elicit=True)
    with capture_spans(policy=policy) as spans:
        async with Client(server, mode=mode, elicitation_callback=user) as client:
            result = await client.call_tool("refund", REFUND)
    assert text in str(result.content)
    assert user.asked == ['Approve refund({"amount": 1.0})?']
    calls = seen(spans.tool_calls)
    # Since 2026-07-28 the question is the answer to a first call.
    first = [("pending_approval", False)] if mode == "auto" else []
    assert [(call["tool.outcome"], call["tool.executed"]) for call in calls] == [
        *first,
        (outcome, outcome == "ok"),
    ]
    assert len({call["approval.id"] for call in calls}) == 1
    assert len({call["gen_ai.tool.call.id"] for call in calls}) == 1


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_nobody_is_asked_who_may_not_approve(
    policy: Policy, tmp_path: Path, seen: Any, mode: Any
) -> None:
    def approver(request: ApprovalRequest) -> Approval:
        return Approval(request.id, "rejected", "alice")

    path = tmp_path / "named.yaml"
    path.write_text(
        "version: 1\nid: shop\nrules:\n  - id: ask\n    effect: require_approval\n"
        "    labels: [payment]\n    approval: {approvers: [alice]}\n"
    )
    user = User()
    asking, silent = (
        instrument_server(shop(), labels=LABELS, elicit=elicit) for elicit in (True, False)
    )
    outcomes = []
    for server, callback, settings in (
        (silent, user, {"policy": policy}),
        (asking, None, {"policy": policy}),
        (asking, user, {"policy": Policy.load(path)}),
        (asking, user, {"policy": policy, "approver": approver}),
    ):
        with capture_spans(**settings) as spans:
            async with Client(server, mode=mode, elicitation_callback=callback) as client:
                assert (await client.call_tool("refund", REFUND)).is_error
        outcomes += seen(spans.tool_calls, "tool.outcome")
    assert outcomes == ["pending_approval"] * 3 + ["denied"]
    assert not user.asked


async def test_a_question_that_fails_or_cannot_be_shown_leaves_the_call_waiting(
    policy: Policy, seen: Any
) -> None:
    before = counts().get("elicitation", 0)
    failing = User()  # has no answer
    server = instrument_server(shop(), labels=LABELS, elicit=True)
    with capture_spans(policy=policy) as spans:
        async with Client(server, mode="legacy", elicitation_callback=failing) as client:
            failed = await client.call_tool("refund", REFUND)
            too_long = await client.call_tool("refund", {**REFUND, "order_id": "o" * 5000})
    assert "needs approval" in str(failed.content)
    assert "needs approval" in str(too_long.content)
    assert len(failing.asked) == 1
    assert counts()["elicitation"] == before + 1
    assert seen(spans.tool_calls, "tool.outcome") == ["pending_approval"] * 2


async def test_an_answer_is_for_the_arguments_that_were_asked_about(
    policy: Policy, seen: Any
) -> None:
    user = User(YES, YES)
    server = instrument_server(shop(), labels=LABELS, elicit=True)
    with capture_spans(policy=policy) as spans:
        async with Client(server, elicitation_callback=user) as client:
            asked = await client.session.call_tool("refund", REFUND, allow_input_required=True)
            assert isinstance(asked, InputRequiredResult)
            (key,) = asked.input_requests or {}
            again = await client.session.call_tool(
                "refund",
                {**REFUND, "amount": 1000},
                input_responses={key: YES},
                allow_input_required=True,
            )
    assert isinstance(again, InputRequiredResult)
    assert seen(spans.tool_calls, "tool.outcome") == ["pending_approval"] * 2


async def test_both_ends_know_a_call_that_was_asked_about_as_one(policy: Policy, seen: Any) -> None:
    user = User(YES)
    server = instrument_server(shop(), labels=LABELS, elicit=True)
    with capture_spans(policy=policy) as spans:
        async with Client(server, elicitation_callback=user) as client:
            instrument_client(client)
            with tool_call("call_1"):
                await client.call_tool("refund", REFUND)
    assert seen(spans.tool_calls, "tool.outcome") == ["pending_approval", "ok", "ok"]
    assert set(seen(spans.tool_calls, "gen_ai.tool.call.id")) == {"call_1"}
    assert set(seen(spans.tool_calls, "approval.id")) == {"appr_call_1", None}


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


async def test_a_tool_that_asks_by_itself_is_not_approved_in_the_middle(
    policy: Policy, seen: Any
) -> None:
    """Its user's yes came two rounds before, and is not sent again; asking anew would never end."""
    server: MCPServer[Any] = MCPServer("shop", log_level="CRITICAL")

    @server.tool()
    def refund(order_id: str, ctx: Context[Any]) -> Any:
        """Pay an order back."""
        assert ctx.input_responses is not None
        question = ElicitRequestFormParams(
            message="why?",
            requested_schema={"type": "object", "properties": {"why": {"type": "string"}}},
        )
        return InputRequiredResult(input_requests={"why": ElicitRequest(params=question)})

    user = User(YES, ElicitResult(action="accept", content={"why": "broken"}))
    instrument_server(server, labels=LABELS, elicit=True)
    with capture_spans(policy=policy) as spans:
        async with Client(server, elicitation_callback=user) as client:
            result = await client.call_tool("refund", {"order_id": "o-1"})
    assert "needs approval" in str(result.content)
    assert user.asked == ['Approve refund({"order_id": "o-1"})?', "why?"]
    assert seen(spans.tool_calls, "tool.outcome", "tool.executed") == [
        ("pending_approval", False),
        ("pending_approval", True),
        ("pending_approval", False),
    ]


async def test_an_answer_is_for_one_run(policy: Policy, seen: Any) -> None:
    """A client sends its user's yes once more; to a new question that is no answer either."""
    server = instrument_server(shop(), labels=LABELS, elicit=True)
    answers: dict[str, Any] = {}
    results = []
    with capture_spans(policy=policy) as spans:
        async with Client(server, elicitation_callback=User()) as client:
            for _ in range(5):
                result = await client.session.call_tool(
                    "refund", REFUND, input_responses=answers or None, allow_input_required=True
                )
                results.append(isinstance(result, InputRequiredResult))
                if not answers:
                    assert isinstance(result, InputRequiredResult)
                    answers = dict.fromkeys(result.input_requests or {}, YES)
    assert results == [True, False, True, True, True]
    assert seen(spans.tool_calls, "tool.executed") == [False, True, False, False, False]


async def test_an_answer_to_what_was_never_asked_is_none(policy: Policy, seen: Any) -> None:
    server = instrument_server(shop(), labels=LABELS, elicit=True)
    with capture_spans(policy=policy) as spans:
        async with Client(server, elicitation_callback=User()) as client:
            asked = await client.session.call_tool("refund", REFUND, allow_input_required=True)
            assert isinstance(asked, InputRequiredResult)
            (key,) = asked.input_requests or {}
            for made_up in (key[:-1] + "x", key.rsplit(" ", 1)[0], f"{key} "):
                again = await client.session.call_tool(
                    "refund", REFUND, input_responses={made_up: YES}, allow_input_required=True
                )
                assert isinstance(again, InputRequiredResult)
    assert not any(seen(spans.tool_calls, "tool.executed"))


def add_tool(server: MCPServer[Any]) -> None:
    @server.tool()
    def refund_all(amount: float) -> str:
        """Pay everything back."""
        return "refunded"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (LABELS, [("denied", ("write",))]),
        ({**LABELS, "refund_all": []}, [("ok", ())]),
        (None, [("ok", ())]),
    ],
)
@pytest.mark.parametrize("at", ["server", "client"])
async def test_a_tool_that_came_after_the_labels_counts_as_dangerous(
    policy: Policy, seen: Any, at: str, labels: Any, expected: Any
) -> None:
    server = shop()
    if labels is not None and "refund_all" in labels:
        add_tool(server)  # or its label would name no tool
    if at == "server":
        instrument_server(server, labels=labels)
    before = counts().get("adapter", 0)
    async with Client(server) as client:
        if at == "client":
            instrument_client(client, labels=labels)
        await client.list_tools()
        await client.call_tool("get_order", {"order_id": "o-1"})
        if labels is None or "refund_all" not in labels:
            add_tool(server)
        await client.list_tools()
        with capture_spans(policy=policy) as spans:
            for _ in range(2):
                await client.call_tool("refund_all", {"amount": 1})
    assert seen(spans.tool_calls, "tool.outcome", "tool.labels") == expected * 2
    assert counts().get("adapter", 0) - before == (expected[0][0] == "denied")


@pytest.mark.parametrize("first", [True, False])
async def test_nothing_goes_past_an_instrumented_client(
    policy: Policy, seen: Any, first: bool
) -> None:
    client = Client(shop())
    if first:
        instrument_client(client, labels=LABELS)
    async with client:
        if not first:
            instrument_client(client, labels=LABELS)
        with capture_spans(policy=policy) as spans:
            assert (await client.session.call_tool("delete_user", {"user": "u"})).is_error
            await client.call_tool("get_order", {"order_id": "o-1"})
        with pytest.raises(TypeError, match="instrumented already"):
            instrument_client(client.session)
        with pytest.raises(TypeError, match="instrumented already"):
            instrument_client(client)
    assert seen(spans.tool_calls, "tool.outcome") == ["denied", "ok"]


async def test_the_client_of_an_instrumented_session_is_refused(seen: Any) -> None:
    async with Client(shop()) as client:
        instrument_client(client.session)
        with pytest.raises(TypeError, match="session of this Client is instrumented already"):
            instrument_client(client)
        with capture_spans() as spans:
            await client.call_tool("get_order", {"order_id": "o-1"})
    assert seen(spans.tool_calls, "tool.outcome") == ["ok"]


async def test_a_validator_that_fails_leaves_a_span_and_tells_nothing(seen: Any) -> None:
    def crash(value: str) -> str:
        raise RuntimeError(f"secret {value}")

    server: MCPServer[Any] = MCPServer("shop", log_level="CRITICAL")

    @server.tool()
    def get_order(order_id: Annotated[str, AfterValidator(crash)]) -> str:
        """Look up."""
        raise AssertionError("never runs")

    async with Client(instrument_server(server)) as client:
        with capture_spans() as spans:
            result = await client.call_tool("get_order", {"order_id": "o-1"})
    assert result.is_error
    assert "secret" not in str(result.content)
    assert seen(spans.tool_calls, "tool.outcome", "tool.executed") == [("invalid_arguments", False)]
