from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument.canonical import canonicalise
from toolverdict.instrument.errors import Unhashable
from toolverdict.instrument.plain import snapshot

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.floats(1e-7, 1e22)
    | st.text()
    | st.sampled_from(["\x00", '"\\\x7f\u2028', "\ud800", "\U0001f600", "\ufb33"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from(["a", "$a", "\ue000"]), inner)
    ),
    max_leaves=20,
)


def canonical(value: object) -> bytes | None:
    try:
        return canonicalise(value)
    except Unhashable:
        return None


@given(st.dictionaries(st.sampled_from(["a", "b", "order_id"]), VALUES))
def test_the_quick_form_is_the_canonical_form(arguments: dict[str, Any]) -> None:
    made = snapshot(arguments)
    if made is not None:
        copied, form = made
        assert form == canonicalise(arguments) == rfc8785.dumps(arguments)
        assert repr(copied) == repr(arguments)  # in the same order, and 1 is not True


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_are_written_as_ecmascript_does(number: float) -> None:
    made = snapshot({"a": number})
    if made is not None:
        assert made[1] == rfc8785.dumps({"a": number})
    elif 0.001 < abs(number) < 1e15:
        assert number.is_integer()


@pytest.mark.parametrize(
    "value",
    [
        *("text", '\x00\x1f\x7f"\\/\u2028\u00e9', 1, -(2**53) + 1, True, None, 12.5, -0.001),
        *([], {}, [[1], {"b": [None]}], {"b": 1, "a": {"d": 2, "c": 3}}),
    ],
    ids=range(12),
)
def test_usual_values_are_plain(value: Any) -> None:
    made = snapshot({"a": value})
    assert made is not None
    assert made[1] == canonicalise({"a": value})


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class Text(str):
    pass


@pytest.mark.parametrize(
    "value",
    [
        *((1,), {1}, b"x", Text("x"), {Text("x"): 1}, {1: 1}, {"$int": "1"}, {"\u00e9": 1}),
        *(2**53, -(2**53), 1.0, 1e-5, 1e16, float("nan"), float("inf"), -0.0),
        *("\ud800", "x" * 40_000, [0] * 40_000, {"x" * 40_000: 1}, nested(40), object()),
    ],
    ids=range(22),
)
def test_everything_else_is_not(value: Any) -> None:
    assert snapshot({"a": value}) is None


def test_work_is_bounded() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert snapshot({"a": loop}) is None
    wide: Any = "x"
    for _ in range(30):
        wide = [wide, wide]
    assert snapshot({"a": wide}) is None


def test_the_copy_is_nobody_elses() -> None:
    inner: dict[str, Any] = {"b": [1]}
    made = snapshot({"a": inner, "again": inner})
    inner["b"].append(2)
    assert made is not None
    assert made[0] == {"a": {"b": [1]}, "again": {"b": [1]}}
    assert canonical({"a": inner}) != made[1]
