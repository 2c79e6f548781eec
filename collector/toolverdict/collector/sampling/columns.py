"""Columns of a table as numpy arrays: words as numbers, trace ids as bytes, one value per trace."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolverdict.collector.errors import LakeError
from toolverdict.collector.sampling.thresholds import RANDOMNESS_MASK

Ids = npt.NDArray[np.bytes_]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

ID_BYTES: Final = 16
ID_TYPE: Final = np.dtype(f"S{ID_BYTES}")
LATEST: Final = int(np.iinfo(np.int64).max)


class Words(NamedTuple):
    """A column of text: every row has the number of its value, -1 for none."""

    codes: Ints
    values: list[str]

    def are(self, wanted: Callable[[str], bool]) -> Bools:
        """For every row whether its value is wanted; none never is."""
        # The last is where the code of none leads.
        return np.array([*map(wanted, self.values), False], np.bool_)[self.codes]


class Mentions(NamedTuple):
    """Which traces mention which values, each pair once; both are told by their number."""

    traces: Ints
    codes: Ints
    values: list[str]

    @classmethod
    def none(cls) -> "Mentions":
        """Nothing mentioned."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), [])

    @classmethod
    def of(cls, traces: Ints, words: Words) -> "Mentions":
        """The values that stand in the rows of each trace."""
        rows = words.codes >= 0
        size = max(1, len(words.values))
        pairs = np.sort(traces[rows] * size + words.codes[rows])
        pairs = pairs[np.diff(pairs, prepend=-1) != 0]
        return cls(pairs // size, pairs % size, words.values)

    @classmethod
    def union(cls, parts: Sequence["Mentions"], offsets: Sequence[int]) -> "Mentions":
        """Those of several tables; the traces of each are numbered from its offset on."""
        numbers: dict[str, int] = {}
        codes = []
        for part in parts:
            number = [numbers.setdefault(value, len(numbers)) for value in part.values]
            codes.append(np.array(number, np.int64)[part.codes])
        traces = [part.traces + offset for part, offset in zip(parts, offsets, strict=True)]
        return cls(np.concatenate(traces), np.concatenate(codes), list(numbers))


def words_of(column: "pa.ChunkedArray[Any]") -> Words:
    """A column of text, with or without a dictionary."""
    array: Any = column.unify_dictionaries().combine_chunks()
    if not isinstance(array, pa.DictionaryArray):
        array = array.dictionary_encode()
    codes = array.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return Words(codes.astype(np.int64), array.dictionary.to_pylist())


def ints_of(column: "pa.ChunkedArray[Any]") -> Ints:
    """A column of 64-bit numbers without nulls."""
    return column.to_numpy().astype(np.int64, copy=False)


def ids_of(trace_ids: Iterable[str | None]) -> Ids:
    """Trace ids in hex as an array of their bytes.

    Raises:
        LakeError: when one is not 16 bytes.
    """
    texts = [text or "" for text in trace_ids]
    try:
        if any(len(text) != 2 * ID_BYTES for text in texts):
            raise ValueError
        return np.frombuffer(bytes.fromhex("".join(texts)), ID_TYPE)
    except ValueError:
        raise LakeError(
            "a trace id in the lake is not 32 hex digits: no collector wrote it; move its part away"
        ) from None


def randomness_of_ids(ids: Ids) -> Ints:
    """The last 56 bits of each trace id: its randomness, where the trace carries no other."""
    last = ids.view(">u8").reshape(-1, 2)[:, 1]
    return (last & np.uint64(RANDOMNESS_MASK)).astype(np.int64)


def largest(traces: Ints, values: Ints, count: int, least: int = -LATEST) -> Ints:
    """The largest value of each of ``count`` traces; ``least`` where it has no row."""
    found = np.full(count, least, np.int64)
    np.maximum.at(found, traces, values)
    return found
