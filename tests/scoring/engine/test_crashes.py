"""What a run leaves behind that was killed, or whose workers were, and what the next one makes of it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolverdict.scoring.engine.errors import EngineError, WorkerVersionError
from toolverdict.scoring.engine.executors import Pool
from toolverdict.scoring.engine.files import UnitFiles
from toolverdict.scoring.engine.plan import Sizes
from toolverdict.scoring.engine.units import Stage, Unit
from toolverdict.scoring.engine.work import Job, run_unit
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.results import opened
from toolverdict.scoring.run import Engines, Inputs, score
from toolverdict.scoring.unit import Rules

KILLED = """
import os, signal, sys
from pathlib import Path
from toolverdict.scoring import results, run
from toolverdict.scoring.engine.plan import Sizes

lake, out, where = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def swap(*arguments):
    moved, replace = [], os.replace
    os.replace = lambda *names: die() if len(moved) == 3 else moved.append(replace(*names))
    results.put_in_place(*arguments)

if where == "swap":
    run.put_in_place = swap
elif where == "manifest":
    run.Manifest.write = die
progress = None if not where.isdigit() else lambda done, of: done == int(where) and die()
run.score(run.Inputs(lake), out, progress, engines=run.Engines(workers=1, sizes=Sizes(0)))
"""
"""Scores, and kills itself: after some units, while results are put in place, or just after."""


@pytest.fixture
def lake(few: Any, make_lake: Callable[..., Path]) -> Path:
    count = few.spans.num_rows + few.logs.num_rows
    return make_lake(few, [number % 3 for number in range(count)])


@pytest.mark.parametrize("where", ["1", "3", "swap", "manifest"])
def test_a_run_that_was_killed_goes_on_where_it_was(lake: Path, tmp_path: Path, where: str) -> None:
    out, engines = tmp_path / "out", Engines(workers=1, sizes=Sizes(0))
    words = [sys.executable, "-c", KILLED, str(lake), str(out), where]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    kept = {path: path.stat().st_mtime_ns for path in (out / ".units/accounts").iterdir()}
    assert kept
    score(Inputs(lake), out, engines=engines)
    score(Inputs(lake), tmp_path / "whole", engines=engines)
    assert contents(out) == contents(tmp_path / "whole")
    assert kept == {path: path.stat().st_mtime_ns for path in kept}  # not done again


def test_what_is_damaged_is_made_again(lake: Path, tmp_path: Path) -> None:
    out, engines = tmp_path / "out", Engines(workers=1, sizes=Sizes(0))
    score(Inputs(lake), out, engines=engines)
    before = contents(out)
    for kind in ("accounts", "calls", "index"):
        path = sorted((out / ".units" / kind).iterdir())[0]
        copy = path.with_name("copy")
        copy.write_bytes(path.read_bytes()[:100])
        copy.replace(path)
    score(Inputs(lake), out, engines=engines)
    assert contents(out) == before


DYING = """
import os, signal
from pathlib import Path
from toolverdict.scoring.unit import score_unit

def score(*arguments):
    flag = Path({flag!r})
    if {always} or not flag.exists():
        flag.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return score_unit(*arguments)
"""


@pytest.mark.parametrize("always", [False, True])
def test_a_worker_that_dies_is_replaced_and_one_that_keeps_dying_is_told(
    lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, always: bool
) -> None:
    module = DYING.format(flag=str(tmp_path / "died"), always=always)
    (tmp_path / "dying_scorer.py").write_text(module)
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "out"
    job = Job(lake, out, Rules(), "", scorer="dying_scorer:score")
    parts = sorted(str(path.relative_to(lake)) for path in lake.glob("spans/*/*/*/*.parquet"))
    units = [
        Unit(Stage.WINDOW, str(number), f"{number:064x}", (part,), ())
        for number, part in enumerate(parts)
    ]
    UnitFiles(out).make()
    if always:
        with pytest.raises(EngineError, match="fewer --workers"):
            list(Pool(2).map(job, units))
        return
    done = list(Pool(2).map(job, units))
    assert sorted(one.unit for one in done) == sorted(unit.name for unit in units)
    assert (tmp_path / "died").exists()


def test_a_worker_with_other_code_is_refused(lake: Path, tmp_path: Path) -> None:
    UnitFiles(tmp_path).make()
    job = Job(lake, tmp_path, Rules(), "", code="another")
    with pytest.raises(WorkerVersionError, match="install the same version"):
        run_unit(job, Unit(Stage.ACROSS, "across-000", "0" * 64, (), ()))


def test_two_runs_into_one_place_exclude_each_other(lake: Path, tmp_path: Path) -> None:
    with opened(tmp_path / "out"), pytest.raises(InputError, match="is at work on it"):
        score(Inputs(lake), tmp_path / "out")


def contents(out: Path) -> dict[str, bytes]:
    files = (path for path in out.rglob("*") if path.is_file())
    return {os.path.relpath(path, out): path.read_bytes() for path in files}


def test_workers_import_nothing_from_the_folder_the_command_runs_in(
    lake: Path, tmp_path: Path
) -> None:
    (tmp_path / "secrets.py").write_text("raise SystemExit('somebody else ran')")
    code = (
        "import sys\nfrom pathlib import Path\nfrom toolverdict.scoring import run\n"
        "from toolverdict.scoring.engine.plan import Sizes\n"
        "run.score(run.Inputs(Path(sys.argv[1])), Path('out'), "
        "engines=run.Engines(workers=2, sizes=Sizes(0)))"
    )
    words = [sys.executable, "-P", "-c", code, str(lake)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out" / "summary.json").exists()


def test_what_is_not_ours_stays(tmp_path: Path) -> None:
    files = UnitFiles(tmp_path)
    files.make()
    mine = files.folder("calls") / "notes.txt"
    mine.write_text("mine")
    (files.folder("calls") / "unit-old-0.parquet").write_text("")
    files.remove_all_but(frozenset())
    assert [path.name for path in files.folder("calls").iterdir()] == ["notes.txt"]
