"""A replayed result has the type it had, or there is none."""

import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import math
import pathlib
import uuid
import zoneinfo
from collections import OrderedDict
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument.stores.result_codec import ResultCodec, Unencodable


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Money:
    amount: decimal.Decimal
    tags: tuple[str, ...] = ()


class Receipt(pydantic.BaseModel):
    id: uuid.UUID
    money: Money


class Text(str):
    pass


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.decimals(allow_nan=False),
    st.datetimes(timezones=st.one_of(st.none(), st.just(dt.UTC), st.timezones())),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.fractions(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=4), st.just("$t")), inner, max_size=4),
        st.dictionaries(st.integers(), inner, max_size=3),
        st.frozensets(st.integers(), max_size=4),
        st.sets(st.text(max_size=4), max_size=4),
    ),
    max_leaves=12,
)


def same(left: Any, right: Any) -> bool:
    """Equal and of the same types, all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dt.datetime | dt.time):
        zones = type(left.tzinfo) is type(right.tzinfo)
        return zones and left == right and left.fold == right.fold
    return bool(left == right)


@given(VALUES)
def test_what_has_a_text_comes_back_as_it_was(value: Any) -> None:
    codec = ResultCodec()
    assert same(codec.decode(codec.encode(value)), value)


@pytest.mark.parametrize(
    "value",
    [
        pathlib.Path("/a/b"),
        pathlib.PureWindowsPath("c:/x"),
        bytearray(b"x"),
        fractions.Fraction(1, 3),
        dt.datetime(2026, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Paris")),
        dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=2), "MINE")),
        math.inf,
        -0.0,
        "\ud800",
    ],
    ids=repr,
)
def test_rare_values_come_back(value: Any) -> None:
    codec = ResultCodec()
    again = codec.decode(codec.encode(value))
    assert same(again, value)
    assert repr(again) == repr(value)


def test_nan_comes_back() -> None:
    codec = ResultCodec()
    assert math.isnan(codec.decode(codec.encode([math.nan]))[0])


def test_classes_come_back_if_they_were_named() -> None:
    value = {"r": Receipt(id=uuid.uuid4(), money=Money(decimal.Decimal("1.10"), ("a",)))}
    codec = ResultCodec([Colour, Money, Receipt])
    assert codec.decode(codec.encode(value)) == value
    assert codec.decode(codec.encode(Colour.RED)) is Colour.RED
    for part in (value, Colour.RED, Money(decimal.Decimal(1))):
        with pytest.raises(Unencodable):
            ResultCodec().encode(part)
    with pytest.raises(ValueError, match="KeyError"):
        ResultCodec().decode(codec.encode(Colour.RED))


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Text("x"),
        OrderedDict(a=1),
        iter([0]),
        len,
        nested(100),
        CYCLE,
        "x" * 11_000_000,
        [b"x" * 800_000, b"x" * 800_000],
        10**5000,
    ],
    ids=["object", "str", "dict", "generator", "function", "deep", "cycle", "10MB", "sum", "int"],
)
def test_what_has_none_says_so(value: Any) -> None:
    with pytest.raises(Unencodable):
        ResultCodec().encode(value)


@pytest.mark.parametrize("text", ["", "{", '{"$t":"os","v":1}', '{"$t":"enum","v":["os.x","y"]}'])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an encoded result"):
        ResultCodec().decode(text)
