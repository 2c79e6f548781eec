"""The upkeep of a lake in one call: retention, then compaction of what is left."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from toolverdict.collector.lake.compaction import Compaction, CompactionSettings, compact
from toolverdict.collector.lake.reading import Lake
from toolverdict.collector.lake.retention import Retention, retain
from toolverdict.collector.lake.thinning import Thinning


@dataclass(frozen=True)
class MaintenanceSettings:
    """What to keep and how."""

    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    thinning: Callable[[Lake, datetime], Thinning] | None = None
    """Decides about the traces of a lake before it is compacted, while nobody else is at work. It is
    given the time before which all that was received is in the lake."""
    max_age: timedelta | None = None
    """Hours that ended longer ago are deleted, None to keep them."""
    max_bytes: int | None = None
    """The oldest hours are deleted until the parts have no more bytes, None for no limit."""


class Maintenance(NamedTuple):
    """What was done."""

    compaction: Compaction
    retention: Retention


def maintain(lake: Lake, settings: MaintenanceSettings, now: datetime | None = None) -> Maintenance:
    """Delete hours that retention does not keep, then compact the closed ones.

    Safe beside a collector that writes to the lake and readers that read it, in a thread or a
    process of its own; a kill at any point loses nothing, the next call goes on. Memory is bounded
    as :mod:`toolverdict.collector.lake.regroup` says.

    Args:
        lake: the lake.
        settings: when to compact and what to keep.
        now: the time, for tests.

    Raises:
        LakeError: when another compaction or retention is at work on this lake; try again later.
        OSError: when the disk does not take or give up a part; nothing is lost then.
    """
    now = now or datetime.now(UTC)
    with lake.store.upkeep():
        retention = retain(lake, max_age=settings.max_age, max_bytes=settings.max_bytes, now=now)
        compaction = settings.compaction
        if settings.thinning is not None:
            thinning = settings.thinning(lake, now - compaction.grace)
            compaction = replace(compaction, thinning=thinning)
        return Maintenance(compact(lake, compaction, now), retention)
