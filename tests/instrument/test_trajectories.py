import asyncio
import contextvars
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from toolverdict.instrument import ApprovalRequired, tool, tool_call, trajectory
from toolverdict.instrument.call_ids import current_call_id
from toolverdict.instrument.testing import TEST_KEY, capture_spans
from toolverdict.instrument.trajectories import current_trajectory


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@tool
def get(thing: object) -> object:
    return thing


def test_a_trajectory_is_a_span_around_its_calls() -> None:
    with capture_spans() as spans:
        with trajectory("bot", case_id="case-1", user_input="secret") as opened:
            get(1)
        assert current_trajectory() is None
    body, call, whole = spans
    assert (body.name, call.name) == ("execute_tool get", "tool.call get")
    assert whole.name == "invoke_agent bot"
    assert attributes(whole) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "bot",
        "gen_ai.conversation.id": opened.conversation_id,
        "test.case.name": "case-1",
        "taint.user_atoms": (),
        "taint.atoms.key_id": TEST_KEY.id,
    }
    assert attributes(call)["gen_ai.conversation.id"] == opened.conversation_id
    assert attributes(call)["gen_ai.agent.name"] == "bot"
    assert whole.context is not None
    assert opened.trace_id == f"{whole.context.trace_id:032x}"
    assert opened.succeeded == {"get"}


def test_without_a_name_or_a_provider() -> None:
    with trajectory() as opened:
        get(1)
    assert opened.trace_id is None
    assert opened.conversation_id.startswith("conv_")
    assert opened.succeeded == {"get"}
    with capture_spans() as spans, trajectory():
        pass
    assert spans[0].name == "invoke_agent"


class Nasty(dict[str, str]):
    def items(self) -> Any:
        raise RuntimeError("secret")


def test_user_input_is_recorded_when_asked_for() -> None:
    with capture_spans(capture="full") as spans:
        with trajectory(user_input="refund me"):
            pass
        with trajectory(user_input=[{"role": "user", "parts": []}]):
            pass
        with trajectory(user_input="x" * 100_000):
            pass
        with trajectory(user_input=Nasty()):
            pass
    texts = [attributes(span).get("gen_ai.input.messages") for span in spans]
    assert texts == [
        '[{"parts":[{"content":"refund me","type":"text"}],"role":"user"}]',
        '[{"parts":[],"role":"user"}]',
        None,
        None,
    ]


def test_exceptions_go_on_and_leave_their_class() -> None:
    with capture_spans() as spans:
        with pytest.raises(ValueError, match="secret"), trajectory():
            raise ValueError("secret")
        with pytest.raises(ApprovalRequired), trajectory():
            raise ApprovalRequired("t", "a")
    failed, waiting = spans
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.status.description == "error"
    assert attributes(failed)["error.type"] == "ValueError"
    assert waiting.status.status_code is StatusCode.UNSET


def test_a_trajectory_inside_another_is_a_part_of_it() -> None:
    with capture_spans() as spans, trajectory("outer") as outer:
        get(1)
        with trajectory("inner") as inner:
            assert inner.conversation_id == outer.conversation_id
            assert inner.trace_id == outer.trace_id
            assert inner.succeeded == {"get"}
        with trajectory(conversation_id="other") as other:
            assert other.succeeded == frozenset()
        assert current_trajectory() is outer
    assert [span.name for span in spans][2:] == [
        "invoke_agent inner",
        "invoke_agent",
        "invoke_agent outer",
    ]


async def test_tasks_share_their_trajectory_and_no_others() -> None:
    async def wait(thing: int) -> int:
        await asyncio.sleep(0)
        return thing

    async def run(name: str) -> frozenset[str]:
        first, second = (tool(name=f"{name}{number}")(wait) for number in (1, 2))
        async with trajectory(name) as opened:
            await asyncio.gather(first(1), second(2))
            return opened.succeeded

    with capture_spans() as spans:
        x, y = await asyncio.gather(run("x"), run("y"))
    assert (sorted(x), sorted(y)) == (["x1", "x2"], ["y1", "y2"])
    by_trace: dict[int, set[Any]] = {}
    for span in spans:
        if span.name.startswith("execute_tool "):
            continue
        assert span.context is not None
        by_trace.setdefault(span.context.trace_id, set()).add(attributes(span)["gen_ai.agent.name"])
    assert sorted(by_trace.values(), key=str) == [{"x"}, {"y"}]


async def test_threads_with_a_copied_context_share_it() -> None:
    @tool
    def other(thing: object) -> object:
        return get(thing)

    with capture_spans() as spans, trajectory("bot") as opened:
        await asyncio.to_thread(get, 1)
        with ThreadPoolExecutor(2) as pool:
            copies = [contextvars.copy_context() for _ in range(2)]
            list(pool.map(lambda copy: copy.run(other, 2), copies))
    assert opened.succeeded == {"get", "other"}
    assert len({span.context.trace_id for span in spans if span.context}) == 1


async def test_it_decorates_functions() -> None:
    @trajectory("bot")
    def run(a: int) -> int:
        """Run."""
        get(a)
        return a

    @trajectory("bot", case_id="c")
    async def run_async(a: int) -> int:
        get(a)
        return a

    with capture_spans() as spans:
        assert run(1) + run(2) + await run_async(3) == 6
    wholes = [span for span in spans if span.name == "invoke_agent bot"]
    assert len({attributes(span)["gen_ai.conversation.id"] for span in wholes}) == 3
    assert (run.__name__, run.__doc__) == ("run", "Run.")
    with pytest.raises(TypeError, match="does not decorate generators"):

        @trajectory()
        def generate() -> Any:
            yield


def test_it_is_entered_once_and_left_after() -> None:
    scope = trajectory()
    with pytest.raises(RuntimeError, match="never entered"):
        scope.__exit__(None, None, None)
    with scope, pytest.raises(RuntimeError, match="entered once"):
        scope.__enter__()


def test_call_ids() -> None:
    one, other = current_call_id(), current_call_id()
    assert one != other
    with tool_call("call_1"):
        assert current_call_id() == "call_1"
        with tool_call("call_2"):
            assert current_call_id() == "call_2"
        assert current_call_id() == "call_1"
    assert current_call_id().startswith("call_")


class Nameless:
    def __str__(self) -> str:
        raise RuntimeError("secret")


def test_ids_may_be_anything_that_has_a_text() -> None:
    number = uuid.UUID(int=1)
    whole_of_it = trajectory(7, conversation_id=number, case_id=1)
    with capture_spans() as spans, whole_of_it, tool_call(number):
        get(1)
    _, call, whole = map(attributes, spans)
    for span in (call, whole):
        assert span["gen_ai.conversation.id"] == str(number)
        assert span["gen_ai.agent.name"] == "7"
    assert call["gen_ai.tool.call.id"] == str(number)
    assert call["tool.outcome"] == "ok"
    assert whole["test.case.name"] == "1"


def test_an_id_without_a_text_is_left_out() -> None:
    with capture_spans() as spans, trajectory(Nameless(), case_id=Nameless()):
        get(1)
    _, call, whole = map(attributes, spans)
    assert "gen_ai.agent.name" not in call
    assert "test.case.name" not in whole
    assert call["tool.outcome"] == "ok"


def steps(name: str) -> Iterator[int]:
    with trajectory(name):
        yield 1
        yield 2


@pytest.mark.parametrize("order", ["abab", "abba", "aabb"])
def test_trajectories_that_are_left_in_turns_leave_nothing_behind(
    order: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One that has ended is never current again, nor is its span."""
    before = context.get_current()
    with capture_spans() as spans:
        running = {name: steps(name) for name in "ab"}
        for generator in running.values():
            next(generator)
        for name in order:
            next(running[name], None)
        assert current_trajectory() is None
        assert context.get_current() == before
    assert len(spans) == 2
    assert caplog.records == []


def test_an_outer_trajectory_that_ended_first_does_not_come_back() -> None:
    with capture_spans():
        first, second, third = trajectory("1"), trajectory("2"), trajectory("3")
        outermost = first.__enter__()
        second.__enter__()
        innermost = third.__enter__()
        second.__exit__(None, None, None)
        assert current_trajectory() is innermost
        third.__exit__(None, None, None)
        assert current_trajectory() is outermost
        first.__exit__(None, None, None)
        assert current_trajectory() is None
        assert not trace.get_current_span().get_span_context().is_valid


async def test_what_goes_on_after_a_trajectory_is_not_in_it() -> None:
    with capture_spans() as spans:
        go = asyncio.Event()

        async def later() -> None:
            await go.wait()
            get(1)

        with trajectory("bot"):
            task = asyncio.create_task(later())
            await asyncio.sleep(0)
        go.set()
        await task
    assert "gen_ai.conversation.id" not in attributes(spans[-1])


def test_leaving_twice_is_leaving_once(caplog: pytest.LogCaptureFixture) -> None:
    with capture_spans() as spans, trajectory("outer") as outer:
        scope = trajectory("inner")
        with scope:
            pass
        scope.__exit__(None, None, None)
        assert current_trajectory() is outer
    assert len(spans) == 2
    assert caplog.records == []


def test_a_context_that_was_left_attached_inside_does_not_stay() -> None:
    with trajectory():
        context.attach(context.set_value("x", 1))
    assert current_trajectory() is None
    assert context.get_value("x") is None
