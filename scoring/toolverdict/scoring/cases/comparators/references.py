"""Values that come from the result of an earlier expected call: ``{$ref: order.result.items[0].id}``."""

import re
from typing import ClassVar

from pydantic import field_validator

from toolverdict.scoring.cases.comparators.base import Context, Kind, Unlike, undecided
from toolverdict.scoring.cases.equality import difference
from toolverdict.scoring.model import Json

_REF = re.compile(
    r'(?P<call>[^.\[\]"]+)\.result(?P<path>(?:\.[^.\[\]"]+|\[[0-9]{1,6}\]|\["[^"]+"\])*)'
)
_STEP = re.compile(r'\.([^.\[\]"]+)|\[([0-9]+)\]|\["([^"]+)"\]')


def parse_ref(text: Json) -> tuple[str, tuple[str | int, ...]]:
    """The id of the call and the path in its result.

    Raises:
        ValueError: it is no such text.
    """
    found = _REF.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise ValueError("expected ID.result, followed by a path: order.result.items[0].id")
    steps = (step.groups() for step in _STEP.finditer(found["path"]))
    path = tuple(int(index) if index else str(key or quoted) for key, index, quoted in steps)
    return found["call"], path


class Ref(Kind):
    """Equal to a value in the result of the call that answered an earlier expectation."""

    kind: ClassVar[str] = "ref"

    @field_validator("value")
    @classmethod
    def _a_ref(cls, value: Json) -> Json:
        parse_ref(value)
        return value

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right if it is that value; undecided where the result was not captured."""
        if context.resolve is None:
            return undecided(f"refers to {self.value}, which is not known here")
        wanted = context.resolve(self.value)
        if isinstance(wanted, Unlike):
            return wanted
        found = difference(wanted, actual)
        if found is None:
            return None
        return Unlike(f"{found.why}, from {self.value}", path=found.key_path)


def follow(result: Json, path: tuple[str | int, ...], text: str) -> Json | Unlike:
    """The value at a path in a result; undecided where there is none."""
    for step in path:
        if not _has(result, step):
            return undecided(f"refers to {text}, but the result has nothing there")
        result = result[step]
    return result


def _has(value: Json, step: str | int) -> bool:
    if isinstance(step, int):
        return isinstance(value, list) and step < len(value)
    return isinstance(value, dict) and step in value
