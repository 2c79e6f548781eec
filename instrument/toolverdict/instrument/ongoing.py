"""Tools that return before they are done: with a coroutine, a future, a generator or a stream.

Nothing has succeeded when such a tool returns, and perhaps nothing has run. So the attempt goes on,
and ends where the work does: when it was awaited, or iterated to its end. The caller gets a
stand-in that looks like what the tool returned and takes each step of it with the span current. If
it is thrown away the span ends all the same: ``unknown`` when it was never taken up (with
``tool.items`` 0 for a stream), ``cancelled`` when it was left in the middle.
"""

import inspect
import io
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from typing import Any, Final

from toolverdict.instrument import guard
from toolverdict.instrument.attempts import Attempt
from toolverdict.instrument.generators import thrown

_FINAL: Final = frozenset({type(None), bool, int, float, str, bytes, dict, list, tuple, set})
"""What most tools return: surely done."""

_READ_OTHERWISE: Final = ("read", "fetchone")
"""Files and database cursors are iterators, too, but a value to hand over like any other."""


def settled(result: Any, attempt: Attempt) -> Any:
    """Take note of what a tool returned, and give it on; a stand-in for it if the tool goes on."""
    try:
        stand_in = None if type(result) in _FINAL else _stand_in(result, attempt)
        attempt.goes_on = stand_in is not None
        if stand_in is not None:
            return stand_in
        attempt.returned(result)
    except RecursionError:  # where the body just fitted, ours may not
        pass
    return result


def _stand_in(result: Any, attempt: Attempt) -> Any:
    try:
        kind = type(result)
        if hasattr(kind, "add_done_callback") and hasattr(kind, "cancel"):
            return _watched(result, attempt)
        if inspect.iscoroutine(result):
            return _Coroutine(result, attempt)
        if inspect.isawaitable(result):
            return _Awaitable(result, attempt)
        if isinstance(result, io.IOBase) or any(hasattr(kind, name) for name in _READ_OTHERWISE):
            return None
        if isinstance(result, AsyncIterator):
            return _AsyncStream(result, attempt)
        return _Stream(result, attempt) if isinstance(result, Iterator) else None
    except Exception as error:  # noqa: BLE001 - a result may raise anything when it is looked at
        guard.note("result", "a result cannot be followed (%s)", type(error).__name__)
        return None


def _watched(future: Any, attempt: Attempt) -> Any:
    """The future itself: it tells when it is done, and its callers may ask for its very class."""

    def done(future: Any) -> None:
        try:
            if future.cancelled():
                attempt.finish(GeneratorExit())
            elif (error := future.exception()) is not None:
                attempt.finish(error)
            else:
                attempt.returned(future.result())
                attempt.finish()
        except Exception as error:  # noqa: BLE001 - it is some library's future
            guard.note("future", "a future cannot be asked (%s)", type(error).__name__)
            attempt.finish()

    if future.done():
        done(future)
    else:
        future.add_done_callback(done)
        weakref.finalize(future, attempt.abandon)
    return future


def _step(
    attempt: Attempt, ended: Callable[[Any], Any], advance: Callable[..., Any], *arguments: Any
) -> Any:
    """One step of a body; the last one ends the attempt."""
    attempt.taken_up = True
    try:
        with attempt.step():
            return advance(*arguments)
    except StopIteration as stop:
        value = ended(stop.value)
        if value is stop.value:
            raise
        raise StopIteration(value) from None
    except BaseException as error:
        attempt.finish(error)
        raise


class _StandIn:
    """Looks like what a tool returned, and knows when nobody holds it any more."""

    def __init__(self, body: Any, attempt: Attempt) -> None:
        self._body = body
        self._attempt = attempt
        self._in_charge = True

    # Frameworks look at a result by isinstance, inspect.iscoroutine for one.
    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._body)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._body, name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._body.__reduce_ex__(protocol)  # a copy is of what the tool returned

    def __del__(self) -> None:
        if self._in_charge:
            self._attempt.abandon()

    def _left(self, leave: Callable[..., Any], *arguments: Any) -> Any:
        """Let the body clean up, and end the attempt."""
        try:
            with self._attempt.step():
                answer = leave(*arguments)
        except BaseException as error:
            self._attempt.finish(error)
            raise
        self._attempt.abandon()
        return answer


class _Awaitable(_StandIn):
    def __await__(self) -> Generator[Any, Any, Any]:
        return _Steps(self._body.__await__(), self)

    def _ended(self, value: Any) -> Any:
        self._attempt.taken_up = False
        value = settled(value, self._attempt)
        self._in_charge = not self._attempt.goes_on
        if self._in_charge:
            self._attempt.finish()
        return value


class _Coroutine(_Awaitable):
    """A coroutine has its steps to be taken by hand, as a task does."""

    def send(self, value: Any) -> Any:
        return _step(self._attempt, self._ended, self._body.send, value)

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        error = thrown(kind, value, traceback)
        return _step(self._attempt, self._ended, self._body.throw, error)

    def close(self) -> None:
        self._left(self._body.close)


class _Steps(Generator[Any, Any, Any]):
    """What ``await`` drives; keeps the stand-in for as long as it does."""

    def __init__(self, steps: Any, owner: _Awaitable) -> None:
        self._steps = steps
        self._owner = owner

    def send(self, value: Any) -> Any:
        # What __await__ gives may be any iterator.
        if value is None:
            return self._step(next, self._steps)
        return self._step(self._steps.send, value)

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        error = thrown(kind, value, traceback)
        throw = getattr(self._steps, "throw", None)
        return self._step(throw if throw is not None else _raise, error)

    def close(self) -> None:
        close = getattr(self._steps, "close", None)
        if close is not None:
            self._owner._left(close)

    def _step(self, advance: Callable[..., Any], *arguments: Any) -> Any:
        return _step(self._owner._attempt, self._owner._ended, advance, *arguments)


class _Stream(_StandIn):
    def __init__(self, body: Any, attempt: Attempt) -> None:
        super().__init__(body, attempt)
        attempt.items = 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self._counted(next, self._body)

    def send(self, value: Any) -> Any:
        return self._counted(self._body.send, value)

    def throw(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        return self._counted(self._body.throw, thrown(kind, value, traceback))

    def close(self) -> None:
        self._left(self._body.close)

    def __enter__(self) -> Any:
        entered = self._body.__enter__()
        return self if entered is self._body else entered

    def __exit__(self, *error: Any) -> Any:
        return self._left(self._body.__exit__, *error)

    def _counted(self, advance: Callable[..., Any], *arguments: Any) -> Any:
        item = _step(self._attempt, self._ended, advance, *arguments)
        self._attempt.note_item(item)
        return item

    def _ended(self, value: Any) -> Any:
        self._attempt.exhausted(value)
        self._attempt.finish()
        return value


class _AsyncStream(_StandIn):
    def __init__(self, body: Any, attempt: Attempt) -> None:
        super().__init__(body, attempt)
        attempt.items = 0

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        return await self._counted(self._body.__anext__())

    async def asend(self, value: Any) -> Any:
        return await self._counted(self._body.asend(value))

    async def athrow(self, kind: Any, value: Any = None, traceback: Any = None) -> Any:
        return await self._counted(self._body.athrow(thrown(kind, value, traceback)))

    async def aclose(self) -> None:
        await self._closed(self._body.aclose())

    async def __aenter__(self) -> Any:
        entered = await self._body.__aenter__()
        return self if entered is self._body else entered

    async def __aexit__(self, *error: Any) -> Any:
        return await self._closed(self._body.__aexit__(*error))

    async def _counted(self, step: Awaitable[Any]) -> Any:
        attempt = self._attempt
        attempt.taken_up = True
        try:
            with attempt.step():
                item = await step
        except StopAsyncIteration:
            attempt.exhausted(None)
            attempt.finish()
            raise
        except BaseException as error:
            attempt.finish(error)
            raise
        attempt.note_item(item)
        return item

    async def _closed(self, closing: Awaitable[Any]) -> Any:
        try:
            with self._attempt.step():
                answer = await closing
        except BaseException as error:
            self._attempt.finish(error)
            raise
        self._attempt.abandon()
        return answer


def _raise(error: Any) -> Any:
    raise error
