"""Which traces lie in which folder of the lake, and so which lie in several units.

Of each folder the trace ids are read once, a hundredth of what scoring costs, and kept as sorted
numbers beside the results: the next run reads those of new folders alone.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from toolverdict.collector.lake import Lake
from toolverdict.collector.lake.layout import PartFolder, PartName, is_compacted_file
from toolverdict.collector.lake.part_file import PartInfo, read_info, read_part
from toolverdict.scoring.engine.files import write_whole
from toolverdict.scoring.engine.keys import NO_KEYS, Keys, keys_of

_SAMPLES: Final = 256
"""Trace ids of a folder from which borders between parts of it can be chosen."""
_AT_ONCE: Final = 16_000_000
"""Keys that are compared at a time: 300 MB."""
_FORM: Final = b"1"

_TRACE_ID: Final = pa.schema([pa.field("trace_id", pa.dictionary(pa.int32(), pa.string()))])


class Content(NamedTuple):
    """What the parts of one folder hold, by their footers.

    ``identity`` is the same before and after a compaction that only puts parts together: what was
    scored before it need not be scored again.
    """

    folder: PartFolder
    names: tuple[str, ...]
    rows: int
    raw_bytes: int
    identity: str


@dataclass(frozen=True, slots=True)
class Folder:
    """One folder and its traces: sorted keys, and some ids in order."""

    content: Content
    keys: Keys
    sample: tuple[str, ...]


def content_of(lake: Lake, folder: PartFolder, parts: Sequence[PartName]) -> Content:
    """What the footers of a folder's parts say.

    Raises:
        LakeError: when a part is damaged or has a newer schema.
        PartGoneError: when a part is not there any more.
    """
    infos = [read_info(lake.store, part.name) for part in parts]
    origins = sorted(
        name for part, info in zip(parts, infos, strict=True) for name in _origins(part, info)
    )
    rows = sum(info.rows for info in infos)
    digest = hashlib.sha256(f"{folder.name}\n{rows}\n{'/'.join(origins)}".encode()).hexdigest()
    names = tuple(part.name for part in parts)
    return Content(folder, names, rows, sum(info.raw_bytes for info in infos), digest)


def _origins(part: PartName, info: PartInfo) -> list[str]:
    """The parts that a client's rows were first written to, where that is all that they differ by.

    A compaction that thinned out has decided on rows, one that found retries has fewer of them.
    """
    if part.compacted and info.open_rows == info.rows:
        return [name for name in info.replaces if not is_compacted_file(name)]
    return [part.file]


def read_folders(
    lake: Lake, contents: Sequence[Content], kept: Path, threads: int = 2
) -> Iterator[Folder]:
    """The traces of folders, in their order.

    Args:
        lake: the lake.
        contents: the folders.
        kept: where what was read before is kept.
        threads: how many folders to read at a time.

    Raises:
        LakeError: when a part is damaged or has a newer schema.
        PartGoneError: when a part is not there any more.
    """
    read: Callable[[Content], Folder] = lambda content: _read_folder(lake, content, kept)  # noqa: E731
    with ThreadPoolExecutor(threads) as pool:
        yield from pool.map(read, contents)


def _read_folder(lake: Lake, content: Content, kept: Path) -> Folder:
    path = kept / f"{content.identity[:32]}.npz"
    found = _load(path)
    if found is None:
        found = _read_ids(lake, content)
        keys, sample = found
        write_whole(path, lambda sink: np.savez(sink, form=_FORM, keys=keys, sample=sample))
    keys, sample = found
    return Folder(content, keys, tuple(sample.astype(str).tolist()))


def _load(path: Path) -> tuple[Keys, npt.NDArray[np.bytes_]] | None:
    """What was kept; None where there is nothing, or nothing that can be read: it is read again."""
    try:
        with path.open("rb") as source, np.load(source, allow_pickle=False) as kept:
            if kept["form"].tobytes() != _FORM:
                return None
            keys, sample = kept["keys"], kept["sample"]
    except (OSError, ValueError, KeyError, EOFError, BadZipFile):
        return None
    if keys.dtype != np.uint64 or keys.ndim != 1 or sample.dtype.kind != "S":
        return None
    return keys, sample


def _read_ids(lake: Lake, content: Content) -> tuple[Keys, npt.NDArray[np.bytes_]]:
    keys, ids = [NO_KEYS], []
    for name in content.names:
        chunks: list[Any] = read_part(lake.store, name, _TRACE_ID).column("trace_id").chunks
        for chunk in chunks:
            found = chunk.dictionary.drop_null()
            keys.append(keys_of(found))
            step = max(1, len(found) // _SAMPLES)
            ids += found.take(pa.array(range(step // 2, len(found), step), pa.int64())).to_pylist()
    ids.sort()
    sample = np.array(ids[:: max(1, len(ids) // _SAMPLES)], np.bytes_)
    return np.unique(np.concatenate(keys)), sample if len(sample) else np.zeros(0, "S1")


def in_several(keys: Sequence[tuple[int, Keys]]) -> Mapping[int, tuple[Keys, Keys]]:
    """Per unit the keys that others have, too, and those that one numbered below zero has.

    Args:
        keys: numbers of units with sorted keys of theirs; a unit may come several times.

    Returns:
        Sorted keys by unit: those in several units, without those that are in an earlier one.
    """
    total = sum(len(own) for _, own in keys)
    steps = max(1, -(-total // _AT_ONCE))
    shared: dict[int, list[Keys]] = {}
    earlier: dict[int, list[Keys]] = {}
    for step in range(steps):
        low, high = (np.uint64((1 << 64) * n // steps - (n == steps)) for n in (step, step + 1))
        for unit, own, is_earlier in _in_several(keys, low, high, step == steps - 1):
            shared.setdefault(unit, []).append(own[~is_earlier])
            earlier.setdefault(unit, []).append(own[is_earlier])
    return {unit: (np.concatenate(shared[unit]), np.concatenate(earlier[unit])) for unit in shared}


def _in_several(
    keys: Sequence[tuple[int, Keys]], low: np.uint64, high: np.uint64, last: bool
) -> Iterator[tuple[int, Keys, npt.NDArray[np.bool_]]]:
    chosen = []
    for unit, own in keys:
        begin = np.searchsorted(own, low)
        chosen.append((unit, own[begin : len(own) if last else np.searchsorted(own, high)]))
    every = np.concatenate([NO_KEYS, *(own for _, own in chosen)])
    units = np.concatenate([np.full(len(own), unit, np.int64) for unit, own in chosen] or [every])
    if not len(every):
        return
    order = np.argsort(every, kind="stable")
    every, units = every[order], units[order].astype(np.int64)
    starts = np.flatnonzero(np.concatenate([[True], every[1:] != every[:-1]]))
    first, latest = np.minimum.reduceat(units, starts), np.maximum.reduceat(units, starts)
    sizes = np.diff(starts, append=len(every))
    several = np.repeat(first != latest, sizes)
    is_earlier = np.repeat(first < 0, sizes)
    every, units, is_earlier = every[several], units[several], is_earlier[several]
    for unit in np.unique(units).tolist():
        if unit >= 0:
            mine = units == unit
            own, places = np.unique(every[mine], return_index=True)
            yield unit, own, is_earlier[mine][places]


def remove_unused(kept: Path, contents: Sequence[Content]) -> None:
    """Forget folders that are not in the lake any more, or have changed."""
    used = {f"{content.identity[:32]}.npz" for content in contents}
    with os.scandir(kept) as entries:
        for entry in entries:
            if entry.name not in used:
                os.unlink(entry.path)
