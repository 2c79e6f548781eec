"""``--since last``: each trajectory once, whole, however its spans came in."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from toolverdict.collector import Lake
from toolverdict.collector.decode import decode, table_of
from toolverdict.collector.lake.layout import bucket_of
from toolverdict.collector.parts import write_part
from toolverdict.collector.segment import SegmentId
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_request, make_span
from toolverdict.scoring.engine import work
from toolverdict.scoring.engine.manifest import NAME
from toolverdict.scoring.engine.plan import Sizes
from toolverdict.scoring.engine.source import Source
from toolverdict.scoring.engine.units import Stage
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.run import Engines, Inputs, Period, score
from toolverdict.scoring.summary import Summary

BEGIN = datetime(2026, 11, 2, 8, tzinfo=UTC)


class World:
    """A lake that grows, and a clock."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.path, self.lake, self.parts = folder, Lake.create(folder, 2), 0

    def receive(self, hours: float, *spans: tuple[int, int]) -> None:
        """Spans of traces, by number; the span with number 0 is the root, which ends the trace."""
        at = int((BEGIN + timedelta(hours=hours)).timestamp()) * 1_000_000_000
        made = [self._span(trace, number) for trace, number in spans]
        table = table_of(
            Signal.TRACES, decode(Signal.TRACES, make_request(*made).SerializeToString(), at)
        )
        buckets = [bucket_of(one, 2) for one in table["trace_id"].to_pylist()]
        for bucket in set(buckets):
            self.parts += 1
            segment = SegmentId(f"{at:016x}-{self.parts:08x}", at)
            mine = [number for number, one in enumerate(buckets) if one == bucket]
            write_part(self.lake, segment, Signal.TRACES, bucket, table.take(mine))

    def _span(self, trace: int, number: int) -> Any:
        call = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": f"tool_{number}"}
        said = call if number else {"gen_ai.operation.name": "invoke_agent"}
        begin = 1_793_600_000_000_000_000 + number * 1_000_000
        return make_span(
            number,
            trace_id=bytes([*[7] * 15, trace]),
            span_id=bytes([*[1] * 7, number + 1]),
            parent_span_id=bytes([*[1] * 7, 1]) if number else b"",
            start_time_unix_nano=begin,
            end_time_unix_nano=begin + 500_000,
            attributes=[{"key": k, "value": {"string_value": v}} for k, v in said.items()],
        )

    def score(self, out: Path, hours: float, since: Any = "last") -> Summary:
        return score(
            Inputs(self.path),
            out,
            period=Period(since),
            engines=Engines(workers=1, sizes=Sizes(0)),
            clock=lambda: BEGIN + timedelta(hours=hours),
        )


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "lake")


def calls(out: Path) -> Counter[int]:
    """How many calls of each trace there are; each trajectory has one verdict."""
    verdicts = pq.read_table(out / "verdicts")["trajectory_id"].to_pylist()
    assert len(verdicts) == len(set(verdicts))
    found = Counter(
        int(str(one)[-2:], 16) for one in pq.read_table(out / "calls")["trace_id"].to_pylist()
    )
    assert len(found) == len(verdicts)
    return found


@pytest.fixture
def read_units(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The units of the lake that are read, by name, as they are."""
    names: list[str] = []

    def watched(lake: Any, files: Any, unit: Any) -> Source:
        if unit.stage is Stage.WINDOW:
            names.append(unit.name)
        return Source(lake, files, unit)

    monkeypatch.setattr(work, "Source", watched)
    return names


def test_only_windows_with_something_new_are_read(
    world: World, tmp_path: Path, read_units: list[str]
) -> None:
    out = tmp_path / "out"
    world.receive(0, (2, 0), (2, 1))
    world.receive(1, (4, 0), (4, 1))
    world.score(out, hours=3)
    assert read_units == ["2026-11-02T08-b000", "2026-11-02T09-b000"]
    before = {path: path.read_bytes() for path in out.rglob("*.parquet")}
    read_units.clear()
    world.score(out, hours=4)
    assert read_units == []
    assert {path: path.read_bytes() for path in out.rglob("*.parquet")} == before
    world.receive(5, (6, 0), (6, 1), (6, 2))
    world.score(out, hours=8)
    assert read_units == ["2026-11-02T13-b000"]
    assert calls(out) == {2: 1, 4: 1, 6: 2}


def test_a_late_span_opens_its_trajectory_again(world: World, tmp_path: Path) -> None:
    out = tmp_path / "out"
    world.receive(0, (2, 0), (2, 1), (4, 0), (4, 1))
    world.score(out, hours=2)
    assert calls(out) == {2: 1, 4: 1}
    world.receive(9, (2, 2))
    summary = world.score(out, hours=11)
    assert calls(out) == {2: 2, 4: 1}
    assert summary.document["counts"]["calls"] == 3


def test_what_goes_on_waits_until_it_is_over_or_nothing_comes_for_the_grace(
    world: World, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    world.receive(0, (2, 1), (4, 1), (6, 0), (6, 1))
    world.score(out, hours=0.2)
    assert calls(out) == {6: 1}
    world.receive(0.4, (2, 0), (2, 2))
    world.score(out, hours=0.45)
    assert calls(out) == {2: 2, 6: 1}
    world.score(out, hours=1)  # nothing came of trace 4 for more than half an hour
    assert calls(out) == {2: 2, 4: 1, 6: 1}


def test_what_crosses_the_hour_and_goes_on_waits_too(world: World, tmp_path: Path) -> None:
    out = tmp_path / "out"
    world.receive(0.9, (2, 1))
    world.receive(1.1, (2, 2), (4, 0), (4, 1))
    world.score(out, hours=1.2)
    assert calls(out) == {4: 1}
    world.receive(1.3, (2, 0))
    world.score(out, hours=1.4)
    assert calls(out) == {2: 2, 4: 1}


def test_step_by_step_gives_what_one_run_gives(world: World, tmp_path: Path) -> None:
    stepwise, whole = tmp_path / "stepwise", tmp_path / "whole"
    for hour in range(4):
        spans = [(trace, (hour + trace) % 4) for trace in range(1, 9)]
        world.receive(hour + 0.1, *spans)
        world.score(stepwise, hours=hour + 0.2)
    world.score(stepwise, hours=24)
    world.score(whole, hours=24, since=None)
    assert calls(stepwise) == calls(whole) == dict.fromkeys(range(1, 9), 3)
    names = [sorted(path.name for path in (out / "calls").iterdir()) for out in (stepwise, whole)]
    assert names[0] == names[1]


def test_from_a_time_on_and_up_to_one(world: World, tmp_path: Path) -> None:
    """A trajectory belongs to the window in which it began."""
    world.receive(0, (2, 0), (2, 1))
    world.receive(1, (2, 2), (4, 0), (4, 1))
    world.receive(2, (4, 2), (6, 0), (6, 1))

    def scored(since: float | None, until: float | None) -> Counter[int]:
        first, end = (
            None if one is None else BEGIN + timedelta(hours=one) for one in (since, until)
        )
        out = tmp_path / f"{since}-{until}"
        score(Inputs(world.path), out, period=Period(first, end), engines=Engines(workers=1))
        return calls(out)

    assert scored(1, None) == {4: 2, 6: 1}
    assert scored(None, 2) == {2: 2, 4: 1}
    assert scored(1, 2) == {4: 1}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"{", "is damaged"),
        (b"[]", "not an earlier run's"),
        (b'{"format": "toolverdict-results", "version": 99}', "update toolverdict"),
        (b'{"format": "toolverdict-results", "version": 1}', "is damaged"),
    ],
)
def test_a_manifest_that_is_none_is_refused(
    world: World, tmp_path: Path, content: bytes, told: str
) -> None:
    world.receive(0, (2, 0), (2, 1))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / NAME).write_bytes(content)
    with pytest.raises(InputError, match=told):
        world.score(tmp_path / "out", hours=1)


def test_the_last_run_of_another_lake_is_none(
    world: World, tmp_path: Path, make_lake: Callable[..., Path]
) -> None:
    world.receive(0, (2, 0), (2, 1))
    world.score(tmp_path / "out", hours=1)
    world.path.rename(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="no last run"):
        score(Inputs(tmp_path / "elsewhere"), tmp_path / "out", period=Period("last"))
