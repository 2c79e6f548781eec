"""The documents: their examples run, their commands exist, their paths are there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolverdict.collector.testing import running_collector
from toolverdict.scoring.cases.load import load_cases

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_readme_example_sends_its_span_to_a_collector(tmp_path: Path) -> None:
    (example,) = blocks("README.md", "python")
    with running_collector(tmp_path / "lake") as collector:
        code = example.replace("http://127.0.0.1:4317", f"http://{collector.grpc}")
        assert code != example
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    score = ["-m", "toolverdict", "score", str(tmp_path / "lake"), "--out", str(tmp_path / "out")]
    result = subprocess.run([sys.executable, *score], capture_output=True, text=True)
    assert "1 trajectories, 1 tool calls, 2 spans" in result.stdout


def test_the_readme_cases_load(tmp_path: Path) -> None:
    (example,) = blocks("README.md", "yaml")
    (tmp_path / "cases.yaml").write_text(example)
    assert list(load_cases(tmp_path / "cases.yaml").cases) == ["refund_a77"]


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
        shown = subprocess.run(
            [sys.executable, "-m", "toolverdict", words[1], "--help"],
            capture_output=True,
            text=True,
            env={"COLUMNS": "200", "TERM": "dumb"},
        )
        assert shown.returncode == 0, line
        assert all(option in shown.stdout for option in words if option.startswith("--")), line


@pytest.mark.parametrize("page", PAGES)
def test_links_and_paths_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target
    for name in re.findall(r"`([a-z]+/\.\.\./[a-z_/]+(?:\.py)?)`", text):
        package, rest = name.split("/.../")
        assert (ROOT / package / "toolverdict" / package / rest).exists(), name
