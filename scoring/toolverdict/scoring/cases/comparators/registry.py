"""Which comparators there are, by name: ours, and those of installed packages.

A package adds its own with an entry point in the group ``toolverdict.comparators``: its name is what
stands after the ``$``, its object is called as ``object(value=..., **options)`` and returns a
:class:`~toolverdict.scoring.cases.comparators.base.Comparator`. A process adds one with
:func:`register`. Neither can take the name of one of ours: a case means the same everywhere.
"""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cache
from importlib.metadata import entry_points
from typing import Any

import orjson
from pydantic import ValidationError

from toolverdict.scoring.cases.comparators.base import Comparator, Kind
from toolverdict.scoring.cases.comparators.identifiers import Id, Path, Url
from toolverdict.scoring.cases.comparators.money import Money
from toolverdict.scoring.cases.comparators.numbers import Number, Range
from toolverdict.scoring.cases.comparators.personal import Pii
from toolverdict.scoring.cases.comparators.presence import Absent, Any_, Enum, Equal
from toolverdict.scoring.cases.comparators.queries import Query
from toolverdict.scoring.cases.comparators.references import Ref
from toolverdict.scoring.cases.comparators.schemas import Schema
from toolverdict.scoring.cases.comparators.texts import Regex, Text
from toolverdict.scoring.cases.comparators.times import Date, Time

GROUP = "toolverdict.comparators"

Factory = Callable[..., Comparator]

_OURS: Mapping[str, type[Kind]] = {
    kind.kind: kind
    for kind in (
        *(Absent, Any_, Date, Enum, Equal, Id, Money, Number, Path, Pii, Query, Range, Ref),
        *(Regex, Schema, Text, Time, Url),
    )
}
LIST = "list"
OPTIONAL = "optional"
"""Compared by :mod:`toolverdict.scoring.cases.plans`, since what they hold may be comparators."""

_registered: dict[str, Factory] = {}


class ComparatorError(ValueError):
    """A comparator that does not exist, or that cannot be made of what the case says."""


def register(name: str, factory: Factory) -> None:
    """Makes ``$name`` a comparator of this process.

    Raises:
        ComparatorError: the name is one of ours.
    """
    if name in builtin_names():
        raise ComparatorError(f"${name} is a comparator of toolverdict's own; take another name")
    _registered[name] = factory


def builtin_names() -> tuple[str, ...]:
    """The names of our own comparators, sorted."""
    return tuple(sorted({*_OURS, LIST, OPTIONAL}))


def names() -> tuple[str, ...]:
    """Every name that a case may use, sorted."""
    return tuple(sorted({*builtin_names(), *_registered, *_installed()}))


def make(name: str, value: Any, options: Mapping[str, Any]) -> Comparator:
    """The comparator that a case names.

    Raises:
        ComparatorError: there is none of that name, or it does not take this value or an option.
    """
    ours = _OURS.get(name)
    try:
        if ours is not None:
            return ours.model_validate({"value": value, **options})
        made = _theirs(name)(value=value, **options)
    except ValidationError as error:
        raise ComparatorError(_first(name, error)) from None
    except (TypeError, ValueError) as error:
        if isinstance(error, ComparatorError):
            raise
        raise ComparatorError(f"${name}: {' '.join(str(error).split())}") from error
    if not isinstance(made, Comparator):
        raise ComparatorError(f"${name}: its package made a {type(made).__name__}, no comparator")
    try:
        orjson.dumps(made.expected)
    except TypeError:
        raise ComparatorError(
            f"${name}: what it expects is not JSON, so no report can show it"
        ) from None
    return made


def _theirs(name: str) -> Factory:
    if name in _registered:
        return _registered[name]
    entry = _installed().get(name)
    if entry is None:
        near = get_close_matches(name, names(), n=1)
        hint = f"did you mean ${near[0]}?" if near else f"known are {', '.join(names())}."
        raise ComparatorError(
            f"unknown comparator ${name}; {hint} The value itself is {{$equal: ...}}"
        )
    try:
        loaded: Factory = entry.load()
    except Exception as error:
        raise ComparatorError(f"${name}: {entry.value} cannot be loaded: {error}") from error
    return loaded


@cache
def _installed() -> dict[str, Any]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _first(name: str, error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"] if part != "value")
    if problem["type"] == "extra_forbidden":
        known = ", ".join(sorted(_OURS[name].model_fields.keys() - {"value"}))
        return f"${name}: unknown option {where!r}; it has {known or 'none'}"
    said = problem["msg"].removeprefix("Value error, ")
    return f"${name}: {where}: {said}" if where else f"${name}: {said}"
