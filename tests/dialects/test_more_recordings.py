"""More frameworks and instrumentations, and rarer calls, against what their scripts know.

Each was driven by a scripted model: an unknown tool, arguments that are no JSON, an empty result, a
time-out, ids that repeat, equal calls at once, an agent as a tool, a hand-over, a refusal. ``TRUTH.json``
was written from the script and the tools' own log, with what a recording does not carry and why.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from toolverdict.collector.decode import decode, table_of
from toolverdict.collector.otlp_json import protobuf_of_json
from toolverdict.collector.signals import WIRE, Signal
from toolverdict.scoring.spans import COLUMNS, LOG_COLUMNS
from toolverdict.scoring.trace_files import requests_in
from toolverdict.scoring.unit import Rules, score_unit

FOLDER = Path(__file__).parent.parent / "data" / "recordings_more"
TRUTH: dict[str, Any] = json.loads((FOLDER / "TRUTH.json").read_text())

_LESS = {"outcome": ("unknown", "error")}
"""What may stand, beside nothing, for a value that is not carried: nothing that is wrong."""


def tables(name: str) -> tuple[pa.Table, pa.Table]:
    rows: dict[Signal, list[list[Any]]] = {Signal.TRACES: [], Signal.LOGS: []}
    seen: set[str] = set()
    for number, found in enumerate(requests_in(FOLDER / f"{name}.jsonl.gz")):
        assert found.signal is not None
        body = protobuf_of_json(found.body, WIRE[found.signal].request)
        for row in decode(found.signal, body, number):
            # Some exporters send a span twice; a lake gives it once.
            if found.signal is Signal.TRACES:
                if row[1] in seen:
                    continue
                seen.add(row[1])
            rows[found.signal].append(row)
    spans = table_of(Signal.TRACES, rows[Signal.TRACES]).select(COLUMNS)
    logs = table_of(Signal.LOGS, rows[Signal.LOGS]).select(LOG_COLUMNS)
    return spans.sort_by([("trace_id", "ascending")]), logs


def calls_of(spans: pa.Table, logs: pa.Table) -> list[dict[str, Any]]:
    rows = score_unit(spans, Rules(), logs).calls.to_pylist()
    return sorted(rows, key=lambda row: (row["trajectory_id"], row["index"]))


def value(row: dict[str, Any], field: str) -> Any:
    found = row[field]
    return json.loads(found) if field in ("arguments", "result") and found is not None else found


def test_every_recording_has_its_truth() -> None:
    assert sorted(TRUTH) == sorted(path.name.split(".")[0] for path in FOLDER.glob("*.gz"))


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_every_call_is_found_and_no_value_is_wrong(name: str) -> None:
    truth = TRUTH[name]
    found = calls_of(*tables(name))
    assert [row["tool"] for row in found] == [call["tool"] for call in truth["calls"]]
    assert len({row["trajectory_id"] for row in found}) == 1
    missing = set()
    for row, call in zip(found, truth["calls"], strict=True):
        for field, wanted in call.items():
            got = value(row, field)
            if got != wanted:
                assert field in truth["not_carried"], (row["index"], field, got, wanted)
                assert got is None or got in _LESS.get(field, ()), (row["index"], field, got)
                missing.add(field)
    assert missing == set(truth["not_carried"])


@pytest.mark.parametrize("name", sorted(TRUTH))
def test_no_span_or_record_that_is_lost_invents_a_call(name: str) -> None:
    spans, logs = tables(name)
    true = Counter(call["tool"] for call in TRUTH[name]["calls"])
    for lost in range(spans.num_rows):
        kept = pa.concat_tables([spans.slice(0, lost), spans.slice(lost + 1)])
        assert Counter(row["tool"] for row in calls_of(kept, logs)) <= true, lost
    for lost in range(logs.num_rows):
        kept = pa.concat_tables([logs.slice(0, lost), logs.slice(lost + 1)])
        assert Counter(row["tool"] for row in calls_of(spans, kept)) <= true, lost
