"""Traces from files into a lake, on the road of a collector: judged, logged, then Parquet.

What is there already counts once when it is read, as when an exporter sends a request again.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from toolverdict.collector import CollectorError
from toolverdict.collector.content import MediaType
from toolverdict.collector.errors import StorageError
from toolverdict.collector.intake import Intake
from toolverdict.collector.settings import CollectorSettings, Fsync
from toolverdict.collector.signals import Signal
from toolverdict.collector.store import Stores
from toolverdict.scoring.trace_files import Found, requests_in

_MAX_FAULTS: Final = 100


@dataclass(slots=True)
class Imported:
    """What became of some files.

    Attributes:
        accepted: spans and log records that are in the lake now.
        refused: those that no lake takes, because something of them is not valid.
        faults: what is no request, or was refused whole, a line each; the first hundred.
        more_faults: how many there were beyond those.
    """

    accepted: Counter[Signal] = field(default_factory=Counter)
    refused: Counter[Signal] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    more_faults: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether all that the files hold was taken."""
        return not self.faults and not self.refused.total()


def import_files(paths: Sequence[Path], lake: Path) -> Imported:
    """Bring files of traces and logs into a lake, which is made when it is not there.

    Args:
        paths: as :mod:`trace_files` knows them.
        lake: the folder of a lake that no collector is at work on.

    Raises:
        InputError: when a file cannot be read, or is none of traces; files before it are in.
        CollectorError: when the lake cannot be written, or somebody is at work on it.
    """
    return asyncio.run(_import(paths, lake))


async def _import(paths: Sequence[Path], lake: Path) -> Imported:
    # The end brings all to the disk; until then nobody was told that anything is safe.
    settings = CollectorSettings(data_dir=lake, fsync=Fsync.INTERVAL)
    imported = Imported()
    stores = Stores(settings)
    try:
        stores.replay()
        intake = Intake(stores, settings)
        for path in paths:
            await _send(requests_in(path), intake, imported)
        imported.accepted, imported.refused = intake.accepted, intake.rejected
    finally:
        result = await asyncio.to_thread(stores.close)
    if result.losses:
        raise StorageError(". ".join(result.losses))
    return imported


async def _send(found: Iterable[Found], intake: Intake, imported: Imported) -> None:
    for piece in found:
        fault = piece.fault
        if piece.signal is not None:
            try:
                await intake.accept(piece.signal, MediaType.JSON, piece.body)
            except StorageError:
                raise
            except CollectorError as error:
                fault = str(error)
        if fault and len(imported.faults) < _MAX_FAULTS:
            imported.faults.append(f"{piece.where}: {fault}")
        elif fault:
            imported.more_faults += 1
