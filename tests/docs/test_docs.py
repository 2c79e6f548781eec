"""The documents: their examples run, their commands exist, their paths are there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolverdict.collector.testing import running_collector
from toolverdict.scoring.cases.load import load_cases

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "collector/README.md",
    "collector/SAMPLING.md",
    "scoring/README.md",
    "scoring/LIVE.md",
    "deploy/README.md",
]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_readme_works_from_its_first_line_to_its_last(tmp_path: Path) -> None:
    """Its agent's span reaches a collector and passes its case, and its policy has its say."""
    (example,) = blocks("README.md", "python")
    policy, cases = blocks("README.md", "yaml")
    (tmp_path / "policy.yaml").write_text(policy)
    (tmp_path / "cases.yaml").write_text(cases)
    with running_collector(tmp_path / "lake") as collector:
        code = example.replace("http://127.0.0.1:4317", f"http://{collector.grpc}")
        assert code != example
        run(["-c", code])
    score = ["-m", "toolverdict", "score", "lake", "--out", "results", "--cases", "cases.yaml"]
    printed = run(score, tmp_path)
    assert "1 trajectory, 1 tool call, 3 spans" in printed
    assert "Failed trajectories: 0 of 1" in printed
    assert "1.000  (1/1)" in printed
    judged = run([*score, "--policy", "policy.yaml"], tmp_path)
    assert "order_a77: requirement_unmet at span" in judged


@pytest.mark.parametrize("number", range(3))
def test_the_examples_of_the_scoring_page_are_what_they_say(tmp_path: Path, number: int) -> None:
    example = blocks("scoring/README.md", "yaml")[number]
    (tmp_path / "cases.yaml").write_text(example)
    assert len(load_cases(tmp_path / "cases.yaml").cases) == 1


def run(arguments: list[str], folder: Path | None = None) -> str:
    result = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, cwd=folder, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_every_command_in_the_documents_exists() -> None:
    commands = [
        line for page in PAGES for block in blocks(page, "sh") for line in block.split("\n")
    ]
    targets = set(re.findall(r"^(\w+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    made = {line.split()[1] for line in commands if line.startswith("make ")}
    assert made
    assert made <= targets
    for line in commands:
        words = line.split()
        if not words or words[0] != "toolverdict":
            continue
        shown = help_of(words[1])
        if " COMMAND " in shown:
            shown = help_of(*words[1:3])
        assert all(option in shown for option in words if option.startswith("--")), line


def help_of(*command: str) -> str:
    shown = subprocess.run(
        [sys.executable, "-m", "toolverdict", *command, "--help"],
        capture_output=True,
        text=True,
        env={"COLUMNS": "200", "TERM": "dumb"},
    )
    assert shown.returncode == 0, command
    return shown.stdout


@pytest.mark.parametrize("page", PAGES)
def test_links_and_paths_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (ROOT / page).parent.joinpath(target).exists(), target
    for name in re.findall(r"`([a-z]+/\.\.\./[a-z_/]+(?:\.py)?)`", text):
        package, rest = name.split("/.../")
        assert (ROOT / package / "toolverdict" / package / rest).exists(), name


_TOOLS = """[{"name": "get_order", "description": "One order by its id.", "inputSchema": {
  "type": "object", "properties": {"order_id": {"type": "string"}}}}]"""


def test_the_page_about_live_traffic_works_from_its_first_line_to_its_last(tmp_path: Path) -> None:
    """Its commands run one after the other, over what the demo left."""
    run(["-m", "toolverdict", "demo", "--out", "demo"], tmp_path)
    (tmp_path / "demo" / "tools.json").write_text(_TOOLS)
    lines = [line for block in blocks("scoring/LIVE.md", "sh") for line in block.splitlines()]
    assert len(lines) > 10
    for line in lines:
        program, *arguments = line.split()
        assert program == "toolverdict"
        run(["-m", "toolverdict", *arguments], tmp_path / "demo")
    assert (tmp_path / "demo" / "failures.json").stat().st_size > 1000
