"""Ids of traces and spans that no other process makes.

The SDK's own come out of the ``random`` module. Two processes that were forked in C, or that both
called ``random.seed(42)``, make the same ones there, and a collector takes the second span of an id
for the first one sent again.
"""

import os

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator


class SystemIdGenerator(RandomIdGenerator):
    """Ids from the operating system, which knows of no seed."""

    def generate_span_id(self) -> int:
        """A random id of 64 bits that is not zero."""
        return _random_id(8)

    def generate_trace_id(self) -> int:
        """A random id of 128 bits that is not zero."""
        return _random_id(16)


def _random_id(length: int) -> int:
    while True:
        made = int.from_bytes(os.urandom(length))
        if made:
            return made
