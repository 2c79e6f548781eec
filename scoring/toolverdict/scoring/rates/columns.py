"""Columns of a table as numpy sees them: words as codes, truth values as masks."""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from toolverdict.scoring.columns import texts
from toolverdict.scoring.errors import InputError

Codes: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Numbers: TypeAlias = NDArray[np.float64]


_SMALL = 16


class Columns:
    """The columns of a table of calls or verdicts; each is looked at once.

    Raises:
        InputError: from any method: a column is missing, since an older version wrote the table.
    """

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.rows: int = table.num_rows
        self._names = frozenset(table.column_names)
        self._words: dict[str, tuple[Codes, list[str]]] = {}

    def column(self, name: str) -> "pa.ChunkedArray[Any]":
        """The column of this name."""
        if name not in self._names:
            raise InputError(f"the column {name} is missing in these results; score again")
        return self.table[name]

    def words(self, name: str) -> tuple[Codes, list[str]]:
        """A column of texts as codes, and the texts that they stand for; null is -1."""
        if name not in self._words:
            self._words[name] = encoded(self.column(name))
        return self._words[name]

    def is_word(self, name: str, words: Iterable[str]) -> Mask:
        """Where the column holds one of these words."""
        codes, known = self.words(name)
        wanted = {str(word) for word in words}
        chosen = np.array([*(word in wanted for word in known), False])
        return chosen[codes]

    def is_known(self, name: str) -> Mask:
        """Where the column is not null."""
        return _mask(pc.is_valid(self.column(name)))

    def is_true(self, name: str) -> Mask:
        """Where the column is true; null is not."""
        return _mask(_filled(self.column(name), fill=False))

    def numbers(self, name: str) -> tuple[Numbers, Mask]:
        """A column of numbers, and where it has one; null is 0."""
        column = self.column(name).cast(pa.float64())
        return _array(_filled(column, 0.0)), self.is_known(name)

    def integers(self, name: str) -> tuple[Codes, Mask]:
        """A column of whole numbers or times, and where it has one; null is 0."""
        return integers(self.column(name), 0), self.is_known(name)


def encoded(column: "pa.ChunkedArray[Any] | pa.Array[Any]") -> tuple[Codes, list[str]]:
    """Texts as codes into a list of distinct texts; null is -1."""
    found = texts.encoded(column)
    return found.codes, [str(text) for text in found.texts.to_pylist()]


def numbered(keys: Codes, size: int | None = None) -> tuple[Codes, Codes]:
    """Whole numbers as codes, and the distinct numbers that these stand for.

    ``size`` says that they are from 0 to below it: where there are few such numbers, they need not
    be sought.
    """
    if size is not None and size <= _SMALL * len(keys) + _SMALL:
        there = np.zeros(size, np.bool_)
        there[keys] = True
        distinct = np.flatnonzero(there)
        code = np.empty(size, np.int64)
        code[distinct] = np.arange(len(distinct))
        return code[keys], distinct
    array = pa.array(keys).dictionary_encode()
    return integers(array.indices, -1), _array(array.dictionary)


def integers(column: Any, null: int) -> Codes:
    """A column of whole numbers, with another in place of null."""
    found: Codes = _array(_filled(column.cast(pa.int64()), null))
    return found


def _filled(column: Any, fill: Any) -> Any:
    return pc.fill_null(column, fill)


def _mask(column: Any) -> Mask:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.bool_)


def _array(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        return column.to_numpy()
    return column.to_numpy(zero_copy_only=False)
