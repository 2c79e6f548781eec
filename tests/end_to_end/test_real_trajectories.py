"""Two hundred real airline conversations, from OTLP to verdicts.

The corpus is not part of a clone: where ``../shared`` is absent the test is skipped.
"""

import gzip
import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from toolverdict.collector.testing import post, running_collector
from toolverdict.scoring import Inputs, score
from toolverdict.scoring.cases.load import load_cases

CORPUS = Path(__file__).parents[3] / "shared" / "corpora" / "tau_airline_gpt4o"


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus lies beside the repository only here")
def test_airline_runs_are_collected_and_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        running_collector(tmp_path / "lake") as collector,
        gzip.open(CORPUS / "spans.jsonl.gz", "rb") as requests,
    ):
        for body in requests:
            answer = post(f"{collector.http}/v1/traces", body, "application/json")
            assert answer.status == 200, answer.body
    truth = [json.loads(line) for line in (CORPUS / "truth.jsonl").read_text().splitlines()]
    cases = load_cases(CORPUS / "cases.jsonl")
    assert len(cases.cases) == 50

    summary = score(Inputs(tmp_path / "lake", cases=cases), tmp_path / "out")

    verdicts = {v["trace_id"]: v for v in pq.read_table(tmp_path / "out/verdicts").to_pylist()}
    assert verdicts.keys() == {run["trace_id"] for run in truth}
    assert summary.document["counts"]["calls"] == 1164
    assert summary.document["cases_not_run"] == []
    for run in truth:
        verdict = verdicts[run["trace_id"]]
        assert verdict["case_id"] == run["case_id"]
        assert verdict["passed"] is not None
        assert verdict["complete"]
        if verdict["passed"] is False:
            assert verdict["root_cause_span_id"]
    agreement = Counter(
        (run["reward"] == 1.0, verdicts[run["trace_id"]]["passed"]) for run in truth
    )
    # Calls that the reference makes and the agent's own reads both count here, so a run that the
    # benchmark rewards may fail; one that passes every call must have been rewarded, but for the
    # answers' text, which calls cannot show.
    assert agreement[False, True] <= 15
    with capsys.disabled():
        rates = summary.rates
        print(  # noqa: T201
            f"\nairline: {len(verdicts)} trajectories, 1164 calls; (rewarded, passed): "
            f"{dict(agreement)}; retry waste {rates['retry_waste_rate']['numerator']:g}, "
            f"forbidden {rates['forbidden_call_rate']['numerator']:g}"
        )
