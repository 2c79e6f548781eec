"""Things that are named, not described: ids, paths, addresses."""

import posixpath
from typing import ClassVar
from unicodedata import normalize
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from pydantic import Field, field_validator

from toolverdict.scoring.cases.comparators.base import Context, Kind, Unlike
from toolverdict.scoring.cases.equality import equal_scalars, is_not, shown
from toolverdict.scoring.model import Json

_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
_MAX_LOOKED_AT = 2_000  # objects in earlier results


class Id(Kind):
    """Exactly this id, character by character.

    ``display`` are ids that people see of the same object: one of them in its place is a mistake
    with a name, as is one that stands beside the id in an earlier result.
    """

    kind: ClassVar[str] = "id"
    display: tuple[str, ...] = Field(default=())

    @field_validator("display", mode="before")
    @classmethod
    def _one_or_several(cls, value: Json) -> Json:
        return [value] if isinstance(value, str) else value

    @field_validator("value")
    @classmethod
    def _an_id(cls, value: Json) -> Json:
        if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
            raise ValueError("expected an id: a text or a whole number")
        return value

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right only if it is the same; says what was mixed up."""
        if isinstance(self.value, str) and isinstance(actual, str):
            if self.value == actual:
                return None
            if actual in self.display or _of_one_object(self.value, actual, context):
                why = f"is {shown(actual)}, the display id of what is called {shown(self.value)}"
                return Unlike(why, code="display_id_used")
            if _folded(self.value) == _folded(actual):
                forms = f"is {actual!a}, expected {self.value!a}"
                return Unlike(f"{forms}: only letter case, spaces or Unicode form differ")
            return Unlike(is_not(self.value, actual))
        return None if equal_scalars(self.value, actual) else Unlike(is_not(self.value, actual))


def _folded(text: str) -> str:
    return "".join(normalize("NFKC", text).casefold().split())


def _of_one_object(ours: str, theirs: str, context: Context) -> bool:
    """Whether an earlier result has an object with both values beside each other."""
    waiting: list[Json] = list(context.earlier())
    for _ in range(_MAX_LOOKED_AT):
        if not waiting:
            return False
        item = waiting.pop()
        if isinstance(item, dict):
            values = [value for value in item.values() if isinstance(value, str)]
            if ours in values and theirs in values:
                return True
            waiting.extend(value for value in item.values() if isinstance(value, dict | list))
        elif isinstance(item, list):
            waiting.extend(item)
    return False


class Path(Kind):
    """The same file path once ``.``, ``..`` and doubled slashes are gone; links are not followed."""

    kind: ClassVar[str] = "path"

    @field_validator("value")
    @classmethod
    def _a_text(cls, value: Json) -> Json:
        return _text(value, "a path")

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right if both lead to the same place."""
        if not isinstance(actual, str):
            return Unlike(f"is {shown(actual, typed=True)}, expected a path")
        same = _normal_path(self.value) == _normal_path(actual)
        return None if same else Unlike(is_not(self.value, actual))


def _normal_path(text: str) -> str:
    if ":\\" in text[:3] or text.startswith("\\\\"):
        text = text.replace("\\", "/")
    normal = posixpath.normpath(normalize("NFC", text))
    return normal[1:] if normal.startswith("//") else normal


class Url(Kind):
    """The same address: case of scheme and host, a usual port and the query's order are free."""

    kind: ClassVar[str] = "url"

    @field_validator("value")
    @classmethod
    def _a_text(cls, value: Json) -> Json:
        if _normal_url(_text(value, "a URL")) is None:
            raise ValueError("expected a URL with a scheme and a host")
        return value

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right if both are the same address."""
        got = _normal_url(actual) if isinstance(actual, str) else None
        if got is None:
            return Unlike(f"is {shown(actual)}, expected a URL")
        return None if got == _normal_url(self.value) else Unlike(is_not(self.value, actual))


def _normal_url(text: str) -> tuple[object, ...] | None:
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError:
        return None
    if not parts.scheme or not parts.hostname:
        return None
    scheme = parts.scheme.lower()
    path = quote(unquote(parts.path or "/"), safe="/")
    query = sorted(parse_qsl(parts.query, keep_blank_values=True))
    user = (parts.username, parts.password)
    return scheme, parts.hostname, port or _PORTS.get(scheme), path, query, parts.fragment, user


def _text(value: Json, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected {what} as text")
    return value
