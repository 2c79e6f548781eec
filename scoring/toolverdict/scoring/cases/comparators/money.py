"""Amounts of money: decimal, in one currency, within a tolerance.

An amount may be a number, a text (``US$1,234.50``, ``120.00 EUR``), or an object with ``amount`` and
``currency``; or a number of minor units (``minor_units: true``), of which ISO 4217 says how many
decimal places they are: none for yen, two for euro, three for the Kuwaiti dinar. A text that two
readers would read differently (``1,234``) is undecided.
"""

import re
from decimal import Decimal
from functools import cached_property
from typing import ClassVar, NamedTuple, Self
from unicodedata import normalize

from pydantic import field_validator, model_validator

from toolverdict.scoring.cases.comparators.base import Context, Kind, Unlike, undecided
from toolverdict.scoring.cases.comparators.numbers import Tolerance, decimal_of, within
from toolverdict.scoring.cases.equality import shown
from toolverdict.scoring.model import Json

_PLACES = {
    **dict.fromkeys(
        [
            "BIF",
            "CLP",
            "DJF",
            "GNF",
            "ISK",
            "JPY",
            "KMF",
            "KRW",
            "PYG",
            "RWF",
            "UGX",
            "UYI",
            "VND",
            "VUV",
            "XAF",
            "XOF",
            "XPF",
        ],
        0,
    ),
    **dict.fromkeys(["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"], 3),
    **dict.fromkeys(["CLF", "UYW"], 4),
}
_SYMBOLS = {
    "US$": {"USD"},
    "$": {"USD", "CAD", "AUD", "NZD", "SGD", "HKD", "MXN", "TWD", "CLP", "COP", "ARS"},
    "€": {"EUR"},
    "£": {"GBP"},
    "¥": {"JPY", "CNY"},
    "₹": {"INR"},
    "₩": {"KRW"},
}
_CURRENCY = r"[A-Z]{3}|US\$|[$€£¥₹₩]"
_TEXT = re.compile(
    rf"(?P<minus>-)?\s*\\?(?P<before>{_CURRENCY})?\s*(?P<number>[-+]?[0-9][0-9.,' ]*(?:[eE][-+]?[0-9]{{1,3}})?|[-+]?\.[0-9]+)"
    rf"\s*(?P<after>{_CURRENCY})?",
)
_PLAIN = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?")
_MAX_CHARS = 100


class Amount(NamedTuple):
    """An amount and the currencies that its own text allows; None: it names none."""

    number: Decimal
    currencies: frozenset[str] | None = None


class Money(Kind):
    """An amount in a currency; ``tolerance`` is an amount or a share (``"1%"``).

    The currency is that inside the value, else that of the key ``currency_key`` beside it.
    """

    kind: ClassVar[str] = "money"
    currency: str | None = None
    currency_key: str = "currency"
    tolerance: Tolerance = (Decimal(0), False)
    minor_units: bool = False

    @field_validator("currency")
    @classmethod
    def _iso(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch("[A-Z]{3}", value):
            raise ValueError("expected a code of ISO 4217, such as EUR")
        return value

    @model_validator(mode="after")
    def _an_amount(self) -> Self:
        _ = self._wanted
        if self.minor_units and self.currency is None:
            raise ValueError("minor_units needs the currency, which says how many there are")
        return self

    @cached_property
    def _wanted(self) -> Amount:
        found = read_amount(self.value)
        if isinstance(found, Unlike):
            raise ValueError("expected an amount that can be read in one way only")
        return found

    @property
    def expected(self) -> Json:
        """The amount with its currency."""
        return self.value if self.currency is None else f"{self.value} {self.currency}"

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right if the amount is within the tolerance and the currency is the same."""
        wanted, got = self._wanted, read_amount(actual)
        if isinstance(got, Unlike):
            return got
        number = got.number
        if self.minor_units and self.currency is not None:
            number = number.scaleb(-_PLACES.get(self.currency, 2))
        if not within(wanted.number, number, self.tolerance):
            return Unlike(f"is {shown(actual)}, expected {self.expected}")
        return self._currency(got.currencies, context)

    def _currency(self, inside: frozenset[str] | None, context: Context) -> Unlike | None:
        own = frozenset({self.currency}) if self.currency is not None else None
        allowed = own or self._wanted.currencies
        if allowed is None:
            return None
        if inside is None:
            beside = context.siblings.get(self.currency_key)
            if not isinstance(beside, str):
                return Unlike(f"carries no currency, expected {'/'.join(sorted(allowed))}")
            inside = frozenset({beside})
        if allowed & inside:
            return None
        return Unlike(
            f"is in {'/'.join(sorted(inside))}, expected {'/'.join(sorted(allowed))}",
            code="currency_differs",
        )


def read_amount(value: Json) -> Amount | Unlike:
    """The amount that an argument means, or why it means none."""
    number = decimal_of(value)
    if number is not None:
        return Amount(number)
    if isinstance(value, dict):
        inner = read_amount(value.get("amount", value.get("value")))
        currency = value.get("currency")
        if isinstance(inner, Amount) and isinstance(currency, str):
            return Amount(inner.number, frozenset({currency}))
        return inner
    if not isinstance(value, str):
        return Unlike(f"is {shown(value, typed=True)}, expected an amount of money")
    read = len(value) <= _MAX_CHARS
    found = _TEXT.fullmatch(normalize("NFKC", value).strip()) if read else None
    if found is None:
        return Unlike(f"is {shown(value)}, expected an amount of money")
    plain = _plain(found["number"].strip())
    if plain is None:
        return undecided(f"is {shown(value)}, which is no amount that all would read alike")
    named = [_currencies(found[side]) for side in ("before", "after") if found[side]]
    currencies = frozenset.intersection(*named) if named else None
    return Amount(-plain if found["minus"] else plain, currencies)


def _currencies(name: str) -> frozenset[str]:
    return frozenset(_SYMBOLS.get(name, {name}))


def _plain(number: str) -> Decimal | None:
    """The number of a text with or without grouped thousands; None where that is not certain."""
    if _PLAIN.fullmatch(number):
        return Decimal(number)
    match = re.fullmatch(
        r"([-+]?[0-9]{1,3})(([,.' ])[0-9]{3}(?:\3[0-9]{3})*)(?:([.,])([0-9]+))?", number
    )
    if match is None:
        return None
    head, groups, separator, point, decimals = match.groups()
    if point == separator or (point is None and separator in ",." and groups.count(separator) == 1):
        return None  # 1,234 is a thousand to some and little more than one to others
    whole = head + groups.replace(separator, "")
    return Decimal(f"{whole}.{decimals or 0}")
