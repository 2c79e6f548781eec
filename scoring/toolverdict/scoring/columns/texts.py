"""Columns of text as codes into their distinct texts: compared, handed down and mapped as numbers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.scoring.columns.arrays import NONE, Column, Rows, taken, words_of


@dataclass(frozen=True, slots=True)
class Texts:
    """A text for each of several rows, as codes into the distinct ones (-1: none)."""

    codes: Rows
    texts: Column

    def of(self, codes: Rows) -> "Texts":
        """The texts of other rows, whose codes are known."""
        return Texts(codes, self.texts)

    def or_else(self, other: "Texts") -> "Texts":
        """These, and where there is none those of another column of as many rows."""
        if (self.codes >= 0).all():
            return self
        moved = np.where(other.codes >= 0, other.codes + len(self.texts), NONE)
        texts = pa.concat_arrays([self.texts, other.texts])
        return Texts(np.where(self.codes >= 0, self.codes, moved), texts)

    def each(self, change: Callable[[str], str | None]) -> "Texts":
        """Every text changed, each distinct one once; None leaves none."""
        used = np.unique(self.codes[self.codes >= 0])
        changed = [change(text) for text in taken(self.texts, used).to_pylist()]
        codes = np.full(len(self.texts) + 1, NONE)  # the code -1 is the last
        codes[used] = [NONE if text is None else number for number, text in enumerate(changed)]
        return Texts(codes[self.codes], pa.array(changed, pa.string()))

    def array(self) -> Column:
        """As Arrow text, null where there is none."""
        return self.texts.take(pa.array(self.codes, mask=self.codes < 0))

    def list(self) -> list[str | None]:
        """As Python texts."""
        texts: list[str | None] = self.array().to_pylist()
        return texts


def encoded(column: Column) -> Texts:
    """A column of text as codes."""
    if column.null_count == len(column):
        return Texts(np.full(len(column), NONE), pa.array([], pa.string()))
    array = words_of(column)
    codes = pc.fill_null(array.indices, NONE).to_numpy(zero_copy_only=False).astype(np.int64)
    texts: Column = array.dictionary.cast(pa.string())
    if pa.types.is_dictionary(column.type):  # of a file: a text may stand there twice
        once: Column = texts.dictionary_encode()
        places = pc.fill_null(once.indices, NONE).to_numpy(zero_copy_only=False)
        codes, texts = np.append(places, NONE)[codes].astype(np.int64), once.dictionary
    return Texts(codes, texts)


def names(column: Column) -> Texts:
    """A column of names as codes; an empty one is none."""
    found = encoded(column)
    empty = pc.index(found.texts, pa.scalar("")).as_py()
    return found.of(np.where(found.codes == empty, NONE, found.codes)) if empty >= 0 else found


def distinct(texts: list[str | None]) -> Texts:
    """Python texts as codes."""
    return encoded(pa.array(texts, pa.string()))
