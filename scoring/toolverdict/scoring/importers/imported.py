"""What an importer gives: cases, and what of the source they do not say."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from toolverdict.scoring.cases.files import Place

CaseDict: TypeAlias = dict[str, Any]
"""A case as a file of ours spells it."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The cases of a file and, one line each, what could not be carried over."""

    cases: tuple[CaseDict, ...]
    losses: tuple[str, ...] = ()


@dataclass(slots=True)
class Losses:
    """What cannot be carried over: each kind once, where it first stands, and how often."""

    _found: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, place: Place, what: str) -> None:
        """Notes that something at this place is not in the case."""
        self._found.setdefault(what, [place, 0])[1] += 1

    def lines(self) -> Iterator[str]:
        """``file: place: what``, in the order in which they were met."""
        for what, (place, times) in self._found.items():
            yield f"{place}: {what}" + (f" ({times} places in all)" if times > 1 else "")
