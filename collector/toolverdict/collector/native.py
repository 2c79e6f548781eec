"""The native decoder: ``collector/native``, compiled, behind the interface of ``decoders``.

Importing this fails where it was not built. It makes the same tables as
:mod:`toolverdict.collector.decode`, which is its referee.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from toolverdict.collector import _decode
from toolverdict.collector.bounds import MESSAGES, malformed, too_many
from toolverdict.collector.limits import Limits, Over, limit_faults
from toolverdict.collector.schema import SCHEMAS
from toolverdict.collector.signals import WIRE, Signal
from toolverdict.collector.validate import LOG_FAULTS, LOG_WARNINGS, SPAN_FAULTS, Judgement

if TYPE_CHECKING:
    from typing_extensions import CapsuleType

_FAULTS: Final = {Signal.TRACES: SPAN_FAULTS, Signal.LOGS: LOG_FAULTS}
_FIRST_OVER_LIMIT: Final = 100
"""The first number of ``otlp.h`` that stands for a text of ``limit_faults``."""


def _text(signal: Signal, reason: int, limits: Limits) -> str:
    """The text of a number of the native decoder."""
    if reason < _FIRST_OVER_LIMIT:
        return _FAULTS[signal][reason]
    return limit_faults(limits)[reason - _FIRST_OVER_LIMIT]


class NativeDecoder:
    """Judges requests and builds tables of their rows, as a ``Decoder``."""

    name: Final = "native"

    def __init__(self) -> None:
        """Check that the compiled decoder fits.

        Raises:
            ValueError: when it was built for another schema.
        """
        for signal in Signal:
            self.rows(signal)

    def judge(self, signal: Signal, body: bytes, limits: Limits) -> Judgement:
        """See :meth:`toolverdict.collector.decoders.Decoder.judge`."""
        try:
            accepted, rejected, warnings, over = _decode.judge(signal, body, limits)
        except _decode.Malformed:
            raise malformed(signal) from None
        except _decode.TooManyRecords:
            raise too_many(limits.records, WIRE[signal].noun) from None
        except _decode.TooManyMessages:
            raise too_many(limits.messages, MESSAGES) from None
        return Judgement(
            accepted,
            Counter({_text(signal, reason, limits): count for reason, count in rejected}),
            Counter({LOG_WARNINGS[reason]: count for reason, count in warnings}),
            Over(*map(frozenset, over)),
        )

    def rows(self, signal: Signal, *, judged: bool = False) -> "NativeRowBuilder":
        """See :meth:`toolverdict.collector.decoders.Decoder.rows`."""
        return NativeRowBuilder(signal, judged)


class NativeRowBuilder:
    """Rows of requests, until they are taken as a table, as a ``RowBuilder``."""

    def __init__(self, signal: Signal, judged: bool) -> None:
        self._signal = signal
        self._schema = SCHEMAS[signal]
        self._builder = _decode.RowBuilder(signal, judged, self._schema.__arrow_c_schema__())

    @property
    def num_rows(self) -> int:
        """Rows that were not taken yet."""
        return self._builder.num_rows

    def feed(self, body: bytes | memoryview, received_unix_nano: int) -> None:
        """See :meth:`toolverdict.collector.decoders.RowBuilder.feed`."""
        with self._refusing():
            self._builder.feed(body, received_unix_nano)

    def full_part(self, max_rows: int, max_weight: int) -> int:
        """See :meth:`toolverdict.collector.decoders.RowBuilder.full_part`."""
        return self._builder.full_part(max_rows, max_weight)

    def take(self) -> pa.Table:
        """See :meth:`toolverdict.collector.decoders.RowBuilder.take`."""
        with self._refusing():
            return self._table(self._builder.take())

    def take_sorted(self, rows: int, buckets: int) -> list[tuple[int, pa.Table]]:
        """See :meth:`toolverdict.collector.decoders.RowBuilder.take_sorted`."""
        with self._refusing():
            taken = self._builder.take_sorted(rows, buckets)
        return [(bucket, self._table(array)) for bucket, array in taken]

    @contextmanager
    def _refusing(self) -> Iterator[None]:
        try:
            yield
        except _decode.Malformed:
            raise malformed(self._signal) from None

    def _table(self, array: "CapsuleType") -> pa.Table:
        return pa.Table.from_batches([pa.record_batch(_Exported(self._schema, array))])


class _Exported:
    """What Arrow's PyCapsule protocol wants to see of a batch."""

    def __init__(self, schema: pa.Schema, array: "CapsuleType") -> None:
        self._schema = schema
        self._array = array

    def __arrow_c_array__(
        self, requested_schema: object = None
    ) -> tuple["CapsuleType", "CapsuleType"]:
        return self._schema.__arrow_c_schema__(), self._array
