"""Captured arguments, as far as they say what a policy was asked about at the time.

JSON does not say everything. An integer that its readers would round was captured as text in a tag,
and is one again. Half a character was replaced, and nobody knows what it was. A text may have been a decimal that they would round; what was redacted may have
been anything; bytes, and what could not be captured, were nothing that a rule looks into. Where it
makes a difference the policy is told what is possible (``OneOf``), and says that it does not know.
"""

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Final

from toolverdict.instrument.policy.reading import OneOf, PartlyKnown

_SAFE_INT: Final = 2**53 - 1
_MAX_DIGITS: Final = 4_000  # Python refuses to read integers much longer than this
_MAX_DECIMAL: Final = 100
_MARK: Final = re.compile(r"\[[a-z_]{1,32}:[0-9a-f]{8}\]|\[not scanned:\d{1,20} characters\]")
_TAGGED: Final = frozenset({"$t", "v"})


def as_seen(arguments: dict[str, object]) -> dict[str, object]:
    """The arguments of a call by name; ``PartlyKnown`` if a trace cannot say all of them."""
    reader = _Reader()
    read = {name: reader.read(value) for name, value in arguments.items()}
    return read if reader.certain else PartlyKnown(read)


class _Reader:
    def __init__(self) -> None:
        self.certain = True

    def read(self, value: object) -> object:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, list):
            return [self.read(item) for item in value]
        if not isinstance(value, dict):
            return value
        if value.keys() == {"$int"}:
            return _integer(value)
        if value.keys() == _TAGGED:
            return self._unsure(object(), value)
        if any("\ufffd" in key or _MARK.search(key) for key in value):
            return self._unsure()
        return {key: self.read(item) for key, item in value.items()}

    def _text(self, text: str) -> object:
        if "\ufffd" in text or ("[" in text and _MARK.search(text)):
            return self._unsure()
        number = _decimal(text)
        return text if number is None else self._unsure(text, number)

    def _unsure(self, *values: object) -> OneOf:
        self.certain = False
        return OneOf(*values)


def _integer(value: dict[str, object]) -> object:
    """An integer that was captured as text; such an object of the caller's own holds a small one."""
    text = value["$int"]
    digits = text.removeprefix("-") if isinstance(text, str) else ""
    if len(digits) <= _MAX_DIGITS and digits.isascii() and digits.isdigit():
        number = int(str(text))
        return number if abs(number) > _SAFE_INT else value
    return value


def _decimal(text: str) -> Decimal | None:
    """The decimal that was captured as this text, if one may have been: as no number is exact."""
    if len(text) > _MAX_DECIMAL or not text.isascii():
        return None
    try:
        number = Decimal(text)
    except InvalidOperation:
        return None
    if str(number) != text:
        return None  # a decimal writes itself in one way
    if number.is_finite():
        as_float = float(number)
        if math.isfinite(as_float) and Decimal(repr(as_float)) == number:
            return None  # this one was captured as a number
    return number
