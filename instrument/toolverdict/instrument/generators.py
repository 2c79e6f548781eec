"""Tools that yield: the span runs from the first item asked for to the last one given.

Between two items the consumer runs, perhaps in another task or thread, so the span is current only
while the tool's own code does, one step at a time. Items are counted, never kept. A generator that
nobody iterates has no span: its body never ran.
"""

import functools
from collections.abc import AsyncGenerator, Callable, Generator
from types import TracebackType
from typing import Any

from toolverdict.instrument.attempts import Attempt
from toolverdict.instrument.errors import AlreadyDone
from toolverdict.instrument.overrides import Piece, is_overridden
from toolverdict.instrument.tools import ToolSpec


def wrap_generator(
    spec: ToolSpec, function: Callable[..., Generator[Any, Any, Any]]
) -> Callable[..., Generator[Any, Any, Any]]:
    """A generator function that does what the tool does, with a span around it."""
    is_method = spec.binder.receiver is not None

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        if is_method and is_overridden(spec, args, kwargs):
            return (yield from function(*args, **kwargs))
        with Attempt(spec, args, kwargs) as attempt:
            attempt.items = 0
            given, named = attempt.admit()
            _refuse_replay(spec, attempt)
            with attempt.step():
                body = function(*given, **named)
            value = yield from _Steps(body, attempt)
            attempt.exhausted(value)
            return value

    return wrapper


def wrap_async_generator(
    spec: ToolSpec, function: Callable[..., AsyncGenerator[Any, Any]]
) -> Callable[..., AsyncGenerator[Any, Any]]:
    """An async generator function that does what the tool does, with a span around it."""
    is_method = spec.binder.receiver is not None

    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        is_piece = is_method and is_overridden(spec, args, kwargs)
        with Piece(args, kwargs) if is_piece else Attempt(spec, args, kwargs) as attempt:
            attempt.items = 0
            given, named = await attempt.admit_async()
            _refuse_replay(spec, attempt)
            with attempt.step():
                body = function(*given, **named)
            step = body.__anext__()
            while True:
                try:
                    with attempt.step():
                        item = await step
                except StopAsyncIteration:
                    attempt.exhausted(None)
                    return
                attempt.note_item(item)
                try:
                    sent = yield item
                except GeneratorExit:
                    with attempt.step():
                        await body.aclose()
                    raise
                except BaseException as thrown:  # noqa: BLE001 - the tool decides what it means
                    step = body.athrow(thrown)
                else:
                    step = body.asend(sent)

    return wrapper


def _refuse_replay(spec: ToolSpec, attempt: Attempt | Piece) -> None:
    """Items are never kept, so whoever reads them again cannot be given them."""
    if attempt.replay is not None:
        raise AlreadyDone(f"tool {spec.name!r} has done this before; its items were not kept")


class _Steps(Generator[Any, Any, Any]):
    """The tool's own generator, each step of it taken with the span current."""

    def __init__(self, body: Generator[Any, Any, Any], attempt: Attempt) -> None:
        self._body = body
        self._attempt = attempt

    def send(self, value: Any) -> Any:
        with self._attempt.step():
            item = self._body.send(value)
        return self._counted(item)

    def throw(
        self,
        kind: Any,
        value: BaseException | object = None,
        traceback: TracebackType | None = None,
    ) -> Any:
        with self._attempt.step():
            item = self._body.throw(thrown(kind, value, traceback))
        return self._counted(item)

    def close(self) -> None:
        with self._attempt.step():
            self._body.close()

    def _counted(self, item: Any) -> Any:
        self._attempt.note_item(item)
        return item


def thrown(kind: Any, value: object = None, traceback: TracebackType | None = None) -> Any:
    """The exception that ``throw`` was given, in one argument or, the old way, in three."""
    if value is None and traceback is None:
        return kind
    if isinstance(kind, BaseException):
        if value is not None:
            raise TypeError("instance exception may not have a separate value")
        error = kind
    elif isinstance(value, BaseException):
        error = value
    elif value is None:
        error = kind()
    else:
        error = kind(*value) if isinstance(value, tuple) else kind(value)
    return error if traceback is None else error.with_traceback(traceback)
