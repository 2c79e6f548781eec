"""The trees of all traces of a table at once, as arrays of row numbers.

A row is a span; the rows of a trace lie together. Parents are found without a Python step per span,
and what a span inherits from its ancestors is handed down level by level.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.scoring.columns.arrays import NONE, Column, Flags, Rows, column_of, flags

Ids: TypeAlias = npt.NDArray[np.uint64]

_ORPHAN: Final = -2
_MAX_DEPTH: Final = 32
_NEAR: Final = 4
"""How many rows before a span its parent is looked for first: most are there."""
_ID_CHARS: Final = 16

_HEX: Final = np.full(256, 255, dtype=np.uint8)
for _digit, _char in enumerate(b"0123456789abcdef"):
    _HEX[_char] = _digit


@dataclass(frozen=True, slots=True)
class Levels:
    """Rows by their depth: those of each level but the first, with the rows of their parents."""

    rows: tuple[tuple[Rows, Rows], ...]
    reached: Flags


class Forest:
    """Traces of a table that is sorted by trace id, start and span id.

    ``trace`` is the number of each row's trace, ``first`` the first row of each trace, ``parent``
    the row of each span's parent. ``odd`` are the traces that cannot be told apart or whose parents
    are missing or run in a circle.
    """

    def __init__(self, table: pa.Table) -> None:
        """Find the parents.

        Args:
            table: at least one row, with ``trace_id``, ``span_id``, ``parent_span_id`` and
                ``start_time_unix_nano``, without chunks.
        """
        self.size: Final = table.num_rows
        self.trace: Final = _numbered(column_of(table, "trace_id"))
        self.first: Final = np.flatnonzero(np.diff(self.trace, prepend=-1))
        self.count: Final = len(self.first)
        self.start: Final = table.column("start_time_unix_nano").to_numpy()
        own, own_odd = _ids(column_of(table, "span_id"))
        above, above_odd = _ids(column_of(table, "parent_span_id"))
        has_parent = flags(pc.is_valid(column_of(table, "parent_span_id")))
        parent = self._parents(own, above, has_parent)
        odd_rows = own_odd | (above_odd & has_parent) | (parent == _ORPHAN)
        self.parent: Final = np.where(parent == _ORPHAN, NONE, parent)
        odd_rows |= self._out_of_order(own) | ~self.levels.reached
        self.odd: Final = self.any_of(odd_rows)

    def _parents(self, own: Ids, above: Ids, has_parent: Flags) -> Rows:
        parent = np.where(has_parent, _ORPHAN, NONE)
        rows = np.arange(self.size)
        first_of = self.first[self.trace]
        for step in range(_NEAR + 1):
            candidate = np.maximum(rows - step, first_of) if step else first_of
            fits = (parent == _ORPHAN) & (candidate != rows)
            fits &= own[candidate] == above
            parent[fits] = candidate[fits]
        left = np.flatnonzero(parent == _ORPHAN)
        if len(left):
            among = np.flatnonzero(self.any_of(parent == _ORPHAN)[self.trace])
            mixed = _mixed(own[among], self.trace[among])
            order = np.argsort(mixed)
            place = np.searchsorted(mixed[order], _mixed(above[left], self.trace[left]))
            found = among[order[np.minimum(place, len(among) - 1)]]
            fits = (own[found] == above[left]) & (self.trace[found] == self.trace[left])
            fits &= found != left
            parent[left[fits]] = found[fits]
        return parent

    def _out_of_order(self, own: Ids) -> Flags:
        """Rows that are not after the one before them in time and id, or have the same id."""
        same = np.diff(self.trace, prepend=-1) == 0
        later = np.diff(self.start, prepend=0) > 0
        tied = np.diff(self.start, prepend=0) == 0
        greater = np.concatenate(([True], own[1:] > own[:-1]))
        out: Flags = same & ~(later | (tied & greater))
        return out

    @cached_property
    def levels(self) -> Levels:
        """The rows level by level; those that no root reaches within a bound are not there."""
        reached = self.parent == NONE
        found = []
        waiting = np.flatnonzero(self.parent >= 0)
        for _ in range(_MAX_DEPTH):
            under = reached[self.parent[waiting]]
            rows = waiting[under]
            if not len(rows):
                break
            found.append((rows, self.parent[rows]))
            waiting = waiting[~under]
            reached = reached.copy()
            reached[rows] = True
        return Levels(tuple(found), reached)

    def handed_down(self, own: Rows, stop: Flags | None = None) -> Rows:
        """Each row's own code, else that of its nearest ancestor that has one.

        Args:
            own: a code for each row, -1 for none.
            stop: rows that take nothing from above, and so hide it from those below.
        """
        found = own.copy()
        for rows, parents in self.levels.rows:
            above = found[parents]
            if stop is not None:
                above = np.where(stop[rows], NONE, above)
            found[rows] = np.where(own[rows] >= 0, own[rows], above)
        return found

    def above(self, own: Rows, stop: Flags) -> Rows:
        """The code of each row's nearest ancestor that has one; ``stop`` rows hide those above."""
        return np.where(self.parent >= 0, self.handed_down(own, stop)[self.parent], NONE)

    def any_of(self, rows: Flags) -> Flags:
        """For each trace, whether any of its rows is marked."""
        return np.logical_or.reduceat(rows, self.first)

    def first_code(self, codes: Rows) -> Rows:
        """For each trace, the first code of its rows that is not -1."""
        found = np.full(self.count, NONE)
        rows = np.flatnonzero(codes >= 0)[::-1]
        found[self.trace[rows]] = codes[rows]  # the last one written is the first one there
        return found

    def differing(self, codes: Rows) -> Flags:
        """For each trace, whether its rows have two different codes (-1 is none)."""
        greatest = np.maximum.reduceat(codes, self.first)
        least = np.minimum.reduceat(np.where(codes < 0, np.iinfo(np.int64).max, codes), self.first)
        differ: Flags = (greatest >= 0) & (least != greatest)
        return differ


def _numbered(ids: Column) -> Rows:
    """The number of each row's trace, from 0."""
    changed = flags(pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)))
    return np.concatenate(([0], np.cumsum(changed, dtype=np.int64)))


def _ids(ids: Column) -> tuple[Ids, Flags]:
    """Ids of 16 hex digits as numbers in the same order, and which rows have another form."""
    text: Column = pc.fill_null(ids, "0" * _ID_CHARS).combine_chunks()
    odd = flags(pc.not_equal(pc.binary_length(text), pa.scalar(_ID_CHARS))).copy()
    if odd.any():
        text = pc.if_else(pa.array(odd), "0" * _ID_CHARS, text)
    data = np.frombuffer(text.buffers()[2], dtype=np.uint8)
    begin = np.frombuffer(text.buffers()[1], dtype=np.int32, count=text.offset + 1)[text.offset]
    digits = _HEX[data[begin : begin + len(text) * _ID_CHARS]].reshape(len(text), _ID_CHARS)
    odd |= (digits > 15).any(axis=1)
    packed = (digits[:, 0::2] << 4) | (digits[:, 1::2] & 15)
    return np.ascontiguousarray(packed).view(">u8").reshape(-1).astype(np.uint64), odd


def _mixed(ids: Ids, trace: Rows) -> Ids:
    """One number for trace and id; two rows that share one only fail to find each other."""
    mixed: Ids = ids ^ (trace.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return mixed
