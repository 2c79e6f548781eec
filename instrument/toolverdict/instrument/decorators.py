"""``@tool``: every call of a function becomes an attempt with one span, decided before it runs.

Everything that can be known is worked out here, when the tool is decorated.
"""

import functools
import inspect
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar, cast, overload

from toolverdict.instrument.arguments import Arguments, Binder
from toolverdict.instrument.attempts import Attempt
from toolverdict.instrument.coercion import Coercion
from toolverdict.instrument.generators import wrap_async_generator, wrap_generator
from toolverdict.instrument.labels import checked
from toolverdict.instrument.ongoing import settled
from toolverdict.instrument.outcomes import OutcomeHook
from toolverdict.instrument.overrides import is_overridden
from toolverdict.instrument.signatures import auto_version, returns_none
from toolverdict.instrument.tools import IdempotencyKey, ToolSpec

if TYPE_CHECKING:
    from toolverdict.instrument.stores.idempotency import Reconcile

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MARK: Final = "__toolverdict_tool__"
"""The attribute of a decorated function that holds its ``ToolSpec``."""


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
    coerce: bool = False,
    idempotent: bool = False,
    reconcile: "Reconcile | None" = None,
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
    coerce: bool = False,
    idempotent: bool = False,
    reconcile: "Reconcile | None" = None,
) -> Any:
    """Make a function or method a tool: sync, async, generator or async generator.

    Args:
        function: What is decorated, when the decorator is used without parentheses. An object with
            a ``__call__`` is taken as well, given a name, and becomes a function.
        name: The tool's name; the function's by default.
        labels: What the tool can do. ``write``, ``payment``, ``permission`` and
            ``external_message`` are dangerous: with a policy, a rule must allow them.
            ``untrusted``: somebody else may have written what it returns (see ``provenance``).
        schema_version: The version of the tool's parameters; a digest of them by default.
        idempotency_key: The parameter that holds the idempotency key, or a function of the
            arguments that makes it. Its hash is recorded.
        exclude: Parameters that are never hashed, shown or recorded, such as credentials.
        outcome: Looks at a result and names its outcome, or returns None to leave that to us. For
            a generator it looks at the value that it returned.
        coerce: Whether arguments are made what the annotations say, by pydantic, before they are
            hashed and decided about; the tool gets them like that. What cannot be made so raises
            ``InvalidArguments``, and the tool does not run.
        idempotent: Whether the tool may run again when nobody knows whether it has run.
        reconcile: Asked what became of a call whose end is unknown (see ``idempotency``).

    Raises:
        TypeError: What is decorated is not a function or method, or a setting does not fit it.
        ValueError: The name or a label is not usable.
    """

    def decorate(target: Any) -> Any:
        if _is_callable_object(target):
            if name is None:
                raise TypeError(
                    f"tool() decorates functions and methods; a {type(target).__name__} needs a name"
                )
            wrapper = _wrap(target.__call__, static=True)
            wrapper.__name__ = name
            return wrapper
        if isinstance(target, classmethod):
            return classmethod(_wrap(target.__func__, static=False))
        if isinstance(target, staticmethod):
            return staticmethod(_wrap(target.__func__, static=True))
        return _wrap(target, static=False)

    def _wrap(target: Callable[..., Any], *, static: bool) -> Callable[..., Any]:
        if is_decorated(target):
            named = getattr(target, "__name__", "the function")
            raise TypeError(
                f"{named} is decorated with @tool already, and its calls would be counted twice;"
                " take one of the two off"
            )
        binder = _binder(target, _texts("exclude", exclude), static=static)
        spec = ToolSpec(
            name=_checked_name(name if name is not None else binder.function.__name__),
            labels=tuple(sorted(_labels(labels))),
            schema_version=schema_version or auto_version(binder.parameters),
            binder=binder,
            idempotency_key=_key_maker(idempotency_key, binder),
            outcome_hook=outcome,
            returns_none=returns_none(binder.signature),
            coerce=_coercion(target, binder) if coerce else None,
            idempotent=idempotent,
            reconcile=reconcile,
        )
        return _wrapper(spec, target)

    return decorate if function is None else decorate(function)


def is_decorated(function: object) -> bool:
    """Whether a function is a tool already, by ``@tool``."""
    while isinstance(function, functools.partial):
        function = function.func
    return isinstance(getattr(function, MARK, None), ToolSpec)


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
    setattr(wrapper, MARK, spec)
    return wrapper


def _wrap_function(spec: ToolSpec, function: Callable[..., Any]) -> Callable[..., Any]:
    is_method = spec.binder.receiver is not None

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_method and is_overridden(spec, args, kwargs):
            return function(*args, **kwargs)
        with Attempt(spec, args, kwargs) as attempt:
            given, named = attempt.admit()
            if attempt.replay is not None:
                return attempt.replayed()
            with attempt.step():
                result = function(*given, **named)
            return settled(result, attempt)

    return wrapper


def _wrap_coroutine(spec: ToolSpec, function: Callable[..., Any]) -> Callable[..., Any]:
    is_method = spec.binder.receiver is not None

    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        if is_method and is_overridden(spec, args, kwargs):
            return await function(*args, **kwargs)
        with Attempt(spec, args, kwargs) as attempt:
            given, named = await attempt.admit_async()
            if attempt.replay is not None:
                return attempt.replayed()
            with attempt.step():
                result = await function(*given, **named)
            return settled(result, attempt)

    return wrapper


def _is_callable_object(target: Any) -> bool:
    """Whether it is called by a method of its class; such an object has no name of its own."""
    if isinstance(target, type | functools.partial) or hasattr(target, "__qualname__"):
        return False
    return callable(target) and any("__call__" in vars(kind) for kind in type(target).__mro__)


def _binder(target: Any, exclude: frozenset[str], *, static: bool) -> Binder:
    function, given, keywords = target, (), {}
    if isinstance(target, functools.partial):
        function, given, keywords = target.func, target.args, target.keywords
    if isinstance(function, type) or not (callable(function) and hasattr(function, "__qualname__")):
        raise TypeError(f"tool() decorates functions and methods, not {type(target).__name__}")
    return Binder.of(function, exclude, static=static, given=given, given_keywords=keywords)


def _coercion(target: Callable[..., Any], binder: Binder) -> Coercion:
    skipped = frozenset() if binder.receiver is None else frozenset({binder.receiver})
    return Coercion(target, binder.function, skipped)


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
    return frozenset(map(checked, texts))


def _texts(setting: str, values: Collection[str]) -> frozenset[str]:
    if isinstance(values, str) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"{setting} takes a list of strings")
    if not all(values):
        raise ValueError(f"{setting} holds an empty string")
    return cast("frozenset[str]", frozenset(values))
