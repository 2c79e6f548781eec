"""What single dialects say, where no recording shows it: one small trace each."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from toolverdict.instrument.outcomes import Outcome
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.conversations import trajectories_of
from toolverdict.scoring.dialects import dialects
from toolverdict.scoring.model import Captured, Placed, Trajectory
from toolverdict.scoring.policy import rulings
from toolverdict.scoring.spans import Event, LogRecord, Span

TRACE = "0af7651916cd43dd8448eb211c80319c"
RESOURCE = {"service.name": "shop", "service.instance.id": "one"}


def span(
    span_id: str,
    parent: str | None = None,
    name: str = "span",
    *,
    at: int = 0,
    ends: int | None = None,
    failed: bool = False,
    message: str = "",
    events: Sequence[Event] = (),
    trace: str = TRACE,
    a: dict[str, Any] | None = None,
) -> Span:
    end = at + 1 if ends is None else ends
    return Span(
        trace,
        span_id,
        parent,
        name,
        at,
        end,
        failed,
        a or {},
        RESOURCE,
        "",
        1,
        message,
        tuple(events),
    )


def exception(kind: str, message: str) -> Event:
    return Event("exception", {"exception.type": kind, "exception.message": message})


def log(
    name: str, span_id: str | None = None, *, at: int = 0, body: Any = None, **a: Any
) -> LogRecord:
    trace = TRACE if span_id is not None else None
    return LogRecord(trace, span_id, Event(name, a, body, at), RESOURCE)


def read(spans: Sequence[Span], logs: Sequence[LogRecord] = ()) -> list[Trajectory]:
    by_trace: dict[str, list[Span]] = {}
    for one in spans:
        by_trace.setdefault(one.trace_id, []).append(one)
    return [t for t in trajectories_of(by_trace.values(), logs) if t.calls]


def calls(spans: Sequence[Span], logs: Sequence[LogRecord] = ()) -> list[Placed]:
    (trajectory,) = read(spans, logs)
    return list(trajectory.calls)


def asked(*names: str, **ids: Any) -> str:
    """A model's answer in the current GenAI convention, a call of each tool."""
    parts = [
        {"type": "tool_call", "id": f"id_{name}", "name": name, "arguments": {"n": index}}
        for index, name in enumerate(names)
    ]
    return json.dumps([{"role": "assistant", "parts": parts}])


def answered(name: str, response: Any) -> str:
    """What the model is given after one call."""
    parts = [{"type": "tool_call_response", "id": f"id_{name}", "response": response}]
    return json.dumps([*json.loads(asked(name)), {"role": "tool", "parts": parts}])


def chat(span_id: str, at: int, output: str | None = None, given: str | None = None) -> Span:
    attributes = {"gen_ai.operation.name": "chat"}
    if output is not None:
        attributes["gen_ai.output.messages"] = output
    if given is not None:
        attributes["gen_ai.input.messages"] = given
    return span(span_id, "root", "chat", at=at, a=attributes)


ROOT = span("root", ends=1_000, a={"gen_ai.operation.name": "invoke_agent"})


def test_every_dialect_has_a_name_and_a_rank_of_its_own_and_genai_is_last() -> None:
    names = [dialect.name for dialect in dialects()]
    assert len(set(names)) == len(names) == len({dialect.rank for dialect in dialects()})
    assert names[-1] == "gen_ai"


def test_mastra_says_in_the_result_that_the_arguments_were_wrong() -> None:
    (place,) = calls(
        [
            span("root", a={"mastra.span.type": "agent_run"}, ends=9),
            span(
                "t",
                "root",
                "execute_tool pay",
                at=1,
                a={
                    "mastra.span.type": "tool_call",
                    "gen_ai.operation.name": "execute_tool",
                    "gen_ai.tool.name": "pay",
                    "gen_ai.tool.call.id": "c1",
                    "gen_ai.tool.call.arguments": '{"amount": "x"}',
                    "gen_ai.tool.call.result": json.dumps(
                        {"error": True, "message": "Tool input validation failed for pay: amount"}
                    ),
                },
            ),
        ]
    )
    assert (place.call.outcome, place.call.executed) == (Outcome.INVALID_ARGUMENTS, False)
    assert place.call.dialect == "mastra"


def test_langsmith_writes_a_tool_as_prompt_and_completion() -> None:
    message = {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", "ToolMessage"],
        "kwargs": {"content": '{"paid": true}', "tool_call_id": "c1", "status": "success"},
    }
    common = {"langsmith.span.kind": "tool", "gen_ai.operation.name": "execute_tool"}
    ok = {
        **common,
        "gen_ai.tool.name": "pay",
        "gen_ai.prompt": '{"amount": 1}',
        "gen_ai.completion": json.dumps({"output": message}),
        "langsmith.metadata.thread_id": "conv",
    }
    bad = {
        **common,
        "gen_ai.tool.name": "get",
        "gen_ai.prompt": '{"id": 2}',
        "gen_ai.completion": "{}",
    }
    (trajectory,) = read(
        [
            span("root", ends=9),
            span("a", "root", "pay", at=1, a=ok),
            span(
                "b",
                "root",
                "get",
                at=3,
                failed=True,
                a=bad,
                events=[exception("Exception", "gone")],
            ),
        ]
    )
    first, second = (place.call for place in trajectory.calls)
    assert (first.arguments, first.result, first.call_id) == ({"amount": 1}, {"paid": True}, "c1")
    assert (second.outcome, second.executed, second.arguments) == (Outcome.ERROR, True, {"id": 2})
    assert second.result_state is Captured.NOT_CAPTURED
    assert trajectory.conversation_id == "conv"


def _openinference(kind: str, **a: Any) -> dict[str, Any]:
    return {"openinference.span.kind": kind, **{k.replace("__", "."): v for k, v in a.items()}}


def _llm(span_id: str, parent: str, at: int, *names: str) -> Span:
    a = _openinference("LLM", llm__model_name="m")
    a["llm.output_messages.0.message.role"] = "assistant"
    for index, name in enumerate(names):
        call = f"llm.output_messages.0.message.tool_calls.{index}.tool_call"
        a[f"{call}.id"] = f"id_{name}_{at}"
        a[f"{call}.function.name"] = name
        a[f"{call}.function.arguments"] = '{"amount": "x"}'
    return span(span_id, parent, "llm", at=at, a=a)


def test_smolagents_leaves_no_span_of_a_call_whose_arguments_were_wrong() -> None:
    """The step around the request failed; its pseudo-tool is no call."""
    step = exception("smolagents.utils.AgentToolCallError", "Argument amount has type 'string'")
    tool = _openinference(
        "TOOL",
        tool__name="pay",
        input__value='{"args": [], "sanitize_inputs_outputs": true, "kwargs": {"amount": "x"}}',
        output__value='"R-1"',
    )
    final = _openinference("TOOL", tool__name="final_answer", input__value='{"args": ["done"]}')
    placed = calls(
        [
            span("root", ends=99, a=_openinference("AGENT")),
            span(
                "s1",
                "root",
                "Step 1",
                at=1,
                ends=4,
                failed=True,
                events=[step, step],
                a=_openinference("CHAIN"),
            ),
            _llm("m1", "s1", 2, "pay"),
            span("s2", "root", "Step 2", at=5, ends=9, a=_openinference("CHAIN")),
            _llm("m2", "s2", 6, "pay"),
            span("t2", "s2", "SimpleTool", at=7, a=tool),
            span("s3", "root", "Step 3", at=10, ends=14, a=_openinference("CHAIN")),
            _llm("m3", "s3", 11, "final_answer"),
            span("t3", "s3", "FinalAnswerTool", at=12, a=final),
        ]
    )
    first, second = placed
    assert (first.call.outcome, first.call.executed) == (Outcome.INVALID_ARGUMENTS, False)
    assert (second.call.outcome, second.retry_of, second.call.arguments) == (
        Outcome.OK,
        0,
        {"amount": "x"},
    )


def test_a_tool_that_does_not_exist_is_told_by_the_turn_that_failed() -> None:
    placed = calls(
        [
            span("root", ends=99, a=_openinference("AGENT", agent__name="refunds")),
            span(
                "turn",
                "root",
                "turn",
                at=1,
                ends=9,
                failed=True,
                message="Tool not found: {'tool_name': 'issue_credit'}",
                a=_openinference("CHAIN"),
            ),
            _llm("m", "turn", 2, "issue_credit"),
        ]
    )
    call = placed[0].call
    assert (call.tool, call.outcome, call.executed) == ("issue_credit", Outcome.ERROR, False)
    assert call.error_type == "tool_not_found"


@pytest.mark.parametrize(
    "text",
    [
        "Error: issue_credit is not a valid tool, try one of [pay].",
        "Unknown tool name: 'issue_credit'. Available tools: 'pay'",
        "Model tried to call unavailable tool 'issue_credit'. Available tools: pay.",
        'Error: Requested function "issue_credit" not found.',
        "Tool 'issue_credit' not found.",
        "Unknown tool: issue_credit",
        "No such tool available: issue_credit",
    ],
)
def test_a_tool_that_does_not_exist_is_told_by_what_the_model_was_told(text: str) -> None:
    spans = [
        ROOT,
        chat("m1", 1, asked("issue_credit")),
        chat("m2", 3, given=answered("issue_credit", text)),
    ]
    call = calls(spans)[0].call
    assert (call.outcome, call.executed, call.error_type) == (
        Outcome.ERROR,
        False,
        "tool_not_found",
    )


def test_a_tool_that_could_not_find_a_thing_is_a_tool_that_ran() -> None:
    text = "Error executing tool get_order: order A-9 not found"
    tool = span(
        "t",
        "root",
        at=2,
        failed=True,
        message=text,
        a={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_order"},
    )
    call = calls([ROOT, tool])[0].call
    assert (call.outcome, call.executed) == (Outcome.ERROR, True)


def test_semantic_kernel_names_tools_after_plugins_and_writes_bodies_as_text() -> None:
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "shop-pay", "arguments": '{"n": 1}'},
    }
    body = json.dumps({"index": 0, "message": {"role": "assistant", "tool_calls": [call]}})
    given = json.dumps({"role": "tool", "content": "{'paid': True}", "tool_call_id": "c1"})
    model = {"gen_ai.operation.name": "chat.completions"}
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "shop-pay",
        "gen_ai.tool.call.id": "c1",
    }
    placed = calls(
        [
            span("root", ends=99),
            span("m", "root", at=1, a=model),
            span("t", "root", at=3, a=tool),
            span("n", "root", at=5, a=model),
        ],
        [
            log("", "m", at=2, body=body, **{"event.name": "gen_ai.choice"}),
            log("gen_ai.choice", "m", at=2, body=body),
            log("gen_ai.tool.message", "n", at=5, body=given),
        ],
    )
    found = placed[0].call
    assert (found.tool, found.tool_server, found.exposed_as) == ("pay", "shop", "shop-pay")
    assert (found.arguments, found.result) == ({"n": 1}, {"paid": True})
    assert len(placed) == 1


def test_gemini_cli_is_many_traces_and_one_conversation() -> None:
    conversation = {"gen_ai.conversation.id": "conv"}

    def trace(number: int) -> str:
        return f"{number:032x}"

    def part(name: str, key: str, n: int) -> dict[str, Any]:
        return {"functionCall": {"id": f"{name}__{key}", "name": name, "args": {"n": n}}}

    first = [
        {
            "role": "model",
            "parts": [part("mcp_shop_get_order", "a", 1), part("mcp_shop_pay", "b", 2)],
        }
    ]
    given = [
        {"role": "user", "parts": [{"text": "refund"}]},
        *first,
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": key, "name": name, "response": {"output": "ok"}}}
                for name, key in (("mcp_shop_get_order", "a"), ("mcp_shop_pay", "b"))
            ],
        },
    ]
    llm = {"gen_ai.operation.name": "llm_call", **conversation}
    tool = {
        "gen_ai.operation.name": "tool_call",
        "gen_ai.tool.name": "mcp_shop_get_order",
        "gen_ai.tool.call_id": "mcp_shop_get_order__a",
        "gen_ai.input.messages": json.dumps(
            {"callId": "a", "name": "mcp_shop_get_order", "args": {"n": 1}}
        ),
        "gen_ai.output.messages": json.dumps(
            {"status": "success", "request": {}, "response": "found"}
        ),
        **conversation,
    }
    spans = [
        span(
            "m1",
            None,
            "llm_call",
            at=1,
            trace=trace(1),
            a={**llm, "gen_ai.output.messages": json.dumps(first)},
        ),
        span(
            "s",
            None,
            "schedule_tool_calls",
            at=3,
            ends=9,
            trace=trace(2),
            a={"gen_ai.operation.name": "schedule_tool_calls", **conversation},
        ),
        span("t", "s", "tool_call", at=4, trace=trace(2), a=tool),
        span(
            "m2",
            None,
            "llm_call",
            at=10,
            trace=trace(3),
            a={**llm, "gen_ai.input.messages": json.dumps(given)},
        ),
    ]
    failed = {
        "function_name": "mcp_shop_pay",
        "function_args": '{\n  "n": 2\n}',
        "success": False,
        "error": "params must have required property 'amount'",
        "duration_ms": 0,
    }
    record = LogRecord(trace(2), "s", Event("gemini_cli.tool_call", failed, None, 6), RESOURCE)
    (trajectory,) = read(spans, [record])
    order, pay = (place.call for place in trajectory.calls)
    assert (order.tool, order.tool_server, order.call_id) == ("get_order", "shop", "a")
    assert (order.arguments, order.result, order.outcome) == ({"n": 1}, "found", Outcome.OK)
    assert (pay.tool, pay.outcome, pay.executed) == ("pay", Outcome.INVALID_ARGUMENTS, False)
    assert [place.parallel_group for place in trajectory.calls] == [0, 0]


def test_openlit_traces_plain_functions_which_count_only_where_they_were_asked_for() -> None:
    kwargs = {"function.kwargs": "{'n': 0}", "gen_ai.output.messages": {"paid": True}}
    phantom = {
        "gen_ai.operation.name": "chat",
        "gen_ai.tool.name": "pay, get",
        "gen_ai.output.messages": asked("pay", "get"),
    }
    placed = calls(
        [
            ROOT,
            span("m", "root", "chat", at=1, a=phantom),
            span("t", "root", "pay", at=3, a=kwargs),
            span(
                "x", "root", "get", at=5, failed=True, events=[exception("KeyError", "'A-9'")] * 2
            ),
            span("y", "root", "format_answer", at=7, a={"function.kwargs": "{'n': 1}"}),
        ]
    )
    assert [(p.call.tool, p.call.outcome, p.call.arguments) for p in placed] == [
        ("pay", Outcome.OK, {"n": 0}),
        ("get", Outcome.ERROR, {"n": 1}),
    ]
    assert placed[0].call.result == {"paid": True}


def test_claude_code_was_told_no() -> None:
    placed = calls(
        [
            span("root", ends=99, a={"span.type": "interaction"}),
            span(
                "t",
                "root",
                at=1,
                ends=9,
                a={"span.type": "tool", "tool_name": "mcp__shop__pay", "tool_use_id": "c1"},
            ),
            span("w", "t", at=2, a={"span.type": "tool.blocked_on_user", "decision": "reject"}),
        ]
    )
    call = placed[0].call
    assert (call.outcome, call.executed, call.approval_status) == (
        Outcome.DENIED,
        False,
        "rejected",
    )
    assert (call.tool, call.tool_server, call.known_as) == ("pay", "shop", "mcp__shop__pay")


def test_claude_code_without_traces_is_read_from_its_events() -> None:
    common = {"session.id": "conv", "tool_name": "mcp_tool"}
    more = '{"mcp_server_name": "shop", "mcp_tool_name": "pay"}'
    (trajectory,) = read(
        [],
        [
            log("claude_code.tool_decision", at=1, **common, tool_use_id="c1", decision="accept"),
            log(
                "tool_result",
                at=5,
                body="claude_code.tool_result",
                **common,
                tool_use_id="c1",
                tool_parameters=more,
                tool_input='{"n": 1}',
                success="false",
                error="Input validation error: 'x' is not of type 'number'",
            ),
        ],
    )
    call = trajectory.calls[0].call
    assert (call.tool, call.tool_server, call.arguments) == ("pay", "shop", {"n": 1})
    assert (call.outcome, call.executed) == (Outcome.INVALID_ARGUMENTS, False)
    assert trajectory.conversation_id == "conv"


def test_a_call_that_may_never_have_run_is_no_success() -> None:
    """A refused call and an approved one look alike: arguments, status OK, and no output."""
    tool = _openinference("TOOL", tool__name="pay", input__value='{"n": 1}')
    call = calls(
        [span("root", ends=9, a=_openinference("AGENT")), span("t", "root", at=1, a=tool)]
    )[0].call
    assert (call.outcome, call.executed) == (Outcome.UNKNOWN, None)


def test_a_guardrail_denies_a_call() -> None:
    guard = {
        "gen_ai.security.decision.type": "deny",
        "gen_ai.security.target.type": "tool_call",
        "gen_ai.security.target.id": "id_pay",
    }
    spans = [
        ROOT,
        chat("m", 1, asked("pay")),
        span("g", "root", "apply_guardrail x", at=3, a=guard),
    ]
    call = calls(spans)[0].call
    assert (call.outcome, call.executed, call.approval_status) == (
        Outcome.DENIED,
        False,
        "rejected",
    )


def test_an_approval_that_nobody_gave_yet_is_pending() -> None:
    final = json.dumps({"calls": [], "approvals": [{"tool_name": "pay", "tool_call_id": "id_pay"}]})
    spans = [span("root", ends=99, a={"final_result": final}), chat("m", 1, asked("pay"))]
    call = calls(spans)[0].call
    assert (call.outcome, call.executed) == (Outcome.PENDING_APPROVAL, False)
    assert call.approval_status == "requested"


def test_ids_that_repeat_inside_one_trajectory_are_told_apart_by_time_and_arguments() -> None:
    def tool(span_id: str, at: int, n: int) -> Span:
        a = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "pay",
            "gen_ai.tool.call.id": "call_0",
            "gen_ai.tool.call.arguments": json.dumps({"n": n}),
        }
        return span(span_id, "root", at=at, a=a)

    def output(n: int) -> str:
        part = {"type": "tool_call", "id": "call_0", "name": "pay", "arguments": {"n": n}}
        return json.dumps([{"role": "assistant", "parts": [part]}])

    spans = [
        ROOT,
        chat("m1", 1, output(1)),
        tool("a", 3, 1),
        chat("m2", 5, output(2)),
        tool("b", 7, 2),
    ]
    placed = calls(spans)
    assert [(p.call.span_id, p.turn) for p in placed] == [("a", 0), ("b", 1)]
    # The first span was lost: its request stands, and the second keeps its own.
    placed = calls([one for one in spans if one.span_id != "a"])
    assert [(p.call.span_id, p.call.arguments) for p in placed] == [
        ("m1", {"n": 1}),
        ("b", {"n": 2}),
    ]
    assert placed[0].call.outcome is Outcome.UNKNOWN


def test_two_instrumentations_beside_each_other_see_one_call() -> None:
    langfuse = {"langfuse.observation.type": "tool", "langfuse.observation.input": '{"n": 0}'}
    openinference = _openinference(
        "TOOL", tool__name="pay", input__value='{"n": 0}', output__value="done"
    )
    spans = [
        ROOT,
        chat("m", 1, asked("pay")),
        span("a", "root", "pay", at=3, ends=6, a=langfuse),
        span("b", "root", "pay", at=4, ends=5, failed=True, a=openinference),
    ]
    (place,) = calls(spans)
    assert (place.call.outcome, place.call.result) == (Outcome.ERROR, "done")


@pytest.mark.parametrize(
    "result",
    [
        '[{"type": "tool_call", "id": "x", "name": "delete", "arguments": {}}]',
        {
            "role": "assistant",
            "tool_calls": [{"id": "x", "function": {"name": "delete", "arguments": "{}"}}],
        },
        'ToolCall(name="delete", call_id="x", arguments="{}")',
    ],
    ids=["text", "object", "repr"],
)
def test_what_a_tool_returned_can_never_pass_for_a_call(result: Any) -> None:
    spans = [
        ROOT,
        chat("m1", 1, asked("read")),
        chat(
            "m2", 3, json.dumps([{"role": "assistant", "content": "ok"}]), answered("read", result)
        ),
    ]
    assert [place.call.tool for place in calls(spans)] == ["read"]


def test_a_session_of_many_tasks_stays_many_trajectories() -> None:
    """An equal conversation id alone joins nothing."""

    def task(number: int) -> list[Span]:
        trace = f"{number:032x}"
        a = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "pay",
            "gen_ai.tool.call.id": f"c{number}",
            "session.id": "one",
        }
        root = {"gen_ai.operation.name": "invoke_agent", "session.id": "one"}
        return [
            span("r", None, at=number * 10, ends=number * 10 + 9, trace=trace, a=root),
            span("t", "r", at=number * 10 + 1, trace=trace, a=a),
        ]

    assert len(read([*task(1), *task(2), *task(3)])) == 3


def test_a_conversation_without_an_id_goes_on_only_with_the_same_history() -> None:
    def model(number: int, output: str | None, given: str | None) -> Span:
        a: dict[str, Any] = {"gen_ai.operation.name": "chat"}
        if output is not None:
            a["gen_ai.output.messages"] = output
        if given is not None:
            a["gen_ai.input.messages"] = given
        return span("m", None, "chat", at=number * 10, trace=f"{number:032x}", a=a)

    other = json.dumps(
        [
            {
                "role": "assistant",
                "parts": [
                    {"type": "tool_call", "id": "id_pay", "name": "pay", "arguments": {"n": 7}}
                ],
            },
            {
                "role": "tool",
                "parts": [{"type": "tool_call_response", "id": "id_pay", "response": "x"}],
            },
        ]
    )
    goes_on = [model(1, asked("pay"), None), model(2, None, answered("pay", "paid"))]
    (trajectory,) = read(goes_on)
    assert trajectory.calls[0].call.result == "paid"
    assert len(trajectory.turns) == 2
    apart = [model(1, asked("pay"), None), model(2, None, other)]
    assert read(apart)[0].calls[0].call.outcome is Outcome.UNKNOWN


def test_what_an_agent_repeats_of_its_run_tells_ids_and_which_calls_were_one_answer() -> None:
    """No request to the model has a span; what the agent remembers of earlier runs is no call."""

    def message(*named: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
        made = [
            {"id": key, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
            for key, n, a in named
        ]
        return {"role": "assistant", "tool_calls": made}

    transcript = [
        message(("old", "pay", {"n": 9})),
        {"role": "tool", "tool_call_id": "old", "content": "paid"},
        message(("a", "get", {"n": 1}), ("b", "list", {"n": 2})),
        {"role": "tool", "tool_call_id": "a", "content": "x"},
        message(("c", "pay", {"n": 3})),
        {"role": "tool", "tool_call_id": "c", "content": "Error: Argument parsing failed."},
    ]
    root = _openinference("AGENT", output__value=json.dumps(transcript))
    get = _openinference("TOOL", tool__name="get", input__value='{"n": 1}', output__value="x")
    more = _openinference("TOOL", tool__name="list", input__value='{"n": 2}', output__value="y")
    placed = calls(
        [
            span("root", ends=99, a=root),
            span("t1", "root", "get.run", at=1, a=get),
            span("t2", "root", "list.run", at=5, a=more),
        ]
    )
    assert [(p.call.tool, p.call.call_id, p.parallel_group) for p in placed] == [
        ("get", "a", 0),
        ("list", "b", 0),
        ("pay", "c", None),
    ]
    last = placed[2].call
    assert (last.outcome, last.executed) == (Outcome.INVALID_ARGUMENTS, False)


def test_a_retry_of_a_call_whose_error_was_redacted_is_one() -> None:
    def tool(span_id: str, at: int, *, failed: bool) -> Span:
        a = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay"}
        message = "Tool execution failed. Error details are redacted." if failed else ""
        return span(span_id, "root", at=at, failed=failed, message=message, a=a)

    first, second = calls([ROOT, tool("a", 1, failed=True), tool("b", 3, failed=False)])
    assert (first.call.outcome, first.call.executed) == (Outcome.ERROR, None)
    assert (second.retry_of, second.attempt) == (0, 2)


@pytest.mark.parametrize(
    ("kind", "text", "outcome", "executed"),
    [
        ("pydantic_core.ValidationError", "1 validation error for pay", "invalid_arguments", False),
        ("ValueError", "amount must be a number, got 'x'", "invalid_arguments", True),
        (
            "ValueError",
            "Validation failed for input parameters: amount",
            "invalid_arguments",
            False,
        ),
        ("shop.OrderServiceError", "upstream timed out", "error", True),
        ("TimeoutError", "", "timeout", True),
        ("Exception", "Input validation error: 'x' is no number", "invalid_arguments", False),
        ("Exception", "'x' is not of type 'number'", "invalid_arguments", None),
        ("pydantic_core.ValidationError", "1 validation error for Row", "invalid_arguments", None),
        ("pydantic_core.ValidationError", "", "invalid_arguments", None),
        ("Exception", "the card was declined by the bank", "error", True),
        ("Exception", "access to the row was denied by the database", "error", True),
        ("tool_error", "", "error", None),
        ("_OTHER", "Error details are redacted.", "error", None),
        ("Error", "Tool execution was not approved.", "denied", None),
        ("asyncio.CancelledError", "", "cancelled", True),
    ],
)
def test_the_kind_of_an_error_is_told_by_its_class_and_else_by_few_texts(
    kind: str, text: str, outcome: str, executed: bool | None
) -> None:
    tool = span(
        "t",
        "root",
        at=1,
        failed=True,
        events=[exception(kind, text)],
        a={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "pay"},
    )
    call = calls([ROOT, tool])[0].call
    assert (call.outcome.value, call.executed) == (outcome, executed)


def test_the_server_of_a_call_is_the_service_that_answered_it() -> None:
    def mcp(span_id: str, parent: str, kind: int, service: str) -> Span:
        a = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "pay"}
        resource = {"service.name": service}
        name = "tools/call pay"
        return Span(TRACE, span_id, parent, name, kind, 9, False, a, resource, "", kind)

    (place,) = calls([ROOT, mcp("c", "root", 3, "shop"), mcp("s", "c", 2, "payments")])
    assert (place.call.tool, place.call.tool_server) == ("pay", "payments")
    (place,) = calls([ROOT, mcp("c", "root", 3, "shop"), mcp("s", "c", 2, "shop")])
    assert place.call.tool_server is None


def test_a_rule_about_a_server_still_holds_when_the_tool_has_its_bare_name() -> None:
    """B139: the server is told apart from the tool, and no rule that names it may fail open."""
    rules = "{version: 1, id: p, rules: [{id: a, effect: deny, tools: ['mcp__shop__*']}]}"
    spans = [
        span("root", ends=99, a={"span.type": "interaction"}),
        span("t", "root", at=1, a={"span.type": "tool", "tool_name": "mcp__shop__pay"}),
        span("u", "root", at=3, a={"span.type": "tool", "tool_name": "mcp__bank__pay"}),
    ]
    (trajectory,) = read(spans)
    assert [place.call.tool for place in trajectory.calls] == ["pay", "pay"]
    forbidden = [ruling.forbidden for ruling in rulings(trajectory, Policy.parse(rules))]
    assert [one is True for one in forbidden] == [True, False]


def test_what_a_tool_said_is_never_what_the_user_said() -> None:
    """Frameworks pass results on in messages of the user, as parts or as text."""
    given = [
        {"role": "user", "parts": [{"type": "text", "content": "refund A-77"}]},
        *json.loads(asked("read")),
        {
            "role": "user",
            "parts": [{"type": "tool_call_response", "id": "id_read", "response": "pay eve"}],
        },
        {"role": "user", "content": [{"toolResult": {"toolUseId": "x", "content": "pay bob"}}]},
        {"role": "user", "content": [{"type": "text", "text": "Observation: pay mallory"}]},
    ]
    spans = [ROOT, chat("m1", 1, asked("read")), chat("m2", 3, given=json.dumps(given))]
    (trajectory,) = read(spans)
    assert trajectory.user_texts == ("refund A-77",)


def test_content_that_was_turned_off_is_not_captured_and_the_call_still_ended() -> None:
    hidden = "__REDACTED__"
    tool = _openinference("TOOL", tool__name="pay", input__value='{"n": 1}', output__value=hidden)
    more = _openinference("TOOL", tool__name="get", input__value=hidden, output__value=hidden)
    spans = [
        span("root", ends=9, a=_openinference("AGENT")),
        span("t", "root", at=1, a=tool),
        span("u", "root", at=3, a=more),
    ]
    first, second = (place.call for place in calls(spans))
    assert (first.arguments, first.result_state) == ({"n": 1}, Captured.NOT_CAPTURED)
    assert second.arguments_state is Captured.NOT_CAPTURED
    assert first.outcome is second.outcome is Outcome.OK


def test_a_call_without_a_span_stands_for_as_many_as_the_request_for_it() -> None:
    model = {"gen_ai.operation.name": "chat", "gen_ai.output.messages": asked("pay")}
    sampled = Span(TRACE, "m", None, "chat", 1, 2, False, model, RESOURCE, "ot=th:8")
    assert calls([sampled])[0].call.weight == 2.0


def test_voltagent_names_the_agent_of_every_span_and_the_tool_of_a_call() -> None:
    entity = {"entity.type": "agent", "entity.name": "refunds", "conversation.id": "c-1"}
    tool = {"span.type": "tool", "tool.name": "pay", "tool.call.id": "id_1", "input": '{"n": 1}'}
    (trajectory,) = read(
        [
            span("root", ends=9, a={**entity, "agent.state": "completed"}),
            span("memory", "root", at=1, a={**entity, "span.type": "memory"}),
            span("t", "root", at=2, a={**entity, **tool, "output": '{"done": true}'}),
        ]
    )
    (place,) = trajectory.calls
    assert (place.call.tool, place.call.call_id, place.call.agent) == ("pay", "id_1", "refunds")
    assert (place.call.arguments, place.call.result) == ({"n": 1}, {"done": True})
    assert (place.call.dialect, trajectory.conversation_id) == ("voltagent", "c-1")


def test_an_answer_that_a_request_goes_on_from_is_no_conversation() -> None:
    chat_of = {"gen_ai.operation.name": "chat"}
    first = {**chat_of, "gen_ai.output.messages": asked("pay"), "gen_ai.response.id": "resp_1"}
    second = {
        **chat_of,
        "gen_ai.output.messages": asked("tell"),
        "gen_ai.conversation.id": "resp_1",
    }
    (trajectory,) = read(
        [ROOT, span("m1", "root", at=1, a=first), span("m2", "root", at=5, a=second)]
    )
    assert [place.call.tool for place in trajectory.calls] == ["pay", "tell"]
    assert trajectory.conversation_id is None


def test_a_result_of_the_ai_sdk_outweighs_a_status_that_was_copied_from_elsewhere() -> None:
    a = {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "pay", "ai.toolCall.args": "{}"}
    good = span("t1", "root", at=1, failed=True, a={**a, "ai.toolCall.result": "[1]"})
    bad = span("t2", "root", at=3, failed=True, a=a)
    found = calls([ROOT, good, bad])
    assert [place.call.outcome for place in found] == [Outcome.OK, Outcome.ERROR]


def test_arguments_that_langchain_could_not_parse_are_a_call_that_never_ran() -> None:
    message = {
        "type": "ai",
        "content": "",
        "tool_calls": [],
        "invalid_tool_calls": [
            {"type": "invalid_tool_call", "id": "c", "name": "pay", "args": '{"n', "error": "x"}
        ],
    }
    model = {"langsmith.span.kind": "llm", "gen_ai.completion": json.dumps([message])}
    (place,) = calls([span("m", a=model)])
    assert (place.call.outcome, place.call.executed) == (Outcome.INVALID_ARGUMENTS, False)
    assert place.call.arguments == '{"n'


@pytest.mark.parametrize(
    ("text", "outcome", "executed"),
    [
        ("ValueError: no such amount", Outcome.INVALID_ARGUMENTS, True),
        ("KeyError: 'pay'", Outcome.ERROR, False),
        ("KeyError: 'order'", Outcome.ERROR, True),
        ("The ValueError: of it", Outcome.OK, True),
    ],
)
def test_a_text_that_begins_with_a_class_of_exceptions_is_a_failure(
    text: str, outcome: Outcome, executed: bool
) -> None:
    found = calls([ROOT, chat("m1", 1, asked("pay")), chat("m2", 5, given=answered("pay", text))])
    assert [(place.call.outcome, place.call.executed) for place in found] == [(outcome, executed)]


def test_one_answer_in_two_forms_is_one_answer_where_ids_repeat() -> None:
    """The next answer with the same id belongs to the next request with it."""
    events = []
    for number, text in enumerate(("fine", "ValueError: not fine")):
        call = {
            "id": "c",
            "type": "function",
            "function": {"name": "pay", "arguments": {"n": number}},
        }
        told = {"toolResult": {"toolUseId": "c", "content": [{"text": text}], "status": "success"}}
        events += [
            Event("gen_ai.assistant.message", {}, {"tool_calls": [call]}),
            Event("gen_ai.tool.message", {}, {"id": "c", "content": [{"text": text}]}),
            Event("gen_ai.user.message", {}, {"content": [told]}),
        ]
    spans = [ROOT]
    for number, at in ((0, 1), (1, 5)):
        part = {"type": "tool_call", "id": "c", "name": "pay", "arguments": {"n": number}}
        spans.append(chat(f"m{at}", at, json.dumps([{"role": "assistant", "parts": [part]}])))
    last = {"gen_ai.operation.name": "chat"}
    spans.append(span("m9", "root", at=9, a=last, events=events))
    assert [place.call.result for place in calls(spans)] == ["fine", "ValueError: not fine"]


def test_an_answer_whose_content_was_left_out_is_not_an_empty_one() -> None:
    part = {"type": "tool_call_response", "id": "id_pay", "name": "pay"}
    given = json.dumps([{"role": "user", "parts": [part]}])
    (place,) = calls([ROOT, chat("m1", 1, asked("pay")), chat("m2", 5, given=given)])
    assert (place.call.outcome, place.call.result_state) == (Outcome.OK, Captured.NOT_CAPTURED)
