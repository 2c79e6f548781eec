"""What the C library does with memory that was freed: keep it.

A body of half a megabyte is by default mapped anew for every request and given back after it, and
the kernel clears every page of it again: a tenth of all the collector's CPU time. Kept memory is
bounded by what is in flight at a time, as everything here is.
"""

import ctypes
import sys
from typing import Final

# mallopt(3), malloc.h of glibc.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_MAX: Final = -4
_M_ARENA_MAX: Final = -8

_KEPT_BYTES: Final = 256 * 1024 * 1024


def keep_freed_memory() -> None:
    """Tell glibc to reuse freed memory, in one arena for all threads; elsewhere nothing happens."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library, as musl
        return
    mallopt(_M_ARENA_MAX, 1)
    mallopt(_M_MMAP_MAX, 0)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    import pyarrow as pa  # slow to import, and a help page needs none of it

    # Arrow's own allocators give back what they do not need for a moment.
    pa.set_memory_pool(pa.system_memory_pool())
