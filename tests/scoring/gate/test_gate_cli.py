"""``toolverdict gate``: the same exit code every way it is run, and documents for CI."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from toolverdict.scoring.gate.cli import app
from toolverdict.scoring.gate.gate_file import published_schema
from toolverdict.scoring.gate.testing import played, write_out
from toolverdict.scoring.model import Category

MODULE = [sys.executable, "-m", "toolverdict"]
SCRIPT = [str(Path(sys.executable).with_name("toolverdict"))]


def run(
    *arguments: str | Path, how: list[str] = MODULE, **environment: str
) -> subprocess.CompletedProcess[str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GITHUB_")}
    command = [*how, "gate", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=clean | environment
    )


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Thirty trajectories, ten of which chose the wrong tool."""
    wrong = (Category.WRONG_TOOL, 0, "::error::[b]x[/b]\x1b was called")
    return write_out(
        tmp_path / "out",
        [
            played(
                f"c{n}",
                passed=n >= 10,
                findings=[wrong] if n < 10 else [],
                selection=float(n >= 10),
            )
            for n in range(30)
        ],
    )


def gate_file(tmp_path: Path, limit: float) -> Path:
    path = tmp_path / "gate.yaml"
    path.write_text(f"tool_call_gate: {{min_selection_accuracy: {limit}}}\n")
    return path


@pytest.mark.parametrize(("limit", "code"), [(0.4, 0), (0.95, 1), (0.67, 3)])
def test_the_exit_code_is_the_answer(out: Path, tmp_path: Path, limit: float, code: int) -> None:
    """B173, B175."""
    arguments = (out, "--gate", gate_file(tmp_path, limit))
    assert CliRunner().invoke(app, [str(one) for one in arguments]).exit_code == code
    piped = CliRunner().invoke(app, [*map(str, arguments), "--json", "-"])
    assert (piped.exit_code, json.loads(piped.stdout)["exit_code"]) == (code, code)


@pytest.mark.skipif(not Path(SCRIPT[0]).exists(), reason="no console script is installed")
def test_the_console_script_exits_with_the_same_code(out: Path, tmp_path: Path) -> None:
    assert run(out, "--gate", gate_file(tmp_path, 0.95), how=SCRIPT).returncode == 1


def test_piped_json_is_the_document_and_nothing_else(out: Path, tmp_path: Path) -> None:
    result = run(out, "--gate", gate_file(tmp_path, 0.95), "--json", "-")
    document = json.loads(result.stdout)
    assert (document["version"], document["state"], document["exit_code"]) == (1, "fail", 1)
    assert result.returncode == 1
    assert result.stderr == ""


def test_all_documents_of_one_run_agree(out: Path, tmp_path: Path) -> None:
    names = {kind: tmp_path / f"report.{kind}" for kind in ("json", "junit", "sarif")}
    flags = [part for kind, path in names.items() for part in (f"--{kind}", path)]
    result = run(out, "--gate", gate_file(tmp_path, 0.95), *flags)
    assert result.returncode == 1
    assert "gate: fail" in result.stdout
    assert "\x1b" not in result.stdout
    document = json.loads(names["json"].read_bytes())
    failed = [check["id"] for check in document["checks"] if check["state"] == "fail"]
    assert failed == ["selection_accuracy"]
    tests = ElementTree.parse(names["junit"]).findall(".//testcase[failure]")
    assert [test.get("name") for test in tests] == failed
    results = json.loads(names["sarif"].read_bytes())["runs"][0]["results"]
    assert {one["ruleId"] for one in results} == set(failed)
    assert len(results) == 1 + 10


def test_on_github_it_annotates_and_summarises(out: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    result = run(
        out,
        "--gate",
        gate_file(tmp_path, 0.95),
        GITHUB_ACTIONS="true",
        GITHUB_STEP_SUMMARY=str(summary),
    )
    lines = result.stdout.splitlines()
    assert lines[0].startswith("::error file=")
    assert lines[1].startswith("::stop-commands::")
    token = lines[1].removeprefix("::stop-commands::")
    assert lines[-1] == f"::{token}::"
    assert summary.read_text().startswith("## Tool-call gate")


def test_annotations_are_asked_for_and_stay_out_of_a_document(out: Path, tmp_path: Path) -> None:
    arguments = [str(out), "--gate", str(gate_file(tmp_path, 0.95))]
    runner = CliRunner(env={"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": None})
    assert "::error file" not in runner.invoke(app, [*arguments, "--no-github"]).stdout
    piped = runner.invoke(app, [*arguments, "--json", "-"])
    json.loads(piped.stdout)
    assert piped.stderr.startswith("::error file=")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere", "--gate", "GATE"], "holds no results"),
        (["OUT", "--gate", "nowhere.yaml"], "cannot be read"),
        (["OUT", "--gate", "GATE", "--baseline", "nowhere"], "holds no results"),
        (["OUT", "--gate", "GATE", "--policy", "nowhere.yaml"], "nowhere.yaml"),
        (["OUT", "--gate", "GATE", "--junit", "no/such/folder.xml"], "cannot be written"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(
    out: Path, tmp_path: Path, arguments: list[str], said: str
) -> None:
    names = {"OUT": str(out), "GATE": str(gate_file(tmp_path, 0.5))}
    result = CliRunner().invoke(app, [names.get(part, part) for part in arguments])
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("toolverdict gate: ")


def test_the_schema_is_printed_without_results() -> None:
    assert CliRunner().invoke(app, ["--schema"]).stdout == published_schema()


def test_the_self_test_says_its_false_alarms(out: Path, tmp_path: Path) -> None:
    gate = gate_file(tmp_path, 0.95)
    arguments = [str(out), "--gate", str(gate), "--self-test", "--splits", "50", "--seed", "3"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert result.stdout.startswith("false alarms: 0.")
    assert "/50) [" in result.stdout
    assert "(seed 3)" in result.stdout
    assert CliRunner().invoke(app, arguments).stdout == result.stdout


def test_one_cluster_cannot_be_split(tmp_path: Path) -> None:
    out = write_out(tmp_path / "out", [played("a", passed=True)])
    arguments = [str(out), "--gate", str(gate_file(tmp_path, 0.95)), "--self-test"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 3
    assert "None (n=0)" in result.stdout
