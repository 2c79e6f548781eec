"""Tables of spans for tests and benchmarks of sampling, made of the columns that matter."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolverdict.collector.schema import SPANS

START_NS: Final = 1_796_000_000_000_000_000
SECOND_NS: Final = 1_000_000_000


def span_table(trace_id: Sequence[str], **columns: Sequence[Any] | npt.NDArray[Any]) -> pa.Table:
    """Spans with these columns; ``gen_ai_tool_name`` stands for ``gen_ai.tool.name``.

    What is not given is what a complete root span of one second has: it begins at
    :data:`START_NS` and is received a second after its end.
    """
    count = len(trace_id)
    given: dict[str, Any] = {
        "trace_id": trace_id,
        "span_id": [f"{number:016x}" for number in range(1, count + 1)],
        "trace_state": [""] * count,
        "start_time_unix_nano": np.full(count, START_NS),
        "end_time_unix_nano": np.full(count, START_NS + SECOND_NS),
        "received_time_unix_nano": np.full(count, START_NS + 2 * SECOND_NS),
        "attributes": ["{}"] * count,
    }
    names = {name.replace(".", "_"): name for name in SPANS.names}
    given |= {names[name]: values for name, values in columns.items()}
    filled = [
        _column(given[field.name], field.type)
        if field.name in given
        else pa.nulls(count, field.type)
        for field in SPANS
    ]
    return pa.table(filled, schema=SPANS)


def random_trace_ids(random: np.random.Generator, count: int) -> list[str]:
    """Distinct trace ids as an SDK makes them."""
    text = random.bytes(16 * count).hex()
    return [text[at : at + 32] for at in range(0, len(text), 32)]


def _column(values: Any, kind: pa.DataType) -> "pa.Array[Any]":
    if pa.types.is_dictionary(kind):
        return pa.array(values, pa.string()).dictionary_encode().cast(kind)
    return pa.array(values, kind)
