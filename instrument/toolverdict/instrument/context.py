"""The current span, trajectory and call id in threads: what Python does not carry there by itself.

A new thread, and so every worker of an executor, begins with an empty context; tool calls in there
would be roots of traces of their own. ``ContextExecutor`` and ``run_in_executor`` hand the context
of whoever submits over. The copy stays good when the submitter's span has ended meanwhile: the call
keeps it as its parent.

Nothing is needed for tasks, ``asyncio.gather``, ``asyncio.TaskGroup``, ``asyncio.to_thread`` and
callbacks of a loop or a future: asyncio copies the context itself. An executor of processes carries
no context; give ``traceparent`` to the other process as you would to another service.
"""

import asyncio
import contextvars
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def carried(function: Callable[P, R], /) -> Callable[P, R]:
    """The function, to be run in the context of this moment, wherever it is called.

    Each call runs in a copy of its own, so it may be called by several threads at once, as
    ``threading.Thread(target=carried(work))`` or ``pool.submit(carried(work))``.
    """
    here = contextvars.copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return here.copy().run(function, *args, **kwargs)

    return run


class ContextExecutor(Executor):
    """An executor whose tasks run in the context of whoever submitted them.

    Args:
        executor: Runs the tasks; one of threads, since a context does not travel to a process.
            Shutting this one down shuts it down.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> "Future[R]":
        """Submit a task, with a copy of the current context."""
        here: Any = contextvars.copy_context()
        return self._executor.submit(here.run, fn, *args, **kwargs)

    def map(
        self,
        fn: Callable[..., R],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int = 1,
        **options: Any,
    ) -> Iterator[R]:
        """Submit a task for each item, each with a copy of the current context."""
        return self._executor.map(
            carried(fn), *iterables, timeout=timeout, chunksize=chunksize, **options
        )

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Shut the executor down."""
        self._executor.shutdown(wait, cancel_futures=cancel_futures)


def run_in_executor(
    loop: asyncio.AbstractEventLoop,
    executor: Executor | None,
    function: Callable[..., R],
    *args: Any,
) -> "asyncio.Future[R]":
    """``loop.run_in_executor``, with a copy of the current context."""
    return loop.run_in_executor(executor, contextvars.copy_context().run, function, *args)
