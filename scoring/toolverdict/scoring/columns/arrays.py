"""What the columns are made of: arrays of Arrow, and of row numbers and flags."""

from collections.abc import Collection
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows: TypeAlias = npt.NDArray[np.int64]
"""Numbers of rows, or codes of values; -1 stands for none."""
Flags: TypeAlias = npt.NDArray[np.bool_]
Column: TypeAlias = Any
"""An array of Arrow, in chunks or whole; its published types are narrower than what it takes."""

NONE: Final = -1


def column_of(table: pa.Table, name: str) -> Column:
    """A column of a table."""
    return table.column(name)


def taken(column: Column, rows: Rows) -> Column:
    """Some rows of a column, in this order and in one piece."""
    found = column.take(pa.array(rows, pa.int64()))
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def rows_of(table: pa.Table, rows: Rows) -> pa.Table:
    """Some rows of a table, in this order."""
    indices: Any = pa.array(rows, pa.int64())
    return table.take(indices)


def words_of(column: Column) -> Column:
    """A column of text in one piece, as codes into a dictionary."""
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    return column if pa.types.is_dictionary(column.type) else column.dictionary_encode()


def flags(answers: Column) -> Flags:
    """Which answers are true; those about nothing are not."""
    return np.asarray(pc.fill_null(answers, False), dtype=np.bool_)


def equals(column: Column, value: str | int) -> Flags:
    """Which values are this one; nothing is not."""
    scalar: Any = pa.scalar(value)
    return flags(pc.equal(column, scalar))


def among(texts: Column, wanted: Collection[str]) -> Flags:
    """Which texts are one of those that are wanted."""
    return flags(pc.is_in(texts, pa.array(list(wanted), pa.string())))
