"""A unit of work and what came of it: plain values that travel between processes and machines."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from toolverdict.scoring.counts import Counts
from toolverdict.scoring.engine.keys import NO_KEYS, Keys


class Stage(StrEnum):
    """Where a unit's rows come from, and what may still be set aside."""

    WINDOW = "window"
    """From the lake; sets aside what lies in other windows, too, and what may concern others."""
    LATE = "late"
    """Traces of several windows, set aside before; sets aside what may concern others."""
    ACROSS = "across"
    """What may concern others; the end."""


class Range(NamedTuple):
    """Trace ids from one on, up to another one; None for no border."""

    first: str | None = None
    end: str | None = None


EVERYTHING: Final = Range()


@dataclass(frozen=True, slots=True, eq=False)
class Unit:
    """What one call of :func:`~.work.run_unit` scores."""

    stage: Stage
    name: str
    """Names it among the units of a run; in file names."""
    digest: str
    """Of everything that its results depend on."""
    spans: tuple[str, ...]
    """Parts of the lake, or files that other units set aside."""
    logs: tuple[str, ...]
    within: Range = EVERYTHING
    shard: tuple[int, int] = (0, 1)
    """Of the traces of a late unit: those whose key, divided by the second, leaves the first."""
    shared: Keys = field(default_factory=lambda: NO_KEYS)
    """Sorted keys of traces that have rows in other windows, too: set aside."""
    earlier: Keys = field(default_factory=lambda: NO_KEYS)
    """Sorted keys of traces that began before what is to be scored: passed over."""
    awaited: frozenset[str] = frozenset()
    """Conversations that records without a trace belong to."""
    may_be_open: bool = False
    """Whether a trace of it may be one that goes on."""

    @property
    def file(self) -> str:
        """The name, without its suffix, of each file of the unit."""
        return file_of(self.name, self.digest)


@dataclass(frozen=True, slots=True)
class SetAside:
    """How much a unit left for a stage behind it."""

    spans: int = 0
    logs: int = 0
    latest_ns: int = 0
    """When the last row of it was received."""


NOTHING: Final = SetAside()


@dataclass(frozen=True, slots=True)
class Done:
    """What a unit did. ``open_traces`` may go on, so they were not scored."""

    unit: str
    digest: str
    counts: Counts
    late: SetAside = NOTHING
    across: SetAside = NOTHING
    open_traces: int = 0

    @property
    def file(self) -> str:
        """The name, without its suffix, of each file of the unit."""
        return file_of(self.unit, self.digest)


def file_of(unit: str, digest: str) -> str:
    """The name, without its suffix, of the files of a unit: same inputs, same name."""
    return f"unit-{unit}-{digest[:32]}"
