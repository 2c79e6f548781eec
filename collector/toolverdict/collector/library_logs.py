"""What asyncio and gRPC may log: little, seldom, and nothing that a client sent.

They write a traceback for every connection that breaks a rule, and the message of its exception
holds bytes of the request. What stays is what they call the event and the type of the exception.
"""

import logging
import time
from typing import Final

INTERVAL_S: Final = 10.0
"""Seconds between two lines of one logger."""

_LOGGERS: Final = (
    "asyncio",
    "grpc._cython.cygrpc",
)


def quieten() -> None:
    """Put a filter on every logger of a library that sees what clients send."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(LibraryFilter())


class LibraryFilter(logging.Filter):
    """Shortens records and drops those that come too often."""

    def __init__(self) -> None:
        """Start with nothing dropped."""
        super().__init__()
        self._next_s = 0.0
        self._dropped = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is written; it is made shorter in place."""
        now = time.monotonic()
        if now < self._next_s:
            self._dropped += 1
            return False
        self._next_s = now + INTERVAL_S
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else "none"
        # The template, not the message: arguments come from clients.
        event = str(record.msg).partition("\n")[0]
        record.msg = "%s: %s (exception: %s; %d more lines like it were left out)"
        record.args = (record.name, event, error, self._dropped)
        record.exc_info = record.exc_text = record.stack_info = None
        self._dropped = 0
        return True
