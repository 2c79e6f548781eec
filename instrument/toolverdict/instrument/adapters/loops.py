"""A loop of one's own around a model: runs the tool calls in OpenAI's and Anthropic's messages.

    tools = ToolBox([get_order, refund], labels={"refund": ["payment"]})
    results = tools.run(response.choices[0].message)  # or response.output, or response.content
    messages += results.messages

No SDK is needed: messages are read as objects or as dicts. A call that fails, is denied or does not
fit becomes what the model is shown for it, and the loop goes on. One that waits for an approval is
in ``results.waiting`` instead: ask, and run the message again for that call alone.
"""

import inspect
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from toolverdict.instrument.adapters.calls import ModelCall, refusal
from toolverdict.instrument.adapters.options import (
    KeyOfCall,
    Options,
    refuse_what_is_no_list,
)
from toolverdict.instrument.adapters.unknown import note_unknown
from toolverdict.instrument.call_ids import tool_call
from toolverdict.instrument.decorators import is_decorated, tool
from toolverdict.instrument.errors import ApprovalRequired, ToolError, ToolverdictError
from toolverdict.instrument.outcomes import OutcomeHook

Shape = Literal["chat", "responses", "anthropic"]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call that waits for an approval; it has not run.

    Args:
        call_id: The id in the model's request.
        tool: The tool.
        approval_id: The approval to ask after.
        reason: The sentence that the policy gives.
    """

    call_id: str
    tool: str
    approval_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Results:
    """What came of the calls in a message.

    Args:
        messages: To be appended to the conversation, in the dialect that the calls came in.
        waiting: Calls that have no message yet.
    """

    messages: list[dict[str, Any]]
    waiting: tuple[Waiting, ...]


class ToolBox:
    """Functions that a model may call, by name.

    Args:
        functions: Functions decorated with ``@tool``; others are decorated here.
        labels: What a function that is not decorated yet can do, by its name.
        idempotency_keys: The parameter that holds the idempotency key, by such a function's name.
        exclude: Parameters that are never hashed, shown or recorded, by such a function's name.
        outcomes: Names the outcome of a result, by such a function's name.

    Raises:
        TypeError: Something is not a function, or a setting does not fit it.
        ValueError: Two functions have one name, a label is not usable, or a setting names no
            function or one that is decorated already, and has its settings there.
    """

    def __init__(
        self,
        functions: Iterable[Callable[..., Any]],
        *,
        labels: Mapping[str, Collection[str]] | None = None,
        idempotency_keys: Mapping[str, KeyOfCall] | None = None,
        exclude: Mapping[str, Collection[str]] | None = None,
        outcomes: Mapping[str, OutcomeHook] | None = None,
    ) -> None:
        refuse_what_is_no_list(functions, ())
        given = list(functions)
        plain = [function.__name__ for function in given if not is_decorated(function)]
        Options(labels, idempotency_keys, exclude, outcomes).check(plain)
        self._tools: dict[str, Callable[..., Any]] = {}
        for function in given:
            name = function.__name__
            if name in self._tools:
                raise ValueError(f"two functions are called {name!r}")
            self._tools[name] = (
                function
                if is_decorated(function)
                else tool(
                    labels=(labels or {}).get(name, ()),
                    idempotency_key=(idempotency_keys or {}).get(name),
                    exclude=(exclude or {}).get(name, ()),
                    outcome=(outcomes or {}).get(name),
                )(function)
            )

    def run(self, message: object, *, only: Collection[str] | None = None) -> Results:
        """Run the calls of a message, one after the other.

        Args:
            message: A message with tool calls, or a list of items or blocks.
            only: The ids of the calls to run; all by default.

        Raises:
            TypeError: A tool is async; use ``run_async``. Or it is no message.
        """
        answers: list[_Answer] = []
        for call in _calls_in(message, only):
            function = self._tools.get(call.name)
            if inspect.iscoroutinefunction(function):
                raise TypeError(f"tool {call.name!r} is async; use run_async()")
            try:
                with tool_call(call.id):
                    answers.append(_Answer(call, _text(self._found(call)(**call.arguments()))))
            except Exception as error:  # noqa: BLE001 - a tool may raise anything; the model is told
                answers.append(_failed(call, error, function))
        return _results(answers)

    async def run_async(self, message: object, *, only: Collection[str] | None = None) -> Results:
        """The same for tools that may be async."""
        answers: list[_Answer] = []
        for call in _calls_in(message, only):
            try:
                with tool_call(call.id):
                    result = self._found(call)(**call.arguments())
                    if inspect.isawaitable(result):
                        result = await result
                    answers.append(_Answer(call, _text(result)))
            except Exception as error:  # noqa: BLE001 - a tool may raise anything; the model is told
                answers.append(_failed(call, error, self._tools.get(call.name)))
        return _results(answers)

    def _found(self, call: "_Call") -> Callable[..., Any]:
        function = self._tools.get(call.name)
        if function is None:
            note_unknown(call.name, call.read(), call.id)
            raise _NotFitting(f"there is no tool called {call.name!r}")
        return function


class _NotFitting(Exception):
    """The model asks for what is not there, or in a way that nobody can read."""


@dataclass(frozen=True, slots=True)
class _Call:
    shape: Shape
    id: str
    name: str
    given: object

    def arguments(self) -> dict[str, Any]:
        """The arguments by name; a span is left for what cannot be read as that."""
        given = self.read()
        if given is not None:
            return given
        error = _NotFitting("the arguments are not an object of JSON")
        ModelCall(Options().spec(self.name), None, self.id).reject(error)

    def read(self) -> dict[str, Any] | None:
        """The arguments by name, if they can be read as that."""
        given = self.given
        if isinstance(given, str):
            try:
                given = json.loads(given or "{}")
            except (ValueError, RecursionError):
                return None
        return given if isinstance(given, dict) else None


@dataclass(frozen=True, slots=True)
class _Answer:
    call: _Call
    text: str
    failed: bool = False
    waiting: Waiting | None = None


def _failed(call: _Call, error: Exception, function: Callable[..., Any] | None) -> _Answer:
    if isinstance(error, ApprovalRequired):
        waiting = Waiting(call.id, error.tool, error.approval_id, error.reason)
        return _Answer(call, "", waiting=waiting)
    if isinstance(error, ToolverdictError):
        return _Answer(call, refusal(error), failed=True)
    # What an author says by a ToolError, and what does not fit, is for the model; the text of any
    # other exception may hold anything, and so may that of a TypeError out of the body.
    told = isinstance(error, ToolError | _NotFitting) or (
        isinstance(error, TypeError) and function is not None and not _fit(call.read(), function)
    )
    text = str(error) if told else ""
    return _Answer(call, f"error: {text or type(error).__name__}", failed=True)


def _fit(arguments: dict[str, Any] | None, function: Callable[..., Any]) -> bool:
    """Whether a function takes these arguments: then its body ran, or may have run."""
    try:
        inspect.signature(function).bind(**arguments or {})
    except TypeError:
        return False
    except ValueError:  # it has no signature
        return True
    return True


def _results(answers: list[_Answer]) -> Results:
    done = [answer for answer in answers if answer.waiting is None]
    messages: list[dict[str, Any]] = []
    blocks: list[dict[str, Any]] = []
    for answer in done:
        call, text = answer.call, answer.text
        if call.shape == "chat":
            messages.append({"role": "tool", "tool_call_id": call.id, "content": text})
        elif call.shape == "responses":
            messages.append({"type": "function_call_output", "call_id": call.id, "output": text})
        else:
            block = {"type": "tool_result", "tool_use_id": call.id, "content": text}
            blocks.append({**block, "is_error": True} if answer.failed else block)
    if blocks:
        # All the results of one turn belong into one message.
        messages.append({"role": "user", "content": blocks})
    return Results(messages, tuple(answer.waiting for answer in answers if answer.waiting))


def _calls_in(message: object, only: Collection[str] | None) -> Iterator[_Call]:
    _check(message)
    for call in _read(message):
        if only is None or call.id in only:
            yield call


def _check(message: object) -> None:
    """Refuse what is no message: its calls would be left out, in silence.

    Raises:
        TypeError: It is none.
    """
    if isinstance(message, list | tuple):
        known = all(_has(item, "type") for item in message)
    else:
        known = any(_has(message, name) for name in ("tool_calls", "output", "content"))
    if not known:
        raise TypeError(
            f"a {type(message).__name__} like this holds no message of a model; give"
            " response.choices[0].message, response.output or response.content"
        )


def _has(holder: object, name: str) -> bool:
    return name in holder if isinstance(holder, Mapping) else hasattr(holder, name)


def _read(message: object) -> Iterator[_Call]:
    if isinstance(message, list | tuple):
        for item in message:
            kind = _get(item, "type")
            if kind == "function_call":
                yield _call("responses", _get(item, "call_id"), item, _get(item, "arguments"))
            elif kind == "tool_use":
                yield _call("anthropic", _get(item, "id"), item, _get(item, "input"))
        return
    for item in _get(message, "tool_calls") or ():
        function = _get(item, "function")
        if function is not None:
            yield _call("chat", _get(item, "id"), function, _get(function, "arguments"))
    for field in ("output", "content"):
        inside = _get(message, field)
        if isinstance(inside, list | tuple):
            yield from _read(inside)


def _call(shape: Shape, call_id: object, named: object, given: object) -> _Call:
    return _Call(shape, str(call_id), str(_get(named, "name")), given)


def _get(holder: object, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def _text(result: object) -> str:
    return result if isinstance(result, str) else json.dumps(result, default=str)
