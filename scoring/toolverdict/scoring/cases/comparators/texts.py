"""Texts: equal after Unicode normalisation, containing, matching a pattern, of a length."""

import re
from typing import ClassVar, Literal, Self
from unicodedata import normalize

from pydantic import Field, field_validator, model_validator

from toolverdict.scoring.cases.comparators.base import Context, Kind, Unlike
from toolverdict.scoring.cases.equality import shown
from toolverdict.scoring.model import Json

MAX_CHARS = 100_000
"""Longer texts match no pattern: they come from a trace, and matching is not free."""


class Text(Kind):
    """A text that is, contains, starts or ends with another, or only has a length."""

    kind: ClassVar[str] = "text"
    match: Literal["equal", "contains", "starts", "ends"] = "equal"
    ignore_case: bool = False
    min_length: int = Field(default=0, ge=0)
    max_length: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.value is not None and not isinstance(self.value, str):
            raise ValueError("expected a text, or null to look at the length alone")
        if self.value is None and self.min_length == 0 and self.max_length is None:
            raise ValueError("says nothing: give a text, min_length or max_length")
        return self

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right if the text is as said."""
        if not isinstance(actual, str):
            return Unlike(f"is {shown(actual, typed=True)}, expected a text")
        got = self._normal(actual)
        longest = len(got) if self.max_length is None else self.max_length
        if not self.min_length <= len(got) <= longest:
            most = "" if self.max_length is None else f" and at most {self.max_length}"
            return Unlike(f"has {len(got)} characters, expected at least {self.min_length}{most}")
        if self.value is None:
            return None
        wanted = self._normal(self.value)
        if self.match == "equal":
            right = got == wanted
        elif self.match == "contains":
            right = wanted in got
        else:
            right = got.startswith(wanted) if self.match == "starts" else got.endswith(wanted)
        how = {"equal": "", "contains": "to contain ", "starts": "to start with "}
        said = f"expected {how.get(self.match, 'to end with ')}{shown(self.value)}"
        return None if right else Unlike(f"is {shown(actual)}, {said}")

    def _normal(self, text: str) -> str:
        normal = normalize("NFC", text)
        return normal.casefold() if self.ignore_case else normal


class Regex(Kind):
    """A text that matches a regular expression, as a whole unless ``match: part``."""

    kind: ClassVar[str] = "regex"
    match: Literal["full", "part"] = "full"

    @field_validator("value")
    @classmethod
    def _a_pattern(cls, value: Json) -> Json:
        if not isinstance(value, str):
            raise ValueError("expected a regular expression as text")
        try:
            re.compile(value)
        except re.error as error:
            raise ValueError(f"is no regular expression: {error}") from None
        return value

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right if it matches."""
        if not isinstance(actual, str):
            return Unlike(f"is {shown(actual, typed=True)}, expected a text")
        pattern = re.compile(normalize("NFC", self.value))  # kept compiled by re itself
        find = pattern.fullmatch if self.match == "full" else pattern.search
        if len(actual) <= MAX_CHARS and find(normalize("NFC", actual)):
            return None
        return Unlike(f"is {shown(actual)}, which does not match {shown(self.value)}")
