"""Two results side by side: pairs where cases are the same, live traffic else, waste with figures."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from toolverdict.scoring.compare.cli import app
from toolverdict.scoring.compare.comparison import compare
from toolverdict.scoring.compare.waste_path import waste_path
from toolverdict.scoring.gate.evidence import Scored, read_results
from toolverdict.scoring.gate.testing import Played, played, scored, write_out
from toolverdict.scoring.model import Share


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "toolverdict", "compare", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def call(*arguments: str | Path) -> Result:
    """The same within this process."""
    return CliRunner().invoke(app, [str(one) for one in arguments])


def suite(passing: int, count: int = 60, calls: int = 2, first: int = 0) -> list[Played]:
    return [
        played(f"c{n}", passed=n - first < passing, calls=[{}] * calls)
        for n in range(first, first + count)
    ]


def live_traffic(prefix: str, count: int, calls: tuple[int, int], success: float) -> list[Scored]:
    random = np.random.default_rng(len(prefix) + count)
    return [
        scored(
            f"{prefix}{n}",
            {"pass_rate": Share(int(random.random() < success), 1)},
            calls=int(random.integers(*calls)),
        )
        for n in range(count)
    ]


def test_the_same_cases_are_paired_and_others_named(tmp_path: Path) -> None:
    base = read_results(write_out(tmp_path / "a", suite(60)))
    new = read_results(write_out(tmp_path / "b", suite(40, first=5)))
    found = compare(base, new)
    assert (found.mode, found.cases_both) == ("paired", 55)
    assert found.cases_lost == ("c0", "c1", "c2", "c3", "c4")
    assert len(found.cases_added) == 5
    passes = found.differences[0]
    assert (passes.rate, passes.method, passes.units) == ("pass_rate", "mcnemar", 55)
    assert passes in found.worse
    assert compare(base, new, mode="live").mode == "live"


def test_without_a_common_case_it_is_live_traffic(tmp_path: Path) -> None:
    base = read_results(write_out(tmp_path / "a", suite(60)))
    new = read_results(write_out(tmp_path / "b", suite(20, first=100)))
    found = compare(base, new)
    assert found.mode == "live"
    assert found.differences[0] in found.worse


def test_nothing_to_compare_is_none(tmp_path: Path) -> None:
    base = read_results(write_out(tmp_path / "a", []))
    found = compare(base, base)
    assert not found.comparable
    assert all(str(one) == "None (n=0)" for one in found.differences)
    assert found.waste.shown is None
    assert "None (n=0)" in found.waste.sentence


def test_calls_more_and_succeeds_no_more() -> None:
    """S27, on live traffic."""
    base = live_traffic("base", 3000, (2, 6), 0.7)
    found = waste_path(base, live_traffic("new", 3000, (4, 8), 0.69), paired=False)
    assert found.shown is True
    assert found.excluded is False
    assert found.growth == pytest.approx(5.5 / 3.5 - 1, abs=0.05)
    assert "calls more, succeeds no more" in found.sentence
    better = waste_path(base, live_traffic("new", 3000, (4, 8), 0.8), paired=False)
    assert (better.shown, better.excluded) == (False, True)
    few = waste_path(base[:30], live_traffic("new", 30, (4, 8), 0.7), paired=False)
    assert (few.shown, few.excluded) == (False, False)
    assert "neither shown nor excluded" in few.sentence


def test_on_the_same_cases_fewer_trajectories_show_it() -> None:
    def version(calls: int) -> list[Scored]:
        return [
            scored(
                str(n), {"pass_rate": Share(int(n % 3 > 0), 1)}, case=str(n), calls=calls + n % 5
            )
            for n in range(200)
        ]

    assert waste_path(version(3), version(5), paired=True).shown is True
    assert waste_path(version(3), version(3), paired=True).excluded is True
    assert waste_path(version(3)[:5], version(5)[:5], paired=True).shown is None


def test_a_version_that_calls_nothing_has_no_growth() -> None:
    some = live_traffic("base", 50, (2, 6), 0.7)
    none = live_traffic("new", 50, (0, 1), 0.7)
    for paired in (True, False):
        assert waste_path(some, none, paired=paired).shown is None
        assert waste_path(none, some, paired=paired).growth is None


def test_the_command_says_what_got_worse(tmp_path: Path) -> None:
    base = write_out(tmp_path / "a", suite(60))
    new = write_out(tmp_path / "b", suite(40, calls=3))
    worse = run(base, new)
    assert worse.returncode == 1, worse.stderr
    assert "calls more, succeeds no more: calls a trajectory 2.00 -> 3.00" in worse.stdout
    assert call(base, base).exit_code == 0
    assert call(new, base, "--live").exit_code == 0
    empty = write_out(tmp_path / "c", [])
    assert call(empty, empty).exit_code == 3
    mistake = run(base, tmp_path / "nowhere")
    assert mistake.returncode == 2
    assert mistake.stderr.count("\n") == 1


def test_the_json_document_has_a_version_and_every_figure(tmp_path: Path) -> None:
    base = write_out(tmp_path / "a", suite(60))
    new = write_out(tmp_path / "b", suite(40))
    result = call(base, new, "--json", "--seed", "4")
    document = json.loads(result.stdout)
    assert result.exit_code == document["exit_code"] == 1
    assert (document["version"], document["mode"], document["seed"]) == (1, "paired", 4)
    first = document["differences"][0]
    assert first["rate"] == "pass_rate"
    assert first["difference"] == pytest.approx(-1 / 3)
    assert first["p_holm"] >= first["p"]
    assert first["worse"] is True
    assert document["waste_path"]["shown"] is False


def test_the_command_names_cases_that_came_and_went(tmp_path: Path) -> None:
    base = write_out(tmp_path / "a", suite(60))
    new = write_out(tmp_path / "b", suite(60, first=7))
    said = call(base, new).stdout
    assert "7 cases not played any more: c0, c1, c2, c3, c4, ..." in said
    assert "7 cases new: " in said
