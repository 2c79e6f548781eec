"""The same rows from Ray and from Spark, each on a real cluster of several processes.

One command starts it, here and by hand: ``toolverdict score LAKE --out OUT --engine ray --workers 2``.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from toolverdict.scoring.run import Inputs, score

SCORE = """
import sys
from pathlib import Path
from toolverdict.scoring.engine.plan import Sizes
from toolverdict.scoring.run import Engines, Inputs, score

if __name__ == "__main__":
    lake, out, engine = sys.argv[1:]
    engines = Engines(engine, workers=2, sizes=Sizes(small_rows=0))
    score(Inputs(Path(lake)), Path(out), engines=engines)
"""

NEEDS = {"local": "pyarrow", "ray": "ray", "spark": "pyspark"}


@pytest.mark.parametrize("engine", NEEDS)
def test_every_engine_gives_the_same_files(
    few: Any,
    make_lake: Callable[..., Path],
    read_out: Callable[[Path], object],
    tmp_path: Path,
    engine: str,
) -> None:
    if find_spec(NEEDS[engine]) is None:
        pytest.skip(f"needs {NEEDS[engine]}")
    count = few.spans.num_rows + few.logs.num_rows
    lake = make_lake(few, [number % 4 for number in range(count)], 2)
    script = tmp_path / "run_it.py"
    script.write_text(SCORE)
    done = subprocess.run(
        [sys.executable, str(script), str(lake), str(tmp_path / "cluster"), engine],
        capture_output=True,
        text=True,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
    )
    assert done.returncode == 0, done.stderr
    score(Inputs(lake), tmp_path / "here")
    assert read_out(tmp_path / "cluster") == read_out(tmp_path / "here")
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in PLACES]
    assert summaries[0] == summaries[1]


PLACES = ("cluster", "here")


def test_an_engine_that_is_not_there_is_told_in_one_line(
    tmp_path: Path, few: Any, make_lake: Any
) -> None:
    if find_spec("ray") is not None:
        pytest.skip("ray is there")
    words = ["score", str(make_lake(few)), "--out", str(tmp_path / "out"), "--engine", "ray"]
    done = subprocess.run(
        [sys.executable, "-m", "toolverdict", *words], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "toolverdict score: --engine ray: No module named 'ray'; install it with: "
        "pip install 'toolverdict[scoring,ray]'"
    ]
