"""Under which definitions tools were called, what a new one changed, and the command that says so."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from toolverdict.instrument.catalogue.definitions import Catalogue, Tool
from toolverdict.scoring.definitions.cli import app
from toolverdict.scoring.definitions.versions import State, changes, versions
from toolverdict.scoring.model import Thresholds
from toolverdict.scoring.rates.shares import with_shares
from toolverdict.scoring.tables import calls_table, findings_table, verdicts_table
from toolverdict.scoring.testing import call, trajectory_of
from toolverdict.scoring.verdicts import judge_trajectory


def results(out: Path, *days: tuple[str, str | None, str, int]) -> Path:
    """An ``OUT`` of trajectories of one call each: tool, version, outcome, and its second."""
    judged = []
    for number, (tool, version, outcome, at) in enumerate(days):
        one = trajectory_of(
            call(tool, outcome=outcome, at=at, schema_version=version),
            trajectory_id=f"t{number}",
        )
        judged.append(judge_trajectory(one, None, None, Thresholds()))
    calls, verdicts = calls_table(judged), verdicts_table(judged)
    for name, table in (
        ("calls", calls),
        ("findings", findings_table(judged)),
        ("verdicts", with_shares(verdicts, calls)),
    ):
        (out / name).mkdir(parents=True)
        pq.write_table(table, out / name / "unit-0.parquet")
    summary: dict[str, object] = {"cases": None, "confusion": {}}
    (out / "summary.json").write_text(json.dumps(summary))
    return out


def catalogue(**pinned: str | None) -> Catalogue:
    return Catalogue.of(Tool(name, {}, version=version) for name, version in pinned.items())


def test_each_version_has_its_calls_and_the_newest_comes_first(tmp_path: Path) -> None:
    out = results(
        tmp_path,
        ("pay", "2", "ok", 50),
        ("pay", "1", "ok", 10),
        ("pay", "2", "ok", 90),
        ("look", None, "ok", 20),
    )
    found = [(one.tool, one.version, one.calls) for one in versions(out)]
    assert found == [("look", None, 1), ("pay", "2", 2), ("pay", "1", 1)]
    newest = versions(out)[1]
    assert newest.first < newest.last
    assert newest.state is State.NOT_CHECKED


@pytest.mark.parametrize(
    ("version", "state"),
    [("3", State.CURRENT), ("2", State.CHANGED), ("9", State.UNKNOWN), (None, State.UNVERSIONED)],
)
def test_a_version_is_held_against_all_lock_files(
    tmp_path: Path, version: str | None, state: State
) -> None:
    out = results(tmp_path, ("pay", version, "ok", 1))
    (found,) = versions(out, [catalogue(pay="2"), catalogue(pay="3")])
    assert found.state is state


def test_a_tool_that_nobody_pinned_is_told_apart(tmp_path: Path) -> None:
    (found,) = versions(results(tmp_path, ("pay", "1", "ok", 1)), [catalogue(look="1")])
    assert found.state is State.UNPINNED


def test_rates_before_and_after_are_those_of_the_two_newest_versions(tmp_path: Path) -> None:
    old = [("pay", "1", "invalid_arguments", n) for n in range(40)]
    before = [("pay", "2", "ok", 100 + n) for n in range(40)]
    after = [("pay", "3", "invalid_arguments" if n % 2 else "ok", 200 + n) for n in range(40)]
    out = results(tmp_path, *old, *before, *after, ("look", "1", "ok", 5))
    (change,) = changes(out, versions(out))
    assert (change.tool, change.before, change.after) == ("pay", "2", "3")
    found = {one.rate: one for one in change.differences}["invalid_arguments_rate"]
    assert found.difference == pytest.approx(0.5)
    assert found.low is not None
    assert found.low > 0.2
    assert found.p_holm is not None
    assert found.p_holm < 0.01


def test_one_version_has_no_before(tmp_path: Path) -> None:
    out = results(tmp_path, ("pay", "1", "ok", 1), ("pay", None, "ok", 2))
    assert changes(out, versions(out)) == []


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "160"})
    return result.exit_code, result.stdout, result.stderr


def test_the_command_prints_versions_and_overlaps(tmp_path: Path) -> None:
    out = results(tmp_path / "out", ("pay", "1", "ok", 1), ("p\x1b[31m", "1", "ok", 2))
    lock = tmp_path / "tools.lock.json"
    words = "Send money to somebody who is owed some."
    tools = [Tool("pay", {}, version="1", description=words), Tool("send", {}, description=words)]
    lock.write_text(Catalogue.of(tools).lock())
    code, shown, _ = run(str(out), "--catalog", str(lock))
    assert code == 0
    assert "current" in shown
    assert "unpinned" in shown
    assert "pay / send" in shown
    assert "no cases" in shown
    assert "\x1b[31m" not in shown


def test_the_command_tells_changes_and_long_descriptions_and_where_to_find_the_rest(
    tmp_path: Path,
) -> None:
    before = [("pay", "1", "ok", n) for n in range(9)]
    after = [("pay", "2", "timeout", 100 + n) for n in range(9)]
    many = [(f"tool{n}", "1", "ok", 300) for n in range(45)]
    out = results(tmp_path / "out", *before, *after, *many)
    lock = tmp_path / "tools.lock.json"
    lock.write_text(Catalogue.of([Tool("pay", {}, description="word " * 400)]).lock())
    code, shown, _ = run(str(out), "--catalog", str(lock))
    assert code == 0
    assert "timeout_rate" in shown
    assert "+1.000" in shown
    assert "2,000" in shown
    assert "and 7 more: --json" in shown


def test_the_command_speaks_json_and_fails_where_asked(tmp_path: Path) -> None:
    out = results(tmp_path / "out", ("pay", "1", "ok", 1))
    code, shown, _ = run(str(out), "--json")
    document = json.loads(shown)
    assert (code, document["version"], document["overlaps"]) == (0, 1, [])
    lock = tmp_path / "tools.lock.json"
    lock.write_text(catalogue(look="1").lock())
    assert run(str(out), "--catalog", str(lock), "--fail-on-unknown")[0] == 1
    lock.write_text(catalogue(pay="1").lock())
    assert run(str(out), "--catalog", str(lock), "--fail-on-unknown")[0] == 0


def test_what_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    code, _, said = run(str(tmp_path))
    assert code == 2
    assert said.count("\n") == 1
    assert "holds no results" in said
    out = results(tmp_path / "out", ("pay", "1", "ok", 1))
    code, _, said = run(str(out), "--catalog", str(tmp_path / "none.json"))
    assert (code, said.count("\n")) == (2, 1)
    (out / "summary.json").write_text("{")
    lock = tmp_path / "tools.lock.json"
    lock.write_text(catalogue(pay="1").lock())
    code, _, said = run(str(out), "--catalog", str(lock))
    assert code == 2
    assert "summary.json: cannot be read" in said


def test_results_without_a_call_have_no_version(tmp_path: Path) -> None:
    out = results(tmp_path)
    assert versions(out) == []
    assert changes(out, []) == []
    assert isinstance(pq.read_table(out / "calls"), pa.Table)
