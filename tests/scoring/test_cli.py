"""``toolverdict score``: what it prints, and one clear line for everything a user can get wrong."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from rich.console import Console

from toolverdict.collector import Lake
from toolverdict.collector.testing import make_request, make_span, post, running_collector
from toolverdict.scoring import Inputs, score
from toolverdict.scoring.terminal import plain, print_results


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "toolverdict", "score", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def empty_lake(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    Lake.create(tmp_path / "lake")
    return tmp_path / "lake"


def hostile_lake(folder: Path) -> Path:
    """A tool whose name holds markup, control and direction characters."""
    name = "[bold]x\x1b[31m\u202e"
    span = make_span(
        1,
        attributes=[
            {"key": "gen_ai.operation.name", "value": {"string_value": "execute_tool"}},
            {"key": "gen_ai.tool.name", "value": {"string_value": name}},
        ],
    )
    with running_collector(folder) as collector:
        body = make_request(span).SerializeToString()
        assert post(f"{collector.http}/v1/traces", body).status == 200
    return folder


@pytest.mark.parametrize(
    ("flag", "content", "message"),
    [
        (None, None, "there is no folder"),
        ("--policy", None, "cannot be read"),
        ("--policy", "rules: [", "is not YAML"),
        ("--policy", "version: 1\nid: x\nrules: [{id: a}]", "rules.0"),
        ("--cases", None, "no such case file"),
        ("--cases", "{", "is not JSON"),
        ("--case-map", "[]", "expected an object"),
        ("--catalog", None, "cannot be read"),
        ("--catalog", "{}", "is no lock file"),
    ],
)
def test_a_users_mistake_is_one_line_and_exit_2(
    tmp_path: Path, flag: str | None, content: str | None, message: str
) -> None:
    arguments: list[str | Path] = [tmp_path / "nowhere", "--out", tmp_path / "out"]
    if flag is not None:
        given = tmp_path / "given.json"
        if content is not None:
            given.write_text(content)
        arguments += [flag, given]
    result = run(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


def test_an_empty_lake_is_one_line_and_exit_2(empty_lake: Path, tmp_path: Path) -> None:
    result = run(empty_lake, "--out", tmp_path / "out")
    assert result.returncode == 2
    assert "None (n=0)" in result.stderr
    assert result.stderr.count("\n") == 1


def test_json_is_the_summary_and_nothing_else(tmp_path: Path) -> None:
    lake = hostile_lake(tmp_path / "lake")
    result = run(lake, "--out", tmp_path / "out", "--json")
    assert result.returncode == 0, result.stderr
    assert orjson.loads(result.stdout) == orjson.loads((tmp_path / "out/summary.json").read_bytes())


def test_cases_that_nobody_played_are_exit_3_and_not_a_pass(tmp_path: Path) -> None:
    """Nothing evaluated is no success."""
    (tmp_path / "cases.yaml").write_text("{id: c, expected_tool_calls: []}")
    lake = hostile_lake(tmp_path / "lake")
    result = run(lake, "--out", tmp_path / "out", "--cases", tmp_path / "cases.yaml")
    assert result.returncode == 3
    assert "nothing was evaluated" in result.stderr


def test_thresholds_are_options(tmp_path: Path) -> None:
    """An unexpected call fails a case, unless less than everything is enough."""
    (tmp_path / "cases.yaml").write_text("{id: c, expected_tool_calls: []}")
    (tmp_path / "map.yaml").write_text(f"{{'{(2).to_bytes(16).hex()}': c}}")
    lake = hostile_lake(tmp_path / "lake")
    given = ("--cases", tmp_path / "cases.yaml", "--case-map", tmp_path / "map.yaml", "--json")
    for options, passed in ((), 0), (("--min-selection", "0"), 1):
        result = run(lake, "--out", tmp_path / "out", *given, *options)
        assert result.returncode == 0, result.stderr
        assert orjson.loads(result.stdout)["rates"]["pass_rate"]["numerator"] == passed


def test_text_from_a_trace_is_neither_markup_nor_control(tmp_path: Path) -> None:
    score(Inputs(hostile_lake(tmp_path / "lake")), tmp_path / "out")
    console = Console(record=True, width=100, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115
    print_results(tmp_path / "out", console)
    shown = console.export_text()
    assert "[bold]x\\x1b[31m\\u202e" in shown
    console.file.close()


def test_plain_text_stays_as_it_is() -> None:
    assert plain("Straße 請退 ü") == "Straße 請退 ü"
    assert plain("a\nb\x00") == "a\\nb\\x00"


@pytest.mark.parametrize("value", ["nan", "-0.1", "1.1", "inf"])
def test_a_threshold_is_a_number_from_0_to_1(empty_lake: Path, tmp_path: Path, value: str) -> None:
    """Nothing is below ``nan``: a threshold of it would let everything pass."""
    done = run(empty_lake, "--out", tmp_path / "out", "--min-arguments", value)
    assert done.returncode == 2
    assert "--min-arguments" in done.stderr
    assert not (tmp_path / "out").exists()
