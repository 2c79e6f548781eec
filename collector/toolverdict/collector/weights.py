r"""How many bytes of columns a record can become, told from its bytes on the wire.

Two bytes are a whole empty event on the wire, and 76 as JSON text. So what a record may weigh is
limited at intake, and a part of a segment ends at a weight: that bounds the memory of a flush. The
weight is quick to find and never below the truth:

* every byte counts twice, as quotes and backslashes do in JSON;
* a byte below 0x20 counts six more: ``\u0001`` for a control character, and ``["",null],`` for the
  least attribute, whose length on the wire is such a byte;
* an event or a link has names of fields for :data:`ITEM`, a row numbers and nulls for :data:`ROW`,
  and a resource or scope its entry in an index for :data:`CONTEXT`.
"""

from typing import Final

ROW: Final = 512
CONTEXT: Final = 256
ITEM: Final = 100
_MOST_OF_A_BYTE: Final = 8

_LOW: Final = bytes(range(0x20))


def weight_of(wire: bytes) -> int:
    """Of any bytes of the wire."""
    return 2 * len(wire) + 6 * (len(wire) - len(wire.translate(None, _LOW)))


def weight_of_record(wire: bytes, items: int) -> int:
    """Of a span or log record with so many events and links."""
    return ROW + ITEM * items + weight_of(wire)


def smallest_record(weight: int) -> int:
    """So many bytes on the wire can weigh that much, fewer cannot."""
    most_of_a_byte = _MOST_OF_A_BYTE + ITEM // 2  # an event or link has two bytes at least
    return max(0, weight - ROW) // most_of_a_byte


def weight_of_context(pieces: list[bytes]) -> int:
    """Of a resource or scope: its messages, as there may be several, and URLs of its schema."""
    return CONTEXT + sum(map(weight_of, pieces))
