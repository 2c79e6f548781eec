"""What is in a lake, told by the footers of its parts alone."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from toolverdict.collector.lake.layout import FOLDERS, PartName
from toolverdict.collector.lake.part_file import PartInfo, read_info
from toolverdict.collector.lake.reading import Lake
from toolverdict.collector.signals import Signal


@dataclass
class SignalInventory:
    """What a lake holds of one signal."""

    rows: int = 0
    """Records as they are stored; copies from requests that were sent again are counted."""
    parts: int = 0
    compacted_parts: int = 0
    bytes: int = 0
    hours: int = 0
    """Hours, by the collector's clock, that have a part."""
    first: datetime | None = None
    """The earliest time of a record, None when none has one."""
    last: datetime | None = None
    """The latest time at which a record began."""
    schema_versions: Counter[int] = field(default_factory=Counter)
    """Parts by the version of their columns."""


def take_inventory(lake: Lake) -> dict[Signal, SignalInventory]:
    """Count what a lake holds.

    Raises:
        LakeError: when a part is damaged or has a newer schema.
    """
    return {signal: _of_signal(lake, signal) for signal in FOLDERS}


def _of_signal(lake: Lake, signal: Signal) -> SignalInventory:
    found = SignalInventory()
    hours: set[datetime] = set()
    for bucket in range(lake.buckets):
        for part, info in lake.consistently(partial(_infos, lake, signal, bucket)):
            hours.add(part.folder.hour)
            found.rows += info.rows
            found.parts += 1
            found.compacted_parts += part.compacted
            found.bytes += part.size
            found.schema_versions[info.schema_version] += 1
            found.first = min(filter(None, (found.first, info.first)), default=None)
            found.last = max(filter(None, (found.last, info.last)), default=None)
    found.hours = len(hours)
    return found


def _infos(lake: Lake, signal: Signal, bucket: int) -> list[tuple[PartName, PartInfo]]:
    return [(part, read_info(lake.store, part.name)) for part in lake.current(signal, bucket)]
