"""Arguments and results as JSON for people and scorers to read; off unless asked for.

Unlike the canonical form (``canonical``), which must tell everything apart, this looks like what a
model sent and received: a tuple is an array, a date its ISO text, an enum its value, a decimal the
number that it is, or its text where JSON readers would round it. What has no such text is replaced
where it stands by ``{"$t": "unsupported", "v": type}``, bytes by ``{"$t": "bytes", "v": base64}``,
an integer that JSON readers would round by ``{"$int": text}``. It is always whole: what is too large
is left out.
"""

import base64
import dataclasses
import datetime
import decimal
import enum
import math
import pathlib
import re
import sys
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import rfc8785

_MAX_DEPTH: Final = 32
_SAFE_INT: Final = 2**53 - 1
_LONE: Final = re.compile("[\ud800-\udfff]")
"""Half a character; it is replaced by the one that stands for what could not be read."""


class TooLarge(Exception):
    """There is more to capture than the cap allows."""


def to_json(
    value: object,
    max_bytes: int,
    max_length: int | None = None,
    redact: Callable[[Any], Any] | None = None,
) -> str:
    """A value as JSON.

    Args:
        value: What is captured.
        max_bytes: How many bytes it may take.
        max_length: How many characters it may take, if that is limited, too; the SDK's limit on
            attributes counts them, and would cut the JSON in the middle.
        redact: Takes secrets out of the value as JSON reads it.

    Raises:
        TooLarge: It would take more.
    """
    rendered = _Recorder(max_bytes).render(value, 0)
    text: bytes = rfc8785.dumps(rendered if redact is None else redact(rendered))
    if len(text) > max_bytes:
        raise TooLarge
    whole = text.decode("utf-8")
    if max_length is not None and len(whole) > max_length:
        raise TooLarge
    return whole


def render(value: object, max_bytes: int) -> Any:
    """A value as whoever said it would write it: dicts, lists, texts, numbers, True, False and None.

    As JSON reads it, but for what ``to_json`` tells apart and nobody would: bytes are their base64, a
    decimal is its text, half a character a question mark.

    Raises:
        TooLarge: There is too much of it.
    """
    return _Renderer(max_bytes).render(value, 0)


class _Renderer:
    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._path: set[int] = set()

    def render(self, value: Any, depth: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise TooLarge
        if value is None or value is True or value is False:
            return value
        if isinstance(value, enum.Enum):
            return self.render(value.value, depth)
        if isinstance(value, str):
            return self._text(str.__str__(value))
        if isinstance(value, int):
            return self._integer(int.__int__(value))
        if isinstance(value, float):
            number = float.__float__(value)
            return number if math.isfinite(number) else _unsupported("not_finite")
        told_apart = self._told_apart(value)
        if told_apart is not None:
            return told_apart
        text = _scalar_text(value)
        if text is not None:
            return self._text(text)
        if id(value) in self._path:
            return _unsupported("cycle")
        if depth >= _MAX_DEPTH:
            return _unsupported("too_deep")
        self._path.add(id(value))
        try:
            return self._container(value, depth + 1)
        finally:
            self._path.discard(id(value))

    def _container(self, value: Any, depth: int) -> Any:
        if isinstance(value, Mapping):
            return {self._key(key): self.render(item, depth) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.render(item, depth) for item in value]
        if isinstance(value, set | frozenset):
            return sorted((self.render(item, depth) for item in value), key=rfc8785.dumps)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = [field.name for field in dataclasses.fields(value)]
            return {name: self.render(getattr(value, name), depth) for name in names}
        base = getattr(sys.modules.get("pydantic"), "BaseModel", None)
        if isinstance(base, type) and isinstance(value, base):
            return {self._key(key): self.render(item, depth) for key, item in vars(value).items()}
        return _unsupported(f"{type(value).__module__}.{type(value).__qualname__}")

    def _key(self, key: object) -> str:
        if isinstance(key, enum.Enum):
            key = key.value
        if isinstance(key, str):
            return self._text(str.__str__(key))
        if key is None or isinstance(key, bool | int | float):
            return self._text(str(key))
        text = _scalar_text(key)
        return self._text(text if text is not None else type(key).__qualname__)

    def _text(self, text: str) -> str:
        self._left -= len(text)
        if self._left < 0:
            raise TooLarge
        # A lone surrogate would take the whole batch of spans down with it.
        return text if text.isascii() else _LONE.sub(self._half, text)

    _half = "?"

    def _told_apart(self, value: object) -> Any:
        """What a value is besides its text, where that makes a difference; None if it does not."""

    def _integer(self, number: int) -> Any:
        if -_SAFE_INT <= number <= _SAFE_INT:
            return number
        if number.bit_length() > self._left * 3:
            raise TooLarge
        return {"$int": self._text(str(number))}


class _Recorder(_Renderer):
    """For a record that is decided about again: what is no text must not look like one."""

    _half = "\ufffd"

    def _told_apart(self, value: object) -> Any:
        if isinstance(value, decimal.Decimal):
            return _as_number(value)
        if isinstance(value, bytes | bytearray):
            return {"$t": "bytes", "v": self._text(base64.b64encode(value).decode("ascii"))}
        return None


def _scalar_text(value: object) -> str | None:
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID | pathlib.PurePath):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode("ascii")
    return None


def _as_number(value: decimal.Decimal) -> float | None:
    """The same number for every reader of JSON; None where there is none."""
    if not value.is_finite():
        return None
    number = float(value)
    return number if math.isfinite(number) and decimal.Decimal(repr(number)) == value else None


def _unsupported(what: str) -> dict[str, str]:
    return {"$t": "unsupported", "v": what}
