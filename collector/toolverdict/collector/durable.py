"""Files that survive a crash: sync of folders, and writing that a reader never sees half done."""

import os
from collections import deque
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Final

_MAX_PIECES: Final = os.sysconf("SC_IOV_MAX")
"""Pieces one ``writev`` takes."""


def sync_file(descriptor: int) -> None:
    """Wait until a file's bytes are on the disk (``fdatasync`` where the system has it)."""
    if hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder (files made, renamed, deleted) are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, root: Path) -> None:
    """Make a folder and its parents below ``root``, durably.

    Folders that are there already are synced as well: whoever made them may have crashed before.
    """
    if folder == root:
        return
    make_folder(folder.parent, root)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def write_all(descriptor: int, pieces: Iterable[bytes | memoryview]) -> None:
    """Write every byte of many pieces without joining them: one ``writev`` may stop short."""
    rest = deque([memoryview(piece) for piece in pieces])
    while rest:
        written = os.writev(descriptor, list(islice(rest, _MAX_PIECES)))
        while rest and written >= len(rest[0]):
            written -= len(rest.popleft())
        if written:
            rest[0] = rest[0][written:]


def replace_durably(temporary: Path, final: Path) -> None:
    """Give a finished temporary file its name: file, rename and folder are synced in order."""
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(final)
    sync_folder(final.parent)
