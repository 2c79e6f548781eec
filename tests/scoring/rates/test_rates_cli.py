"""``toolverdict rates``: what is printed is what stands in the results."""

from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from toolverdict.scoring.rates.aggregate import Aggregates
from toolverdict.scoring.rates.cli import By, app
from toolverdict.scoring.rates.report import GROUPS, errors, grouped, latencies, whole
from toolverdict.scoring.rates.testing import live_traffic

Tables = tuple[pa.Table, pa.Table]


@pytest.fixture
def tables() -> Tables:
    return live_traffic(300)


@pytest.fixture
def out(tmp_path: Path, tables: Tables) -> Path:
    """Results of two units."""
    calls, verdicts = tables
    for name, ids in (
        ("a", verdicts["trajectory_id"][:100]),
        ("b", verdicts["trajectory_id"][100:]),
    ):
        for kind, table in (("calls", calls), ("verdicts", verdicts)):
            (tmp_path / kind).mkdir(exist_ok=True)
            part = table.filter(pa.compute.is_in(table["trajectory_id"], value_set=ids))
            pq.write_table(part, tmp_path / kind / f"unit-{name}.parquet")
    return tmp_path


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": "150"})
    return result.exit_code, result.stdout, result.stderr


def test_without_a_dimension_every_rate_of_the_whole(out: Path, tables: Tables) -> None:
    code, text, _ = run(out, "--json")
    aggregates = Aggregates.of(*tables)
    assert code == 0
    assert orjson.loads(text) == {
        "version": 1,
        "by": None,
        "time_bucket_s": 3600,
        "rates": whole(aggregates),
        "errors": errors(aggregates),
        "latency": latencies(aggregates)["all"],
    }


@pytest.mark.parametrize("by", By)
def test_each_dimension_is_printed_as_text_and_as_json(out: Path, tables: Tables, by: By) -> None:
    code, text, _ = run(out, "--by", by.value, "--json")
    assert code == 0
    groups = orjson.loads(text)["groups"]
    dimension = {"version": "service_version", "schema": "schema_version", "hour": "time"}
    name = dimension.get(by.value, by.value)
    assert groups == grouped(Aggregates.of(*tables), GROUPS[f"by_{name}"])
    code, text, _ = run(out, "--by", by.value)
    assert code == 0
    assert any(group[:12] in text for group in groups)


def test_times_are_as_long_as_wanted(out: Path) -> None:
    _, text, _ = run(out, "--by", "hour", "--minutes", 1440, "--json")
    assert 1 <= len(orjson.loads(text)["groups"]) <= 2


def test_the_whole_is_a_table_with_what_is_none_beside_it(out: Path) -> None:
    code, text, _ = run(out)
    assert code == 0
    for part in ("timeout_rate", "Errors by tool", "Latency of", "[low, high]", "None (n=0): "):
        assert part in text


def test_results_without_a_call_have_no_rates(tmp_path: Path) -> None:
    for kind in ("calls", "verdicts"):
        (tmp_path / kind).mkdir()
    assert run(tmp_path)[0] == 0
    assert run(tmp_path, "--by", "tool")[1] == "no call has a tool\n"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda out: (out / "calls" / "unit-a.parquet").write_text("x"), "cannot be read"),
        (lambda out: _older(out / "calls" / "unit-a.parquet"), "column forbidden is missing"),
        (lambda out: [p.unlink() for p in (out / "calls").iterdir()] + [(out / "calls").rmdir()],
         "holds no results"),
    ],
    ids=["damaged", "older", "missing"],
)  # fmt: skip
def test_results_that_cannot_be_read_are_one_line(out: Path, damage: object, message: str) -> None:
    assert callable(damage)
    damage(out)
    code, _, error = run(out)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1


def _older(path: Path) -> None:
    pq.write_table(pq.read_table(path).drop_columns("forbidden"), path)


def test_names_from_traces_are_no_markup(tmp_path: Path, tables: Tables) -> None:
    calls, verdicts = tables
    place = calls.column_names.index("tool")
    named = pa.array(["[bold]x\x1b[31m"] * calls.num_rows).dictionary_encode()
    for kind, table in (("calls", calls.set_column(place, "tool", named)), ("verdicts", verdicts)):
        (tmp_path / kind).mkdir()
        pq.write_table(table, tmp_path / kind / "unit-a.parquet")
    for arguments in ((), ("--by", "tool")):
        assert "[bold]x\\x1b[31m" in run(tmp_path, *arguments)[1]
