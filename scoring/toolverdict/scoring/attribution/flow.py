"""Which earlier calls a value comes from, as far as values show it.

A value comes from the call whose result held it first, unless the user or the operator had said it, or
the agent itself had. Only values that do not occur everywhere by chance are followed: texts of some
length, and large numbers.
"""

from collections.abc import Iterable
from typing import Final

from toolverdict.scoring.model import Captured, Json, Trajectory
from toolverdict.scoring.values import as_text, leaves, parse

_MIN_CHARS: Final = 4
_MIN_NUMBER: Final = 1000

# Bounds of the work on hostile traces.
_MAX_CALLS: Final = 2000
_MAX_SEARCHED_CHARS: Final = 50_000_000


class Flow:
    """The values of a trajectory, each with the call whose result held it first."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._calls = trajectory.calls[:_MAX_CALLS]
        self._said = "\n".join((*trajectory.user_texts, *trajectory.system_texts)).casefold()
        self._budget = _MAX_SEARCHED_CHARS
        self._first: dict[str | float, int | None] = {}
        for place in self._calls:
            call = place.call
            if call.arguments_state is Captured.CAPTURED:
                self._note(call.arguments, None)
            if call.result_state is Captured.CAPTURED:
                result = call.result
                self._note(parse(result) if isinstance(result, str) else result, place.index)

    def arguments(self, index: int) -> set[str | float]:
        """The values of a call's arguments; none where they were not captured."""
        if index >= len(self._calls):
            return set()
        call = self._calls[index].call
        return values(call.arguments) if call.arguments_state is Captured.CAPTURED else set()

    def sources(self, of: Iterable[str | float], before: int) -> list[int]:
        """The calls before this one whose results gave one of these values first, in order."""
        found = {
            source
            for value in of
            if (source := self._first.get(value)) is not None
            and source < before
            and not self._was_said(value)
        }
        return sorted(found)

    def _was_said(self, value: str | float) -> bool:
        """Whether it was said to the agent; past the budget nothing counts as a source any more."""
        self._budget -= len(self._said)
        text = value if isinstance(value, str) else as_text(value)
        return self._budget < 0 or text.casefold() in self._said

    def _note(self, value: Json, index: int | None) -> None:
        for leaf in values(value):
            self._first.setdefault(leaf, index)


def values(value: Json) -> set[str | float]:
    """The leaves of a JSON value that can be followed."""
    return {
        leaf
        for leaf in leaves(value)
        if (len(leaf) >= _MIN_CHARS if isinstance(leaf, str) else abs(leaf) >= _MIN_NUMBER)
    }
