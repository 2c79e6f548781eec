"""What the sampler remembers, in the folder ``sampling`` of the lake.

::

    sampling/decisions/date=2026-11-30/<until>-<digest>.parquet    one file for each round
    sampling/tools.json                                            when each tool was first seen

A round's file is there before any part of the lake is written by it, and its name depends on its
content alone: what a crash interrupts is done again with the same result. Late spans find the
decision on their trace until its file is forgotten. Nobody else needs these files to read the lake.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from toolverdict.collector.errors import LakeError
from toolverdict.collector.lake.store import Store
from toolverdict.collector.sampling.columns import ID_BYTES, ids_of
from toolverdict.collector.sampling.deciding import Decisions
from toolverdict.collector.sampling.traces import NO_RANDOMNESS

MEMORY_VERSION: Final = 1
DECISIONS: Final = "sampling/decisions"
TOOLS: Final = "sampling/tools.json"

# Anything else there is a file that a crash left unfinished.
_ROUND: Final = re.compile(r"/[0-9a-f]{16}-[0-9a-f]{16}\.parquet$")
_VERSION_KEY: Final = b"toolverdict.sampling_version"
_OPEN_SINCE_KEY: Final = b"toolverdict.open_since_unix_nano"
_FIELDS: Final[list[tuple[str, pa.DataType]]] = [
    ("trace_id", pa.string()),
    ("kept", pa.bool_()),
    ("threshold", pa.int64()),  # of 2^56, also where the trace was dropped by it
    ("randomness", pa.int64()),  # null: that of the trace id
    ("unknown", pa.bool_()),
    ("rule_number", pa.int16()),
    ("rule", pa.dictionary(pa.int32(), pa.string())),
    ("decided_at_unix_nano", pa.int64()),
]
_SCHEMA: Final = pa.schema(_FIELDS)


class Remembered(NamedTuple):
    """What earlier rounds left."""

    decisions: Decisions
    open_since: int | None
    """Nothing undecided was received before, in ns since 1970 UTC; None when nobody knows."""


class Memory:
    """Decisions and tools of one lake; one sampler at a time may write them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def recall(self) -> Remembered:
        """Everything decided and not forgotten.

        Raises:
            LakeError: when a file is damaged or of a newer version.
        """
        # By name, which begins with the time: the last is of the last round.
        names = [entry.name for entry in self._store.list(DECISIONS)]
        rounds = [self._read(name) for name in names if _ROUND.search(name)]
        if not rounds:
            return Remembered(Decisions.none(), None)
        return Remembered(
            Decisions.union(round.decisions for round in rounds), rounds[-1].open_since
        )

    def remember(
        self,
        decisions: Decisions,
        names: tuple[str, ...],
        *,
        until_unix_nano: int,
        open_since: int,
    ) -> None:
        """Store the decisions of a round, durably.

        Raises:
            OSError: when the disk does not take it; nothing is remembered then.
        """
        trace_ids = decisions.ids.tobytes().hex()
        width = 2 * ID_BYTES
        table = pa.table(
            [
                pa.array([trace_ids[at : at + width] for at in range(0, len(trace_ids), width)]),
                pa.array(decisions.kept),
                pa.array(decisions.threshold),
                pa.array(decisions.randomness, mask=decisions.randomness == NO_RANDOMNESS),
                pa.array(decisions.unknown),
                pa.array(decisions.rule),
                pa.DictionaryArray.from_arrays(decisions.rule.astype(np.int32), list(names)),
                pa.array(decisions.decided_at),
            ],
            schema=_SCHEMA,
        ).replace_schema_metadata(
            {_VERSION_KEY: b"%d" % MEMORY_VERSION, _OPEN_SINCE_KEY: b"%d" % open_since}
        )
        digest = hashlib.sha256(trace_ids.encode()).hexdigest()[:16]
        day = _folder(_day(until_unix_nano))
        self._store.write(
            f"{day}/{until_unix_nano:016x}-{digest}.parquet",
            lambda sink: pq.write_table(table, sink, compression="zstd", write_page_checksum=True),
        )

    def forget(self, until_unix_nano: int, days: int) -> None:
        """Delete the decisions of days that ended so many days ago."""
        first_kept = _folder(_day(until_unix_nano) - timedelta(days=days))
        names = [entry.name for entry in self._store.list(DECISIONS)]
        self._store.delete(name for name in names if name < first_kept)

    def tools(self) -> dict[str, int]:
        """When each tool was first seen: the start of its decision window, in ns since 1970 UTC.

        Raises:
            LakeError: when the file is damaged or of a newer version.
        """
        try:
            content = json.loads(self._store.read(TOOLS))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError) as error:
            raise self._damaged(TOOLS, error) from error
        whole = content if isinstance(content, dict) else {}
        self._refuse_newer(TOOLS, whole.get("version"))
        tools = whole.get("first_seen_unix_nano")
        if not isinstance(tools, dict) or not all(type(seen) is int for seen in tools.values()):
            raise self._damaged(TOOLS, TypeError())
        return tools

    def remember_tools(self, tools: Mapping[str, int]) -> None:
        """Store when tools were first seen, durably.

        Raises:
            OSError: when the disk does not take it; the old state is there then.
        """
        content = {"version": MEMORY_VERSION, "first_seen_unix_nano": dict(sorted(tools.items()))}
        text = json.dumps(content, indent=1) + "\n"
        self._store.write(TOOLS, lambda sink: sink.write(text.encode()))

    def _read(self, name: str) -> Remembered:
        try:
            with (
                self._store.open(name) as opened,
                pq.ParquetFile(opened, page_checksum_verification=True) as parquet,
            ):
                metadata = parquet.schema_arrow.metadata or {}
                self._refuse_newer(name, int(metadata.get(_VERSION_KEY, b"0")))
                columns = [column for column, _ in _FIELDS if column != "rule"]
                table = parquet.read(columns=columns)
            read: dict[str, Any] = {column: table.column(column) for column in columns}
            decisions = Decisions(
                ids_of(read["trace_id"].to_pylist()),
                read["kept"].to_numpy(),
                read["threshold"].to_numpy(),
                read["randomness"].fill_null(NO_RANDOMNESS).to_numpy(),
                read["unknown"].to_numpy(),
                read["rule_number"].to_numpy(),
                read["decided_at_unix_nano"].to_numpy(),
            )
            return Remembered(decisions, int(metadata[_OPEN_SINCE_KEY]))
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise self._damaged(name, error) from error

    def _refuse_newer(self, name: str, version: object) -> None:
        if type(version) is int and version > MEMORY_VERSION:
            raise LakeError(
                f"{self._store.location}/{name} was written by a newer toolverdict (version "
                f"{version}, this one reads {MEMORY_VERSION}); upgrade toolverdict"
            )

    def _damaged(self, name: str, error: Exception) -> LakeError:
        return LakeError(
            f"{self._store.location}/{name} cannot be read ({type(error).__name__}); restore it "
            "from a copy, or delete it: its traces are then decided anew"
        )


def _day(unix_nano: int) -> datetime:
    return datetime.fromtimestamp(unix_nano // 1_000_000_000, UTC)


def _folder(day: datetime) -> str:
    return f"{DECISIONS}/date={day:%Y-%m-%d}"
