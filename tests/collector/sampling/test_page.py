"""The page about sampling: its policies load, its tables are the code, its command runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

from toolverdict.collector.lake import Lake
from toolverdict.collector.sampling.policy import MATCHERS, SamplingPolicy
from toolverdict.collector.sampling.thresholds import UNKNOWN_MEMBER, threshold_of, write_sampled

PAGE = (Path(__file__).parents[3] / "collector" / "SAMPLING.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def test_its_policies_load() -> None:
    first, second = (SamplingPolicy.parse(text) for text in blocks("yaml"))
    assert len(first.rules) == 6
    assert second.randomness == "conversation"


def test_it_names_every_matcher_and_every_default() -> None:
    named = re.findall(r"^\| `(\w+)(?:: true)?` \|", PAGE, re.MULTILINE)
    fields = SamplingPolicy.model_fields
    others = [name for name in fields if name not in ("version", "otherwise", "rules")]
    assert sorted(named) == sorted([*MATCHERS, *others])
    for name, shown in re.findall(r"^\| `(\w+)` \| `?(\w+)`? \| .*\|$", PAGE, re.MULTILINE):
        assert str(fields[name].default).removesuffix(".0") == shown


def test_it_shows_what_is_written() -> None:
    assert f"`{write_sampled('', threshold_of(0.05), None)}`" in PAGE
    assert f"`{UNKNOWN_MEMBER}`" in PAGE


def test_its_command_runs(tmp_path: Path) -> None:
    (command,) = blocks("sh")
    words = command.split()
    program = [sys.executable, "-m", words[0]]
    environment = {**os.environ, "COLUMNS": "200", "TERM": "dumb"}
    (tmp_path / "lake").mkdir()
    Lake.create(tmp_path / "lake")
    (tmp_path / "sampling.yaml").write_text(blocks("yaml")[0])
    done = subprocess.run(
        [*program, *words[1:]], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
