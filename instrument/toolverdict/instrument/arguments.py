"""From a call's positional and keyword arguments to one snapshot by parameter name.

The snapshot is what is hashed, shown to the policy and shown to the approver. Its containers are
copies, so that nobody sees another value after the tool, or a second thread, changed one.

A tool is what it was when it was decorated. Who changes its ``__defaults__`` later, or fixes other
arguments in a partial by ``__setstate__``, changes the tool's code, and nothing here notices.
"""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType, MappingProxyType
from typing import Any, Final

from toolverdict.instrument.canonical import MAX_BYTES, MAX_DEPTH
from toolverdict.instrument.errors import Unhashable
from toolverdict.instrument.signatures import is_in_class, without_body

Arguments = Mapping[str, object]
"""The arguments of one call by parameter name, defaults filled in."""

_NAMED: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_RECEIVERS: Final = ("self", "cls", "mcs")
_MAX_NODES: Final = MAX_BYTES  # a node takes at least one byte in canonical form


@dataclass(frozen=True, slots=True)
class Binder:
    """Binds arguments to the parameters of one tool.

    Args:
        signature: The tool's whole signature.
        function: The tool.
        receiver: The parameter that is the instance or class of a method, if there is one.
        excluded: Parameters, or names taken by ``**kwargs``, that are never looked at.
        given: Arguments that a partial has fixed.
        given_keywords: Keyword arguments that a partial has fixed.
    """

    signature: inspect.Signature
    function: Callable[..., Any]
    receiver: str | None
    excluded: frozenset[str]
    given: tuple[Any, ...]
    given_keywords: Mapping[str, Any]
    positional: tuple[str, ...] | None = field(init=False)
    defaults: Mapping[str, Any] = field(init=False)
    required: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        """Work out what binding needs, where every parameter has a name of its own."""
        parameters = self.signature.parameters.values()
        named = all(parameter.kind in _NAMED for parameter in parameters)
        positional = tuple(
            parameter.name
            for parameter in parameters
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        )
        # In the order of the parameters, which merging in what is given keeps.
        defaults = {parameter.name: parameter.default for parameter in parameters}
        required = frozenset(
            name for name, value in defaults.items() if value is inspect.Parameter.empty
        )
        object.__setattr__(self, "positional", positional if named else None)
        object.__setattr__(self, "defaults", defaults)
        object.__setattr__(self, "required", required)

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        exclude: Collection[str],
        *,
        static: bool,
        given: tuple[Any, ...] = (),
        given_keywords: Mapping[str, Any] | None = None,
    ) -> "Binder":
        """Read the signature of a function.

        Raises:
            TypeError: ``exclude`` names something that is no parameter, which would leave a
                credential in the snapshot in silence.
        """
        signature = inspect.signature(function)
        parameters = list(signature.parameters.values())
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        unknown = sorted(set(exclude) - set(signature.parameters))
        if unknown and not takes_any:
            raise TypeError(f"exclude names no parameter of the tool: {', '.join(unknown)}")
        receiver = None
        if not static and parameters and _may_be_receiver(parameters[0]):
            receiver = parameters[0].name if is_in_class(function.__qualname__) else None
        return cls(signature, function, receiver, frozenset(exclude), given, given_keywords or {})

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """The parameters that are looked at."""
        hidden = {*self.excluded, self.receiver}
        return [p for p in self.signature.parameters.values() if p.name not in hidden]

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, object]:
        """The arguments by parameter name, without a copy.

        Raises:
            TypeError: The arguments do not fit the parameters.
        """
        if self.given or self.given_keywords:
            args, kwargs = (*self.given, *args), {**self.given_keywords, **kwargs}
        arguments = self._bound_quickly(args, kwargs)
        if arguments is None:
            bound = self.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = dict(bound.arguments)
        if self.receiver is not None and self._is_receiver(arguments[self.receiver]):
            del arguments[self.receiver]
        if self.excluded:
            for name in self.excluded:
                arguments.pop(name, None)
            for parameter in self.signature.parameters.values():
                if parameter.kind is parameter.VAR_KEYWORD and parameter.name in arguments:
                    extra: Any = arguments[parameter.name]
                    arguments[parameter.name] = {
                        key: value for key, value in extra.items() if key not in self.excluded
                    }
        return arguments

    def _bound_quickly(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> dict[str, object] | None:
        """What ``Signature.bind`` gives, in a fraction of its time; None if there is any doubt."""
        if self.positional is None or len(args) > len(self.positional):
            return None
        arguments: dict[str, object] = dict(zip(self.positional, args, strict=False))
        for name, value in kwargs.items():
            if name in arguments or name not in self.defaults:
                return None
            arguments[name] = value
        if len(args) == len(self.defaults):
            return arguments
        if not self.required.issubset(arguments):
            return None
        return {**self.defaults, **arguments}

    def does_not_fit(
        self, error: TypeError, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> TypeError:
        """The error that the tool itself would raise for arguments that do not fit.

        The tool is not called to find out: what it accepts may be more than what its signature
        says, and then its body would run unseen.
        """
        function = self.function
        spoofed = hasattr(function, "__wrapped__") or hasattr(function, "__signature__")
        if isinstance(function, FunctionType) and not spoofed:
            try:
                without_body(function)(*self.given, *args, **{**self.given_keywords, **kwargs})
            except TypeError as own:
                return own.with_traceback(None)
        return TypeError(f"{getattr(function, '__qualname__', 'tool')}(): {error}")

    def _is_receiver(self, value: object) -> bool:
        """Whether value is an instance, or a subclass, of the class that the tool is written in.

        A function cannot know that it will be made a static method after it was decorated; its
        first parameter may be called self or cls, and is then an argument like any other.
        """
        function = self.function
        bases: tuple[type, ...] = type(value).__mro__
        if self.receiver != "self" and isinstance(value, type):
            bases = (*type.mro(value), *bases)
        home = (getattr(function, "__module__", None), function.__qualname__.rpartition(".")[0])
        return any(
            (base.__module__, base.__qualname__) == home
            and not isinstance(vars(base).get(function.__name__), staticmethod)
            for base in bases
        )


def _may_be_receiver(parameter: inspect.Parameter) -> bool:
    positional = (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    return parameter.name in _RECEIVERS and parameter.kind in positional


def freeze(arguments: Arguments) -> Arguments:
    """A read-only snapshot: every dict, list, tuple and set in it is a copy.

    Raises:
        Unhashable: There is no end to copy to: too deep, too large, or a cycle.
    """
    return MappingProxyType(_Copier().copy_dict(arguments, 0))


class _Copier:
    def __init__(self) -> None:
        self._left = _MAX_NODES
        self._done: dict[int, Any] = {}
        self._path: set[int] = set()

    def copy_dict(self, value: Mapping[Any, object], depth: int) -> dict[Any, object]:
        self._spend(len(value))
        return {
            key: item if type(item) in _LEAVES else self._copy(item, depth + 1)
            for key, item in value.items()
        }

    def _spend(self, nodes: int) -> None:
        self._left -= nodes
        if self._left < 0:
            raise Unhashable("too_large")

    def _copy(self, value: object, depth: int) -> object:
        if type(value) not in _CONTAINERS:
            return bytes(value) if isinstance(value, bytearray) else value
        if id(value) in self._path:
            raise Unhashable("cycle")
        if id(value) in self._done:
            return self._done[id(value)]
        if depth > MAX_DEPTH:
            raise Unhashable("too_deep")
        self._path.add(id(value))
        copied: object
        if isinstance(value, dict):
            copied = self.copy_dict(value, depth)
        elif isinstance(value, list):
            self._spend(len(value))
            copied = [
                item if type(item) in _LEAVES else self._copy(item, depth + 1)
                for item in list(value)
            ]
        elif isinstance(value, tuple):
            self._spend(len(value))
            copied = tuple(self._copy(item, depth + 1) for item in value)
        else:
            assert isinstance(value, set)
            copied = set(value)
        self._path.discard(id(value))
        self._done[id(value)] = copied
        return copied


_LEAVES: Final = frozenset({str, int, float, bool, type(None)})
"""Most of what is in there: a call for each would be most of the time that a copy takes."""

_CONTAINERS: Final[Sequence[type]] = (dict, list, tuple, set)
"""Exactly these: a subclass may not be made anew without knowing it."""
