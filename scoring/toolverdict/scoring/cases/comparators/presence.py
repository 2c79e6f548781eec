"""Comparators that look at a value as a whole: equal, any, absent, one of a white list."""

from typing import ClassVar

from pydantic import field_validator

from toolverdict.scoring.cases.comparators.base import MISSING, Context, Kind, Unlike
from toolverdict.scoring.cases.equality import difference, shown
from toolverdict.scoring.model import Json


class Equal(Kind):
    """Equal as JSON; the way to expect an object that would read as a comparator."""

    kind: ClassVar[str] = "equal"

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Where the two differ, if they do."""
        found = difference(self.value, actual)
        return None if found is None else Unlike(found.why, path=found.key_path)


class Any_(Kind):
    """There, whatever its value; ``null`` is there."""

    kind: ClassVar[str] = "any"

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right, since it is there."""
        return None


class Absent(Kind):
    """Not there at all; ``null`` is there."""

    kind: ClassVar[str] = "absent"
    accepts_missing: ClassVar[bool] = True

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right if nothing is there."""
        return (
            None if actual is MISSING else Unlike(f"is {shown(actual)}, expected not to be given")
        )


class Enum(Kind):
    """One of a white list, exactly; nothing the model made up."""

    kind: ClassVar[str] = "enum"

    @field_validator("value")
    @classmethod
    def _a_list(cls, value: Json) -> Json:
        if not isinstance(value, list) or not value:
            raise ValueError("expected a list of at least one allowed value")
        return value

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right if it is in the list; a near miss is a failure that says so."""
        if any(difference(allowed, actual) is None for allowed in self.value):
            return None
        listed = ", ".join(shown(allowed) for allowed in self.value[:10])
        near = next((one for one in self.value if _folded(one) == _folded(actual)), None)
        if isinstance(actual, str) and near is not None:
            why = f"is {shown(actual)}, nearly {shown(near)}: letter case or spaces differ"
            return Unlike(why, code="near_miss")
        return Unlike(f"is {shown(actual)}, expected one of {listed}")


def _folded(value: Json) -> str:
    return "".join(str(value).split()).replace("_", "").replace("-", "").casefold()
