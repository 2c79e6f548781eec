"""Plain loops, with messages as the APIs send them: as dicts and as objects."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from toolverdict.instrument import Refused, tool, trajectory
from toolverdict.instrument.adapters.loops import ToolBox
from toolverdict.instrument.approvals import Approval, ApprovalRequest
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import capture_spans


@tool(labels=["payment"])
def refund(order_id: str, amount: float) -> dict[str, Any]:
    return {"order_id": order_id, "amount": amount}


def get_order(order_id: str) -> str:
    return f"{order_id}: paid"


async def search(text: str) -> list[str]:
    return [text]


def delete_user(user: str) -> None:
    raise AssertionError("never runs")


def fail(how: str) -> None:
    raise Refused("not today") if how == "refuse" else RuntimeError("secret")


BOX: list[Callable[..., Any]] = [get_order, refund, search, delete_user, fail]


def chat(*calls: tuple[str, str]) -> dict[str, Any]:
    return {
        "role": "assistant",
        "tool_calls": [
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": given}}
            for n, (name, given) in enumerate(calls, 1)
        ],
    }


def responses(*calls: tuple[str, str]) -> list[dict[str, Any]]:
    return [
        {"type": "reasoning", "summary": []},
        *(
            {"type": "function_call", "call_id": f"call_{n}", "name": name, "arguments": given}
            for n, (name, given) in enumerate(calls, 1)
        ),
    ]


def anthropic(*calls: tuple[str, str]) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "Let me see."},
            *(
                {"type": "tool_use", "id": f"call_{n}", "name": name, "input": json.loads(given)}
                for n, (name, given) in enumerate(calls, 1)
            ),
        ],
    }


def as_objects(value: Any) -> Any:
    """As an SDK hands them over."""
    if isinstance(value, list):
        return [as_objects(item) for item in value]
    if isinstance(value, dict):
        fields = {k: v if k == "input" else as_objects(v) for k, v in value.items()}
        return SimpleNamespace(**fields)
    return value


@pytest.mark.parametrize("shape", [chat, responses, anthropic])
@pytest.mark.parametrize("objects", [False, True])
def test_calls_run_and_results_are_messages(shape: Any, objects: bool, seen: Any) -> None:
    message = shape(
        ("get_order", '{"order_id": "o-1"}'), ("refund", '{"order_id": "o", "amount": 1}')
    )
    with capture_spans(capture="full") as spans, trajectory("shop"):
        results = ToolBox(BOX).run(as_objects(message) if objects else message)
    texts = ["o-1: paid", '{"order_id": "o", "amount": 1}']
    assert results.waiting == ()
    assert (
        results.messages
        == {
            "chat": [
                {"role": "tool", "tool_call_id": f"call_{n}", "content": text}
                for n, text in enumerate(texts, 1)
            ],
            "responses": [
                {"type": "function_call_output", "call_id": f"call_{n}", "output": text}
                for n, text in enumerate(texts, 1)
            ],
            "anthropic": [
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": f"call_{n}", "content": text}
                        for n, text in enumerate(texts, 1)
                    ],
                }
            ],
        }[shape.__name__]
    )
    assert seen(spans.tool_calls, "gen_ai.tool.call.id", "tool.outcome") == [
        ("call_1", "ok"),
        ("call_2", "ok"),
    ]
    assert seen(spans.tool_calls, "tool.labels") == [(), ("payment",)]


async def test_async_tools(seen: Any) -> None:
    message = chat(("search", '{"text": "x"}'), ("get_order", '{"order_id": "o"}'))
    with capture_spans() as spans:
        results = await ToolBox(BOX).run_async(message)
        with pytest.raises(TypeError, match="use run_async"):
            ToolBox(BOX).run(message)
    assert [message["content"] for message in results.messages] == ['["x"]', "o: paid"]
    assert seen(spans.tool_calls, "tool.outcome") == ["ok", "ok"]


async def test_what_goes_wrong_is_told(policy: Policy, seen: Any) -> None:
    calls = [
        ("delete_user", '{"user": "u"}'),
        ("fail", '{"how": "refuse"}'),
        ("fail", '{"how": "crash"}'),
        ("get_order", '{"order": "o"}'),
        ("get_order", "{"),
        ("get_order", "[]"),
        ("nowhere", "{}"),
    ]
    with capture_spans(policy=policy) as spans:
        results = ToolBox(BOX).run(chat(*calls))
        again = await ToolBox(BOX).run_async(chat(*calls))
    texts = [message["content"] for message in results.messages]
    assert again == results
    assert "denied by never-delete" in texts[0]
    assert texts[1:3] == ["error: not today", "error: RuntimeError"]
    assert "unexpected keyword argument" in texts[3]
    assert texts[4] == texts[5] == "error: the arguments are not an object of JSON"
    assert texts[6] == "error: there is no tool called 'nowhere'"
    outcomes = ["denied", "refused", "error", *["invalid_arguments"] * 4]
    assert seen(spans.tool_calls, "tool.outcome") == outcomes * 2
    nowhere = seen(spans.tool_calls)[6]
    assert nowhere["error.type"].endswith(".UnknownTool")
    assert (nowhere["tool.name"], nowhere["tool.executed"]) == ("nowhere", False)
    assert nowhere["gen_ai.tool.call.id"] == "call_7"
    assert spans.body_of(nowhere.span) is None


def test_a_tool_that_is_not_there_and_arguments_that_nobody_can_read(seen: Any) -> None:
    with capture_spans() as spans:
        results = ToolBox(BOX).run(chat(("no\nwhere", "{")))
    assert "there is no tool called" in results.messages[0]["content"]
    assert seen(spans.tool_calls, "tool.name", "tool.outcome") == [
        ("no?where", "invalid_arguments")
    ]


def test_anthropic_is_told_that_it_is_an_error() -> None:
    (message,) = ToolBox(BOX).run(anthropic(("fail", '{"how": "refuse"}'))).messages
    assert message["content"][0]["is_error"] is True


@pytest.mark.parametrize(("answer", "outcome"), [("approved", "ok"), ("rejected", "denied")])
def test_a_call_that_waits_is_run_again(
    policy: Policy, seen: Any, answer: Any, outcome: str
) -> None:
    answers: dict[str, Approval] = {}

    def approver(request: ApprovalRequest) -> Approval | None:
        found = answers.get(request.call_id)
        return found and Approval(found.id, found.status, "alice", request.args_hash)

    message = chat(("refund", '{"order_id": "o", "amount": 1}'), ("get_order", '{"order_id": "o"}'))
    with capture_spans(policy=policy, approver=approver) as spans:
        first = ToolBox(BOX).run(message)
        (waiting,) = first.waiting
        assert (waiting.call_id, waiting.tool) == ("call_1", "refund")
        answers[waiting.call_id] = Approval(waiting.approval_id, answer)
        second = ToolBox(BOX).run(message, only=[waiting.call_id])
    assert [m["tool_call_id"] for m in first.messages + second.messages] == ["call_2", "call_1"]
    refunds = [call for call in seen(spans.tool_calls) if call["tool.name"] == "refund"]
    assert [call["tool.outcome"] for call in refunds] == ["pending_approval", outcome]
    assert len({call["approval.id"] for call in refunds}) == 1


def test_settings_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="did you mean 'get_order'"):
        ToolBox(BOX, labels={"get_orders": ["read"]})
    with pytest.raises(ValueError, match="names no tool"):
        ToolBox(BOX, labels={"refund": ["payment"]})  # it has its own
    with pytest.raises(ValueError, match="two functions"):
        ToolBox([get_order, get_order])


def test_the_text_of_an_exception_of_the_body_is_not_told() -> None:
    class Shop:
        @tool
        def pay(self, token: str) -> str:
            raise TypeError(f"secret {token}")

    def clash(token: str) -> None:
        raise TypeError(f"secret {token}")

    calls = [(name, given) for name in ("clash", "pay") for given in ('{"token": "t"}', "{}")]
    messages = ToolBox([clash, Shop().pay]).run(chat(*calls)).messages
    told = [message["content"] for message in messages]
    assert told[0] == told[2] == "error: TypeError"
    assert "missing" in told[1]
    assert "token" in told[3]


@pytest.mark.parametrize(
    "message",
    [
        "hello",
        None,
        {"choices": []},
        SimpleNamespace(choices=[]),
        {"type": "function_call", "name": "get_order"},
        [{"role": "assistant", "tool_calls": []}],
    ],
)
async def test_what_is_no_message_is_refused_and_not_taken_for_one_without_calls(
    message: Any,
) -> None:
    box = ToolBox(BOX)
    with pytest.raises(TypeError, match=r"response\.choices\[0\]\.message"):
        box.run(message)
    with pytest.raises(TypeError, match="holds no message"):
        await box.run_async(message)


@pytest.mark.parametrize("message", [[], {"role": "assistant", "content": "done"}])
def test_a_message_without_calls_has_no_results(message: Any) -> None:
    assert ToolBox(BOX).run(message).messages == []


def test_one_function_is_no_list_of_them() -> None:
    function: Any = get_order
    with pytest.raises(TypeError, match=r"get_order is one function.* in a list: \[get_order\]"):
        ToolBox(function)
