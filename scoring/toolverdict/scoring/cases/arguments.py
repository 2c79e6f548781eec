"""Expected arguments against actual ones: key by key, after normalisation, never as raw strings.

Equality is that of canonical JSON: key order is free, list order is kept, ``true`` is not ``1``,
``1`` equals ``1.0``, floats agree to 1e-9 relative, ``"1"`` is not ``1``, texts compare after
Unicode normalisation (NFC), and a missing key is not ``null``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isclose
from unicodedata import normalize

from toolverdict.scoring.model import Json

COMPARATOR = "equal"
_RELATIVE = 1e-9
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The first place below one key that is not as expected.

    ``why`` reads on from the key path: ``items[0].sku`` + ``is missing``.
    """

    key_path: str
    expected: Json
    actual: Json
    why: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """How one pair compares: right keys over compared keys, and every mismatch.

    ``extra`` are keys that nobody expected: they count in an exact comparison only.
    """

    right: int
    compared: int
    mismatches: tuple[Mismatch, ...]
    extra: tuple[Mismatch, ...] = ()

    @property
    def score(self) -> float:
        """Right keys over compared keys; a comparison of no keys is wholly right."""
        return self.right / self.compared if self.compared else 1.0

    @property
    def wholly_right(self) -> bool:
        """Whether every compared key is right."""
        return self.right == self.compared


def compare_arguments(expected: Mapping[str, Json], actual: Json, *, exact: bool) -> Comparison:
    """Compares the top-level keys; nested values must be equal as a whole.

    Args:
        expected: the keys that must be there.
        actual: what the call carried. Anything but an object (a model's broken JSON) has no key.
        exact: whether keys that are not expected count as wrong.
    """
    if not isinstance(actual, Mapping):
        why = "is missing, since the call carried no arguments object"
        missing = tuple(Mismatch(key, value, None, why) for key, value in expected.items())
        return Comparison(0, max(1, len(missing)), missing)
    mismatches = tuple(
        found
        for key, value in expected.items()
        if (found := next(_below(key, expected, actual, 0), None)) is not None
    )
    extra = tuple(
        Mismatch(key, None, value, "was not expected")
        for key, value in actual.items()
        if key not in expected
    )
    right = len(expected) - len(mismatches)
    if exact:
        return Comparison(right, len(expected) + len(extra), (*mismatches, *extra), extra)
    return Comparison(right, len(expected), mismatches, extra)


def difference(expected: Json, actual: Json, path: str = "") -> Mismatch | None:
    """The first place where two JSON values differ; None when they are equal."""
    return next(_differences(expected, actual, path, 0), None)


def _below(
    key: str, expected: Mapping[str, Json], actual: Mapping[str, Json], depth: int, path: str = ""
) -> Iterator[Mismatch]:
    """Differences at one key of two objects."""
    inner = f"{path}.{key}" if path else key
    if key not in actual:
        yield Mismatch(inner, expected[key], None, "is missing")
    elif key not in expected:
        yield Mismatch(inner, None, actual[key], "was not expected")
    else:
        yield from _differences(expected[key], actual[key], inner, depth)


def _differences(expected: Json, actual: Json, path: str, depth: int) -> Iterator[Mismatch]:
    if depth > _MAX_DEPTH:
        why = f"is nested deeper than {_MAX_DEPTH} levels"
        yield Mismatch(path, expected, actual, why)
    elif isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for key in [*expected, *(key for key in actual if key not in expected)]:
            yield from _below(key, expected, actual, depth + 1, path)
    elif isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            why = f"has {len(actual)} items, expected {len(expected)}"
            yield Mismatch(path, expected, actual, why)
        else:
            for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
                yield from _differences(one, other, f"{path}[{index}]", depth + 1)
    elif not _equal_scalars(expected, actual):
        typed = _kind(expected) != _kind(actual)
        why = f"is {_shown(actual, typed)}, expected {_shown(expected, typed)}"
        yield Mismatch(path, expected, actual, why)


def _equal_scalars(expected: Json, actual: Json) -> bool:
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
        return normalize("NFC", expected) == normalize("NFC", actual)
    return expected is None and actual is None


def _kind(value: Json) -> type:
    """Int and float are one kind: both are JSON numbers."""
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)


def _shown(value: Json, typed: bool) -> str:
    """A value, with its type where the two could be mistaken for each other."""
    text = repr(value)
    if len(text) > 80:
        text = text[:77] + "..."
    return f"{text} ({type(value).__name__})" if typed else text
