"""A number for each trace id, by which sets of millions of traces are compared.

The last eight bytes of an id. Two ids that share them are taken for one where that is harmless: both
are then set aside as lying in several windows, and scored in the stage behind.
"""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.collector.sampling.columns import ids_of

Keys: TypeAlias = npt.NDArray[np.uint64]

NO_KEYS: Keys = np.zeros(0, np.uint64)
_HEX_DIGITS = 32


def keys_of(trace_ids: Any) -> Keys:
    """The keys of trace ids.

    Args:
        trace_ids: an array of text without nulls.

    Raises:
        LakeError: when one is not 32 hex digits.
    """
    if not len(trace_ids):
        return NO_KEYS
    texts = trace_ids.cast(pa.string())
    lengths: Any = pc.min_max(pc.binary_length(texts)).as_py()
    if set(lengths.values()) != {_HEX_DIGITS}:
        ids_of(texts.to_pylist())  # says which
    data = memoryview(texts.buffers()[2])
    begin = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset]
    digits = bytes(data[begin : begin + len(texts) * _HEX_DIGITS])
    try:
        ids = bytes.fromhex(digits.decode("ascii"))
    except ValueError:
        ids = ids_of(texts.to_pylist()).tobytes()
    return np.frombuffer(ids, ">u8")[1::2].astype(np.uint64)


def row_keys(table: pa.Table) -> Keys:
    """The key of every row; rows without a trace id have none and must not be there."""
    ids = table.column("trace_id").combine_chunks().dictionary_encode()
    found: Keys = keys_of(ids.dictionary)[ids.indices.to_numpy()]
    return found


def are_in(keys: Keys, wanted: Keys) -> npt.NDArray[np.bool_]:
    """Which keys are among those wanted, which are sorted."""
    if not len(wanted):
        return np.zeros(len(keys), np.bool_)
    places = np.minimum(np.searchsorted(wanted, keys), len(wanted) - 1)
    return np.asarray(wanted[places] == keys, np.bool_)
