"""Our own faults never break the tool: they are swallowed here, counted, and logged now and then.

The log line names the cause and the class of the exception, never its message, which may hold an
argument. In tests, ``testing.strict()`` makes our faults raise.
"""

import logging
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

LOG_INTERVAL_S: Final = 20.0
_MOST_ONCE: Final = 1000

_log = logging.getLogger("toolverdict.instrument")


class _State:
    def __init__(self) -> None:
        # Reentrant: the interpreter may end an abandoned span at any moment, also in here.
        self.lock = threading.RLock()
        self.counts: Counter[str] = Counter()
        self.logged_at: dict[str, float] = {}
        self.logged_once: set[str] = set()
        self.strict = 0


_state = _State()


def fault(cause: str, error: Exception) -> None:
    """Take note of a fault of ours. Raises it when strict, and never otherwise."""
    if _state.strict:
        raise error
    note(cause, "%s failed (%s); the tool is not affected", cause, type(error).__name__)


def note(cause: str, message: str, *arguments: object) -> None:
    """Count something that should be looked at, and log it unless its cause was just logged."""
    now = time.monotonic()
    with _state.lock:
        _state.counts[cause] += 1
        last = _state.logged_at.get(cause)
        if last is not None and now - last < LOG_INTERVAL_S:
            return
        _state.logged_at[cause] = now
    _warn(message, arguments)


def note_once(cause: str, message: str, *arguments: object) -> bool:
    """Count something, and log each different line of it once; whether that was this time.

    What was just logged of the same cause does not keep another line back.
    """
    line = f"{message} {arguments!r}"
    with _state.lock:
        _state.counts[cause] += 1
        if line in _state.logged_once or len(_state.logged_once) >= _MOST_ONCE:
            return False
        _state.logged_once.add(line)
    _warn(message, arguments)
    return True


def where(error: BaseException) -> None:
    """Log at level debug where an exception came from: the lines of code, never its message."""
    with suppress(Exception):
        lines = "".join(traceback.format_tb(error.__traceback__))
        _log.debug("%s came from:\n%s", type(error).__name__, lines)


def _warn(message: str, arguments: tuple[object, ...]) -> None:
    # A handler or filter of the application may raise; that must not reach the tool either.
    with suppress(Exception):
        _log.warning(message, *arguments)


def counts() -> dict[str, int]:
    """How often each cause occurred in this process."""
    with _state.lock:
        return dict(_state.counts)


@contextmanager
def strict() -> Iterator[None]:
    """Make faults raise while the context is open."""
    with _state.lock:
        _state.strict += 1
    try:
        yield
    finally:
        with _state.lock:
            _state.strict -= 1
