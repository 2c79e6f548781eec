"""Verification: the promises that a lake makes about its files, checked by reading all of them.

A fault is what a person has to look at. What a collector at work leaves for a moment (a segment of
its log, a file it is writing) is one only when no collector is there.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.collector.errors import LakeError
from toolverdict.collector.lake.layout import (
    FOLDERS,
    PartName,
    unfinished_file,
)
from toolverdict.collector.lake.part_file import (
    PartGoneError,
    concat,
    is_sorted,
    read_groups,
    read_info,
    read_part,
)
from toolverdict.collector.lake.presence import has_collector
from toolverdict.collector.lake.reading import Lake
from toolverdict.collector.lake.store import LocalStore
from toolverdict.collector.lake.strangers import strangers
from toolverdict.collector.schema import SCHEMAS, SORT_KEYS
from toolverdict.collector.signals import Signal


@dataclass
class Verification:
    """What is wrong with a lake, and what was looked at."""

    faults: list[str] = field(default_factory=list)
    """One line each: what, where, what to do."""
    parts: int = 0
    rows: int = 0
    duplicates: int = 0
    """Records of a span beside another of the same span: requests that were sent again, or the
    start and the end of one. Readers pass over them; they are no fault."""


def verify(lake: Lake, progress: Callable[[int, int], None] | None = None) -> Verification:
    """Read every part of a lake and check it.

    Args:
        lake: the lake.
        progress: told (parts done, parts in all) after each part.

    Raises:
        OSError: when the lake cannot be listed.
    """
    found = Verification()
    parts = []
    for name in FOLDERS.values():
        listed = lake.list_parts(name)
        parts += listed
        _check_names(lake, name, found)
    replaced = _check_replaced(lake, parts, found)
    for number, part in enumerate(parts, 1):
        if part.name not in replaced:
            _check_part(lake, part, found)
        if progress is not None:
            progress(number, len(parts))
    for bucket in range(lake.buckets):
        found.duplicates += _duplicates(lake, bucket)
    _check_log(lake, found)
    return found


def _check_names(lake: Lake, folder: str, found: Verification) -> None:
    """Files that no reader will ever look at."""
    at_work = _has_collector(lake)
    for entry in lake.store.list(folder):
        if unfinished_file(entry.name.rpartition("/")[2]) is not None and not at_work:
            found.faults.append(
                f"{lake.location}/{entry.name} is a part that was not finished; start the "
                "collector or run `toolverdict lake compact`"
            )
    found.faults += [
        f"{lake.location}/{name} {kind}; move it away"
        for name, kind in strangers(lake.store, folder)
    ]


def _check_replaced(lake: Lake, parts: Sequence[PartName], found: Verification) -> set[str]:
    """Names of parts that a compacted one of their folder stands for."""
    names = {(part.folder, part.file): part.name for part in parts}
    replaced: set[str] = set()
    for part in parts:
        if part.compacted:
            with suppress(LakeError, PartGoneError):  # told when the part itself is checked
                files = read_info(lake.store, part.name).replaces
                replaced |= {names.get((part.folder, file), "") for file in files} - {""}
    # Not those that a compaction at work has deleted meanwhile.
    present = {part.name for folder in FOLDERS.values() for part in lake.list_parts(folder)}
    found.faults += [
        f"{lake.location}/{name} was replaced and is still there; run `toolverdict lake compact`"
        for name in sorted(replaced & present)
    ]
    valid = [part for part in parts if part.compacted and part.name not in replaced]
    folders = Counter(part.folder for part in valid)
    found.faults += [
        f"{lake.location}/{folder.name} has {count} compacted parts; run `toolverdict lake compact`"
        for folder, count in folders.items()
        if count > 1
    ]
    return replaced


def _check_part(lake: Lake, part: PartName, found: Verification) -> None:
    where = f"{lake.location}/{part.name}"
    try:
        info = read_info(lake.store, part.name)
        found.parts += 1
        found.rows += info.rows
        said = _faults_in(lake, part)
    except LakeError as error:
        found.faults.append(str(error))
        return
    except PartGoneError:
        return  # compacted or deleted meanwhile, which is not wrong
    if part.folder.bucket >= lake.buckets:
        said = [f"is in bucket {part.folder.bucket} of a lake with {lake.buckets}"]
    found.faults += [f"{where} {fault}; restore it from a copy or move it away" for fault in said]


def _faults_in(lake: Lake, part: PartName) -> list[str]:
    """What is wrong with the rows of a part that can be read; every page has its checksum."""
    signal = part.folder.signal
    faults: dict[str, None] = {}
    last: pa.Table | None = None
    for group in read_groups(lake.store, part.name, SCHEMAS[signal]):
        if not group.num_rows:
            continue
        keys = group.select(SORT_KEYS[signal])
        joined = keys if last is None else pa.concat_tables([last, keys])
        if not is_sorted(signal, joined):
            faults["is not sorted"] = None
        if last is not None and _trace_of(last) is not None and _trace_of(last) == _trace_of(keys):
            faults["has a trace in two row groups"] = None
        try:
            buckets = {lake.bucket_of(trace) for trace in _endings(group)}
        except ValueError:
            faults["has a trace id that is none"] = None
        else:
            if buckets != {part.folder.bucket}:
                faults["has rows of another bucket"] = None
        last = keys.slice(keys.num_rows - 1)
    return list(faults)


def _trace_of(keys: pa.Table) -> Any:
    return keys.column("trace_id")[0].as_py()


def _endings(table: pa.Table) -> list[str | None]:
    """The different last two digits of the trace ids of a table."""
    column: Any = table.column("trace_id")
    endings: list[str | None] = pc.unique(pc.utf8_slice_codeunits(column, -2)).to_pylist()
    return endings


def _duplicates(lake: Lake, bucket: int) -> int:
    keys = pa.schema([SCHEMAS[Signal.TRACES].field(name) for name in ("trace_id", "span_id")])

    def read() -> pa.Table:
        current = lake.current(Signal.TRACES, bucket)
        return concat((read_part(lake.store, part.name, keys) for part in current), keys)

    try:
        table = lake.consistently(read)
    except LakeError:
        return 0  # told when the part itself was checked
    return table.num_rows - table.group_by(keys.names).aggregate([]).num_rows


def _check_log(lake: Lake, found: Verification) -> None:
    """What the write-ahead logs still hold: that of the collector, of each worker and tenant."""
    if not isinstance(lake.store, LocalStore):
        return
    root, at_work = lake.store.root, _has_collector(lake)
    for base in (root, *sorted(root.glob("tenants/*"))):
        for log in (base / "wal", *sorted(base.glob("wal/worker-*"))):
            aside = sum(1 for _ in log.glob("quarantine/*"))
            if aside:
                found.faults.append(
                    f"{log / 'quarantine'} has {aside} damaged segments; look at them"
                )
            waiting = sum(1 for _ in log.glob("*.log"))
            if waiting and not at_work:
                found.faults.append(
                    f"{log} has {waiting} segments that are not Parquet; start the collector"
                )


def _has_collector(lake: Lake) -> bool:
    """Whether a collector is at work on this lake; always possible in an object store.

    The lake of a tenant is in the folder of its collector, which has the lock of that.
    """
    if not isinstance(lake.store, LocalStore):
        return True
    root = lake.store.root.absolute()
    collectors = root.parent.parent if root.parent.name == "tenants" else root
    return has_collector(root) or has_collector(collectors)
