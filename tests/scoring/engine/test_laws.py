"""However a lake is cut into units, and whatever runs them, it gives the rows of the whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolverdict.collector import Lake
from toolverdict.collector.lake.compaction import CompactionSettings, compact
from toolverdict.scoring.engine.plan import Sizes
from toolverdict.scoring.run import Engines, Inputs, score

HOURS = Sizes(small_rows=0)
RANGES = Sizes(small_rows=0, large_rows=60, late_rows=100)


def serially(sizes: Sizes) -> Engines:
    return Engines(workers=1, sizes=sizes)


@pytest.mark.parametrize(
    ("seed", "buckets", "sizes"),
    [
        pytest.param(None, 1, Sizes(), id="one unit"),
        pytest.param(1, 1, Sizes(), id="days"),
        pytest.param(1, 1, HOURS, id="hours"),
        pytest.param(2, 8, HOURS, id="hours and buckets"),
        pytest.param(None, 8, HOURS, id="buckets"),
        pytest.param(2, 1, RANGES, id="ranges"),
    ],
)
def test_any_cut_gives_the_rows_of_the_whole(
    recorded: Any,
    torn: Callable[[int], list[int]],
    make_lake: Callable[..., Path],
    whole_of: Callable[[Path], object],
    read_out: Callable[[Path], object],
    tmp_path: Path,
    seed: int | None,
    buckets: int,
    sizes: Sizes,
) -> None:
    """Traces that lie in several windows, and conversations of several traces, too."""
    hours = torn(seed) if seed is not None else ()
    lake = make_lake(recorded, hours, buckets, parts=1 + (seed or 0))
    summary = score(Inputs(lake), tmp_path / "out", engines=serially(sizes))
    whole = whole_of(make_lake(recorded, hours, name="whole"))
    assert read_out(tmp_path / "out") == whole
    assert summary.document["counts"]["spans"] == recorded.spans.num_rows


def test_rates_do_not_depend_on_the_cut(
    recorded: Any, torn: Callable[[int], list[int]], make_lake: Callable[..., Path], tmp_path: Path
) -> None:
    lake = make_lake(recorded, torn(3), 4)
    documents = [
        score(Inputs(lake), tmp_path / str(number), engines=serially(sizes)).document
        for number, sizes in enumerate((Sizes(), RANGES))
    ]
    assert documents[0] == documents[1]


def test_compaction_changes_nothing_and_nothing_is_scored_again(
    recorded: Any, torn: Callable[[int], list[int]], make_lake: Callable[..., Path], tmp_path: Path
) -> None:
    path, out = make_lake(recorded, torn(4), 2, parts=3), tmp_path / "out"
    score(Inputs(path), out, engines=serially(HOURS))
    before = contents(out)
    lake = Lake.open(path)
    with lake.store.upkeep():
        done = compact(lake, CompactionSettings())
    assert done.parts_after < done.parts_before
    score(Inputs(path), out, engines=serially(HOURS))
    assert contents(out) == before


def test_processes_write_the_same_bytes(
    few: Any, make_lake: Callable[..., Path], tmp_path: Path
) -> None:
    lake = make_lake(few, scattered(few), 2)
    for name, workers in (("one", 1), ("two", 2)):
        score(Inputs(lake), tmp_path / name, engines=Engines(workers=workers, sizes=HOURS))
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def scattered(rows: Any) -> list[int]:
    """Four hours, without a thought of traces."""
    return [number % 4 for number in range(rows.spans.num_rows + rows.logs.num_rows)]


def contents(out: Path) -> dict[str, bytes]:
    """The bytes of every file, by its name in ``OUT``."""
    files = (path for path in out.rglob("*") if path.is_file())
    return {str(path.relative_to(out)): path.read_bytes() for path in files}
