"""Personal data in an argument that has no need of it.

Found by form, with checksums where there are any (IBAN, card numbers), so that an order number is
not taken for a card. What was found is named by its kind and never repeated.
"""

import re
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from typing import ClassVar
from unicodedata import normalize

from pydantic import field_validator

from toolverdict.scoring.cases.comparators.base import MISSING, Context, Kind, Unlike
from toolverdict.scoring.model import Json
from toolverdict.scoring.values import leaves

_MAX_CHARS = 100_000


def _luhn(digits: str) -> bool:
    doubled = [int(d) * (1 + i % 2) for i, d in enumerate(reversed(digits))]
    return sum(d - 9 if d > 9 else d for d in doubled) % 10 == 0


def _iban(text: str) -> bool:
    moved = text[4:] + text[:4]
    return int("".join(str(int(c, 36)) for c in moved)) % 97 == 1


def _is_card(text: str) -> bool:
    digits = re.sub(r"\D", "", text)
    return 13 <= len(digits) <= 19 and _luhn(digits)


def _is_iban(text: str) -> bool:
    return _iban(re.sub(r"\s", "", text).upper())


def _is_phone(text: str) -> bool:
    return 8 <= len(re.sub(r"\D", "", text)) <= 15


def _is_ip(text: str) -> bool:
    try:
        return not ip_address(text).is_loopback
    except ValueError:
        return False


def _always(text: str) -> bool:
    return True


# Repetitions are bounded, so that the time stays linear whatever the text is.
_KINDS: dict[str, tuple[re.Pattern[str], Callable[[str], bool]]] = {
    "email": (re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"), _always),
    "phone": (
        re.compile(r"(?<![\w.])(?<![0-9] )(?:\+|00)[0-9](?:[ ()./-]{0,2}[0-9]){7,14}(?!\w)"),
        _is_phone,
    ),
    "card": (re.compile(r"(?<![\w.])[0-9](?:[ -]?[0-9]){12,18}(?![\w.])"), _is_card),
    "iban": (
        re.compile(r"\b[A-Za-z]{2}[0-9]{2}(?: ?[A-Za-z0-9]{4}){2,7}(?: ?[A-Za-z0-9]{1,3})?\b"),
        _is_iban,
    ),
    "us_ssn": (
        re.compile(r"(?<![\w-])(?!000|666|9)[0-9]{3}-(?!00)[0-9]{2}-(?!0000)[0-9]{4}(?![\w-])"),
        _always,
    ),
    "ip": (re.compile(r"(?<![\w.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?![\w.])"), _is_ip),
}


class Pii(Kind):
    """Holds no personal data of these kinds, wherever in the argument; ``true`` is all kinds."""

    kind: ClassVar[str] = "pii"
    accepts_missing: ClassVar[bool] = True

    @field_validator("value")
    @classmethod
    def _kinds(cls, value: Json) -> Json:
        kinds = list(_KINDS) if value is True else value
        if not isinstance(kinds, list) or not kinds or any(kind not in _KINDS for kind in kinds):
            raise ValueError(f"expected true, or a list of {', '.join(_KINDS)}")
        return kinds

    @property
    def expected(self) -> Json:
        """No data of these kinds."""
        return f"no {' or '.join(self.value)}"

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right if nothing is found; else says what kind."""
        if actual is MISSING:
            return None
        found = [kind for kind in self.value if any(_holds(kind, text) for text in _texts(actual))]
        if not found:
            return None
        return Unlike(f"holds personal data: {', '.join(found)}", code="pii", secret=True)


def _texts(value: Json) -> Iterator[str]:
    for leaf in leaves(value):
        yield normalize("NFKC", str(leaf)[:_MAX_CHARS])
    if isinstance(value, dict):
        yield from (str(key) for key in value)


def _holds(kind: str, text: str) -> bool:
    pattern, is_one = _KINDS[kind]
    return any(is_one(found[0]) for found in pattern.finditer(text))
