"""Recordings of real agents become the calls that they were, whatever arrives, and in any order."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolverdict.collector import Lake
from toolverdict.collector.signals import WIRE
from toolverdict.collector.testing import post, running_collector
from toolverdict.scoring import Inputs, score
from toolverdict.scoring.conversations import trajectories_of
from toolverdict.scoring.model import Trajectory
from toolverdict.scoring.spans import LogRecord, Span, log_records, traces
from toolverdict.scoring.unit import Rules, score_unit

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
NAMES = sorted(path.name for path in RECORDINGS.iterdir() if path.is_dir())


@pytest.mark.parametrize("name", NAMES)
def test_every_value_is_right_or_argued_not_to_be_there(scorecard: Any, name: str) -> None:
    judged = scorecard.judge(
        scorecard.calls_of(name), scorecard.expected(name), scorecard.not_carried(name)
    )
    assert [one.said for one in judged if one.state == scorecard.WRONG] == []
    assert (
        sum(one.field == "calls" for one in judged) == scorecard.expected(name)["true_call_count"]
    )


@pytest.mark.parametrize("buckets", [1, 8])
def test_all_recordings_in_one_lake_are_told_apart(
    scorecard: Any, tmp_path: Path, buckets: int
) -> None:
    """They share call ids, a conversation id and a service name, and were sent through a collector.

    With several buckets the traces of one conversation lie apart.
    """
    paths = {signal: wire.http_path for signal, wire in WIRE.items()}
    recording_of: dict[str, str] = {}
    (tmp_path / "lake").mkdir()
    Lake.create(tmp_path / "lake", buckets)
    with running_collector(tmp_path / "lake", flush_interval=0.2) as collector:
        for name in NAMES:
            for signal, body in scorecard.requests(name):
                for _ in range(2):  # as an exporter does that got no answer
                    assert post(f"{collector.http}{paths[signal]}", body).status == 200
            spans, _ = scorecard.tables(scorecard.requests(name))
            recording_of |= dict.fromkeys(spans.column("trace_id").to_pylist(), name)
    score(Inputs(tmp_path / "lake"), tmp_path / "out")
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in pq.read_table(tmp_path / "out" / "calls").to_pylist():
        rows.setdefault(recording_of[row["trace_id"]], []).append(row)
    assert sorted(rows) == NAMES
    wrong = {}
    for name, found in rows.items():
        judged = scorecard.judge(found, scorecard.expected(name), scorecard.not_carried(name))
        said = [one.said for one in judged if one.state == scorecard.WRONG]
        if said:
            wrong[name] = said
    assert wrong == {}


@pytest.mark.parametrize("name", NAMES)
def test_the_order_and_number_of_arrivals_changes_nothing(scorecard: Any, name: str) -> None:
    """Requests shuffled, split and sent twice: a span counts once, and its place in time is its own."""
    spans, logs = scorecard.tables(scorecard.requests(name))
    whole = score_unit(spans, Rules(), logs).calls.to_pylist()
    rows = list(range(spans.num_rows))
    random.Random(name).shuffle(rows)
    shuffled = spans.take(rows).sort_by([("trace_id", "ascending")])
    log_rows = list(range(logs.num_rows)) * 2
    random.Random(name).shuffle(log_rows)
    shuffled_logs = logs.take(pa.array(log_rows, pa.int64()))
    again = score_unit(shuffled, Rules(), shuffled_logs).calls.to_pylist()
    assert _by_place(again) == _by_place(whole)


@pytest.mark.parametrize("name", NAMES)
def test_any_one_span_that_is_lost_invents_no_call_and_is_told_of(
    scorecard: Any, name: str
) -> None:
    """One whose children are there is missed: no trajectory of its trace may pass for whole then."""
    spans, records = _read(scorecard, name)
    parents = {span.parent_span_id for trace in spans for span in trace}
    for place, trace in enumerate(spans):
        for lost in range(len(trace)):
            kept = [*trace[:lost], *trace[lost + 1 :]]
            others = [*spans[:place], *([kept] if kept else []), *spans[place + 1 :]]
            found = list(trajectories_of(others, records))
            _assert_nothing_invented(scorecard, name, found)
            if trace[lost].span_id in parents:
                assert any(not one.complete for one in found), trace[lost].name


@pytest.mark.parametrize("name", NAMES)
def test_any_one_record_that_is_lost_invents_no_call(scorecard: Any, name: str) -> None:
    spans, records = _read(scorecard, name)
    for lost in range(len(records)):
        kept = [*records[:lost], *records[lost + 1 :]]
        _assert_nothing_invented(scorecard, name, list(trajectories_of(spans, kept)))


@pytest.mark.parametrize("name", NAMES)
def test_any_one_record_that_comes_twice_changes_nothing(scorecard: Any, name: str) -> None:
    spans, records = _read(scorecard, name)
    whole = [one.calls for one in trajectories_of(spans, records)]
    for twice in range(len(records)):
        again = [*records[: twice + 1], *records[twice:]]
        assert [one.calls for one in trajectories_of(spans, again)] == whole


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("length", [1, 100, 128, 256])
def test_attributes_that_were_cut_invent_no_call(scorecard: Any, name: str, length: int) -> None:
    """SDKs cut long values; what is left is no JSON."""
    spans, logs = scorecard.tables(scorecard.requests(name))
    cut = traces(_cut(spans, length)), log_records(_cut(logs, length))
    _assert_nothing_invented(scorecard, name, list(trajectories_of(*cut)))


def _read(scorecard: Any, name: str) -> tuple[list[list[Span]], list[LogRecord]]:
    spans, logs = scorecard.tables(scorecard.requests(name))
    return list(traces(spans)), list(log_records(logs))


def _cut(table: pa.Table, length: int) -> pa.Table:
    """The table with every text in its attributes, events and bodies cut, but for short ones."""

    def short(value: Any) -> Any:
        if isinstance(value, str):
            return value if len(value) < 64 else value[:length]
        if isinstance(value, list):
            return [short(item) for item in value]
        if isinstance(value, dict):
            return {key: short(item) for key, item in value.items()}
        return value

    for index, name in enumerate(table.column_names):
        if name in ("attributes", "events", "body"):
            texts = [
                text if text is None else json.dumps(short(json.loads(text)))
                for text in table.column(name).to_pylist()
            ]
            table = table.set_column(index, name, pa.array(texts, table.schema.field(name).type))
        elif "." in name:
            texts = [short(text) for text in table.column(name).to_pylist()]
            kind = table.schema.field(name).type
            table = table.set_column(index, name, pa.array(texts, pa.string()).cast(kind))
    return table


def _assert_nothing_invented(scorecard: Any, name: str, found: list[Trajectory]) -> None:
    """Every call that is found is one that was made, none more often than it was."""
    truth = scorecard.expected(name)
    true = Counter(call["tool"] for run in truth["runs"] for call in run["calls"])
    calls = [place.call for one in found for place in one.calls]
    counted = Counter(call.tool for call in calls)
    assert counted <= true, f"{counted - true} were never made"
    asked = list(_arguments(truth))
    for call in calls:
        if isinstance(call.arguments, dict):
            assert (call.tool, call.arguments) in asked


def _arguments(truth: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for run in truth["runs"]:
        for call in run["calls"]:
            yield call["tool"], call["arguments"]
            if "requested_arguments" in call:
                yield call["tool"], call["requested_arguments"]


def _by_place(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["trajectory_id"], row["index"]))
