"""Which calls were asked for at once, where no request to the model is seen.

What ran at once under one parent was asked for at once, and so was what one message asks for.
"""

from collections.abc import Hashable, Iterable
from typing import NamedTuple


class Step(NamedTuple):
    """One call in order: times in nanoseconds; ``message`` is the one that asked for it, if seen."""

    start_ns: int
    end_ns: int | None
    parent: Hashable
    message: Hashable = None


def overlapping(steps: Iterable[Step]) -> dict[int, int]:
    """The group of each call that is in one, by its index.

    A group has the number of steps before it: what its turn would be, had each step been one.
    """
    groups: dict[int, int] = {}
    number = -1
    ends: int | None = None
    before: Step | None = None
    for index, step in enumerate(steps):
        at_once = (
            before is not None
            and step.parent == before.parent
            and ends is not None
            and step.start_ns < ends
        )
        same_message = (
            before is not None and step.message is not None and step.message == before.message
        )
        if at_once or same_message:
            groups[index - 1] = groups[index] = number
            ends = max(ends or 0, step.end_ns or step.start_ns)
        else:
            number += 1
            ends = step.end_ns
        before = step
    return groups
