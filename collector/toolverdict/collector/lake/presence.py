"""Whether a collector is at work on a folder, asked without touching its locks.

A lock that is only tried is held for a moment, and a collector that starts in that moment would
take us for another one. The kernel's list of locks says the same and hinders nobody.
"""

import os
from pathlib import Path
from typing import Final

_KERNEL_LOCKS: Final = Path("/proc/locks")


def has_collector(folder: Path) -> bool:
    """Whether a process holds a lock on a folder, alone or with its workers.

    Where the system has no list of locks (Linux has one), or does not show those of another
    container, the answer is no.
    """
    try:
        found = folder.stat()
        listed = _KERNEL_LOCKS.read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    # "1: FLOCK  ADVISORY  WRITE 13765 fe:00:2165065 0 EOF"; one that waits has "->" in second place.
    locks = (line.split() for line in listed.splitlines())
    return any(words[1:2] == ["FLOCK"] and words[5:6] == [device] for words in locks)
