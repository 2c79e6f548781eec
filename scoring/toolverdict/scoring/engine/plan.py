"""What the units of a lake are: windows of time, in all buckets or in one, none of them too large.

A day with few rows is one unit; else each hour, in all buckets or in each; what is still too large
is cut by ranges of trace ids. Which it is depends on the rows alone, so new rows change the units
of their own hours, or of their day.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.collector.lake import FOLDERS, Lake
from toolverdict.collector.lake.layout import hour_end
from toolverdict.collector.lake.part_file import read_part
from toolverdict.collector.schema import LOGS
from toolverdict.collector.signals import Signal
from toolverdict.scoring.conversations import Conversations
from toolverdict.scoring.engine.index import (
    Content,
    Folder,
    content_of,
    in_several,
    read_folders,
    remove_unused,
)
from toolverdict.scoring.engine.keys import NO_KEYS, Keys
from toolverdict.scoring.engine.units import Range, Stage, Unit
from toolverdict.scoring.engine.work import Job
from toolverdict.scoring.spans import LOG_COLUMNS, log_records

_FORM: Final = "1"
"""Goes up when the meaning of a unit changes."""
_LATE_SEGMENTS: Final = timedelta(minutes=10)
"""How long after its end an hour may still take rows: its last segment was begun within it."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What is few and what is many."""

    small_rows: int = 50_000
    """What has at most so many rows is not divided."""
    large_rows: int = 250_000
    """What has more is divided further, as what has more than ``large_bytes`` before compression."""
    large_bytes: int = 128 * 1024 * 1024
    late_rows: int = 30_000
    """Rows of traces of several windows, for each unit that puts them together."""
    across_rows: int = 100_000
    """Rows of conversations that are put together at once; of more, those far apart are not."""


@dataclass(frozen=True, slots=True)
class Window:
    """What is to be scored, by the hour in which it was received; whole hours."""

    since: datetime | None = None
    until: datetime | None = None

    def begins_after(self, hour: datetime) -> bool:
        """Whether an hour is before the window."""
        return self.since is not None and hour_end(hour) <= self.since

    def ends_before(self, hour: datetime) -> bool:
        """Whether an hour is behind the window."""
        return self.until is not None and hour >= self.until


@dataclass
class Plan:
    """The units of the first stage, and what the others need to know."""

    units: list[Unit] = field(default_factory=list)
    awaited: frozenset[str] = frozenset()


def plan(lake: Lake, job: Job, window: Window, sizes: Sizes, kept: Path) -> Plan:
    """Find the units of a lake.

    Args:
        lake: the lake.
        job: what they are scored by.
        window: what of the lake.
        sizes: what is few and what is many.
        kept: where the index of the lake is kept.

    Raises:
        LakeError: when a part is damaged or has a newer schema.
        PartGoneError: when a part went away meanwhile: plan again.
    """
    contents = [one for one in _contents(lake) if not window.ends_before(one.folder.hour)]
    folders = list(read_folders(lake, contents, kept))
    remove_unused(kept, contents)
    own = [one for one in folders if not window.begins_after(one.content.folder.hour)]
    groups = _grouped(own, sizes)
    keys = [
        *((-1, one.keys) for one in folders if window.begins_after(one.content.folder.hour)),
        *((number, one.keys) for number, (_, group) in enumerate(groups) for one in group),
    ]
    several = in_several(keys)
    awaited = _awaited(lake, [one.content for one in own])
    units = [
        unit
        for number, (name, group) in enumerate(groups)
        for unit in _units(
            name, group, several.get(number, (NO_KEYS, NO_KEYS)), awaited, job, sizes
        )
    ]
    return Plan(units, awaited)


def digest_of(job: Job, stage: Stage, name: str, inputs: Iterable[str]) -> str:
    """The digest of all that the results of a unit depend on."""
    by = (_FORM, job.code, job.rules_digest, job.scorer, stage.value, name)
    return hashlib.sha256("\n".join((*by, *inputs)).encode()).hexdigest()


def awaited_digest(awaited: frozenset[str]) -> str:
    """The digest of the conversations that records without a trace belong to."""
    return hashlib.sha256("\n".join(sorted(awaited)).encode()).hexdigest() if awaited else ""


def _contents(lake: Lake) -> list[Content]:
    """What the folders of spans and of logs hold, in the order of time."""
    found = []
    for signal in FOLDERS:
        for bucket in range(lake.buckets):
            parts = lake.current(signal, bucket)
            by_folder = groupby(sorted(parts, key=lambda part: part.folder), lambda p: p.folder)
            found += [content_of(lake, folder, list(members)) for folder, members in by_folder]
    return sorted(found, key=lambda one: (one.folder.hour, one.folder.bucket, one.folder.signal))


def _grouped(folders: Sequence[Folder], sizes: Sizes) -> list[tuple[str, list[Folder]]]:
    """Folders of spans and logs, divided by day, by hour, by bucket, as far as it takes."""
    found = []
    for day, of_day in _by(folders, lambda one: f"{one.hour:%Y-%m-%d}"):
        if _rows(of_day) <= sizes.small_rows:
            found.append((day, of_day))
            continue
        for hour, of_hour in _by(of_day, lambda one: f"{one.hour:%Y-%m-%dT%H}"):
            if _rows(of_hour) <= sizes.small_rows:
                found.append((hour, of_hour))
                continue
            found += [
                (f"{hour}-b{bucket}", of_bucket)
                for bucket, of_bucket in _by(of_hour, lambda one: f"{one.bucket:03d}")
            ]
    return found


def _by(folders: Sequence[Folder], name_of: Any) -> Iterator[tuple[str, list[Folder]]]:
    groups: dict[str, list[Folder]] = defaultdict(list)
    for one in folders:
        groups[name_of(one.content.folder)].append(one)
    yield from sorted(groups.items())


def _rows(folders: Iterable[Folder]) -> int:
    return sum(one.content.rows for one in folders)


def _units(
    name: str,
    folders: Sequence[Folder],
    several: tuple[Keys, Keys],
    awaited: frozenset[str],
    job: Job,
    sizes: Sizes,
) -> Iterator[Unit]:
    shared, earlier = several
    spans = [one.content for one in folders if one.content.folder.signal is Signal.TRACES]
    logs = [one.content for one in folders if one.content.folder.signal is Signal.LOGS]
    ends = max(hour_end(one.content.folder.hour) for one in folders) + _LATE_SEGMENTS
    since = job.quiet_since_ns
    may_be_open = since is not None and int(ends.timestamp() * 1e9) > since
    inputs = [
        *(one.identity for one in (*spans, *logs)),
        hashlib.sha256(shared.tobytes()).hexdigest(),
        hashlib.sha256(earlier.tobytes()).hexdigest(),
        awaited_digest(awaited),
        str(since) if may_be_open else "",
    ]
    ranges = _ranges(folders, sizes)
    for number, within in enumerate(ranges):
        own = name if len(ranges) == 1 else f"{name}-r{number:03d}"
        yield Unit(
            stage=Stage.WINDOW,
            name=own,
            digest=digest_of(job, Stage.WINDOW, own, (*inputs, *map(str, within))),
            spans=tuple(part for one in spans for part in one.names),
            logs=tuple(part for one in logs for part in one.names),
            within=within,
            shared=shared,
            earlier=earlier,
            awaited=awaited,
            may_be_open=may_be_open,
        )


def _ranges(folders: Sequence[Folder], sizes: Sizes) -> list[Range]:
    """About equal ranges of trace ids, a power of two of them, each of which is not too large."""
    raw = sum(one.content.raw_bytes for one in folders)
    wanted = max(_rows(folders) / sizes.large_rows, raw / sizes.large_bytes)
    pieces = 1
    while pieces < wanted:
        pieces *= 2
    sample = sorted(found for one in folders for found in one.sample)
    borders = sorted(
        {sample[len(sample) * n // pieces] for n in range(1, pieces)} if sample else ()
    )
    edges = [None, *borders, None]
    return [Range(first, end) for first, end in pairwise(edges)]


def _awaited(lake: Lake, contents: Iterable[Content]) -> frozenset[str]:
    """Conversations of the log records without a trace id."""
    schema = pa.schema([LOGS.field(name) for name in LOG_COLUMNS])
    found: set[str] = set()
    for content in contents:
        if content.folder.signal is Signal.LOGS and content.folder.bucket == 0:
            for name in content.names:
                table = read_part(lake.store, name, schema)
                traceless = table.filter(pc.is_null(table.column("trace_id")))
                found |= Conversations(log_records(traceless)).awaited
    return frozenset(found)
