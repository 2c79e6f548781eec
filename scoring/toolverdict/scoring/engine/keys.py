"""A number for each trace id, by which sets of millions of traces are compared.

Eight bytes of a digest of the id (BLAKE2b, RFC 7693): ids come from clients, and whoever could choose
two that share a number could hide one trace behind another. By chance two share one in a set of
billions; they are then taken for one that lies in several windows.
"""

from hashlib import blake2b
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.collector.sampling.columns import ids_of

Keys: TypeAlias = npt.NDArray[np.uint64]

NO_KEYS: Keys = np.zeros(0, np.uint64)
_HEX_DIGITS = 32
_ID_BYTES = 16
_KEY_BYTES = 8


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
    digests = b"".join(
        blake2b(ids[begin : begin + _ID_BYTES], digest_size=_KEY_BYTES).digest()
        for begin in range(0, len(ids), _ID_BYTES)
    )
    return np.frombuffer(digests, np.uint64)


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
