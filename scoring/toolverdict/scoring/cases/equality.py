"""Equality of JSON values as a person means it, and the first place where two of them differ.

Key order is free, list order is kept, ``true`` is not ``1``, ``1`` equals ``1.0``, floats agree to
1e-9 relative, ``"1"`` is not ``1``, texts compare after Unicode normalisation (NFC), and a missing
key is not ``null``. An integer that was captured as ``{"$int": "..."}``, since JSON readers would
round it, is that integer.
"""

from collections.abc import Iterator
from math import isclose
from typing import NamedTuple
from unicodedata import normalize

from toolverdict.scoring.model import Json

_RELATIVE = 1e-9
MAX_DEPTH = 64
_MAX_SHOWN = 80
_PLAIN = frozenset({str, int, float, bool})
_MAX_DIGITS = 4_000  # Python refuses to read integers much longer than this


class Difference(NamedTuple):
    """One place where two values differ; ``why`` reads on from the key path (``a.b is missing``)."""

    key_path: str
    expected: Json
    actual: Json
    why: str


def difference(expected: Json, actual: Json, path: str = "") -> Difference | None:
    """The first place where two JSON values differ; None when they are equal."""
    kind = type(expected)
    if kind in _PLAIN and kind is type(actual):  # the usual case
        if expected == actual or equal_scalars(expected, actual):
            return None
        return Difference(path, expected, actual, is_not(expected, actual))
    return next(_differences(expected, actual, path, 0), None)


def _differences(expected: Json, actual: Json, path: str, depth: int) -> Iterator[Difference]:
    expected, actual = _whole(expected), _whole(actual)
    if depth > MAX_DEPTH:
        yield Difference(path, expected, actual, f"is nested deeper than {MAX_DEPTH} levels")
    elif isinstance(expected, dict) and isinstance(actual, dict):
        for key in [*expected, *(key for key in actual if key not in expected)]:
            inner = below(path, key)
            if key not in actual:
                yield Difference(inner, expected[key], None, "is missing")
            elif key not in expected:
                yield Difference(inner, None, actual[key], "was not expected")
            else:
                yield from _differences(expected[key], actual[key], inner, depth + 1)
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            yield Difference(path, expected, actual, wrong_length(expected, actual))
        else:
            for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
                yield from _differences(one, other, f"{path}[{index}]", depth + 1)
    elif not equal_scalars(expected, actual):
        yield Difference(path, expected, actual, is_not(expected, actual))


def equal_scalars(expected: Json, actual: Json) -> bool:
    """Whether two values that are no list and no object are equal."""
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    if isinstance(expected, int) and isinstance(actual, int):
        return expected == actual
    if isinstance(expected, int | float) and isinstance(actual, int | float):
        try:
            return isclose(expected, actual, rel_tol=_RELATIVE)
        except OverflowError:  # an integer no float can hold
            return False
    if isinstance(expected, str) and isinstance(actual, str):
        return expected == actual or normalize("NFC", expected) == normalize("NFC", actual)
    return expected is None and actual is None


def below(path: str, key: str) -> str:
    """The path of a key inside the object at ``path``."""
    return f"{path}.{key}" if path else key


def wrong_length(expected: list[Json], actual: list[Json]) -> str:
    """What to say of a list that has too few or too many items."""
    return f"has {len(actual)} items, expected {len(expected)}"


def is_not(expected: Json, actual: Json) -> str:
    """``is 2, expected 1``, with the types where the two could be mistaken for each other."""
    typed = type(expected) is not type(actual) and _kind(expected) != _kind(actual)
    return f"is {shown(actual, typed)}, expected {shown(expected, typed)}"


def shown(value: Json, typed: bool = False) -> str:
    """A value for a sentence, of bounded length."""
    text = repr(value)
    if len(text) > _MAX_SHOWN:
        text = text[: _MAX_SHOWN - 3] + "..."
    return f"{text} ({type(value).__name__})" if typed else text


def _whole(value: Json) -> Json:
    """The integer that ``{"$int": text}`` stands for; any other value as it is."""
    if isinstance(value, dict) and len(value) == 1 and isinstance(value.get("$int"), str):
        digits = value["$int"]
        if len(digits) <= _MAX_DIGITS and digits.isascii() and digits.removeprefix("-").isdigit():
            return int(digits)
    return value


def _kind(value: Json) -> type:
    """Int and float are one kind: both are JSON numbers."""
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)
