import asyncio
import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from toolverdict.instrument import tool, trajectory
from toolverdict.instrument.context import ContextExecutor, carried, run_in_executor
from toolverdict.instrument.testing import CapturedSpans, capture_spans


@tool
def get(thing: int) -> int:
    return thing


def assert_all_inside(spans: CapturedSpans, count: int) -> None:
    (agent,) = (span for span in spans if span.name == "invoke_agent bot")
    assert len(spans.tool_calls) == count
    for call in spans.tool_calls:
        assert call.context is not None
        assert agent.context is not None
        assert call.parent is not None
        assert call.context.trace_id == agent.context.trace_id
        assert call.parent.span_id == agent.context.span_id
        assert (call.attributes or {})["gen_ai.agent.name"] == "bot"


@pytest.fixture
def pool() -> Any:
    with ContextExecutor(ThreadPoolExecutor(3)) as made:
        yield made


def test_an_executor_carries_the_submitters_context(pool: Executor) -> None:
    """B1: two or more at once, each with a copy of its own."""
    with capture_spans() as spans, trajectory("bot") as opened:
        futures = [pool.submit(get, number) for number in range(3)]
        assert [future.result() for future in futures] == [0, 1, 2]
        assert list(pool.map(get, range(3))) == [0, 1, 2]
        assert opened.succeeded == {"get"}
    assert_all_inside(spans, 6)


def test_what_is_never_waited_for_keeps_its_parent() -> None:
    """B2: the submitter's span has ended before the worker starts."""
    free = threading.Event()
    with capture_spans() as spans:
        pool = ContextExecutor(ThreadPoolExecutor(1))
        blocked = pool.submit(free.wait)
        with trajectory("bot"):
            for number in range(10):
                pool.submit(get, number)
        assert len(spans) == 1
        free.set()
        pool.shutdown()
    assert blocked.result()
    (agent,) = (span for span in spans if span.name == "invoke_agent bot")
    assert len(spans.tool_calls) == 10
    for call in spans.tool_calls:
        assert call.parent is not None
        assert agent.context is not None
        assert call.parent.trace_id == agent.context.trace_id
        assert call.parent.span_id == agent.context.span_id


async def test_what_asyncio_runs_is_inside() -> None:
    """B1: run_in_executor needs ours; gather, to_thread and TaskGroup carry the context."""
    loop = asyncio.get_running_loop()

    async def call(number: int) -> int:
        return get(number)

    with capture_spans() as spans:
        async with trajectory("bot"):
            with ThreadPoolExecutor(2) as pool:
                await asyncio.gather(*(run_in_executor(loop, pool, get, n) for n in range(2)))
            await run_in_executor(loop, None, get, 2)
            await asyncio.gather(call(3), call(4))
            await asyncio.to_thread(get, 5)
            async with asyncio.TaskGroup() as group:
                group.create_task(call(6))
            done = asyncio.Event()
            loop.call_soon(get, 7)
            loop.call_soon(done.set)
            await done.wait()
            future: asyncio.Future[int] = loop.create_future()
            future.add_done_callback(lambda _: get(8))
            future.set_result(1)
            await asyncio.sleep(0)
    assert_all_inside(spans, 9)


def test_a_thread_with_a_carried_function() -> None:
    with capture_spans() as spans, trajectory("bot"):
        threads = [threading.Thread(target=carried(get), args=(n,)) for n in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert_all_inside(spans, 2)


def test_a_bare_thread_has_no_parent() -> None:
    """What Python does by itself, and why the helpers are there."""
    with capture_spans() as spans, trajectory("bot"), ThreadPoolExecutor(1) as pool:
        pool.submit(get, 1).result()
    (call,) = spans.tool_calls
    assert call.parent is None


def test_it_is_an_executor(pool: Executor) -> None:
    def fail() -> None:
        raise KeyError("own")

    failed: Future[None] = pool.submit(fail)
    assert isinstance(failed.exception(), KeyError)
    assert list(pool.map(lambda a, b: a + b, [1, 2], [3, 4], timeout=5)) == [4, 6]
    pool.shutdown(cancel_futures=True)
    with pytest.raises(RuntimeError):
        pool.submit(get, 1)
