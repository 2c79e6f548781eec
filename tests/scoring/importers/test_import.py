"""Importing as a whole: files and folders, one id for one case, strictness, and the command."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolverdict.scoring.cases.load import load_cases
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.importers import IMPORTERS, Imported, Strictness, import_cases
from toolverdict.scoring.importers.writing import write_cases

GOLDEN = {
    "input": "Refund A123",
    "name": "refund",
    "expected_tools": [{"name": "refund", "input_parameters": {"on": "2026-01-31", "n": "no"}}],
}


def test_a_folder_is_all_its_files(tmp_path: Path) -> None:
    for name in ("b.json", "a.json"):
        (tmp_path / name).write_text(json.dumps({**GOLDEN, "name": name}))
    (tmp_path / "notes.txt").write_text("not read")
    made = import_cases(tmp_path, "deepeval")
    assert [case["id"] for case in made.cases] == ["a.json", "b.json"]


@pytest.mark.parametrize("suffix", [".yaml", ".json", ".jsonl"])
def test_what_is_written_is_read_again(
    imported: Callable[..., Imported], tmp_path: Path, suffix: str
) -> None:
    """Texts stay texts (a date, ``no``), and keys that look like comparators are values."""
    odd = {"$ref": "x", "list": [{"$t": 1}], "text": "on\u0007e\u2028two 你好", "none": None}
    golden = {"expected_tools": [{"name": "f", "input_parameters": {"a": odd, "b": [odd]}}]}
    cases = imported("deepeval", [GOLDEN, golden]).cases
    out = tmp_path / f"out{suffix}"
    write_cases(out, cases)
    loaded = load_cases(out).cases
    assert list(loaded) == ["refund", "cases_1"]
    refund = loaded["refund"].expected[0]
    assert refund.arguments == {"on": "2026-01-31", "n": "no"}
    plan = loaded["cases_1"].expected[0].plan
    assert plan is not None
    assert plan.compare({"a": odd, "b": [odd]}).wholly_right
    assert not plan.compare({"a": odd, "b": []}).wholly_right


@pytest.mark.parametrize(
    ("strictness", "expected"),
    [
        (Strictness(), {"order": "any", "extra": "allow"}),
        (Strictness(order="listed", extra="forbid"), {"order": "listed", "extra": "forbid"}),
    ],
)
def test_strictness(
    imported: Callable[..., Imported], strictness: Strictness, expected: dict[str, Any]
) -> None:
    (case,) = imported("deepeval", GOLDEN, strictness=strictness).cases
    assert {key: case[key] for key in expected} == expected


@pytest.mark.parametrize(("args", "key"), [("exact", "args"), ("subset", "args_subset")])
def test_strictness_of_arguments_holds_in_every_way(
    imported: Callable[..., Imported], args: Any, key: str
) -> None:
    line = {"id": "a", "ground_truth": [{"f": {"n": [1], "m": [2, ""]}}]}
    (case,) = imported("bfcl", line, strictness=Strictness(args=args)).cases
    calls = case["expected_tool_calls"]
    assert [call[key] for call in calls] == [{"n": 1, "m": {"$optional": 2}}]
    (case,) = imported("bfcl", line, strictness=Strictness(args="ignore")).cases
    calls = case["expected_tool_calls"]
    assert calls == [{"tool": "f"}]


@pytest.mark.parametrize(
    ("name", "source", "why"),
    [
        ("cases.txt", "adk", "cases.txt: cannot be imported; expected one of .json, "),
        ("gone.json", "adk", "gone.json: cannot be read"),
        ("cases.json", "langsmith", "unknown source 'langsmith'; known are adk, agentevals, "),
        ("deep.json", "agentevals", "deep.json: "),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, name: str, source: str, why: str) -> None:
    (tmp_path / "cases.txt").write_text("[]")
    (tmp_path / "cases.json").write_text("[]")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(InputError) as caught:
        import_cases(tmp_path / name, source)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("source", sorted(IMPORTERS))
@pytest.mark.parametrize(
    "content",
    ["null", "[]", "{}", "7", '"text"', "[null]", "[[]]", "[{}]", '[{"id": {}}]', '{"tests": {}}']
)  # fmt: skip
def test_no_importer_takes_just_anything(tmp_path: Path, source: str, content: str) -> None:
    file = tmp_path / "any.json"
    file.write_text(content)
    with pytest.raises(InputError) as caught:
        import_cases(file, source)
    assert "\n" not in str(caught.value)


def command(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    code = (
        "import typer; from toolverdict.scoring.importers_cli import import_command as run; "
        "app = typer.Typer(); app.command('import')(run); app()"
    )
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_command_writes_cases_and_tells_losses(tmp_path: Path) -> None:
    file, out = tmp_path / "goldens.json", tmp_path / "cases.yaml"
    file.write_text(json.dumps([GOLDEN, {"input": "Hello"}]))
    done = command("deepeval", file, "--out", out, "--extra", "penalise", "--order", "listed")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"1 case in {out}\n"
    assert done.stderr == (
        f"not carried over: {file}: 1: names no expected tools: no case was made\n"
    )
    assert load_cases(out).cases["refund"].extra.default == "penalise"


def test_the_command_of_the_readme(tmp_path: Path) -> None:
    """Its table names every source, and its command is one that runs."""
    page = (Path(__file__).parents[3] / "scoring" / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^toolverdict cases import (.*)$", page, re.MULTILINE)
    source, name, *options = line.split()
    case = {"eval_id": "e", "conversation": [{"user_content": {"parts": [{"text": "Hi"}]}}]}
    (tmp_path / name).write_text(json.dumps({"eval_cases": [case]}))
    done = command(source, tmp_path / name, options[0], tmp_path / options[1])
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE)) >= set(IMPORTERS)


@pytest.mark.parametrize(
    ("source", "out", "why"),
    [
        ("ragas", "cases.yaml", "unknown source 'ragas'; known are adk, "),
        ("deepeval", "cases.toml", "call the case file .yaml, .json or .jsonl"),
        ("deepeval", "no/such/cases.yaml", "cannot be written: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(tmp_path: Path, source: str, out: str, why: str) -> None:
    file = tmp_path / "goldens.json"
    file.write_text(json.dumps(GOLDEN))
    done = command(source, file, "--out", tmp_path / out)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("toolverdict cases import: ")
    assert why in done.stderr
    assert done.stderr.count("\n") == 1
