"""Numbers within a tolerance, and within a range. Numbers in text are texts: see ``$money``."""

from decimal import Decimal
from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, field_validator, model_validator

from toolverdict.scoring.cases.comparators.base import Context, Kind, Unlike
from toolverdict.scoring.cases.equality import equal_scalars, is_not, shown
from toolverdict.scoring.model import Json


def decimal_of(value: Json) -> Decimal | None:
    """The decimal that a JSON number means; None for what is no finite number.

    A binary float is read to 15 significant digits, as many as it carries: 0.1 + 0.2 is 0.3.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    made = Decimal(value) if isinstance(value, int) else Decimal(format(value, ".15g"))
    return made if made.is_finite() else None


def tolerance_of(value: Any) -> tuple[Decimal, bool]:
    """A tolerance as an amount, or as a share of the expected value: ``0.01``, ``"1%"``.

    Raises:
        ValueError: it is neither.
    """
    text = str(value)
    relative = text.endswith("%")
    try:
        amount = Decimal(text.removesuffix("%").strip())
    except ArithmeticError:
        amount = Decimal("NaN")
    if isinstance(value, bool) or not amount.is_finite() or amount < 0:
        raise ValueError(f"{value!r} is no tolerance; expected a number or a text like '1%'")
    return (amount / 100 if relative else amount), relative


Tolerance = Annotated[tuple[Decimal, bool], BeforeValidator(tolerance_of)]


def within(expected: Decimal, actual: Decimal, tolerance: tuple[Decimal, bool]) -> bool:
    """Whether two decimals differ by at most the tolerance, ends included."""
    amount, relative = tolerance
    return abs(expected - actual) <= (amount * abs(expected) if relative else amount)


class Number(Kind):
    """A number, equal or within a tolerance (``0.5`` or ``"1%"``)."""

    kind: ClassVar[str] = "number"
    tolerance: Tolerance = (Decimal(0), False)

    @field_validator("value")
    @classmethod
    def _a_number(cls, value: Json) -> Json:
        if decimal_of(value) is None:
            raise ValueError("expected a number")
        return value

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right within the tolerance."""
        expected, got = decimal_of(self.value), decimal_of(actual)
        if got is None or expected is None:
            return Unlike(f"is {shown(actual, typed=True)}, expected a number")
        if equal_scalars(self.value, actual) or within(expected, got, self.tolerance):
            return None
        return Unlike(is_not(self.value, actual))


class Range(Kind):
    """A number from ``min`` to ``max``, both included; either may be left out."""

    kind: ClassVar[str] = "range"

    @model_validator(mode="after")
    def _ends(self) -> Self:
        ends = self.value
        if not isinstance(ends, dict) or not ends or ends.keys() - {"min", "max"}:
            raise ValueError("expected an object with min, max or both")
        if any(decimal_of(end) is None for end in ends.values()):
            raise ValueError("min and max are numbers")
        if "min" in ends and "max" in ends and ends["min"] > ends["max"]:
            raise ValueError("min is larger than max, so that nothing is in the range")
        return self

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right between the two ends."""
        got = decimal_of(actual)
        if got is None:
            return Unlike(f"is {shown(actual, typed=True)}, expected a number")
        low, high = decimal_of(self.value.get("min")), decimal_of(self.value.get("max"))
        if low is not None and got < low:
            return Unlike(f"is {shown(actual)}, expected at least {low}")
        if high is not None and got > high:
            return Unlike(f"is {shown(actual)}, expected at most {high}")
        return None
