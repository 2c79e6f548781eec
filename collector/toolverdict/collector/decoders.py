"""What decoding is, and which of the two decoders does it.

The native one serves where the build found a compiler, the one in Python elsewhere. Both take and
refuse the same requests and make the same tables; the environment variable ``TOOLVERDICT_DECODER``
(``native`` or ``python``) insists on one of them.
"""

import os
from functools import cache
from typing import Final, NamedTuple, Protocol

import pyarrow as pa

from toolverdict.collector.decode import PythonDecoder
from toolverdict.collector.errors import ConfigError
from toolverdict.collector.limits import Limits
from toolverdict.collector.signals import Signal
from toolverdict.collector.validate import Judgement

VARIABLE: Final = "TOOLVERDICT_DECODER"


class RowBuilder(Protocol):
    """Gathers the rows of requests of one signal. For one thread."""

    @property
    def num_rows(self) -> int:
        """Rows that were not taken yet."""

    def feed(self, body: bytes | memoryview, received_unix_nano: int) -> None:
        """Add the rows of one request, in the order in which they were sent.

        Records that cannot be stored are left out, as intake already told the client.

        Args:
            body: an export request in protobuf; it is kept until its rows are taken.
            received_unix_nano: when it arrived, in nanoseconds since 1970 UTC.

        Raises:
            DecodeError: when the bytes are not that message; no row is added then.
        """

    def full_part(self, max_rows: int, max_weight: int) -> int:
        """How many of the first rows fill a part; 0 when all of them do not.

        Args:
            max_rows: rows that are enough.
            max_weight: weight that is enough, in bytes; see :mod:`toolverdict.collector.weights`.
        """

    def take(self) -> pa.Table:
        """The rows as a table with the schema of the signal; none is left here."""

    def take_sorted(self, rows: int, buckets: int) -> list[tuple[int, pa.Table]]:
        """The first rows as a lake has them; the others are left here.

        Args:
            rows: how many; fewer when there are not so many.
            buckets: of the lake.

        Returns:
            The number and the rows of each bucket that has any, sorted by ``SORT_KEYS``, equal ones
            in the order in which they were fed. Dictionaries hold what their rows need, in the
            order of its first use.
        """


class Decoder(Protocol):
    """Judges requests at intake and decodes them when they leave the log."""

    @property
    def name(self) -> str:
        """``native`` or ``python``."""

    def judge(self, signal: Signal, body: bytes, limits: Limits) -> Judgement:
        """Say which records of a request can be stored.

        :meth:`RowBuilder.feed` would add those, and what is over a limit, if the log had it.

        Args:
            signal: what the body should hold.
            body: an export request in protobuf.
            limits: of the request and of its records.

        Raises:
            DecodeError: when the bytes are not that message (or nest more than 100 deep), or
                there are more records or messages than a request may have.
        """

    def rows(self, signal: Signal, *, judged: bool = False) -> RowBuilder:
        """A builder for the rows of one signal.

        Args:
            signal: what its requests hold.
            judged: each request was judged before, and its bytes are still the same. Then a decoder
                may look into attributes only when their rows are taken; ``take`` and ``take_sorted``
                raise DecodeError when it was not so, and the builder is of no use after that.
        """


def decoder() -> Decoder:
    """The decoder that serves.

    Raises:
        ConfigError: when ``TOOLVERDICT_DECODER`` names none, or one that was not built.
    """
    return _choose(os.environ.get(VARIABLE, "")).decoder


def decoder_in_use() -> str:
    """``native``, or ``python`` with the reason.

    Raises:
        ConfigError: as :func:`decoder` does.
    """
    chosen = _choose(os.environ.get(VARIABLE, ""))
    return f"{chosen.decoder.name} ({chosen.reason})" if chosen.reason else chosen.decoder.name


class _Chosen(NamedTuple):
    decoder: Decoder
    reason: str | None
    """Why it is not the native one."""


@cache
def _choose(wanted: str) -> _Chosen:
    if wanted not in ("", "native", "python"):
        raise ConfigError(f"{VARIABLE} must be native or python; unset it for the best there is")
    if wanted == "python":
        return _Chosen(PythonDecoder(), f"as {VARIABLE} says")
    try:
        from toolverdict.collector.native import NativeDecoder

        return _Chosen(NativeDecoder(), None)
    except ModuleNotFoundError:
        reason = "the native decoder was not built"
    except (ImportError, ValueError) as error:
        reason = f"the native decoder cannot be used: {error}"
    if wanted == "native":
        raise ConfigError(
            f"{VARIABLE} is native, but {reason}; install toolverdict again where there is a C++ "
            "compiler, or unset the variable"
        )
    return _Chosen(PythonDecoder(), reason)
