import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import json
import math
import pathlib
import subprocess
import sys
import uuid
from collections import OrderedDict, defaultdict, namedtuple
from types import MappingProxyType
from typing import Any

import numpy as np
import pydantic
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument.canonical import MAX_BYTES, canonicalise
from toolverdict.instrument.errors import Unhashable

SAFE = 2**53 - 1

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-SAFE, SAFE)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


def no_dollar_keys(value: object) -> bool:
    if isinstance(value, dict):
        return all(not k.startswith("$") and no_dollar_keys(v) for k, v in value.items())
    return all(map(no_dollar_keys, value)) if isinstance(value, list) else True


def same(one: object, other: object) -> bool:
    """JSON's equality: Python's, except that True is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@given(PLAIN.filter(no_dollar_keys))
def test_plain_json_is_rfc_8785(value: Any) -> None:
    assert canonicalise(value) == rfc8785.dumps(value)


@given(PLAIN)
def test_it_is_json(value: Any) -> None:
    json.loads(canonicalise(value))


@given(PLAIN, PLAIN)
def test_equal_exactly_when_the_values_are(one: Any, other: Any) -> None:
    assert (canonicalise(one) == canonicalise(other)) == same(one, other)


@given(st.lists(PLAIN, min_size=2, max_size=2, unique_by=canonicalise), KEYS)
def test_a_changed_leaf_changes_the_form(values: list[Any], key: str) -> None:
    assert canonicalise({key: [values[0]]}) != canonicalise({key: [values[1]]})


@given(st.dictionaries(KEYS, SCALARS))
def test_order_of_insertion_does_not_matter(value: dict[str, Any]) -> None:
    """B49: two dicts of the same content have one form."""
    assert canonicalise(dict(reversed(value.items()))) == canonicalise(value)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Mode(enum.StrEnum):
    FAST = "fast"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Point:
    x: int
    y: int


class Order(pydantic.BaseModel):
    id: str
    lines: list[int]


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")


class Text(str):
    __slots__ = ()


class Items(list[int]):
    pass


class Number(int):
    pass


Pair = namedtuple("Pair", "a b")

UTC = datetime.UTC

TAGGED: list[tuple[object, object]] = [
    (2**53, {"$int": "9007199254740992"}),
    (2**53 + 1, {"$int": "9007199254740993"}),
    (-(2**53), {"$int": "-9007199254740992"}),
    (10597685537261926722, {"$int": "10597685537261926722"}),
    ({"$int": "1"}, {"$$int": "1"}),
    ({"$$int": "1"}, {"$$$int": "1"}),
    ((1, 2), {"$t": "tuple", "v": [1, 2]}),
    (Pair(1, 2), {"$t": "tuple", "v": [1, 2]}),
    ({3, 1}, {"$t": "set", "v": [1, 3]}),
    (frozenset({1}), {"$t": "set", "v": [1]}),
    (b"\xff", {"$t": "bytes", "v": "/w=="}),
    (bytearray(b"\xff"), {"$t": "bytes", "v": "/w=="}),
    (decimal.Decimal("1.10"), {"$t": "decimal", "v": "1.10"}),
    (fractions.Fraction(1, 3), {"$t": "fraction", "v": "1/3"}),
    (datetime.date(2026, 1, 2), {"$t": "date", "v": "2026-01-02"}),
    (datetime.time(3, 4), {"$t": "time", "v": "03:04:00"}),
    (
        datetime.datetime(2026, 1, 2, tzinfo=UTC),
        {"$t": "datetime", "v": "2026-01-02T00:00:00+00:00"},
    ),
    (datetime.timedelta(days=1), {"$t": "timedelta", "v": "86400000000"}),
    (uuid.UUID(int=1), {"$t": "uuid", "v": "00000000-0000-0000-0000-000000000001"}),
    (pathlib.PurePosixPath("a/b"), {"$t": "path", "v": "a/b"}),
    (Colour.RED, {"$t": "enum", "v": ["Colour", "RED"]}),
    (Level.LOW, {"$t": "enum", "v": ["Level", "LOW"]}),
    (Mode.FAST, {"$t": "enum", "v": ["Mode", "FAST"]}),
    (Rights.READ | Rights.WRITE, {"$t": "enum", "v": ["Rights", "READ|WRITE"]}),
    (Rights(0), {"$t": "enum", "v": ["Rights", 0]}),
    (Point(1, 2), {"$t": "dataclass", "v": ["Point", {"x": 1, "y": 2}]}),
    (Order(id="o", lines=[1]), {"$t": "model", "v": ["Order", {"id": "o", "lines": [1]}]}),
    (Open.model_validate({"a": 1}), {"$t": "model", "v": ["Open", {"a": 1}]}),
    ({1: "x"}, {"$t": "map", "v": [[1, "x"]]}),
    ({None: 1, "a": 2}, {"$t": "map", "v": [["a", 2], [None, 1]]}),
    (Text("a"), "a"),
    ({Text("a"): 1}, {"a": 1}),
    ({Mode.FAST: 1}, {"$t": "map", "v": [[{"$t": "enum", "v": ["Mode", "FAST"]}, 1]]}),
    (Items([1]), [1]),
    (Number(7), 7),
    (np.float32(1), 1),
    (np.int64(2), 2),
    (np.bool_(True), True),
    (np.float64(1.5), 1.5),
    (OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
    (defaultdict(int, a=1), {"a": 1}),
    (MappingProxyType({"a": 1}), {"a": 1}),
    ({"\ufb33": 1, "\U0001f600": 2}, {"\U0001f600": 2, "\ufb33": 1}),
]


@pytest.mark.parametrize(("value", "form"), TAGGED, ids=[repr(value)[:40] for value, _ in TAGGED])
def test_what_json_cannot_say_is_tagged(value: object, form: object) -> None:
    """B17, B23: every type an argument may have gets one form, and no number is rounded."""
    text = canonicalise(value).decode()
    assert json.loads(text) == form
    assert text == json.dumps(form, separators=(",", ":"), ensure_ascii=False)


DIFFERENT = [
    True,
    1,
    "1",
    "true",
    None,
    "null",
    [1],
    (1,),
    {1},
    {1: "x"},
    {"1": "x"},
    {True: "x"},
    {None: "x"},
    {"null": "x"},
    [],
    {},
    (),
    set(),
    "",
    b"",
    {"$t": "tuple", "v": [1]},
    {"$int": str(2**60)},
    2**60,
    float(2**60) * 3,
    decimal.Decimal("1.1"),
    decimal.Decimal("1.10"),
    "1.1",
    1.1,
    datetime.date(2026, 1, 1),
    datetime.datetime(2026, 1, 1),  # noqa: DTZ001 - a naive one is what is tested
    datetime.datetime(2026, 1, 1, tzinfo=UTC),
    "2026-01-01",
    {1, "a", None},
    ["a", 1, None],
    "\u00e9",
    "e\u0301",
    Colour.RED,
    "red",
    "RED",
    {"x": 1, "y": 2},
    Point(1, 2),
    Point(2, 1),
]


def test_values_that_differ_have_different_forms() -> None:
    """B49, B50: types, key types and Unicode forms are told apart."""
    assert len({canonicalise(value) for value in DIFFERENT}) == len(DIFFERENT)


def test_numbers_that_json_holds_equal_are_equal() -> None:
    """B49: the policy on 1 and 1.0 is JSON's."""
    assert canonicalise(1) == canonicalise(1.0)
    assert canonicalise(0.0) == canonicalise(-0.0)
    assert canonicalise({1: "x"}) == canonicalise({1.0: "x"})


@pytest.mark.parametrize(
    ("number", "text"),
    [(1e20, "100000000000000000000"), (1e21, "1e+21"), (1e-7, "1e-7"), (5e-324, "5e-324")],
)
def test_numbers_are_written_as_ecmascript_does(number: float, text: str) -> None:
    assert canonicalise(number).decode() == text


def test_the_same_object_twice_is_no_cycle() -> None:
    """B20: only what a value is inside of can make a cycle."""
    shared = {"a": 1}
    assert canonicalise([shared, shared]) == canonicalise([{"a": 1}, {"a": 1}])


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def cycle(kind: str) -> object:
    if kind == "dict":
        mapping: dict[str, object] = {}
        mapping["self"] = {"again": mapping}
        return mapping
    items: list[object] = []
    items.append((items,))
    return items


class Selfish(pydantic.BaseModel):
    me: Any = None


def selfish() -> Selfish:
    model = Selfish()
    model.me = model
    return model


def doubled(times: int) -> object:
    value: object = "x"
    for _ in range(times):
        value = [value, value]
    return value


class Raising(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError("secret")


@dataclasses.dataclass
class Broken:
    value: int

    def __getattribute__(self, name: str) -> Any:
        if name == "value":
            raise RuntimeError("secret")
        return super().__getattribute__(name)


UNHASHABLE: list[tuple[Any, str]] = [
    (math.nan, "not_finite"),
    (math.inf, "not_finite"),
    (decimal.Decimal("NaN"), "not_finite"),
    (np.float64("nan"), "not_finite"),
    ("\ud800", "lone_surrogate"),
    ({"\ud800": 1}, "lone_surrogate"),
    (object(), "unsupported_type"),
    (print, "unsupported_type"),
    (Point, "unsupported_type"),
    (np.zeros(2), "unsupported_type"),
    (pydantic.SecretStr("s"), "unsupported_type"),
    (nested(65), "too_deep"),
    (nested(200_000), "too_deep"),
    (cycle("dict"), "cycle"),
    (cycle("list"), "cycle"),
    (selfish(), "cycle"),
    ("x" * MAX_BYTES, "too_large"),
    (b"x" * (MAX_BYTES + 1), "too_large"),
    ([0] * MAX_BYTES, "too_large"),
    (doubled(60), "too_large"),
    (10**5000, "too_large"),
    (np.longdouble(1), "unsupported_type"),
    ("\u20ac" * (MAX_BYTES // 2), "too_large"),
    (Broken(1), "unsupported_type"),
]


@pytest.mark.parametrize(
    "index", range(len(UNHASHABLE)), ids=[f"{i}-{r}" for i, (_, r) in enumerate(UNHASHABLE)]
)
def test_what_has_no_form_says_why(index: int) -> None:
    """B17, B19, B22: NaN, surrogates, cycles, endless nesting and unknown types are named."""
    value, reason = UNHASHABLE[index]
    with pytest.raises(Unhashable) as caught:
        canonicalise(value)
    assert caught.value.reason == reason
    assert "secret" not in str(caught.value)


def test_the_deepest_that_is_allowed() -> None:
    assert canonicalise(nested(64)) == b"[" * 64 + b"]" * 64


class Lying(dict[str, str]):
    def __getitem__(self, key: str) -> str:
        return "eve"


class LyingList(list[str]):
    def __iter__(self) -> Any:
        return iter(["eve"])


class LyingText(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


class MakingUp(dict[str, str]):
    def __getattr__(self, name: str) -> str:
        return "eve"


class Carrying(int):
    currency = "EUR"


class Asking(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "eve"


@dataclasses.dataclass
class MadeUp:
    value: int

    def __getattr__(self, name: str) -> str:
        return "eve"


def carrying() -> Carrying:
    amount = Carrying(1)
    amount.currency = "USD"
    return amount


@pytest.mark.parametrize(
    "value",
    [
        Raising(a=1),
        Lying(to="bob"),
        LyingList(["bob"]),
        LyingText("bob"),
        MakingUp(to="bob"),
        Asking(to="bob"),
        MadeUp(1),
        carrying(),
        [Lying(to="bob")],
        MappingProxyType(Lying(to="bob")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_shows_another_content_than_it_holds_has_no_form(value: object) -> None:
    """What is approved is what the tool will see."""
    with pytest.raises(Unhashable, match="unsupported_type"):
        canonicalise(value)


def test_what_only_adds_to_a_builtin_type_is_what_it_holds() -> None:
    class Plain(dict[str, int]):
        def total(self) -> int:
            return sum(self.values())

        def __setitem__(self, key: str, value: int) -> None:
            super().__setitem__(key, abs(value))

    Counted = namedtuple("Counted", "count index")
    assert canonicalise(Plain(a=1)) == canonicalise({"a": 1})
    assert canonicalise(OrderedDict(a=1)) == canonicalise({"a": 1})
    assert canonicalise(defaultdict(int, a=1)) == canonicalise({"a": 1})
    assert canonicalise(Counted(1, 2)) == canonicalise((1, 2))


def test_what_an_object_carries_beside_its_fields_counts() -> None:
    class Hiding(pydantic.BaseModel):
        _to: str = pydantic.PrivateAttr("bob")

    point, other = Point(1, 2), Point(1, 2)
    other.to = "eve"  # type: ignore[attr-defined]
    assert canonicalise(point) != canonicalise(other)
    hiding, changed = Hiding(), Hiding()
    changed._to = "eve"
    assert canonicalise(hiding) != canonicalise(changed)


def test_what_an_object_has_worked_out_of_itself_does_not_count() -> None:
    @dataclasses.dataclass
    class Order:
        amount: int

        @functools.cached_property
        def double(self) -> int:
            return 2 * self.amount

    order = Order(1)
    before = canonicalise(order)
    assert order.double == 2
    assert canonicalise(order) == before


def test_it_is_the_same_in_every_process() -> None:
    """B47: hash randomisation changes nothing."""
    code = (
        "from toolverdict.instrument.canonical import canonicalise\n"
        "value = {'b': {'x', 'y', 'z', 1, None}, 'a': frozenset('qwertz'), 3: [1.5]}\n"
        "print(canonicalise(value).decode())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(outputs) == 1
