"""Attribute values as JSON text: every type is told apart, nothing can be forged."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from toolverdict.collector.typed_json import (
    attributes_of_text,
    dump_text,
    load_attributes,
    load_text,
    tree_of_attributes,
    tree_of_value,
    value_of_text,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
KEYS = TEXT | st.sampled_from(["$bytes", "$double", "$pairs", "$", "a"])
SCALARS = st.one_of(
    st.builds(AnyValue),
    st.builds(AnyValue, string_value=TEXT),
    st.builds(AnyValue, bool_value=st.booleans()),
    st.builds(AnyValue, int_value=st.integers(-(2**63), 2**63 - 1)),
    st.builds(AnyValue, double_value=st.floats(allow_nan=False) | st.sampled_from([5.0, 1e16])),
    st.builds(AnyValue, bytes_value=st.binary(max_size=20)),
)


def _containers(values: st.SearchStrategy[AnyValue]) -> st.SearchStrategy[AnyValue]:
    pairs = st.lists(st.builds(KeyValue, key=KEYS, value=values), max_size=4)
    arrays = st.builds(ArrayValue, values=st.lists(values, max_size=4))
    return st.builds(AnyValue, array_value=arrays) | st.builds(
        AnyValue, kvlist_value=st.builds(KeyValueList, values=pairs)
    )


VALUES = st.recursive(SCALARS, _containers, max_leaves=12)


@given(VALUES)
def test_every_value_comes_back(value: AnyValue) -> None:
    """Text and back gives the same message, repeated and forged keys included."""
    assert value_of_text(dump_text(tree_of_value(value))) == value


@given(st.lists(st.builds(KeyValue, key=KEYS, value=VALUES), max_size=5))
def test_every_attribute_list_comes_back(attributes: list[KeyValue]) -> None:
    text = dump_text(tree_of_attributes(attributes))
    assert attributes_of_text(text) == attributes
    assert set(load_attributes(text)) == {item.key for item in attributes}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (AnyValue(), "null"),
        (AnyValue(string_value="5"), '"5"'),
        (AnyValue(int_value=5), "5"),
        (AnyValue(int_value=2**63 - 1), "9223372036854775807"),
        (AnyValue(double_value=5), "5.0"),
        (AnyValue(double_value=1e16), "1e+16"),
        (AnyValue(double_value=math.nan), '{"$double":"NaN"}'),
        (AnyValue(double_value=-math.inf), '{"$double":"-Infinity"}'),
        (AnyValue(bool_value=True), "true"),
        (AnyValue(bytes_value=b"\xff"), '{"$bytes":"/w=="}'),
        (AnyValue(array_value=ArrayValue(values=[AnyValue(int_value=5)])), "[5]"),
        (AnyValue(kvlist_value=KeyValueList()), "{}"),
        (AnyValue(string_value_strindex=3), "null"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_text_of_each_kind(value: AnyValue, text: str) -> None:
    """B97: 5, 5.0, "5", true and [5] are five different texts."""
    assert dump_text(tree_of_value(value)) == text


def test_nan_comes_back() -> None:
    assert math.isnan(value_of_text('{"$double":"NaN"}').double_value)
    assert math.isnan(load_text('{"$double":"NaN"}'))


def test_a_key_of_ours_in_user_data_stays_user_data() -> None:
    """An attribute called $bytes is read as that attribute and not as bytes."""
    forged = KeyValue(key="$bytes", value=AnyValue(string_value="aGk="))
    text = dump_text(tree_of_attributes([forged]))
    assert text == '{"$pairs":[["$bytes","aGk="]]}'
    assert load_attributes(text) == {"$bytes": "aGk="}


def test_python_values() -> None:
    text = '{"a":{"$bytes":"aGk="},"b":[1,2.0,{"$pairs":[["k",1],["k",2]]}],"c":null}'
    assert load_attributes(text) == {"a": b"hi", "b": [1, 2.0, {"k": 2}], "c": None}


def test_a_kind_of_value_from_the_future_reads_as_nothing() -> None:
    """Field 99 of AnyValue does not exist yet and must not crash."""
    assert tree_of_value(AnyValue.FromString(b"\x9a\x06\x01x")) is None
