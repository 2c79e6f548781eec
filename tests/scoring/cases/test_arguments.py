"""Argument comparison: equality of canonical JSON, and what a mismatch says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.scoring.cases.arguments import compare_arguments
from toolverdict.scoring.cases.equality import difference

scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (0.1 + 0.2, 0.3),
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}),
        ("café", "cafe\u0301"),
    ],
    ids=["int and float", "float noise", "key order", "unicode form"],
)
def test_equal(one: Any, other: Any) -> None:
    assert difference(one, other) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (True, 1),
        ("1", 1),
        (None, "None"),
        ("-5.5", "55"),
        ("2024-11-2", "2024-1-12"),
        ([1, 2], [2, 1]),
        ("a", "a "),
        (5, -5),
        (10**400, 1.0),
        ({"a": None}, {}),
        ("ORD-1", "ORD-10"),
    ],
    ids=str,
)
def test_different(one: Any, other: Any) -> None:
    assert difference(one, other) is not None
    assert difference(other, one) is not None


def test_a_mismatch_names_key_expected_and_actual_with_types() -> None:
    comparison = compare_arguments({"amount": 42.5, "to": "bob"}, {"amount": "42.5"}, exact=True)
    amount, to = comparison.mismatches
    assert (amount.key_path, amount.expected, amount.actual) == ("amount", 42.5, "42.5")
    assert amount.why == "is '42.5' (str), expected 42.5 (float)"
    assert (to.key_path, to.why) == ("to", "is missing")
    assert comparison.score == 0.0


def test_the_path_of_a_nested_difference_is_named() -> None:
    (found,) = compare_arguments({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, exact=False).mismatches
    assert (found.key_path, found.expected, found.actual) == ("a[0].b", 1, 2)
    assert found.why == "is 2, expected 1"


def test_extra_keys_count_only_in_an_exact_comparison() -> None:
    actual = {"to": "bob", "note": "hi"}
    assert not compare_arguments({"to": "bob"}, actual, exact=True).wholly_right
    subset = compare_arguments({"to": "bob"}, actual, exact=False)
    assert subset.wholly_right
    assert [m.key_path for m in subset.extra] == ["note"]


@pytest.mark.parametrize("broken", [None, "{bad", ["a"], 7])
def test_arguments_that_are_no_object_match_nothing(broken: Any) -> None:
    assert compare_arguments({}, broken, exact=True).wholly_right is False
    assert compare_arguments({"a": 1}, broken, exact=False).score == 0.0


def test_hostile_depth_is_a_difference_and_not_a_crash() -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    found = difference(deep, deep)
    assert found is not None
    assert "nested deeper" in found.why


@given(values)
def test_every_value_equals_itself(value: Any) -> None:
    assert difference(value, value) is None


@given(st.dictionaries(st.text(), scalars, min_size=1, max_size=4), st.data())
def test_changing_any_leaf_of_right_arguments_fails_them(
    expected: dict[str, Any], data: st.DataObject
) -> None:
    key = data.draw(st.sampled_from(sorted(expected)))
    changed = {**expected, key: [expected[key]]}
    assert not compare_arguments(expected, changed, exact=False).wholly_right
