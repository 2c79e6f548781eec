"""From a lake to ``OUT``: the contract of what ``score`` leaves behind, and what it refuses."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolverdict.collector import Lake, LakeError
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_request, make_span, post, running_collector
from toolverdict.scoring import EmptyLakeError, InputError, Inputs, score
from toolverdict.scoring.cases.load import load_cases
from toolverdict.scoring.gate.evidence import moments_of, read_results
from toolverdict.scoring.tables import CALLS, FINDINGS, VERDICTS

PLACES = ("here", "there")


def attributes(**values: str) -> list[dict[str, object]]:
    return [
        {"key": key.replace("__", "."), "value": {"string_value": value}}
        for key, value in values.items()
    ]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One trajectory of two calls, the first failed; the second was sent twice."""
    folder = tmp_path_factory.mktemp("run") / "lake"
    trace = {"trace_id": bytes(range(16))}
    root = make_span(
        1,
        **trace,
        attributes=attributes(gen_ai__operation__name="invoke_agent", test__case__name="c"),
    )
    call = {"gen_ai__operation__name": "execute_tool", "gen_ai__tool__name": "pay"}
    calls = [
        make_span(
            number,
            **trace,
            parent_span_id=root.span_id,
            start_time_unix_nano=1_700_000_000_000_000_000 + number * 1_000_000,
            end_time_unix_nano=1_700_000_000_000_500_000 + number * 1_000_000,
            attributes=attributes(**call, gen_ai__tool__call__arguments='{"to": "bob"}', **more),
        )
        for number, more in ((2, {"error__type": "TimeoutError"}), (3, {}))
    ]
    with running_collector(folder) as collector:
        url = f"{collector.http}/v1/traces"
        assert post(url, make_request(root, *calls).SerializeToString()).status == 200
        assert post(url, make_request(calls[1]).SerializeToString()).status == 200
    return folder


def read(out: Path, kind: str) -> pa.Table:
    return pq.read_table(out / kind)


def test_out_holds_the_declared_tables(lake: Path, tmp_path: Path) -> None:
    score(Inputs(lake), tmp_path / "out")
    for kind, schema in (("calls", CALLS), ("findings", FINDINGS), ("verdicts", VERDICTS)):
        found = read(tmp_path / "out", kind).schema
        assert found.names == schema.names
        assert found.metadata[b"toolverdict.results.version"] == b"1"


def test_a_span_that_was_sent_twice_is_one_call(lake: Path, tmp_path: Path) -> None:
    """B91: a client's retry is counted once."""
    summary = score(Inputs(lake), tmp_path / "out")
    assert summary.document["counts"]["calls"] == 2
    first, second = read(tmp_path / "out", "calls").to_pylist()
    assert (first["outcome"], second["retry_of"], second["attempt"]) == ("timeout", 0, 2)
    assert first["arguments"] == '{"to":"bob"}'
    assert first["start_time_unix_nano"] // 1000 == round(first["start_time"].timestamp() * 1e6)


def test_the_summary_gives_each_rate_with_counts_interval_and_coverage(
    lake: Path, tmp_path: Path
) -> None:
    score(Inputs(lake), tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    rate = summary["rates"]["timeout_rate"]
    assert set(rate) == {"value", "numerator", "denominator", "low", "high", "coverage"}
    assert (rate["value"], rate["numerator"], rate["denominator"]) == (0.5, 1, 2)
    assert summary["rates"]["forbidden_call_rate"]["value"] is None
    assert summary["by_tool"]["pay"]["timeout_rate"] == rate
    assert {"by_agent", "by_label", "by_schema_version"} <= set(summary)


def test_a_case_is_found_by_the_spans_or_by_a_map_and_a_lost_one_is_said(
    lake: Path, tmp_path: Path
) -> None:
    cases = tmp_path / "cases.yaml"
    cases.write_text(
        "- {id: c, expected_tool_calls: [{tool: pay, args: {to: bob}}]}\n"
        "- {id: d, expected_tool_calls: [{tool: pay, args: {to: eve}}]}\n"
    )
    loaded = load_cases(cases)
    summary = score(Inputs(lake, cases=loaded), tmp_path / "out")
    (verdict,) = read(tmp_path / "out", "verdicts").to_pylist()
    assert (verdict["case_id"], verdict["passed"]) == ("c", True)
    assert summary.document["cases_not_run"] == ["d"]
    mapped = {bytes(range(16)).hex(): "d"}
    score(Inputs(lake, cases=loaded, case_of=mapped), tmp_path / "out")
    (verdict,) = read(tmp_path / "out", "verdicts").to_pylist()
    assert (verdict["case_id"], verdict["passed"]) == ("d", False)


def test_a_second_run_gives_the_same_bytes_and_leaves_nothing_else(
    lake: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    score(Inputs(lake), out)
    (out / "mine.txt").write_text("kept")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    score(Inputs(lake), out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_an_empty_lake_has_rates_of_none_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    Lake.create(tmp_path / "lake")
    with pytest.raises(EmptyLakeError, match=r"None \(n=0\)"):
        score(Inputs(tmp_path / "lake"), tmp_path / "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["rates"]
    assert all(rate["value"] is None for rate in summary["rates"].values())
    assert all(rate["denominator"] == 0 for rate in summary["rates"].values())


def test_a_missing_lake_changes_nothing(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no folder"):
        score(Inputs(tmp_path / "nowhere"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_results_that_cannot_be_written_are_refused(lake: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        score(Inputs(lake), tmp_path / "file" / "out")


def test_a_failed_run_keeps_the_results_of_the_last(lake: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    score(Inputs(lake), out)
    before = sorted(path.name for path in out.iterdir())

    def broken(done: int, total: int) -> None:
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        score(Inputs(lake), out, progress=broken)
    assert sorted(path.name for path in out.iterdir()) == before


def _copy(part: Path, sink: pa.NativeFile) -> None:
    sink.write(part.read_bytes())


def test_a_lake_in_an_object_store_is_scored_as_one_in_a_folder(
    lake: Path, s3_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Lake.create(s3_url).store
    for part in Lake.open(lake).current(Signal.TRACES, 0):
        store.write(part.name, partial(_copy, lake / part.name))
    score(Inputs(lake), tmp_path / "here")
    words = ["score", s3_url, "--out", str(tmp_path / "there")]
    done = subprocess.run(
        [sys.executable, "-m", "toolverdict", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    here, there = (json.loads((tmp_path / name / "summary.json").read_text()) for name in PLACES)
    assert (here.pop("lake"), there.pop("lake")) == (str(lake), s3_url)
    assert here == there
    for kind in ("calls", "findings", "verdicts"):
        assert read(tmp_path / "here", kind).equals(read(tmp_path / "there", kind))

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "toolverdict", *words], capture_output=True, text=True
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "lake.json cannot be read" in done.stderr


def test_what_was_sampled_nobody_knows_how_is_in_no_rate(tmp_path: Path) -> None:
    """It is not evaluable, which the coverage says; it does not stand for one."""
    call = attributes(gen_ai__operation__name="execute_tool", gen_ai__tool__name="pay")
    failed = [*call, *attributes(error__type="TimeoutError")]
    states = ["ot=th:8", "toolverdict=th:unknown"]
    with running_collector(tmp_path / "lake") as collector:
        sent = [
            make_span(number, trace_state=state, attributes=failed if number else call)
            for number, state in enumerate(states)
        ]
        body = make_request(*sent).SerializeToString()
        assert post(f"{collector.http}/v1/traces", body).status == 200
    summary = score(Inputs(tmp_path / "lake"), tmp_path / "out")
    rate = summary.rates["timeout_rate"]
    assert (rate["numerator"], rate["denominator"], rate["value"]) == (0, 2, 0)
    assert rate["coverage"] == pytest.approx(2 / 3)
    weights = [row["weight"] for row in read(tmp_path / "out", "verdicts").to_pylist()]
    assert weights == [2.0, None]
    moments = moments_of(read_results(tmp_path / "out").trajectories, "pass_rate")
    assert moments.unseen == 3


def test_spans_without_a_tool_call_are_a_warning_and_no_score(tmp_path: Path) -> None:
    """B137."""
    with running_collector(tmp_path / "lake") as collector:
        body = make_request(make_span(1)).SerializeToString()
        assert post(f"{collector.http}/v1/traces", body).status == 200
    summary = score(Inputs(tmp_path / "lake"), tmp_path / "out")
    assert summary.rates["pass_rate"]["value"] is None
    assert "no span was recognised as a tool call" in summary.warnings[0]
