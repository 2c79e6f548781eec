"""Retention: whole hours go, the oldest first, when they are too old or the lake is too large.

In a folder an hour vanishes at once, by a rename, and is deleted then; a reader that had opened its
parts reads them to the end, one that had only listed them begins anew. In an object store a reader
with a plain glob may see an hour half deleted.
"""

import logging
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from toolverdict.collector.lake.layout import FOLDERS, hour_end, hour_folder
from toolverdict.collector.lake.reading import Lake
from toolverdict.collector.lake.strangers import strangers

_LOG = logging.getLogger(__name__)

MIN_AGE: Final = timedelta(hours=1)
"""Hours that ended later are kept, however large the lake is: the collector may write to them."""


@dataclass
class Retention:
    """What retention did, or with ``dry_run`` would do."""

    hours: list[datetime] = field(default_factory=list)
    """The hours that were deleted, the oldest first."""
    bytes_before: int = 0
    """Bytes of all parts."""
    bytes_after: int = 0
    faults: list[str] = field(default_factory=list)
    """Hours that stay because something in them is not of the lake; one line each."""


def retain(
    lake: Lake,
    *,
    max_age: timedelta | None = None,
    max_bytes: int | None = None,
    dry_run: bool = False,
    now: datetime | None = None,
) -> Retention:
    """Delete hours that are too old, then the oldest ones until the rest is small enough.

    Call it inside ``lake.store.upkeep()``, unless with ``dry_run``.

    Args:
        lake: the lake.
        max_age: hours that ended longer ago go, None for no limit.
        max_bytes: bytes of parts that may stay, None for no limit.
        dry_run: only say what would be done.
        now: the time, for tests.

    Raises:
        OSError: when a file cannot be deleted.
    """
    now = now or datetime.now(UTC)
    sizes: defaultdict[datetime, int] = defaultdict(int)
    for name in FOLDERS.values():
        for part in lake.list_parts(name):
            sizes[part.folder.hour] += part.size
    total = sum(sizes.values())
    result = Retention(bytes_before=total)
    for hour in sorted(sizes):
        age = now - hour_end(hour)
        too_old = max_age is not None and age > max_age
        too_large = max_bytes is not None and total > max_bytes
        if age < MIN_AGE or not (too_old or too_large):
            break
        if (fault := _fault_in(lake, hour)) is not None:
            result.faults.append(fault)
            continue
        if not dry_run:
            for signal in FOLDERS:
                lake.store.delete_folder(hour_folder(signal, hour))
            _LOG.info("deleted the hour %s, %d bytes", f"{hour:%Y-%m-%dT%HZ}", sizes[hour])
        result.hours.append(hour)
        total -= sizes[hour]
    result.bytes_after = total
    return result


def _fault_in(lake: Lake, hour: datetime) -> str | None:
    """What somebody has put into the folders of an hour: whole folders go, and it is not ours."""
    for signal in FOLDERS:
        for name, kind in strangers(lake.store, hour_folder(signal, hour)):
            return (
                f"{lake.location}/{name} {kind}; the hour {hour:%Y-%m-%dT%HZ} stays until you move "
                "it away"
            )
    return None
