"""Where things are in a lake: folders, the names of parts, buckets and hours. Pure."""

import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from toolverdict.collector.signals import Signal

LAKE_FILE: Final = "lake.json"
LAKE_FORMAT: Final = "toolverdict-lake"
LAKE_VERSION: Final = 1
MAX_BUCKETS: Final = 256
"""A bucket is chosen by one byte of the trace id."""

FOLDERS: Final[dict[Signal, str]] = {Signal.TRACES: "spans", Signal.LOGS: "logs"}

_SIGNALS: Final = {folder: signal for signal, folder in FOLDERS.items()}
_COMPACTED: Final = "part-compacted-"
_PART: Final = re.compile(
    r"(spans|logs)/date=(\d{4}-\d\d-\d\d)/hour=(\d\d)/bucket=(\d{2,3})/part-[^/]+\.parquet"
)
_UNFINISHED: Final = re.compile(r"\.(part-.+\.parquet)\.tmp")


class PartFolder(NamedTuple):
    """One folder of parts; sorts by signal, hour and bucket."""

    signal: Signal
    hour: datetime
    """The UTC hour in which the collector began the segments."""
    bucket: int

    @property
    def name(self) -> str:
        """The path below the lake, ``spans/date=2026-11-30/hour=14/bucket=00``."""
        return f"{hour_folder(self.signal, self.hour)}/{bucket_folder(self.bucket)}"


class PartName(NamedTuple):
    """One part of a lake."""

    name: str
    """The path below the lake, ``spans/date=2026-11-30/hour=14/bucket=00/part-....parquet``."""
    folder: PartFolder
    size: int
    """Bytes."""

    @property
    def file(self) -> str:
        """The name without its folder."""
        return self.name.rpartition("/")[2]

    @property
    def compacted(self) -> bool:
        """Whether compaction made it; its footer then says which parts it replaces."""
        return self.file.startswith(_COMPACTED)


def part_of(name: str, size: int) -> PartName | None:
    """What a path below the lake says, None when it is not one of a part."""
    match = _PART.fullmatch(name)
    if match is None:
        return None
    try:
        hour = datetime.strptime(match[2] + match[3], "%Y-%m-%d%H").replace(tzinfo=UTC)
    except ValueError:
        return None
    return PartName(name, PartFolder(_SIGNALS[match[1]], hour, int(match[4])), size)


def hour_of(unix_nano: int) -> datetime:
    """The UTC hour of a time."""
    seconds = unix_nano // 1_000_000_000
    return datetime.fromtimestamp(seconds - seconds % 3600, UTC)


def hour_end(hour: datetime) -> datetime:
    """When an hour is over."""
    return hour + timedelta(hours=1)


def hour_folder(signal: Signal, hour: datetime) -> str:
    """The folder of one hour, with all its buckets."""
    return f"{FOLDERS[signal]}/date={hour:%Y-%m-%d}/hour={hour:%H}"


def bucket_folder(bucket: int) -> str:
    """The folder name of a bucket."""
    return f"bucket={bucket:02d}"


def is_bucket_folder(name: str) -> bool:
    """Whether a folder is one of a bucket."""
    return name.startswith("bucket=")


def bucket_of(trace_id: str | None, buckets: int) -> int:
    """The bucket of a trace id in hex: its last byte modulo their number; 0 for none."""
    return int(trace_id[-2:], 16) % buckets if trace_id else 0


def is_bucket_count(number: int) -> bool:
    """Whether a lake can have so many buckets: a power of two up to :data:`MAX_BUCKETS`."""
    return 0 < number <= MAX_BUCKETS and number & (number - 1) == 0


def compacted_file(replaced: Iterable[str]) -> str:
    """The file name of the part that stands for these files: a digest of their names."""
    digest = hashlib.sha256("\n".join(sorted(replaced)).encode()).hexdigest()
    return f"{_COMPACTED}{digest[:32]}.parquet"


def temporary_name(file: str) -> str:
    """What a part is called while it is written: readers pass over names that begin with a dot."""
    return f".{file}.tmp"


def unfinished_file(file: str) -> str | None:
    """The part that a temporary file was to become, None when it is no such file."""
    match = _UNFINISHED.fullmatch(file)
    return None if match is None else match[1]


def is_compacted_file(file: str) -> bool:
    """Whether a part of this file name is made by compaction."""
    return file.startswith(_COMPACTED)
