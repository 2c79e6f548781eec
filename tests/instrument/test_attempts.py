"""What every call leaves behind, whatever happens to it."""

import asyncio
import contextvars
import dataclasses
import json
import sys
import uuid
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from toolverdict.instrument import (
    ApprovalRequired,
    Outcome,
    RateLimited,
    ToolDenied,
    guard,
    settings,
    tool,
    tool_call,
    trajectory,
)
from toolverdict.instrument import spans as span_module
from toolverdict.instrument.decisions import Call, Decision, Effect, ReasonCode
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import TEST_KEY, CapturedSpans, capture_spans


def policy(text: str) -> Policy:
    return Policy.parse("{version: 1, id: p, rules: [" + text + "]}")


DENY = policy("{id: d, effect: deny, tools: [refund], reason: never}")
ALLOW = policy("{id: a, effect: allow, tools: ['*']}")


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@tool(labels=["payment", "write"], idempotency_key="order", schema_version="2.1")
def refund(order: str, amount: float = 1.0) -> dict[str, str]:
    return {"id": order}


@tool
def get(thing: object = None) -> object:
    return thing


def test_a_call_is_one_span_that_says_everything() -> None:
    with (
        capture_spans(policy=ALLOW) as spans,
        trajectory("bot", conversation_id="c-1"),
        tool_call("call_123"),
    ):
        refund("o-1")
    (call,) = spans.tool_calls
    assert call.name == "tool.call refund"
    assert call.kind is SpanKind.INTERNAL
    assert call.status.status_code is StatusCode.UNSET
    assert not call.events
    found = attributes(call)
    assert found.pop("tool.args_hash").startswith("hmac-sha256:")
    assert found.pop("idempotency.key_hash").startswith("hmac-sha256:")
    assert found.pop("taint.argument_atoms") == ()
    assert found.pop("taint.atoms.key_id") == TEST_KEY.id
    assert found == {
        "tool.name": "refund",
        "gen_ai.tool.name": "refund",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.call.id": "call_123",
        "gen_ai.agent.name": "bot",
        "gen_ai.conversation.id": "c-1",
        "tool.schema_version": "2.1",
        "tool.labels": ("payment", "write"),
        "tool.args_hash.key_id": TEST_KEY.id,
        "tool.args_hash.canon": "jcs-tagged/1",
        "policy.decision": "allow",
        "policy.reason_code": "rule",
        "policy.rule_ids": ("a",),
        "policy.id": "p",
        "policy.digest": ALLOW.digest,
        "tool.outcome": "ok",
        "tool.executed": True,
    }


def test_without_a_policy_everything_is_allowed_and_says_so() -> None:
    with capture_spans() as spans:
        refund("o-1")
    found = attributes(spans.tool_calls[0])
    assert (found["policy.decision"], found["policy.reason_code"]) == ("allow", "no_policy")
    assert "policy.id" not in found


def test_a_denied_call_leaves_a_span_and_no_trace_of_a_body() -> None:
    with capture_spans(policy=DENY) as spans, pytest.raises(ToolDenied) as caught:
        refund("o-1")
    assert (caught.value.tool, caught.value.reason_code) == ("refund", "rule")
    assert (caught.value.rule_ids, caught.value.reason) == (("d",), "never")
    found = attributes(spans.tool_calls[0])
    assert found["policy.decision"] == "deny"
    assert found["policy.rule_ids"] == ("d",)
    assert found["tool.outcome"] == "denied"
    assert found["tool.executed"] is False
    assert found["tool.args_hash"]
    assert found["error.type"] == "toolverdict.instrument.errors.ToolDenied"
    assert spans.tool_calls[0].status.status_code is StatusCode.ERROR
    assert spans.tool_calls[0].status.description == "denied"


def hash_of(spans: CapturedSpans, index: int = -1) -> str:
    return str(attributes(spans.tool_calls[index])["tool.args_hash"])


def test_equal_calls_have_equal_hashes() -> None:
    """B49: however the same arguments are given, the hash is the same."""
    with capture_spans() as spans:
        refund("o-1")
        refund(amount=1.0, order="o-1")
        refund("o-1", 1)
        refund("o-1", 2)
    hashes = [hash_of(spans, index) for index in range(4)]
    assert len(set(hashes[:3])) == 1
    assert hashes[3] != hashes[0]
    keys = {attributes(span)["idempotency.key_hash"] for span in spans.tool_calls}
    assert len(keys) == 1


def test_names_and_places_of_arguments_count() -> None:
    """B50: the same values in other parameters, or another tool, are another call."""

    @tool
    def f(a: object, b: object = 0) -> int:
        return 1

    @tool
    def g(a: object, b: object = 0) -> int:
        return 1

    with capture_spans() as spans:
        f(a=1, b=2)
        f(a=2, b=1)
        g(a=1, b=2)
        f({1, "a", None})
        f({1: "x"})
        f({"1": "x"})
        f(True)
        f(1)
    assert len({hash_of(spans, index) for index in range(8)}) == 8


NASTY: list[tuple[Any, str]] = [
    (float("nan"), "not_finite"),
    ("\ud800", "lone_surrogate"),
    (object(), "unsupported_type"),
    (print, "unsupported_type"),
]


@pytest.mark.parametrize(("value", "reason"), NASTY, ids=[reason for _, reason in NASTY])
def test_a_harmless_tool_runs_with_arguments_that_have_no_hash(value: Any, reason: str) -> None:
    """B17, B22: an argument that cannot be encoded stops nothing and is flagged."""
    with capture_spans(capture="full") as spans:
        assert get(value) is value
    found = attributes(spans.tool_calls[0])
    assert found["tool.args_hash.error"] == reason
    assert "tool.args_hash" not in found
    assert found["tool.outcome"] == "ok"


def test_a_harmless_tool_runs_with_endless_arguments() -> None:
    """B19, B20: 200,000 levels, an object inside itself, and one object twice."""
    deep: list[Any] = []
    for _ in range(200_000):
        deep = [deep]
    loop: list[Any] = []
    loop.append(loop)
    twice = {"a": 1}
    with capture_spans(capture="full") as spans:
        for value in (deep, loop, [twice, twice], [{"a": 1}, {"a": 1}]):
            get(value)
    assert attributes(spans.tool_calls[0])["tool.args_hash.error"] == "too_deep"
    assert attributes(spans.tool_calls[1])["tool.args_hash.error"] == "cycle"
    assert hash_of(spans, 2) == hash_of(spans, 3)
    while deep:
        deep = deep.pop()


@pytest.mark.parametrize("value", [float("nan"), object()])
def test_a_dangerous_tool_does_not_run_unless_its_arguments_can_be_bound(value: Any) -> None:
    for in_force in (None, ALLOW):
        with capture_spans(policy=in_force) as spans, pytest.raises(ToolDenied) as caught:
            refund("o-1", value)
        assert caught.value.reason_code == "args_unhashable"
        found = attributes(spans.tool_calls[0])
        assert (found["policy.decision"], found["tool.executed"]) == ("deny", False)
        assert found["policy.reason_code"] == "args_unhashable"


def test_a_denial_by_the_policy_stays_one_whatever_the_arguments() -> None:
    with capture_spans(policy=DENY) as spans, pytest.raises(ToolDenied) as caught:
        refund("o-1", float("nan"))
    assert caught.value.reason_code == "rule"
    assert attributes(spans.tool_calls[0])["tool.args_hash.error"] == "not_finite"


def test_a_dangerous_tool_is_denied_even_if_nobody_records() -> None:
    """Nothing about safety depends on a span being made."""
    with pytest.raises(ToolDenied):
        refund("o-1", float("nan"))
    assert refund("o-1", 1) == {"id": "o-1"}
    assert get(float("nan")) != 0


def test_arguments_that_do_not_fit() -> None:
    calls: Any = refund
    with capture_spans(policy=DENY) as spans, pytest.raises(TypeError) as caught:
        calls()
    assert str(caught.value) == "refund() missing 1 required positional argument: 'order'"
    found = attributes(spans.tool_calls[0])
    assert found["tool.outcome"] == "invalid_arguments"
    assert found["tool.executed"] is False
    assert found["error.type"] == "TypeError"
    assert found["policy.decision"] == "deny"


def test_a_type_error_of_the_body_is_an_error() -> None:
    @tool
    def broken() -> int:
        return len(3)  # type: ignore[arg-type]

    with capture_spans() as spans, pytest.raises(TypeError):
        broken()
    assert attributes(spans.tool_calls[0])["tool.outcome"] == "error"
    assert attributes(spans.tool_calls[0])["tool.executed"] is True


def test_an_exception_goes_on_as_it_is_and_leaves_its_class() -> None:
    error = RateLimited("slow down, key=sk-123")

    @tool
    def limited() -> None:
        raise error

    with capture_spans() as spans, pytest.raises(RateLimited) as caught:
        limited()
    assert caught.value is error
    (event,) = spans.tool_calls[0].events
    assert (event.name, dict(event.attributes or {})) == (
        "exception",
        {"exception.type": "toolverdict.instrument.errors.RateLimited"},
    )
    found = attributes(spans.tool_calls[0])
    assert found["error.type"] == "toolverdict.instrument.errors.RateLimited"
    assert found["tool.outcome"] == "rate_limited"
    assert spans.tool_calls[0].status.description == "rate_limited"


def test_a_failure_reported_in_band_is_a_failure() -> None:
    """B38: an MCP result with isError fails its span, and says that no exception did."""
    with capture_spans() as spans:
        get(SimpleNamespace(isError=True, text="not found"))
        get({"error": "not found"})
        get("error: not found")
    for span in spans.tool_calls[:2]:
        assert attributes(span)["tool.outcome"] == "error"
        assert attributes(span)["error.type"] == "tool_error"
        assert span.status.status_code is StatusCode.ERROR
        assert not span.events
    assert attributes(spans.tool_calls[2])["tool.outcome"] == "ok"


def test_the_authors_hook_judges_first() -> None:
    @tool(outcome=lambda result: Outcome.REFUSED if result == "no" else None)
    def maybe(answer: str) -> str:
        return answer

    with capture_spans() as spans:
        maybe("no")
        maybe("")
    assert attributes(spans.tool_calls[0])["tool.outcome"] == "refused"
    assert spans.tool_calls[0].status.status_code is StatusCode.ERROR
    assert attributes(spans.tool_calls[1])["tool.outcome"] == "empty"


def test_a_hook_that_fails_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    wrong: Any = lambda result: "ok"  # noqa: E731 - the hook is what is wrong

    @tool(outcome=lambda result: 1 / 0)  # type: ignore[arg-type,return-value]
    def fails() -> int:
        return 1

    @tool(outcome=wrong)
    def returns_text() -> int:
        return 1

    with capture_spans() as spans:
        assert fails() + returns_text() == 2
    assert [attributes(span)["tool.outcome"] for span in spans.tool_calls] == ["ok", "ok"]
    assert "the outcome hook of tool fails failed (ZeroDivisionError)" in caplog.text


def test_a_result_that_fails_when_looked_at_reaches_the_caller() -> None:
    class Result(Mapping[str, object]):
        def __getitem__(self, key: str) -> object:
            raise RuntimeError

        def __iter__(self) -> Any:
            raise RuntimeError

        def __len__(self) -> int:
            raise RuntimeError

    result = Result()
    with capture_spans(capture="full") as spans:
        assert get(result) is result
    assert attributes(spans.tool_calls[0])["tool.outcome"] == "ok"


@pytest.mark.parametrize(
    "maker", [lambda arguments: 1 / 0, lambda arguments: object()], ids=["raises", "no text"]
)
def test_a_key_that_cannot_be_made_stops_a_dangerous_call(maker: Any) -> None:
    @tool(idempotency_key=maker)
    def harmless() -> int:
        return 1

    @tool(idempotency_key=maker, labels=["payment"])
    def dangerous() -> int:
        return 1

    with capture_spans() as spans:
        harmless()
        with pytest.raises(ToolDenied) as caught:
            dangerous()
    assert caught.value.reason_code == "idempotency_key_error"
    assert "idempotency.key_hash" not in attributes(spans.tool_calls[0])


def test_a_key_is_made_of_the_arguments_and_may_be_none() -> None:
    @tool(idempotency_key=lambda arguments: f"{arguments['order']}-{arguments['n']}")
    def by_callable(order: str, n: int = 1) -> int:
        return 1

    @tool(idempotency_key="key")
    def by_name(key: str | None = None) -> int:
        return 1

    with capture_spans() as spans:
        by_callable("a")
        by_callable(n=1, order="a")
        by_callable("a", 2)
        by_name()
    keys = [attributes(span).get("idempotency.key_hash") for span in spans.tool_calls]
    assert keys[0] == keys[1] != keys[2]
    assert keys[3] is None


class Broken:
    """A policy that is not one."""

    id = "broken"
    digest = "sha256:0"

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def decide(self, call: Call, /) -> Decision:
        if isinstance(self._answer, Exception):
            raise self._answer
        return cast("Decision", self._answer)


@pytest.mark.parametrize(
    "answer",
    [
        *(RuntimeError("secret"), None, True, "allow"),
        Decision(cast("Effect", "allow"), (), ReasonCode.RULE),
        Decision(Effect.ALLOW, (), cast("ReasonCode", "rule")),
    ],
    ids=repr,
)
def test_a_policy_that_cannot_be_asked_allows_nothing(answer: object) -> None:
    """A fault of the policy denies, for tools of any label."""
    with capture_spans(policy=Broken(answer)) as spans, pytest.raises(ToolDenied) as caught:
        get(1)
    assert caught.value.reason_code == "policy_error"
    assert attributes(spans.tool_calls[0])["policy.reason_code"] == "policy_error"
    assert "secret" not in str(caught.value)


def test_requirements_are_met_by_what_succeeded_in_the_trajectory() -> None:
    first = policy("{id: f, effect: allow, tools: [refund], requires: [verify]}")

    @tool
    def verify(who: str) -> bool | None:
        if who == "raise":
            raise ValueError
        return None if who == "nobody" else True

    with capture_spans(policy=first):
        verify("ann")
        with pytest.raises(ToolDenied, match="requires_unmet"):
            refund("outside of any trajectory")
        with trajectory():
            verify("nobody")
            with pytest.raises(ValueError):  # noqa: PT011 - the tool's own
                verify("raise")
            with pytest.raises(ToolDenied, match="requires_unmet"):
                refund("o-1")
            verify("ann")
            refund("o-1")
        with trajectory(), pytest.raises(ToolDenied, match="requires_unmet"):
            refund("another trajectory")


def test_a_tool_inside_a_tool_is_another_call() -> None:
    @tool
    def outer() -> object:
        return get(1)

    with capture_spans() as spans, tool_call("call_1"):
        outer()
        get(2)
    inner, around, after = spans.tool_calls
    body = spans.body_of(around)
    assert body is not None
    assert body.context is not None
    assert inner.parent is not None
    assert inner.parent.span_id == body.context.span_id
    assert attributes(around)["gen_ai.tool.call.id"] == "call_1"
    assert attributes(inner)["gen_ai.tool.call.id"] != "call_1"
    assert attributes(after)["gen_ai.tool.call.id"] == "call_1"


def test_a_denial_inside_a_tool_is_the_inner_tools() -> None:
    @tool
    def outer() -> object:
        return refund("o-1")

    with capture_spans(policy=DENY) as spans, pytest.raises(ToolDenied):
        outer()
    assert [attributes(span)["tool.outcome"] for span in spans.tool_calls] == ["denied", "error"]
    assert [attributes(span)["tool.executed"] for span in spans.tool_calls] == [False, True]


def test_waiting_inside_a_tool_is_no_error_of_either() -> None:
    ask = policy("{id: q, effect: require_approval, tools: [refund]}")

    @tool
    def outer() -> object:
        return refund("o-1")

    with capture_spans(policy=ask) as spans, pytest.raises(ApprovalRequired), trajectory():
        outer()
    assert all(span.status.status_code is StatusCode.UNSET for span in spans.tool_calls)


async def test_a_cancelled_call_is_cancelled() -> None:
    """B14: a timeout around a tool is not a success of the tool."""

    @tool
    async def slow() -> None:
        await asyncio.Event().wait()

    with capture_spans() as spans, pytest.raises(TimeoutError):
        await asyncio.wait_for(slow(), 0.01)
    found = attributes(spans.tool_calls[0])
    assert found["tool.outcome"] == "cancelled"
    assert found["error.type"] == "asyncio.exceptions.CancelledError"
    assert spans.tool_calls[0].status.status_code is StatusCode.ERROR
    assert spans.tool_calls[0].end_time is not None


async def test_a_run_that_is_cut_off_keeps_its_spans() -> None:
    """B16: two finished tools, a running one and the trajectory are all there."""

    @tool
    async def slow() -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        async with trajectory("bot"):
            get(1)
            get(2)
            await slow()

    with capture_spans() as spans, pytest.raises(TimeoutError):
        await asyncio.wait_for(run(), 0.01)
    assert [span.name for span in spans] == [
        "execute_tool get",
        "tool.call get",
        "execute_tool get",
        "tool.call get",
        "execute_tool slow",
        "tool.call slow",
        "invoke_agent bot",
    ]
    assert attributes(spans.tool_calls[2])["tool.outcome"] == "cancelled"


def test_a_call_that_is_thrown_away_ends(caplog: pytest.LogCaptureFixture) -> None:
    """B8: whoever closes a coroutine is in another context than the one it ran in."""

    class Never:
        def __await__(self) -> Any:
            yield

    @tool
    async def slow() -> None:
        await Never()

    async def run() -> None:
        async with trajectory():
            await slow()

    with capture_spans() as spans:
        running = run()
        contextvars.copy_context().run(running.send, None)
        running.close()
    assert [attributes(span).get("tool.outcome") for span in spans] == [None, "cancelled", None]
    assert caplog.records == []


def test_an_interrupt_is_a_cancellation() -> None:
    @tool
    def interrupted() -> None:
        raise KeyboardInterrupt

    with capture_spans() as spans, pytest.raises(KeyboardInterrupt):
        interrupted()
    assert attributes(spans.tool_calls[0])["tool.outcome"] == "cancelled"


def test_capture_is_off_unless_asked_for() -> None:
    with capture_spans() as spans:
        get("secret")
    assert not [
        key for key in attributes(spans.tool_calls[0]) if key.startswith("gen_ai.tool.call.a")
    ]
    assert "gen_ai.tool.call.result" not in attributes(spans.tool_calls[0])


def test_captured_content_is_whole_json() -> None:
    """B25: arguments of any type are one JSON text each."""
    with capture_spans(capture="full") as spans:
        values: list[object] = [None, {}, [1, "a"], 10597685537261926722, "\ud800"]
        for value in values:
            get(value)
    for span in spans.tool_calls:
        json.loads(attributes(span)["gen_ai.tool.call.result"])
    texts = [attributes(span).get("gen_ai.tool.call.arguments") for span in spans.tool_calls]
    assert texts == [
        '{"thing":null}',
        '{"thing":{}}',
        '{"thing":[1,"a"]}',
        '{"thing":{"$int":"10597685537261926722"}}',
        '{"thing":"\ufffd"}',
    ]


def test_what_is_too_large_is_left_out_and_flagged() -> None:
    with capture_spans(capture="full") as spans:
        get("x" * 100_000)
    found = attributes(spans.tool_calls[0])
    assert "gen_ai.tool.call.arguments" not in found
    assert "gen_ai.tool.call.result" not in found
    assert found["tool.arguments.truncated"] is True
    assert found["tool.result.truncated"] is True
    assert found["tool.args_hash"]


def test_excluded_arguments_are_nowhere() -> None:
    @tool(exclude=["token"])
    def fetch(url: str, token: str) -> int:
        return len(token)

    with capture_spans(capture="full") as spans:
        fetch("u", token="a")
        fetch("u", token="b")
    assert attributes(spans.tool_calls[0])["gen_ai.tool.call.arguments"] == '{"url":"u"}'
    assert hash_of(spans, 0) == hash_of(spans, 1)


def test_a_surrogate_in_an_id_does_not_reach_the_exporter() -> None:
    """B22: an id that a model made up cannot fail the export of a batch."""
    with (
        capture_spans() as spans,
        trajectory("\ud800", conversation_id="\ud801"),
        tool_call("call_\ud802"),
    ):
        get(1)
    for span in spans:
        for value in attributes(span).values():
            str(value).encode("utf-8")
        span.name.encode("utf-8")


class BrokenTracer:
    """Stands for a tracer, or a provider, with a fault."""

    def get_tracer(self, *args: object) -> Any:
        raise RuntimeError("secret")


def test_a_fault_of_the_tracer_does_not_reach_the_tool(caplog: pytest.LogCaptureFixture) -> None:
    provider: Any = BrokenTracer()
    settings.replace(dataclasses.replace(settings.Settings(key=TEST_KEY), provider=provider))
    with trajectory("bot"):
        assert [get(1), get(2), refund("o")] == [1, 2, {"id": "o"}]
    assert guard.counts()["span start"] == 4
    assert caplog.text.count("span start failed (RuntimeError); the tool is not affected") == 1
    assert "secret" not in caplog.text


def test_faults_raise_when_strict() -> None:
    provider: Any = BrokenTracer()
    settings.replace(dataclasses.replace(settings.Settings(key=TEST_KEY), provider=provider))
    with guard.strict(), pytest.raises(RuntimeError, match="secret"):
        get(1)


def test_a_fault_of_ours_in_hashing_stops_dangerous_calls_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*args: object) -> str:
        raise RuntimeError("secret")

    monkeypatch.setattr("toolverdict.instrument.attempts.args_hash", broken)
    with capture_spans(strictly=False) as spans:
        assert get(1) == 1
        with pytest.raises(ToolDenied, match="args_unhashable"):
            refund("o-1")
    assert attributes(spans.tool_calls[0])["tool.args_hash.error"] == "failed"


def test_faults_of_a_span_do_not_reach_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    class BrokenSpan:
        def is_recording(self) -> bool:
            return True

        def get_span_context(self) -> Any:
            return SimpleNamespace(is_valid=False)

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    for start in ("start", "start_clean"):
        monkeypatch.setattr(span_module, start, lambda *args: BrokenSpan())
    with trajectory():
        assert get(1) == 1
        get({"error": "x"})
        with pytest.raises(ValueError, match="own"):
            raises()
    assert {"span attributes", "span end", "span status", "span event"} <= guard.counts().keys()


@tool
def raises() -> None:
    raise ValueError("own")


def test_one_bad_attribute_takes_no_other_with_it(caplog: pytest.LogCaptureFixture) -> None:
    bad: Any = uuid.UUID(int=1)
    with capture_spans(strictly=False) as spans:
        span = span_module.start("x", {"a": bad, "b": "b"})
        span_module.put(span, {"c": bad, "d": ("d",), "e": [bad], "f": None, "g": True})  # type: ignore[dict-item]
        span_module.end(span)
    assert attributes(spans[0]) == {"b": "b", "d": ("d",), "g": True}
    assert guard.counts() == {"span attribute": 4}


def captured_with(limits: SpanLimits, **arguments: Any) -> ReadableSpan:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(span_limits=limits)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings.replace(settings.Settings(key=TEST_KEY, capture="full", provider=provider))
    with trajectory("bot", user_input="x" * 30):
        get(arguments)
    return exporter.get_finished_spans()[1]


def test_what_the_sdk_would_cut_is_left_out_and_flagged() -> None:
    """B26: half a JSON text is none; the hash is of the whole."""
    whole = attributes(captured_with(SpanLimits(), text="\u20ac" * 60))
    cut = attributes(captured_with(SpanLimits(max_span_attribute_length=80), text="\u20ac" * 60))
    assert len(whole["gen_ai.tool.call.arguments"]) == 81
    assert "gen_ai.tool.call.arguments" not in cut
    assert cut["tool.arguments.truncated"] is True
    assert cut["tool.args_hash"] == whole["tool.args_hash"]
    just = attributes(captured_with(SpanLimits(max_span_attribute_length=81), text="\u20ac" * 60))
    assert just["gen_ai.tool.call.arguments"] == whole["gen_ai.tool.call.arguments"]


@pytest.mark.parametrize(
    "variable", ["OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT"]
)
def test_the_environment_limits_what_is_captured(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "80")
    foreign: Any = object()
    assert span_module.length_limit(foreign) == 80
    with capture_spans(capture="full") as spans, trajectory(user_input="x" * 80):
        get("x" * 80)
    _, call, whole = map(attributes, spans)
    assert call["tool.arguments.truncated"] is True
    assert call["tool.result.truncated"] is True
    assert "gen_ai.input.messages" not in whole
    monkeypatch.setenv(variable, "none")
    assert span_module.length_limit(foreign) is None


def test_near_the_end_of_the_stack_a_result_is_not_lost() -> None:
    ran: list[int] = []
    lost: list[int] = []

    @tool
    def noted(n: int) -> None:
        ran.append(n)

    def down(depth: int, n: int) -> None:
        noted(n) if depth == 0 else down(depth - 1, n)

    with capture_spans(strictly=False):
        for depth in range(sys.getrecursionlimit() - 400, sys.getrecursionlimit()):
            before = len(ran)
            try:
                down(depth, depth)
            except RecursionError:
                lost += ran[before:]
    assert lost == []


def test_an_exception_that_cannot_be_looked_at_goes_on_as_it_is() -> None:
    """Proxies of web frameworks raise whenever anybody asks for their class."""

    class Unfathomable(Exception):
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            raise RuntimeError("outside of a request")

        @property
        def status(self) -> int:
            raise RuntimeError("outside of a request")

        @status.setter
        def status(self, value: int) -> None: ...

    raised = Unfathomable()

    @tool
    def fail() -> None:
        raise raised

    with capture_spans(capture="full") as spans, pytest.raises(Unfathomable) as caught:
        fail()
    assert caught.value is raised
    (span,) = spans.tool_calls
    assert (span.attributes or {})["tool.outcome"] == "error"
