"""What is said about a framework's tools by name, and what is known about each of them then.

A framework hands over what the model said: named arguments. So nothing is bound to a signature
here: arguments are hashed as they were given, under the names that the model knows.
"""

import difflib
import functools
import hashlib
import inspect
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolverdict.instrument import decorators, guard
from toolverdict.instrument.arguments import Arguments, Binder
from toolverdict.instrument.decorators import is_decorated
from toolverdict.instrument.outcomes import OutcomeHook
from toolverdict.instrument.tools import IdempotencyKey, ToolSpec

KeyOfCall = str | Callable[[Arguments], str]
"""The argument that holds the idempotency key, or a function of the arguments that makes it."""


@dataclass(frozen=True, slots=True)
class Options:
    """What is said about tools by name, since a framework's tool has no place for it.

    Args:
        labels: What a tool can do, as in ``@tool(labels=...)``.
        idempotency_keys: The argument that holds the idempotency key, or what makes it.
        exclude: Arguments that are never hashed, shown or recorded.
        outcomes: Looks at a result and names its outcome, or returns None.
    """

    labels: Mapping[str, Collection[str]] | None = None
    idempotency_keys: Mapping[str, KeyOfCall] | None = None
    exclude: Mapping[str, Collection[str]] | None = None
    outcomes: Mapping[str, OutcomeHook] | None = None

    def check(self, names: Iterable[str]) -> None:
        """Refuse what is said about a tool that is not there.

        Raises:
            ValueError: A name is not among the tools; a dangerous tool would go without its label.
        """
        known = sorted(names)
        for setting in ("labels", "idempotency_keys", "exclude", "outcomes"):
            for name in getattr(self, setting) or {}:
                if name not in known:
                    near = difflib.get_close_matches(name, known, n=1)
                    hint = f"; did you mean {near[0]!r}?" if near else ""
                    raise ValueError(f"{setting} names no tool that is here: {name!r}{hint}")

    def remark(self, names: Iterable[str]) -> None:
        """Log and count what ``check`` refuses, where a tool may still be added."""
        try:
            self.check(names)
        except ValueError as error:
            guard.note("adapter", "%s", error)

    def spec(
        self,
        name: str,
        schema: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> ToolSpec:
        """What is known about one tool.

        Args:
            name: The name that the model calls it by.
            schema: The JSON schema of its arguments, None when unknown; its digest versions it.
            names: What its code calls the arguments that a model may give by another name. What is
                said of an argument by one of its names holds for all of them.

        Raises:
            TypeError: A setting does not fit the tool.
            ValueError: The name or a label is not usable.
        """
        labels = (self.labels or {}).get(name, ())
        exclude = (self.exclude or {}).get(name, ())
        # The decorator knows which names, labels and lists are usable.
        decorators.tool(name=name, labels=labels, exclude=exclude)(_any_arguments)
        parameters = (schema or {}).get("properties")
        key = (self.idempotency_keys or {}).get(name)
        wanted = {*exclude, *([key] if isinstance(key, str) else [])}
        names = names or {}
        known = {*(parameters or ()), *names, *names.values()}
        unknown = sorted(wanted - known) if isinstance(parameters, Mapping) else []
        if unknown:
            raise TypeError(f"tool {name!r} has no such argument: {', '.join(unknown)}")
        return ToolSpec(
            name=name,
            labels=tuple(sorted(set(labels))),
            schema_version=_version(schema),
            binder=_ModelBinder.without(_all_names(exclude, names)),
            idempotency_key=_key_maker(names.get(key, key) if isinstance(key, str) else key),
            outcome_hook=(self.outcomes or {}).get(name),
            returns_none=False,
        )


def refuse_what_is_no_list(given: object, kinds: type | tuple[type, ...]) -> None:
    """Refuse a single tool in the place of a list of tools.

    Raises:
        TypeError: It is one.
    """
    if isinstance(given, kinds) or inspect.isroutine(given) or not isinstance(given, Iterable):
        name = getattr(given, "name", None) or getattr(given, "__name__", "")
        what = f"{name} is one {type(given).__name__}" if name else f"a {type(given).__name__}"
        raise TypeError(f"{what}, and tools are given in a list: [{name or '...'}]")


def refuse_plain(given: object, kind: type, decorator: str) -> None:
    """Refuse a function where a framework's own tools are expected.

    Args:
        given: What stands among the tools.
        kind: What is expected.
        decorator: What makes one of a function.

    Raises:
        TypeError: It is a function.
    """
    if inspect.isroutine(given) or isinstance(given, functools.partial):
        name = getattr(given, "__name__", "a partial")
        raise TypeError(
            f"{name} is a function and no {kind.__name__}; decorate it with {decorator} first"
        )


def refuse_decorated(name: str, *functions: object) -> None:
    """Refuse a function that ``@tool`` witnesses already: its calls would be counted twice.

    Raises:
        TypeError: It is one.
    """
    if any(is_decorated(function) for function in functions):
        raise TypeError(
            f"the function of tool {name!r} is decorated with @tool; take one of the two off"
        )


@dataclass(frozen=True, slots=True)
class _ModelBinder(Binder):
    """Takes arguments by the names that the model gave them."""

    @classmethod
    def without(cls, exclude: Collection[str]) -> "_ModelBinder":
        return cls(inspect.Signature(), _any_arguments, None, frozenset(exclude), (), {})

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, object]:
        if args:
            raise TypeError("the arguments are not an object of JSON")
        return {name: value for name, value in kwargs.items() if name not in self.excluded}

    def does_not_fit(
        self, error: TypeError, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> TypeError:
        return error


def _all_names(arguments: Collection[str], names: Mapping[str, str]) -> set[str]:
    own = {names.get(argument, argument) for argument in arguments}
    return {*arguments, *own, *(alias for alias, name in names.items() if name in own)}


def _any_arguments(**arguments: object) -> None:
    """Stands for a tool whose function is the framework's business."""


def _key_maker(key: KeyOfCall | None) -> IdempotencyKey | None:
    if not isinstance(key, str):
        return key
    argument = key
    return lambda arguments: arguments.get(argument)


_UNVERSIONED: Final = "auto:unknown"


def _version(schema: Mapping[str, Any] | None) -> str:
    if schema is None:
        return _UNVERSIONED
    try:
        text = json.dumps(schema, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError):
        return _UNVERSIONED
    return "auto:" + hashlib.sha256(text.encode()).hexdigest()[:12]
