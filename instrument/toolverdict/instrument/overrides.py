"""A method that calls the method it overrides is one tool call, not two.

``class B(A)`` with ``@tool`` on ``run`` in both: ``B.run`` calls ``super().run()``, on the same
instance and under the same name. That is a piece of the call that is running. A method that calls
itself is another call, and so is one that can do more than the running one: labels that the
override does not have would go without their decision.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Self

from opentelemetry import context
from opentelemetry.context import Context

from toolverdict.instrument.tools import Given, ToolSpec

_KEY: Final = context.create_key("toolverdict-method")
_NOBODY: Final = object()


def running(
    within: Context, spec: ToolSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Context:
    """The context for the body of a method: says which one runs, and on what."""
    return context.set_value(_KEY, (spec, _receiver(spec, args, kwargs)), within)


def is_overridden(spec: ToolSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether this call is what the running method overrides."""
    found = context.get_value(_KEY)
    if not isinstance(found, tuple):
        return False
    outer, receiver = found
    return (
        outer is not spec
        and outer.name == spec.name
        and set(spec.labels) <= set(outer.labels)
        and receiver is not _NOBODY
        and receiver is _receiver(spec, args, kwargs)
    )


class Piece:
    """Stands in for the attempt where a call is a piece of the one that is running.

    Nothing is decided or recorded about it, and what is current stays current.
    """

    def __init__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._given = args, kwargs
        self.items: int | None = None
        self.replay: None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    async def admit_async(self) -> Given:
        """The arguments as they are."""
        return self._given

    def step(self) -> AbstractContextManager[None]:
        """Nothing to be made current."""
        return nullcontext()

    def note_item(self, item: object) -> None:
        """The running call gives this item on, or not."""

    def exhausted(self, value: object) -> None:
        """The running call goes on."""


def _receiver(spec: ToolSpec, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> object:
    name = spec.binder.receiver
    if name is None:
        return _NOBODY
    return args[0] if args else kwargs.get(name, _NOBODY)
