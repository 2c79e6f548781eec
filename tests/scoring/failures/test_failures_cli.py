"""``toolverdict failures``: a report from a real run, and one clear line for every mistake."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolverdict.collector.testing import make_request, make_span, post, running_collector
from toolverdict.scoring import Inputs, score


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "toolverdict", "failures", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with one agent's run whose only call timed out, between two requests to the model."""
    folder = tmp_path_factory.mktemp("failures")

    def text(key: str, value: str) -> dict[str, Any]:
        return {"key": key, "value": {"string_value": value}}

    root = make_span(
        1, attributes=[text("gen_ai.operation.name", "invoke_agent")], status={"code": 2}
    )
    under: dict[str, Any] = {"trace_id": root.trace_id, "parent_span_id": root.span_id}
    turn = make_span(2, attributes=[text("gen_ai.operation.name", "chat")], **under)
    tool = make_span(
        3,
        attributes=[
            text("gen_ai.operation.name", "execute_tool"),
            text("gen_ai.tool.name", "get_order"),
            text("error.type", "timeout"),
        ],
        status={"code": 2},
        **under,
    )
    with running_collector(folder / "lake") as collector:
        body = make_request(root, turn, tool).SerializeToString()
        assert post(f"{collector.http}/v1/traces", body).status == 200
    score(Inputs(folder / "lake"), folder / "out")
    return folder


def test_the_report_is_printed_as_markdown(scored: Path) -> None:
    result = run(scored / "out")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("# Failure report\n")
    assert "`get_order`" in result.stdout
    assert "model, turn" not in result.stdout


def test_with_the_lake_the_turns_of_the_model_are_told(scored: Path) -> None:
    result = run(scored / "out", "--lake", scored / "lake", "--format", "json")
    (one,) = json.loads(result.stdout)["trajectories"]
    assert sorted(event["kind"] for event in one["timeline"]) == ["call", "turn"]


def test_it_is_written_where_it_was_asked_for(scored: Path, tmp_path: Path) -> None:
    result = run(scored / "out", "--out", tmp_path / "report.md", "--seed", "3", "--by", "tool")
    assert (result.returncode, result.stdout) == (0, "")
    assert "with seed 3" in (tmp_path / "report.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "holds no results"),
        (["OUT", "--by", "tool,colour"], "'colour' is not known"),
        (["OUT", "--by", ","], "names nothing"),
        (["OUT", "--lake", "nowhere"], "there is no folder"),
        (["OUT", "--out", "/nowhere/report.md"], "cannot be written"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(scored: Path, arguments: list[str], message: str) -> None:
    result = run(*(str(scored / "out") if one == "OUT" else one for one in arguments))
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("toolverdict failures: ")
    assert message in line
