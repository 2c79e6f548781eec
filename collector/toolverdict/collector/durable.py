"""Files that survive a crash: sync of folders, and writing that a reader never sees half done."""

import os
from pathlib import Path


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


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte: one ``write`` may stop short."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def replace_durably(temporary: Path, final: Path) -> None:
    """Give a finished temporary file its name: file, rename and folder are synced in order."""
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(final)
    sync_folder(final.parent)
