"""Memory that was freed is used again, not given back and cleared anew."""

import platform
import subprocess
import sys

import pytest

_PROGRAM = """
import resource, sys
if sys.argv[1] == "keep":
    from toolverdict.collector.allocator import keep_freed_memory
    keep_freed_memory()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def use():
    for size in (3, 5, 40):
        bytearray(size * 1024 * 1024)[::4096] = bytes(size * 256)
use()
before = faults()
for _ in range(10):
    use()
print(faults() - before)
"""


def _faults(mode: str) -> int:
    command = [sys.executable, "-c", _PROGRAM, mode]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_pages_are_cleared_once() -> None:
    assert _faults("keep") * 5 < _faults("leave")
