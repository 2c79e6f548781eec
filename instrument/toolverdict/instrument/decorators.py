"""``@tool``: every call of a function becomes an attempt with one span, decided before it runs.

Everything that can be known is worked out here, when the tool is decorated.
"""

import difflib
import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, ParamSpec, Protocol, TypeVar, cast, overload

from toolverdict.instrument.arguments import Arguments, Binder
from toolverdict.instrument.attempts import Attempt
from toolverdict.instrument.decisions import DANGEROUS_LABELS
from toolverdict.instrument.generators import wrap_async_generator, wrap_generator
from toolverdict.instrument.ongoing import settled
from toolverdict.instrument.outcomes import OutcomeHook
from toolverdict.instrument.signatures import auto_version, returns_none
from toolverdict.instrument.tools import IdempotencyKey, ToolSpec

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class ToolDecorator(Protocol):
    """Decorates one tool, and leaves its type as it is."""

    @overload
    def __call__(self, function: "classmethod[T, P, R]", /) -> "classmethod[T, P, R]": ...
    @overload
    def __call__(self, function: "staticmethod[P, R]", /) -> "staticmethod[P, R]": ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def tool(function: "classmethod[T, P, R]", /) -> "classmethod[T, P, R]": ...
@overload
def tool(function: "staticmethod[P, R]", /) -> "staticmethod[P, R]": ...
@overload
def tool(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    labels: Collection[str] = (),
    schema_version: str | None = None,
    idempotency_key: str | Callable[[Arguments], str] | None = None,
    exclude: Collection[str] = (),
    outcome: OutcomeHook | None = None,
) -> ToolDecorator: ...
def tool(
    function: Any = None,
    /,
    *,
    name: str | None = None,
    labels: Collection[str] = (),
    schema_version: str | None = None,
    idempotency_key: str | Callable[[Arguments], str] | None = None,
    exclude: Collection[str] = (),
    outcome: OutcomeHook | None = None,
) -> Any:
    """Make a function or method a tool: sync, async, generator or async generator.

    Args:
        function: What is decorated, when the decorator is used without parentheses.
        name: The tool's name; the function's by default.
        labels: What the tool can do. ``write``, ``payment``, ``permission`` and
            ``external_message`` are dangerous: with a policy, a rule must allow them.
        schema_version: The version of the tool's parameters; a digest of them by default.
        idempotency_key: The parameter that holds the idempotency key, or a function of the
            arguments that makes it. Its hash is recorded.
        exclude: Parameters that are never hashed, shown or recorded, such as credentials.
        outcome: Looks at a result and names its outcome, or returns None to leave that to us. For
            a generator it looks at the value that it returned.

    Raises:
        TypeError: What is decorated is not a function or method, or a setting does not fit it.
        ValueError: The name or a label is not usable.
    """

    def decorate(target: Any) -> Any:
        if isinstance(target, classmethod):
            return classmethod(_wrap(target.__func__, static=False))
        if isinstance(target, staticmethod):
            return staticmethod(_wrap(target.__func__, static=True))
        return _wrap(target, static=False)

    def _wrap(target: Callable[..., Any], *, static: bool) -> Callable[..., Any]:
        binder = _binder(target, _texts("exclude", exclude), static=static)
        spec = ToolSpec(
            name=_checked_name(name if name is not None else binder.function.__name__),
            labels=tuple(sorted(_labels(labels))),
            schema_version=schema_version or auto_version(binder.parameters),
            binder=binder,
            idempotency_key=_key_maker(idempotency_key, binder),
            outcome_hook=outcome,
            returns_none=returns_none(binder.signature),
        )
        return _wrapper(spec, target)

    return decorate if function is None else decorate(function)


def _wrapper(spec: ToolSpec, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function's stand-in, of the same kind; the kinds differ in when their bodies run."""
    if inspect.isasyncgenfunction(function):
        wrapper: Callable[..., Any] = wrap_async_generator(spec, function)
    elif inspect.isgeneratorfunction(function):
        wrapper = wrap_generator(spec, function)
    elif inspect.iscoroutinefunction(function):
        wrapper = _wrap_coroutine(spec, function)
    else:
        wrapper = _wrap_function(spec, function)
    if isinstance(function, functools.partial):
        # A partial has none of the names that wraps() copies.
        functools.update_wrapper(wrapper, function.func)
        wrapper.__dict__["__wrapped__"] = function
    return wrapper


def _wrap_function(spec: ToolSpec, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with Attempt(spec, args, kwargs) as attempt:
            with attempt.step():
                attempt.admit()
                result = function(*args, **kwargs)
            return settled(result, attempt)

    return wrapper


def _wrap_coroutine(spec: ToolSpec, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        with Attempt(spec, args, kwargs) as attempt:
            with attempt.step():
                await attempt.admit_async()
                result = await function(*args, **kwargs)
            return settled(result, attempt)

    return wrapper


def _binder(target: Any, exclude: frozenset[str], *, static: bool) -> Binder:
    function, given, keywords = target, (), {}
    if isinstance(target, functools.partial):
        function, given, keywords = target.func, target.args, target.keywords
    if isinstance(function, type) or not (callable(function) and hasattr(function, "__qualname__")):
        raise TypeError(f"tool() decorates functions and methods, not {type(target).__name__}")
    return Binder.of(function, exclude, static=static, given=given, given_keywords=keywords)


def _key_maker(
    key: str | Callable[[Arguments], str] | None, binder: Binder
) -> IdempotencyKey | None:
    if not isinstance(key, str):
        return key
    if key not in {parameter.name for parameter in binder.parameters}:
        raise TypeError(f"idempotency_key names no parameter that is looked at: {key!r}")
    parameter = key
    return lambda arguments: arguments[parameter]


def _checked_name(name: str) -> str:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a tool's name must be encodable as UTF-8") from None
    if not name or any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in name):
        raise ValueError(f"a tool's name is not empty and has no control characters: {name!r}")
    return name


def _labels(labels: Collection[str]) -> frozenset[str]:
    """The labels; one that is nearly a dangerous label would switch its protection off."""
    texts = _texts("labels", labels)
    for label in texts - DANGEROUS_LABELS:
        near = difflib.get_close_matches(label, DANGEROUS_LABELS, n=1, cutoff=0.8)
        if near:
            raise ValueError(f"unknown label {label!r}; did you mean {near[0]!r}?")
    return texts


def _texts(setting: str, values: Collection[str]) -> frozenset[str]:
    if isinstance(values, str) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{setting} takes a list of strings")
    if not all(values):
        raise ValueError(f"{setting} holds an empty string")
    return cast("frozenset[str]", frozenset(values))
