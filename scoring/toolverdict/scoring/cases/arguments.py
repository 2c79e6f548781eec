"""Expected arguments against actual ones, key by key, after normalisation, never as raw strings.

What is equal is said in :mod:`toolverdict.scoring.cases.equality`, and how an argument comes to be
compared otherwise in :mod:`toolverdict.scoring.cases.plans`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toolverdict.scoring.cases.comparators.base import MISSING, Context
from toolverdict.scoring.cases.comparators.references import Ref
from toolverdict.scoring.cases.equality import difference
from toolverdict.scoring.cases.plans import (
    Mismatch,
    Plan,
    accepts_missing,
    compare,
    leaves_of,
    measured,
    plan_of,
    reads_as_number,
)
from toolverdict.scoring.model import Json, Measured
from toolverdict.scoring.values import parse

_NOTHING = Context()
_MAX_QUOTED = 2  # how often an object may have been written as text, and that again


@dataclass(frozen=True, slots=True)
class Comparison:
    """How one pair compares: right keys over decided keys, and every mismatch.

    ``extra`` are keys that nobody expected: they count in an exact comparison only. ``undecided``
    are keys of which nothing shows whether they are right; they are in neither count.
    ``coerced`` are keys whose text was read as a number. ``unreadable``: there was no object.
    """

    right: int
    compared: int
    mismatches: tuple[Mismatch, ...] = ()
    extra: tuple[Mismatch, ...] = ()
    undecided: tuple[Mismatch, ...] = ()
    coerced: tuple[str, ...] = ()
    unreadable: bool = False

    @property
    def score(self) -> float:
        """Right keys over compared keys; a comparison of no keys is wholly right."""
        return self.right / self.compared if self.compared else 1.0

    @property
    def wholly_right(self) -> bool:
        """Whether every key is known to be right."""
        return self.right == self.compared and not self.undecided

    @property
    def decided(self) -> bool:
        """Whether it is known to be right or known to be wrong."""
        return self.right < self.compared or not self.undecided


class Arguments:
    """What a call is expected to carry, ready to be compared with many calls."""

    __slots__ = ("_defaults", "_exact", "_plans", "_refers", "expected")

    def __init__(
        self,
        expected: Mapping[str, Json],
        *,
        exact: bool,
        schema: Mapping[str, Any] | None = None,
    ) -> None:
        """Decides how each key is compared.

        Args:
            expected: the keys that must be there.
            exact: whether keys that are not expected count as wrong.
            schema: the JSON Schema of the tool's arguments, where a catalogue has it.

        Raises:
            PlanError: a key names a comparator that does not exist.
        """
        properties = (schema or {}).get("properties")
        known = properties if isinstance(properties, Mapping) else {}
        shapes = {key: shape for key, shape in known.items() if isinstance(shape, Mapping)}
        self.expected = expected
        self._exact = exact
        self._defaults = {k: shape["default"] for k, shape in shapes.items() if "default" in shape}
        self._plans = {k: plan_of(v, k, shapes.get(k), (k,)) for k, v in expected.items()}
        leaves = (leaf for plan in self._plans.values() for leaf in leaves_of(plan))
        self._refers = any(leaf.comparator.kind == Ref.kind for leaf in leaves)

    @property
    def plans(self) -> Mapping[str, Plan]:
        """How each key is compared."""
        return self._plans

    @property
    def refers(self) -> bool:
        """Whether a key is compared with what other calls returned."""
        return self._refers

    def compare(self, actual: Json, context: Context = _NOTHING) -> Comparison:
        """Compares the top-level keys; nested values must be right as a whole.

        Args:
            actual: what the call carried. Anything but an object, or the text of one, has no key.
            context: what comparators may look at beside the arguments.
        """
        actual = _read(actual)
        if not isinstance(actual, dict):
            why = "is missing, since the call carried no arguments object"
            missing = tuple(Mismatch(key, value, None, why) for key, value in self.expected.items())
            return Comparison(0, max(1, len(missing)), missing, unreadable=True)
        context = Context(actual, context.earlier, context.resolve)
        wrong: list[Mismatch] = []
        doubtful: list[Mismatch] = []
        coerced: list[str] = []
        for key, plan in self._plans.items():
            maybe = accepts_missing(plan)
            value = actual.get(key, MISSING if maybe else self._defaults.get(key, MISSING))
            if value is MISSING and not maybe:
                wrong.append(Mismatch(key, self.expected[key], None, "is missing"))
                continue
            found = compare(plan, value, key, context)
            if found is not None:
                (doubtful if found.undecided else wrong).append(found)
            elif reads_as_number(plan, value):
                coerced.append(key)
        extra = tuple(
            Mismatch(key, None, value, "was not expected")
            for key, value in actual.items()
            if key not in self._plans and not self._is_default(key, value)
        )
        compared = len(self._plans) - len(doubtful)
        right = compared - len(wrong)
        notes = (extra, tuple(doubtful), tuple(coerced))
        if self._exact:
            return Comparison(right, compared + len(extra), (*wrong, *extra), *notes)
        return Comparison(right, compared, tuple(wrong), *notes)

    def measured(self, actual: Json) -> Iterator[Measured]:
        """How near to what is expected each key is, wherever its comparator measures that."""
        actual = _read(actual)
        if isinstance(actual, dict):
            for key, plan in self._plans.items():
                if key in actual:
                    yield from measured(plan, actual[key], key)

    def _is_default(self, key: str, value: Json) -> bool:
        """Whether a key only spells out what the tool would have taken without it."""
        return key in self._defaults and difference(self._defaults[key], value) is None


def _read(actual: Json) -> Json:
    """The arguments, where they were written as text."""
    quoted = 0
    while isinstance(actual, str) and quoted < _MAX_QUOTED:
        actual, quoted = parse(actual), quoted + 1
    return actual


def compare_arguments(expected: Mapping[str, Json], actual: Json, *, exact: bool) -> Comparison:
    """Compares once; see :class:`Arguments`."""
    return Arguments(expected, exact=exact).compare(actual)
