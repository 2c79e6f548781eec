"""Lint: cases that nobody can fail or pass, and names that do not exist."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from toolverdict.instrument.catalogue.definitions import Catalogue, Tool
from toolverdict.scoring.cases.lint import lint
from toolverdict.scoring.cases.load import load_cases

NEEDED = "- {id: needed, expected_tool_calls: [{tool: get_order, args: {order_id: o_1}}]}\n"
CATALOGUE = Catalogue.of(
    [
        Tool(
            "get_order",
            {
                "properties": {"order_id": {"type": "string"}, "page": {"type": "integer"}},
                "required": ["order_id"],
            },
            output_schema={"properties": {"id": {}}},
        ),
        Tool("refund", {"properties": {"order_id": {}, "reason": {"enum": ["late", "broken"]}}}),
        Tool("anything", {}),
    ]
)


def codes(folder: Path, case: str, catalogue: Catalogue | None = None) -> list[str]:
    path = folder / "cases.yaml"
    path.write_text(f"{NEEDED}- {{id: c, {case}}}\n", encoding="utf-8")
    return [finding.code for finding in lint(load_cases(path, catalogue), catalogue)]


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("expected_tool_calls: [], extra: allow, need: either", "vacuous"),
        ("expected_tool_calls: [{tool: a, optional: true}], extra: allow", "vacuous"),
        ("expected_tool_calls: [{tool: a}], order: any, extra: allow", "passes_any_call"),
        ("expected_tool_calls: [{tool: a, optional: true}]", "passes_idle_agent"),
        ("forbidden_tool_calls: [delete_user]", "expects_nothing_unsaid"),
        ("need: forbidden, expected_tool_calls: [{tool: a}]", "need_contradicts"),
        ("limits: {calls: 1}, expected_tool_calls: [{tool: a}, {tool: b}]", "limit_too_low"),
        ("limits: {per_tool: {a: 1}}, expected_tool_calls: [{tool: a, count: 2}]", "limit_too_low"),
        ("expected_tool_calls: [{tool: a}], forbidden_tool_calls: [a]", "expected_and_forbidden"),
        (
            "expected_tool_calls: [{tool: a, args: {x: 1, y: 2}}], "
            "forbidden_tool_calls: [{tool: a, args_subset: {x: 1}}]",
            "expected_and_forbidden",
        ),
        ("expected_tool_calls: [{tool: a, args: {x: {$ref: b.result.id}}}]", "unreachable_ref"),
        (
            "expected_tool_calls: [{tool: a, args: {x: {$ref: b.result.id}}}, {tool: b, id: b}]",
            "unreachable_ref",
        ),
        (
            "expected_tool_calls: [{tool: b, id: b, optional: true}, "
            "{tool: a, args: {x: {$ref: b.result.id}}}]",
            "unreachable_ref",
        ),
        (
            "expected_tool_calls: [{tool: b, id: b, count: 2}, "
            "{tool: a, args: {x: {$ref: b.result.id}}}]",
            "ambiguous_ref",
        ),
    ],
)
def test_what_a_case_says_of_itself(tmp_path: Path, case: str, code: str) -> None:
    assert codes(tmp_path, case) == [code]


@pytest.mark.parametrize(
    "case",
    [
        "expected_tool_calls: []",
        "need: either, expected_tool_calls: [{tool: a, optional: true}]",
        "expected_tool_calls: [{tool: a, args: {x: 2}}], "
        "forbidden_tool_calls: [{tool: a, args_subset: {x: 1}}]",
        "expected_tool_calls: [{tool: b, id: b}, {tool: a, args: {x: {$ref: b.result.id}}}]",
        "expected_tool_calls: [{tool: v}, {tool: a}], "
        "forbidden_tool_calls: [{tool: a, unless_after: v}]",
    ],
)
def test_a_case_in_order_has_nothing_said_of_it(tmp_path: Path, case: str) -> None:
    assert codes(tmp_path, case) == []


def test_a_suite_that_an_idle_agent_passes(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"id": "c", "expected_tool_calls": []}')
    (finding,) = lint(load_cases(path))
    assert (finding.code, finding.case) == ("suite_passes_idle_agent", None)


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("expected_tool_calls: [{tool: get_ordr}]", "unknown_tool"),
        (
            "expected_tool_calls: [{tool: refund}], forbidden_tool_calls: [delete_user]",
            "unknown_tool",
        ),
        ("expected_tool_calls: [{tool: refund, args: {ordr_id: o_1}}]", "unknown_key"),
        ("expected_tool_calls: [{tool: get_order, args: {page: 1}}]", "missing_required"),
        ("expected_tool_calls: [{tool: get_order, args_subset: {order_id: 5}}]", "wrong_type"),
        ("expected_tool_calls: [{tool: refund, args: {reason: lost}}]", "wrong_type"),
    ],
)
def test_what_a_case_says_of_tools_that_are_known(tmp_path: Path, case: str, code: str) -> None:
    assert codes(tmp_path, case, CATALOGUE) == [code]


@pytest.mark.parametrize(
    "case",
    [
        "expected_tool_calls: [{tool: shop/get_order, args_subset: {page: 1}}]",
        "expected_tool_calls: [{tool: anything, args: {x: 1}}]",
        "expected_tool_calls: [{tool: refund}], forbidden_tool_calls: ['get_*']",
    ],
)
def test_what_is_right_of_known_tools_is_not_objected_to(tmp_path: Path, case: str) -> None:
    assert codes(tmp_path, case, CATALOGUE) == []


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "toolverdict", "cases", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_names_file_line_and_case(tmp_path: Path) -> None:
    path, lock = tmp_path / "cases.yaml", tmp_path / "tools.lock"
    path.write_text(f"{NEEDED}- id: c\n  expected_tool_calls: [{{tool: refnd}}]\n")
    lock.write_text(CATALOGUE.lock())
    result = run("lint", path, "--catalog", lock)
    assert result.returncode == 1
    where = f"{path}: line 2, 1: unknown_tool: case c: the catalogue has no tool 'refnd'"
    assert result.stdout.startswith(where + "; did you mean 'refund'?\n")
    document = json.loads(run("lint", path, "--catalog", lock, "--json").stdout)
    assert [finding["case"] for finding in document["findings"]] == ["c"]


def test_the_command_says_when_there_is_nothing_to_say(tmp_path: Path) -> None:
    (tmp_path / "cases.yaml").write_text(NEEDED.replace("id: needed", "id: needed, owner: me"))
    result = run("lint", tmp_path)
    assert result.returncode == 0
    assert "1 case" in result.stdout
    assert "nothing to object to; keys not understood: owner" in result.stdout


def test_what_cannot_be_read_is_one_line_and_exit_2(tmp_path: Path) -> None:
    for arguments in (("lint", tmp_path / "no"), ("lint", tmp_path, "--catalog", tmp_path / "no")):
        result = run(*arguments)
        assert (result.returncode, result.stderr.count("\n")) == (2, 1)
        assert result.stderr.startswith("toolverdict cases lint: ")


def test_the_command_prints_the_schema() -> None:
    assert json.loads(run("schema").stdout)["title"] == "toolverdict cases, version 1"
