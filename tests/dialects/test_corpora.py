"""Traces of real agents in production, and what Tempo made of one.

The corpus is not part of a clone: where ``../shared`` is absent its tests are skipped.
"""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from toolverdict.collector.decode import decode, table_of
from toolverdict.collector.otlp_json import protobuf_of_json
from toolverdict.collector.signals import WIRE, Signal
from toolverdict.scoring.spans import COLUMNS
from toolverdict.scoring.tempo import otlp_of_tempo
from toolverdict.scoring.unit import Rules, score_unit

CORPUS = Path(__file__).parents[3] / "shared" / "corpora" / "otel_real"
needs_corpus = pytest.mark.skipif(
    not CORPUS.is_dir(), reason="the corpus lies beside the repository only here"
)


def calls_of(body: bytes) -> list[dict[str, Any]]:
    protobuf = protobuf_of_json(body, WIRE[Signal.TRACES].request)
    table = table_of(Signal.TRACES, decode(Signal.TRACES, protobuf, 1)).select(COLUMNS)
    by_trace = table.sort_by([("trace_id", "ascending")])
    return list(score_unit(by_trace, Rules()).calls.to_pylist())


@needs_corpus
def test_the_calls_of_real_agents_are_found_and_no_others() -> None:
    """Two and three spans of one request to the model lie in each other there."""
    for line in (CORPUS / "truth.jsonl").read_text().splitlines():
        truth = json.loads(line)
        found = calls_of((CORPUS / "spans" / truth["file"]).read_bytes())
        assert len(found) == truth.get("execute_tool_spans", 0), truth["file"]
        if "tools" in truth:
            assert [row["tool"] for row in found] == truth["tools"]
        assert all(row["outcome"] == "ok" and row["executed"] for row in found)
        assert all(row["arguments_state"] == "captured" and row["call_id"] for row in found)
        assert all(row["turn"] == 0 and row["conversation_id"] for row in found)


@needs_corpus
def test_an_export_of_tempo_says_what_the_spans_said() -> None:
    export = json.loads((CORPUS / "original" / "tempo_export_with_batches.json").read_text())
    found = calls_of(json.dumps(otlp_of_tempo(export)).encode())
    assert [(row["tool"], row["outcome"]) for row in found] == [("helm_list_releases", "ok")]


def test_ids_in_base64_become_hex_and_old_names_become_new_ones() -> None:
    trace, span = bytes(range(16)), bytes(range(8))
    old = {
        "traceId": base64.b64encode(trace).decode(),
        "spanId": base64.b64encode(span).decode(),
        "parentSpanId": "",
        "links": [{"traceId": trace.hex(), "spanId": base64.b64encode(span).decode()}],
    }
    library = {"instrumentationLibrary": {"name": "x"}, "spans": [old]}
    request = otlp_of_tempo({"batches": [{"instrumentationLibrarySpans": [library]}]})
    (group,) = request["resourceSpans"][0]["scopeSpans"]
    assert group["scope"] == {"name": "x"}
    (read,) = group["spans"]
    assert (read["traceId"], read["spanId"], read["parentSpanId"]) == (trace.hex(), span.hex(), "")
    assert read["links"] == [{"traceId": trace.hex(), "spanId": span.hex()}]
    assert otlp_of_tempo({"trace": {"resourceSpans": []}}) == {"resourceSpans": []}


@pytest.mark.parametrize("export", [{}, {"trace": []}, {"batches": "x"}])
def test_what_is_no_export_is_refused(export: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no export of a trace"):
        otlp_of_tempo(export)
