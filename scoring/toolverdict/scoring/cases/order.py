"""Were the calls made in their order: constraints between matched calls, and who is to blame.

A list of expected calls is a total order: each matched call comes before the next matched one.
A constraint "x before y" is ``inverted`` when y started before x started, ``premature`` when y
started before x ended (it cannot have used x's result), else satisfied.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from toolverdict.scoring.model import Placed


@dataclass(frozen=True, slots=True)
class Broken:
    """A constraint that does not hold: ``later`` should have waited for ``earlier``."""

    earlier: Placed
    later: Placed
    how: Literal["inverted", "premature"]


def broken_constraints(calls: Sequence[Placed]) -> list[Broken]:
    """The constraints between neighbours that do not hold.

    Args:
        calls: the matched calls in their expected order.
    """
    broken = []
    for earlier, later in pairwise(calls):
        if later.call.start_ns < earlier.call.start_ns:
            broken.append(Broken(earlier, later, "inverted"))
        elif earlier.call.end_ns is not None and later.call.start_ns < earlier.call.end_ns:
            broken.append(Broken(earlier, later, "premature"))
    return broken


def to_blame(calls: Sequence[Placed]) -> list[Placed]:
    """The fewest calls that explain all inversions: those outside a longest rising subsequence.

    Of a, b, c, d made as d, a, b, c only d is to blame.

    Args:
        calls: the matched calls in their expected order.
    """
    tails: list[int] = []  # last start of the best rising run of each length
    ends: list[int] = []  # which call that is
    before: list[int] = []
    for position, place in enumerate(calls):
        length = bisect_right(tails, place.call.start_ns)  # equal starts are concurrent: they rise
        before.append(ends[length - 1] if length else -1)
        if length == len(tails):
            tails.append(place.call.start_ns)
            ends.append(position)
        else:
            tails[length], ends[length] = place.call.start_ns, position
    keep = set()
    position = ends[-1] if ends else -1
    while position >= 0:
        keep.add(position)
        position = before[position]
    return [place for position, place in enumerate(calls) if position not in keep]
