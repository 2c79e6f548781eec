import dataclasses
import datetime
import decimal
import enum
import json
import uuid
from types import MappingProxyType
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument.capture import TooLarge, to_json


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Point:
    x: int


class Order(pydantic.BaseModel):
    id: str
    secret: pydantic.SecretStr | None = None


READABLE: list[tuple[Any, Any]] = [
    ((1, "a"), [1, "a"]),
    ({3, 1, 2}, [1, 2, 3]),
    (decimal.Decimal("1.10"), 1.1),
    (decimal.Decimal("0.1000000000000000055"), "0.1000000000000000055"),
    (decimal.Decimal("NaN"), "NaN"),
    (datetime.date(2026, 1, 2), "2026-01-02"),
    (datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), "2026-01-02T00:00:00+00:00"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (Colour.RED, "red"),
    (b"\xff", {"$t": "bytes", "v": "/w=="}),
    (Point(1), {"x": 1}),
    (Order(id="o"), {"id": "o", "secret": None}),
    (MappingProxyType({"$ref": 1}), {"$ref": 1}),
    (
        {1: "a", None: "b", Colour.RED: "c", (1,): "d"},
        {"1": "a", "None": "b", "red": "c", "tuple": "d"},
    ),
    ({uuid.UUID(int=1): 1}, {"00000000-0000-0000-0000-000000000001": 1}),
    (2**53, {"$int": "9007199254740992"}),
    (float("nan"), {"$t": "unsupported", "v": "not_finite"}),
    ([object()], [{"$t": "unsupported", "v": "builtins.object"}]),
    (
        Order(id="o", secret=pydantic.SecretStr("s3cret")),
        {"id": "o", "secret": {"$t": "unsupported", "v": "pydantic.types.SecretStr"}},
    ),
    ("a\ud800", "a\ufffd"),
]


@pytest.mark.parametrize(
    ("value", "expected"), READABLE, ids=[str(n) for n in range(len(READABLE))]
)
def test_it_reads_like_what_a_model_sends(value: Any, expected: Any) -> None:
    assert json.loads(to_json(value, 10_000)) == expected


def test_endless_values_end() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert to_json(loop, 1000) == '[{"$t":"unsupported","v":"cycle"}]'
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    assert to_json(deep, 1000).count("[") == 32
    shared = [1]
    assert to_json([shared, shared], 1000) == "[[1],[1]]"


@pytest.mark.parametrize(
    "value", ["x" * 101, ["x"] * 60, {"x" * 200: 1}, 10**400, list(range(101))], ids=range(5)
)
def test_what_is_too_large_is_refused(value: Any) -> None:
    with pytest.raises(TooLarge):
        to_json(value, 100)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
    ),
    st.integers(1, 200),
)
def test_it_is_whole_json_or_nothing(value: Any, cap: int) -> None:
    try:
        text = to_json(value, cap)
    except TooLarge:
        return
    json.loads(text)
    assert len(text.encode()) <= cap
