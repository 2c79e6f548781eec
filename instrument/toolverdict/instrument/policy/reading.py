"""Arguments as JSON reads them: a policy sees what is captured, so that a scorer can ask it again.

A path has its text, an enum its value, a dataclass and a pydantic model their fields, a set its
elements. What JSON has no word for (bytes, an object of another class) stays what it is, and is in
doubt wherever a rule looks at it. A decimal is a number.
"""

import dataclasses
import datetime
import pathlib
import sys
import uuid
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any, Final

_PLAIN: Final = frozenset({str, int, float, bool, type(None), list, dict, tuple})


class OneOf:
    """A value of which is known that it is one of these; nothing is known of one without any.

    Only who reads what was captured passes one, and only as a part of ``PartlyKnown`` arguments.
    """

    __slots__ = ("values",)

    def __init__(self, *values: object) -> None:
        self.values = values


class PartlyKnown(dict[str, object]):
    """Arguments with a ``OneOf`` in them, somewhere."""


def as_read(value: object) -> object:
    """One value, as JSON reads it; containers stay what they are."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Enum):
        return as_read(value.value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, uuid.UUID | pathlib.PurePath):
        return str(value)
    return value


def fields_of(value: object) -> Mapping[str, Any] | None:
    """What an object of JSON holds, by name; None for what is none."""
    if isinstance(value, Mapping):
        if all(type(key) is str for key in value):
            return value
        return {_name(key): item for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return vars(value) if isinstance(base, type) and isinstance(value, base) else None


def elements_of(value: object) -> Collection[object] | None:
    """What an array of JSON holds; None for what is none."""
    return value if isinstance(value, list | tuple | set | frozenset) else None


def _name(key: object) -> str:
    read = as_read(key)
    if isinstance(read, str):
        return read
    plain = read is None or isinstance(read, bool | int | float)
    return str(read) if plain else type(read).__qualname__
