"""Time for things that expire: the wall's, and one that nobody can turn back.

A wall clock is set, by people and by daemons. What has expired by a clock that only goes forward
stays expired whatever the wall says; and a wall that is earlier than something that has already
happened cannot say how much time is left, so there is none.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

SKEW_MS: Final = 2_000
"""How far the wall may be set back without a consequence: what time daemons do all day."""

COLUMNS: Final = ("touched_at", "expires_at", "boot", "began_steady", "ends_steady")


@dataclass(frozen=True, slots=True)
class Clock:
    """Where the time comes from.

    Args:
        wall_ms: Milliseconds since 1970, UTC.
        steady_ms: Milliseconds since the machine booted, the same in all of its processes.
        boot: Names the boot that ``steady_ms`` counts from; None where it has no name.
    """

    wall_ms: Callable[[], int]
    steady_ms: Callable[[], int]
    boot: Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class Lifetime:
    """From when until when something is alive, by both clocks.

    Args:
        touched_at: The last thing that is known to have happened, by the wall.
        expires_at: When it ends, by the wall.
        boot: The boot that the two below count from.
        began_steady: When it began, since that boot.
        ends_steady: When it ends, since that boot.
    """

    touched_at: int
    expires_at: int
    boot: str | None
    began_steady: int
    ends_steady: int

    @property
    def columns(self) -> tuple[int, int, str | None, int, int]:
        """What a table keeps of it, in the order of ``COLUMNS``."""
        return (
            self.touched_at,
            self.expires_at,
            self.boot,
            self.began_steady,
            self.ends_steady,
        )

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> "Lifetime":
        """What a table kept."""
        return cls(*(row[name] for name in COLUMNS))

    @classmethod
    def of(cls, clock: Clock, milliseconds: int) -> "Lifetime":
        """A life that begins now."""
        wall, steady = clock.wall_ms(), clock.steady_ms()
        return cls(wall, wall + milliseconds, clock.boot(), steady, steady + milliseconds)

    def is_over(self, clock: Clock) -> bool:
        """Whether it has ended, or nobody can say that it has not."""
        wall = clock.wall_ms()
        if wall >= self.expires_at or wall < self.touched_at - SKEW_MS:
            return True
        if self.boot is None or self.boot != clock.boot():
            return False
        return not self.began_steady <= clock.steady_ms() < self.ends_steady


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _steady_ms() -> int:
    source = getattr(time, "CLOCK_BOOTTIME", None)  # goes on while the machine is asleep
    return (time.monotonic_ns() if source is None else time.clock_gettime_ns(source)) // 1_000_000


@cache
def _boot() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


SYSTEM: Final = Clock(_wall_ms, _steady_ms, _boot)
"""The machine's clocks."""
