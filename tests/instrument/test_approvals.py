"""Only an Approval that says approved, for the arguments that were shown, lets a body run."""

import dataclasses
from collections.abc import Awaitable
from typing import Any
from unittest.mock import Mock

import pytest

from toolverdict.instrument import Approval, ApprovalRequest, ApprovalRequired, ToolDenied, tool
from toolverdict.instrument.approvals import Approver
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import capture_spans

ASK = Policy.parse(
    "{version: 1, id: ask, rules: [{id: q, effect: require_approval, tools: ['*'], reason: big}]}"
)

ran: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool(labels=["payment"])
def pay(to: str, lines: list[int]) -> str:
    ran.append((to, lines))
    return "paid"


@tool(labels=["payment"])
async def pay_async(to: str, lines: list[int]) -> str:
    ran.append((to, lines))
    return "paid"


def raising(request: ApprovalRequest) -> Approval:
    raise RuntimeError("no connection")


async def later(request: ApprovalRequest) -> Approval:
    return request.approve("me")


def answering(answer: Any) -> Approver:
    return lambda request: answer


NOT_A_YES: dict[str, Approver | None] = {
    "no approver": None,
    "none": answering(None),
    "dict": answering({"approved": False, "status": "approved"}),
    "text": answering("approved"),
    "true": answering(True),
    "mock": answering(Mock(spec=Approval, status="approved")),
    "class": answering(Approval),
    "requested": lambda request: Approval(request.id, "requested"),
    "expired": lambda request: Approval(request.id, "expired"),
    "raises": raising,
}


@pytest.mark.parametrize("approver", NOT_A_YES.values(), ids=NOT_A_YES.keys())
def test_what_is_not_a_yes_is_none(approver: Approver) -> None:
    """A truthy answer is not an approval."""
    with (
        capture_spans(policy=ASK, approver=approver) as spans,
        pytest.raises(ApprovalRequired) as caught,
    ):
        pay("ann", [1])
    assert ran == []
    attributes = spans.tool_calls[0].attributes or {}
    assert attributes["tool.outcome"] == "pending_approval"
    assert attributes["tool.executed"] is False
    assert attributes["policy.decision"] == "require_approval"
    assert attributes["approval.id"] == caught.value.approval_id
    assert attributes["approval.status"] in ("requested", "expired")
    assert spans.tool_calls[0].status.is_unset
    assert "error.type" not in attributes


async def test_an_async_tool_waits_for_an_async_approver() -> None:
    with capture_spans(policy=ASK, approver=later) as spans:
        assert await pay_async("ann", [1]) == "paid"
    assert (spans.tool_calls[0].attributes or {})["approval.status"] == "approved"


async def test_an_async_tool_takes_a_sync_answer_and_no_other_value() -> None:
    with capture_spans(policy=ASK, approver=lambda request: request.approve()):
        await pay_async("ann", [1])
    ran.clear()
    answers: list[Any] = [None, {"approved": True}]
    for answer in answers:

        async def promising(request: ApprovalRequest, answer: Any = answer) -> Any:
            return answer

        with capture_spans(policy=ASK, approver=promising), pytest.raises(ApprovalRequired):
            await pay_async("ann", [1])
    for failing in (None, raising):
        with capture_spans(policy=ASK, approver=failing), pytest.raises(ApprovalRequired):
            await pay_async("ann", [1])
    assert ran == []


def test_a_sync_tool_cannot_wait(caplog: pytest.LogCaptureFixture) -> None:
    class Promise:
        def __await__(self) -> Any:
            yield

    def promising(request: ApprovalRequest) -> Awaitable[Approval]:
        return Promise()

    for approver in (later, promising):
        with capture_spans(policy=ASK, approver=approver), pytest.raises(ApprovalRequired):
            pay("ann", [1])
    assert ran == []
    assert "the approver of tool pay is async and the tool is not" in caplog.text


def test_no_is_no() -> None:
    reject: Approver = lambda request: request.reject("me")  # noqa: E731 - as a user would
    with capture_spans(policy=ASK, approver=reject) as spans, pytest.raises(ToolDenied) as caught:
        pay("ann", [1])
    assert caught.value.reason_code == "approval_rejected"
    assert caught.value.rule_ids == ("q",)
    attributes = spans.tool_calls[0].attributes or {}
    assert attributes["tool.outcome"] == "denied"
    assert attributes["approval.status"] == "rejected"
    assert attributes["tool.executed"] is False


def test_the_approver_is_shown_what_will_run() -> None:
    requests: list[ApprovalRequest] = []

    def approver(request: ApprovalRequest) -> Approval:
        requests.append(request)
        return Approval("ticket-7", "approved", "me", args_hash=request.args_hash)

    with capture_spans(policy=ASK, approver=approver) as spans:
        pay("ann", lines=[1])
    (request,) = requests
    attributes = spans.tool_calls[0].attributes or {}
    assert request.tool == "pay"
    assert request.arguments == {"to": "ann", "lines": [1]}
    assert request.args_hash == attributes["tool.args_hash"]
    assert request.call_id == attributes["gen_ai.tool.call.id"]
    assert request.labels == ("payment",)
    assert (request.policy_id, request.policy_digest) == ("ask", ASK.digest)
    assert (request.rule_ids, request.reason) == (("q",), "big")
    assert attributes["approval.id"] == "ticket-7"
    assert attributes["tool.outcome"] == "ok"


def test_arguments_changed_after_the_approval_do_not_run() -> None:
    """An approval is for the arguments that were shown, down to the last nested list."""
    lines = [1]

    def approver(request: ApprovalRequest) -> Approval:
        lines.append(1_000_000)
        assert request.arguments["lines"] == [1]
        return request.approve()

    with capture_spans(policy=ASK, approver=approver) as spans, pytest.raises(ToolDenied) as caught:
        pay("ann", lines)
    assert caught.value.reason_code == "args_changed"
    assert ran == []
    assert (spans.tool_calls[0].attributes or {})["tool.outcome"] == "denied"


def test_arguments_that_can_no_longer_be_hashed_do_not_run() -> None:
    lines: list[Any] = [1]

    def approver(request: ApprovalRequest) -> Approval:
        lines.append(object())
        return request.approve()

    with capture_spans(policy=ASK, approver=approver), pytest.raises(ToolDenied, match="changed"):
        pay("ann", lines)
    assert ran == []


def test_an_approver_cannot_change_the_arguments() -> None:
    def approver(request: ApprovalRequest) -> Approval:
        shown: Any = request.arguments
        shown["lines"].append(5)
        return request.approve()

    with capture_spans(policy=ASK, approver=approver):
        pay("ann", [1])
    assert ran == [("ann", [1])]


def test_what_cannot_be_hashed_cannot_be_approved() -> None:
    @tool
    def look(at: object) -> None:
        ran.append(at)

    approve: Approver = lambda request: request.approve()  # noqa: E731 - as a user would
    with capture_spans(policy=ASK, approver=approve), pytest.raises(ToolDenied) as caught:
        look(object())
    assert caught.value.reason_code == "args_unhashable"
    assert ran == []


def test_a_status_that_is_none_is_refused() -> None:
    wrong: Any = "yes"
    with pytest.raises(ValueError, match="status must be one of requested, approved"):
        Approval("a", wrong)


@pytest.mark.parametrize("id", [None, "", 7])
def test_an_approval_needs_an_id(id: Any) -> None:
    with pytest.raises(ValueError, match="id must be a text"):
        Approval(id, "approved")
    approver: Approver = lambda request: Approval(id, "approved")  # noqa: E731 - as a user would
    with capture_spans(policy=ASK, approver=approver) as spans, pytest.raises(ApprovalRequired):
        pay("ann", [1])
    assert ran == []
    assert (spans.tool_calls[0].attributes or {})["tool.outcome"] == "pending_approval"


OTHERS: dict[str, Approver] = {
    "an id of its own": lambda request: Approval("ticket-7", "approved"),
    "other arguments": lambda request: Approval("ticket-7", "approved", args_hash="hmac-sha256:0"),
    "no arguments": lambda request: Approval("ticket-7", "approved", args_hash=""),
    "this request, other arguments": lambda request: Approval(
        request.id, "approved", args_hash="hmac-sha256:0"
    ),
}


@pytest.mark.parametrize("approver", OTHERS.values(), ids=OTHERS.keys())
async def test_an_approval_of_something_else_is_none(approver: Approver) -> None:
    with capture_spans(policy=ASK, approver=approver) as spans:
        with pytest.raises(ToolDenied) as caught:
            pay("ann", [1])
        with pytest.raises(ToolDenied):
            await pay_async("ann", [1])
    assert ran == []
    assert caught.value.reason_code == "approval_mismatch"
    for span in spans:
        attributes = span.attributes or {}
        assert attributes["policy.reason_code"] == "approval_mismatch"
        assert attributes["approval.status"] == "requested"
        assert str(attributes["approval.id"]).startswith("appr_")
        assert attributes["tool.executed"] is False


def test_an_earlier_yes_is_not_for_other_arguments() -> None:
    kept: list[Approval] = []

    def approver(request: ApprovalRequest) -> Approval:
        kept.append(request.approve())
        return kept[0]

    with capture_spans(policy=ASK, approver=approver):
        pay("bob", [1])
        with pytest.raises(ToolDenied):
            pay("eve", [1])
    assert ran == [("bob", [1])]


def test_an_idempotency_key_cannot_change_what_is_shown() -> None:
    def key(arguments: Any) -> str:
        arguments["lines"].clear()
        return "k"

    @tool(labels=["payment"], idempotency_key=key)
    def keyed(to: str, lines: list[int]) -> None:
        ran.append((to, lines))

    shown: list[Any] = []

    def approver(request: ApprovalRequest) -> Approval:
        shown.append(dict(request.arguments))
        return request.approve()

    with capture_spans(policy=ASK, approver=approver):
        keyed("ann", [1])
    assert shown == [{"to": "ann", "lines": [1]}]
    assert ran == [("ann", [1])]


def test_what_a_dataclass_gets_after_the_approval_does_not_run() -> None:
    @dataclasses.dataclass
    class Payment:
        amount: int

    payment: Any = Payment(1)
    payment.to = "bob"

    @tool(labels=["payment"])
    def pay_out(payment: Any) -> None:
        ran.append(payment.to)

    def approver(request: ApprovalRequest) -> Approval:
        payment.to = "eve"
        return request.approve()

    with capture_spans(policy=ASK, approver=approver), pytest.raises(ToolDenied) as caught:
        pay_out(payment)
    assert caught.value.reason_code == "args_changed"
    assert ran == []


class Desk:
    @staticmethod
    @tool(labels=["payment"])
    def static(self: str, x: int) -> None:
        ran.append((self, x))

    @tool(labels=["payment"])
    @staticmethod
    def static_too(self: str, x: int) -> None:
        ran.append((self, x))

    @tool(labels=["payment"])
    def all(*self: Any) -> None:
        ran.append(self[1:])

    @tool(labels=["payment"])
    def method(self, x: int) -> None:
        ran.append(x)


class SubDesk(Desk):
    pass


def test_only_a_receiver_is_left_out() -> None:
    """What a tool is run with is shown, whatever its parameter is called."""
    shown: list[Any] = []

    def approver(request: ApprovalRequest) -> Approval:
        shown.append(dict(request.arguments))
        return request.approve()

    with capture_spans(policy=ASK, approver=approver):
        Desk.static("eve", 1)
        Desk().static_too("eve", 1)
        with pytest.raises(ToolDenied, match="args_unhashable"):
            Desk().all("eve")
        with pytest.raises(ToolDenied, match="args_unhashable"):
            Desk.static(Desk(), 1)  # type: ignore[arg-type]
        SubDesk().method(3)
    assert shown == [{"self": "eve", "x": 1}, {"self": "eve", "x": 1}, {"x": 3}]


def test_each_failure_of_an_approver_is_logged_once_and_said_to_the_caller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG", "toolverdict.instrument")

    def also_raising(request: ApprovalRequest) -> Approval:
        raise KeyError("secret")

    for approver, kind in ((raising, "RuntimeError"), (also_raising, "KeyError")):
        with capture_spans(policy=ASK, approver=approver):
            for _ in range(2):
                with pytest.raises(ApprovalRequired, match=rf"the approver failed \({kind}\)$"):
                    pay("o-1", [])
    warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert [text.split("(")[1].split(")")[0] for text in warned] == ["RuntimeError", "KeyError"]
    where = [r.getMessage() for r in caplog.records if r.levelname == "DEBUG"]
    assert len(where) == 2
    assert "also_raising" in where[1]
    assert "in raising" in where[0]
    assert "no connection" not in caplog.text.replace('RuntimeError("no connection")', "")


async def test_an_async_tool_hears_of_a_failed_approver_too() -> None:
    with (
        capture_spans(policy=ASK, approver=raising),
        pytest.raises(ApprovalRequired, match="the approver failed") as waiting,
    ):
        await pay_async("o-1", [])
    assert waiting.value.failure == "RuntimeError"
