"""Rows in the order of arrival to what the parts of a lake hold, with Arrow.

For the decoder in Python, which is the referee of the native one; that one decodes every row to its
place.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.collector.lake.part_file import sort
from toolverdict.collector.signals import Signal


def arrange(signal: Signal, table: pa.Table, buckets: int) -> list[tuple[int, pa.Table]]:
    """The rows of each bucket that has any, as ``RowBuilder.take_sorted`` gives them."""
    if not table.num_rows:
        return []
    return [
        (bucket, _without_unused_words(sort(signal, members)))
        for bucket, members in _by_bucket(table, buckets)
    ]


_HEX_BYTES: Final = pa.array([f"{byte:02x}" for byte in range(256)])


def _by_bucket(table: pa.Table, buckets: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket in the order of arrival; ``bucket_of`` for a whole table."""
    if buckets == 1:
        yield 0, table
        return
    trace_ids = table.column("trace_id").combine_chunks()
    last_bytes: Any = pc.index_in(pc.utf8_slice_codeunits(trace_ids, -2), value_set=_HEX_BYTES)
    numbers: Any = pc.bit_wise_and(pc.fill_null(last_bytes, 0), pa.scalar(buckets - 1, pa.int32()))
    order = pc.sort_indices(numbers)  # stable
    start = 0
    for bucket, count in sorted(Counter(numbers.to_pylist()).items()):
        yield bucket, table.take(order.slice(start, count))
        start += count


def _without_unused_words(table: pa.Table) -> pa.Table:
    """The same rows; dictionaries hold what these rows need, in the order of their first use."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            words: Any = table.column(index).combine_chunks()
            used = words.indices.dictionary_encode()
            needed = words.dictionary.take(used.dictionary)
            table = table.set_column(
                index, field, pa.DictionaryArray.from_arrays(used.indices, needed)
            )
    return table
