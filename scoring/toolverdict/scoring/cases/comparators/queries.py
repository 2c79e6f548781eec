"""Search queries: what they ask for, not how they are spelt.

The default method, ``words_and_trigrams``, is the larger of two overlaps (Dice coefficients), of
words in any order and of three-letter pieces, after NFKC, case folding and without punctuation. It
is linear in the length of both. Where meaning matters more than words, an installed package brings
an embedding or the recall of a real search as an entry point in ``toolverdict.query_methods``:
``function(expected, actual) -> float`` from 0 to 1.
"""

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import ClassVar, Self
from unicodedata import normalize

from pydantic import Field, model_validator

from toolverdict.scoring.cases.comparators.base import Context, Kind, Unlike, undecided
from toolverdict.scoring.cases.equality import shown
from toolverdict.scoring.model import Json

GROUP = "toolverdict.query_methods"
_DEFAULT = "words_and_trigrams"
_MAX_CHARS = 10_000

Method = Callable[[str, str], float]


class Query(Kind):
    """Near enough to one of the expected queries; ``min`` is the least similarity, from 0 to 1."""

    kind: ClassVar[str] = "query"
    min: float = Field(default=0.75, gt=0, le=1)
    method: str = _DEFAULT

    @model_validator(mode="after")
    def _texts(self) -> Self:
        values = self.value if isinstance(self.value, list) else [self.value]
        if not values or not all(isinstance(one, str) and _words(one) for one in values):
            raise ValueError("expected a query, or a list of them, with words in it")
        if self.method not in _methods():
            raise ValueError(f"unknown method {self.method!r}; known: {', '.join(_methods())}")
        return self

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right if the similarity is large enough; else says how large it is."""
        if not isinstance(actual, str):
            return Unlike(f"is {shown(actual, typed=True)}, expected a query")
        best = self._similarity(actual)
        if isinstance(best, Unlike):
            return best
        if best >= self.min:
            return None
        return Unlike(
            f"is {shown(actual)}, similarity {best:.2f} by {self.method} to "
            f"{shown(self.value)}, expected at least {self.min:g}"
        )

    def measure(self, actual: Json) -> tuple[float, str] | None:
        """The similarity, right or wrong, and the method that found it."""
        best = self._similarity(actual) if isinstance(actual, str) else None
        return (best, self.method) if isinstance(best, float) else None

    def _similarity(self, actual: str) -> float | Unlike:
        """The similarity to the nearest of the expected queries."""
        values = self.value if isinstance(self.value, list) else [self.value]
        similarity = _methods()[self.method]
        try:
            best = max(similarity(one[:_MAX_CHARS], actual[:_MAX_CHARS]) for one in values)
            if 0 <= best <= 1:
                return float(best)
        except Exception as error:  # noqa: BLE001 - somebody else's code, on a text from a trace
            return undecided(f"cannot be compared: {self.method} raised {type(error).__name__}")
        return undecided(f"cannot be compared: {self.method} gave {best!r}, which is no share")


def words_and_trigrams(expected: str, actual: str) -> float:
    """How alike two queries are, from 0 to 1."""
    ours, theirs = _words(expected), _words(actual)
    return max(_overlap(ours, theirs), _overlap(_trigrams(ours), _trigrams(theirs)))


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", normalize("NFKC", text).casefold())


def _trigrams(words: list[str]) -> list[str]:
    padded = [f"  {word} " for word in words]
    return [word[i : i + 3] for word in padded for i in range(len(word) - 2)]


def _overlap(ours: list[str], theirs: list[str]) -> float:
    """Dice's coefficient of two bags."""
    if not ours or not theirs:
        return 0.0
    common = (Counter(ours) & Counter(theirs)).total()
    return 2 * common / (len(ours) + len(theirs))


@cache
def _methods() -> dict[str, Method]:
    installed: dict[str, Method] = {e.name: e.load() for e in entry_points(group=GROUP)}
    return {**installed, _DEFAULT: words_and_trigrams}
