"""Ends of calls that come in the middle of something else of ours, in the same thread.

Garbage collection ends a call wherever the interpreter happens to be: inside of a transaction too.
What it has to write then waits until that is over.
"""

import contextlib
import inspect
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class _Here(threading.local):
    def __init__(self) -> None:
        self.inside: FrameType | None = None
        self.emptying = False
        self.waiting: deque[Callable[[], None]] = deque()


_here = _Here()


@contextmanager
def busy() -> Iterator[None]:
    """What this thread does inside must not be entered again by the end of a call."""
    before, mine = _here.inside, _entered_from()
    try:
        _here.inside = mine
        yield
    finally:
        if _here.inside is mine:  # or it was interrupted, given up and is ended late
            _here.inside = before
        _catch_up()


def is_busy() -> bool:
    """Whether this thread is in the middle of something."""
    if _here.inside is None:
        return False
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame is _here.inside:
            return True
        frame = frame.f_back
    # It was left, by an interruption that came before that could be noted.
    _here.inside = None
    return False


def when_free(act: Callable[[], None]) -> None:
    """Act now, or when this thread is done with what it is in the middle of. ``act`` never raises."""
    _here.waiting.append(act)
    _catch_up()


def _catch_up() -> None:
    if _here.emptying or not _here.waiting or is_busy():
        return
    try:
        _here.emptying = True
        while _here.waiting:
            _here.waiting.popleft()()
    finally:
        _here.emptying = False


def _entered_from() -> FrameType:
    """The frame of the function that has the ``with``: what is between are its managers."""
    frame = sys._getframe(1)
    while frame.f_back is not None and (
        frame.f_code.co_flags & inspect.CO_GENERATOR
        or frame.f_code.co_filename == contextlib.__file__
    ):
        frame = frame.f_back
    return frame
