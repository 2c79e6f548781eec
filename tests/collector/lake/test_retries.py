"""Which records are copies of which, and what finding that out costs."""

import tracemalloc
from typing import Any

import pyarrow as pa
import pytest

from toolverdict.collector.decode import decode, table_of
from toolverdict.collector.lake.part_file import concat, sort
from toolverdict.collector.lake.retries import without_retries
from toolverdict.collector.schema import SPANS
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_request, make_span

SHARED_TEXT = 4_000_000


def spans(count: int, received: int, text: str = "") -> pa.Table:
    request = make_request(*(make_span(number) for number in range(count)))
    attribute = request.resource_spans[0].resource.attributes.add(key="text")
    attribute.value.string_value = text
    body = request.SerializeToString()
    return table_of(Signal.TRACES, list(decode(Signal.TRACES, body, received)))


def joined(*tables: pa.Table, schema: pa.Schema = SPANS) -> pa.Table:
    return sort(Signal.TRACES, concat(tables, schema))


def test_a_text_that_many_retried_rows_share_is_in_memory_once() -> None:
    text = "x" * SHARED_TEXT
    table = joined(spans(200, 1, text), spans(200, 2, text))
    before = pa.total_allocated_bytes()
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    default = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        unique = without_retries(Signal.TRACES, table)
        python_bytes = tracemalloc.get_traced_memory()[1]
        arrow_bytes = pool.max_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(default)
    assert unique.num_rows == 200
    assert set(unique.column("received_time_unix_nano").to_pylist()) == {2}
    assert python_bytes < SHARED_TEXT
    assert arrow_bytes is not None
    assert arrow_bytes < 10 * SHARED_TEXT
    del unique
    assert pa.total_allocated_bytes() <= before + SHARED_TEXT


def test_what_differs_in_a_shared_text_alone_stays() -> None:
    table = joined(spans(3, 1, "a"), spans(3, 2, "b"), spans(3, 3, "a"))
    left = without_retries(Signal.TRACES, table)
    received: list[Any] = left.column("received_time_unix_nano").to_pylist()
    assert sorted(received) == [2, 2, 2, 3, 3, 3]


@pytest.mark.parametrize(
    ("column", "left"),
    [
        (pa.array([[1], None, [1], [2], None, [3]]), 5),
        (pa.array([{"a": "x"}] * 6), 3),
        (pa.array([None] * 6, pa.string()), 3),
        (pa.array([True, None, True, None, None, None]), 5),
    ],
)
def test_columns_of_a_newer_version_are_compared_too(column: "pa.Array[Any]", left: int) -> None:
    """Rows 0 and 3, 1 and 4, 2 and 5 are of one span each."""
    both = pa.concat_tables([spans(3, 1), spans(3, 2)]).append_column("newer", column)
    table = joined(both, schema=both.schema)
    assert without_retries(Signal.TRACES, table).num_rows == left


def test_words_that_are_twice_in_a_dictionary_are_equal() -> None:
    both = joined(spans(1, 1), spans(1, 2))
    twice = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["w", "w"]))
    at = both.column_names.index("name")
    assert without_retries(Signal.TRACES, both.set_column(at, "name", twice)).num_rows == 1
