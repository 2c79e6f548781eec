"""Lakes made of recordings of real agents, divided over hours and buckets as a test wants it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from toolverdict.collector import Lake
from toolverdict.collector.decode import decode, table_of
from toolverdict.collector.lake.layout import bucket_of
from toolverdict.collector.parts import write_part
from toolverdict.collector.segment import SegmentId
from toolverdict.collector.signals import WIRE, Signal
from toolverdict.scoring.engine.files import TABLES
from toolverdict.scoring.spans import COLUMNS, LOG_COLUMNS
from toolverdict.scoring.unit import Rules, score_unit

RECORDINGS = Path(__file__).parents[2] / "data" / "recordings"
SIGNALS = {wire.http_path: signal for signal, wire in WIRE.items()}
FIRST_HOUR = int(datetime(2026, 11, 2, 8, tzinfo=UTC).timestamp()) * 1_000_000_000
HOUR = 3_600_000_000_000
_RECEIVED = "received_time_unix_nano"


@dataclass(frozen=True)
class Recorded:
    """Spans and log records as a collector makes rows of them."""

    spans: pa.Table
    logs: pa.Table

    def of(self, signal: Signal) -> pa.Table:
        return self.spans if signal is Signal.TRACES else self.logs


@pytest.fixture(scope="session")
def recorded() -> Recorded:
    """All recordings of real agents together."""
    rows: dict[Signal, list[list[Any]]] = {Signal.TRACES: [], Signal.LOGS: []}
    for folder in sorted(path for path in RECORDINGS.iterdir() if path.is_dir()):
        for line in (folder / "requests.jsonl").read_text().splitlines():
            entry = json.loads(line)
            signal = SIGNALS.get(entry["path"])
            if signal is not None:
                rows[signal].extend(decode(signal, (folder / entry["file"]).read_bytes(), 1))
    return Recorded(*(table_of(signal, rows[signal]) for signal in (Signal.TRACES, Signal.LOGS)))


MakeLake = Callable[..., Path]


@pytest.fixture
def make_lake(tmp_path: Path) -> MakeLake:
    """Makes a lake of rows.

    ``hours`` says of each span, then of each log record, in which hour it came; the n-th part of an
    hour holds what ``parts`` says.
    """

    def make(
        rows: Recorded,
        hours: Sequence[int] = (),
        buckets: int = 1,
        parts: int = 1,
        name: str = "lake",
    ) -> Path:
        path = tmp_path / name
        path.mkdir(exist_ok=True)
        lake = Lake.create(path, buckets)
        begin = 0
        for signal in (Signal.TRACES, Signal.LOGS):
            table = rows.of(signal)
            count = table.num_rows
            hour = np.array(hours[begin : begin + count] if len(hours) else [0] * count)
            begin += count
            place = table.schema.get_field_index(_RECEIVED)
            received = FIRST_HOUR + hour * HOUR + np.arange(count)
            table = table.set_column(place, table.schema.field(place), pa.array(received))
            bucket = np.array([bucket_of(i, buckets) for i in table["trace_id"].to_pylist()])
            for key in sorted({*zip(hour.tolist(), bucket.tolist(), strict=True)}):
                chosen = np.flatnonzero((hour == key[0]) & (bucket == key[1]))
                for number, piece in enumerate(np.array_split(chosen, parts)):
                    created = FIRST_HOUR + key[0] * HOUR + number
                    segment = SegmentId(f"{created:016x}-{number:08x}", created)
                    if len(piece):
                        write_part(lake, segment, signal, key[1], table.take(piece))
        return path

    return make


Texts = dict[str, list[str]]


def _as_text(table: pa.Table) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in table.to_pylist())


@pytest.fixture(scope="session")
def read_out() -> Callable[[Path], Texts]:
    """What an ``OUT`` holds: the rows of each kind as text, sorted."""
    return lambda out: {kind: _as_text(pq.read_table(out / kind)) for kind in TABLES}


@pytest.fixture(scope="session")
def whole_of() -> Callable[[Path], Texts]:
    """What all rows of a lake of one bucket give at once, without any engine."""

    def whole(path: Path) -> Texts:
        lake = Lake.open(path)
        spans, logs = lake.read_spans(0, COLUMNS), lake.read_logs(0, LOG_COLUMNS)
        result = score_unit(spans, Rules(), logs)
        return {kind: _as_text(getattr(result, kind)) for kind in TABLES}

    return whole


@pytest.fixture(scope="session")
def few(recorded: Recorded) -> Recorded:
    """The spans of a few agents: 130 rows of a dozen traces, with log records."""
    ids = [
        *pc.unique(recorded.logs["trace_id"].drop_null()).sort().to_pylist()[:6],
        *pc.unique(recorded.spans["trace_id"]).sort().to_pylist()[:8],
    ]
    wanted = pa.array(ids, pa.string())
    return Recorded(
        *(
            table.filter(pc.is_in(table["trace_id"], value_set=wanted))
            for table in (recorded.spans, recorded.logs)
        )
    )


@pytest.fixture(scope="session")
def torn(recorded: Recorded) -> Callable[[int], list[int]]:
    """An hour for each recorded row: most traces lie in one hour, a third of them in any."""

    def hours(seed: int) -> list[int]:
        random = np.random.default_rng(seed)
        ids = [*recorded.spans["trace_id"].to_pylist(), *recorded.logs["trace_id"].to_pylist()]
        home = {one: int(random.integers(0, 10)) * 5 for one in dict.fromkeys(ids)}
        chosen = {one for one in home if random.random() < 0.3}
        return [int(random.integers(0, 10)) * 5 if one in chosen else home[one] for one in ids]

    return hours
