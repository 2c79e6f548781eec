"""The snapshot of a call's arguments, and its canonical form.

One snapshot is hashed, decided about and shown to the approver, so all of them speak of the same.
"""

from types import MappingProxyType

from toolverdict.instrument import plain
from toolverdict.instrument.arguments import Arguments, freeze
from toolverdict.instrument.canonical import canonicalise


def take(bound: dict[str, object]) -> tuple[Arguments, bytes]:
    """A read-only copy of bound arguments, and its canonical form.

    Raises:
        Unhashable: They have none.
    """
    made = plain.snapshot(bound)
    if made is not None:
        copied, canon = made
        return MappingProxyType(copied), canon
    arguments = freeze(bound)
    return arguments, canonicalise(arguments)
