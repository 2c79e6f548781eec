"""What an adapter may do with an attempt, besides letting it run."""

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from toolverdict.instrument import Approval, ApprovalRequest, ToolDenied
from toolverdict.instrument.arguments import Binder
from toolverdict.instrument.attempts import Attempt
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import capture_spans
from toolverdict.instrument.tools import ToolSpec

POLICY = Policy.parse(
    """
    version: 1
    id: p
    rules:
      - {id: d, effect: deny, tools: [pay], args: {amount: {range: {min: 100}}}}
      - {id: q, effect: require_approval, tools: [pay]}
    """
)


def pay(amount: int) -> int:
    return amount


SPEC = ToolSpec(
    name="pay",
    labels=("payment",),
    schema_version="1",
    binder=Binder.of(pay, (), static=True),
    idempotency_key=None,
    outcome_hook=None,
    returns_none=False,
)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_somebody_else_answers_for_one_attempt() -> None:
    def yes(request: ApprovalRequest) -> Approval:
        return Approval(request.id, "approved", "ann", request.args_hash)

    def no(request: ApprovalRequest) -> Approval:
        return Approval(request.id, "rejected", "bob", request.args_hash)

    with capture_spans(policy=POLICY, approver=no) as spans:
        with Attempt(SPEC, (1,), {}) as attempt:
            assert attempt.approver is no
            attempt.approver = yes
            assert not attempt.executed
            assert attempt.admit() == ((1,), {})
            assert attempt.executed
            attempt.returned(1)
        with pytest.raises(ToolDenied), Attempt(SPEC, (1,), {}) as other:
            other.admit()
    found = [attributes(span) for span in spans.tool_calls]
    assert [one["approval.status"] for one in found] == ["approved", "rejected"]
    assert found[0]["gen_ai.tool.call.id"] == attempt.call_id


@pytest.mark.parametrize(
    ("given", "decision", "captured"),
    [
        (((), {"amount": 1}), "require_approval", '{"amount":1}'),
        (((), {"amount": 100}), "deny", '{"amount":100}'),
        (((), {"much": 1}), "deny", None),
        (None, "deny", None),
    ],
)
def test_what_somebody_else_turned_down_leaves_a_span(
    given: Any, decision: str, captured: str | None
) -> None:
    """B28: hashed and decided about, but never run and nobody asked."""
    with capture_spans(policy=POLICY, capture="full") as spans, Attempt(SPEC, (), {}) as attempt:
        attempt.turned_down(given)
    (span,) = spans
    found = attributes(span)
    assert (found["tool.outcome"], found["tool.executed"]) == ("invalid_arguments", False)
    assert found["policy.decision"] == decision
    assert found.get("gen_ai.tool.call.arguments") == captured
    assert ("tool.args_hash" in found) is (captured is not None)


def test_a_validation_inside_of_the_body_takes_its_span_away() -> None:
    with capture_spans() as spans, Attempt(SPEC, (1,), {}) as attempt:
        attempt.admit()
        attempt.body_turned_down()
        assert not attempt.executed
    assert [span.name for span in spans] == ["tool.call pay"]
    found = attributes(spans[0])
    assert (found["tool.outcome"], found["tool.executed"]) == ("invalid_arguments", False)
