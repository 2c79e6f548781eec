"""Laws of sampling a table: whole traces, thresholds that only rise, nobody else's text touched."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.collector.sampling.applying import apply_to_logs, apply_to_spans
from toolverdict.collector.sampling.deciding import Decisions, decide
from toolverdict.collector.sampling.policy import SamplingPolicy
from toolverdict.collector.sampling.testing import SECOND_NS, START_NS, span_table
from toolverdict.collector.sampling.thresholds import (
    NEVER,
    UNKNOWN_MEMBER,
    read_sampled,
)
from toolverdict.collector.sampling.traces import gather
from toolverdict.collector.schema import LOGS, SPANS

LATER = START_NS + 86_400 * SECOND_NS
POLICY = SamplingPolicy.parse("""
version: 1
quiet_s: 60
root_grace_s: 60
randomness: conversation
otherwise: {keep: 0.3, cap: {traces: 3, by: agent}}
rules:
  - {id: failed, keep: 0.8, failed: true, cap: {traces: 2}}
  - {id: new, keep: 0.9, new_tool: true}
""")

STATES = st.sampled_from(
    ["", "", "", "v=1", "ot=th:0", "ot=th:4", "ot=th:f,v=1", "ot=th:?", "ot=k:1;rv:80000000000000"]
)
SPANS_OF = st.lists(
    st.tuples(
        st.integers(0, 12),  # the trace
        STATES,
        st.sampled_from([0, 2]),  # status
        st.sampled_from(["a", "b", None]),  # agent, tool, conversation
        st.integers(0, 200),  # received, seconds
    ),
    max_size=40,
)


def table_of(drawn: list[tuple[int, str, int, str | None, int]]) -> pa.Table:
    # Ids whose randomness is spread over all values, as that of an SDK is.
    return span_table(
        [f"{1:018x}{trace * (NEVER // 13):014x}" for trace, *_ in drawn],
        trace_state=[state for _, state, *_ in drawn],
        status_code=[status for *_, status, _, _ in drawn],
        gen_ai_agent_name=[word for *_, word, _ in drawn],
        gen_ai_tool_name=[word for *_, word, _ in drawn],
        gen_ai_conversation_id=[word for *_, word, _ in drawn],
        received_time_unix_nano=[START_NS + seconds * SECOND_NS for *_, seconds in drawn],
    )


def sample(spans: pa.Table, until: int = LATER, tools: dict[str, int] | None = None) -> pa.Table:
    return apply_to_spans(
        spans, decide(gather(spans, POLICY), POLICY, tools or {}, until).decisions
    ).table


def by_span(spans: pa.Table) -> dict[str, tuple[str, str]]:
    columns = [spans.column(name).to_pylist() for name in ("span_id", "trace_id", "trace_state")]
    return {span: (trace, state) for span, trace, state in zip(*columns, strict=True)}


@given(SPANS_OF)
def test_a_trace_stays_or_goes_as_a_whole(drawn: list[Any]) -> None:
    spans = table_of(drawn)
    before, after = by_span(spans), by_span(sample(spans))
    there = {trace for trace, _ in after.values()}
    assert after.keys() == {span for span, (trace, _) in before.items() if trace in there}


@given(SPANS_OF)
def test_what_stays_passes_its_threshold_and_thresholds_only_rise(drawn: list[Any]) -> None:
    spans = table_of(drawn)
    before = by_span(spans)
    traces = decide(gather(spans, POLICY), POLICY, {}, LATER).decisions
    ours = {traces.ids[n : n + 1].tobytes().hex().ljust(32, "0"): n for n in range(len(traces))}
    for span, (trace, state) in by_span(sample(spans)).items():
        said, was = read_sampled(state), read_sampled(before[span][1])
        randomness = said.randomness if said.randomness is not None else int(trace[-14:], 16)
        n = ours[trace]
        assert randomness >= traces.threshold[n]
        if said.unknown:
            doubted = (was.threshold or 0) > randomness
            assert was.unknown or doubted or traces.unknown[n]
        else:
            assert said.threshold == max(int(traces.threshold[n]), was.threshold or 0)
            assert said.threshold <= randomness


@given(SPANS_OF)
def test_what_is_dropped_does_not_reach_its_threshold(drawn: list[Any]) -> None:
    spans = table_of(drawn)
    traces = gather(spans, POLICY)
    found = decide(traces, POLICY, {}, LATER).decisions
    randomness = traces.randomness[np.argsort(traces.ids)]
    assert (found.kept == (randomness >= found.threshold)).all()


@given(SPANS_OF)
def test_sampling_twice_is_sampling_once(drawn: list[Any]) -> None:
    """Even when nothing was remembered but the tools: thresholds come out as they were."""
    spans = table_of(drawn)
    decided = decide(gather(spans, POLICY), POLICY, {}, LATER)
    once = apply_to_spans(spans, decided.decisions).table
    again = sample(once, tools=dict(decided.tools))
    assert again.schema.equals(SPANS, check_metadata=True)
    assert again.to_pylist() == once.to_pylist()
    assert apply_to_spans(once, decided.decisions).table.to_pylist() == once.to_pylist()


@given(SPANS_OF, st.randoms(use_true_random=False))
def test_the_order_of_rows_means_nothing(drawn: list[Any], random: Any) -> None:
    spans = table_of(drawn)
    order = list(range(len(drawn)))
    random.shuffle(order)
    turned = spans.take(pa.array(order, pa.int64()))
    assert by_span(sample(turned)) == by_span(sample(spans))


@given(SPANS_OF)
def test_everything_else_of_a_span_stays(drawn: list[Any]) -> None:
    spans = table_of(drawn)
    before = {row["span_id"]: row for row in spans.to_pylist()}
    for row in sample(spans).to_pylist():
        assert row | {"trace_state": ""} == before[row["span_id"]] | {"trace_state": ""}
        vendors = [m for m in before[row["span_id"]]["trace_state"].split(",") if m == "v=1"]
        assert [m for m in row["trace_state"].split(",") if m == "v=1"] == vendors


@given(SPANS_OF)
def test_what_is_not_quiet_passes_as_it_is(drawn: list[Any]) -> None:
    spans = table_of(drawn)
    assert sample(spans, until=START_NS).equals(spans)


def test_all_spans_of_a_trace_get_its_randomness() -> None:
    """The specification: who decided by an explicit randomness has to write it."""
    spans = span_table(["f" * 32] * 2, trace_state=["ot=rv:ffffffffffffff", ""])
    states = sample(spans).column("trace_state").to_pylist()
    assert len(set(states)) == 1
    assert read_sampled(str(states[0])).randomness == NEVER - 1


def test_a_threshold_that_cannot_be_is_erased_and_marked() -> None:
    """Its trace is there although it should have been rejected: how often, nobody knows."""
    spans = span_table(["f" * 31 + "0"], trace_state=["ot=th:ffffffffffffff,v=1"], status_code=[2])
    (state,) = sample(spans).column("trace_state").to_pylist()
    assert state == f"{UNKNOWN_MEMBER},v=1"


def test_an_old_part_without_trace_state_is_sampled() -> None:
    spans = span_table(["f" * 32], trace_state=[None])
    assert sample(spans).column("trace_state").to_pylist() == ["ot=th:b3333333333334"]


def test_a_part_with_several_chunks_is_one_table() -> None:
    parts = [span_table([digit * 32], trace_state=[f"v={digit}"]) for digit in "fed"]
    whole = sample(pa.concat_tables(parts))
    expected = [f"ot=th:b3333333333334,v={digit}" for digit in "fed"]
    assert whole.column("trace_state").to_pylist() == expected


def test_log_records_follow_their_trace() -> None:
    kept, dropped, waiting = "f" * 32, "0" * 32, "5" * 32
    spans = span_table([kept, dropped])
    policy = SamplingPolicy.parse("{version: 1, otherwise: {keep: 0.5}}")
    decisions = decide(gather(spans, policy), policy, {}, LATER).decisions
    rows = [
        {"trace_id": trace, "attributes": "{}", "received_time_unix_nano": received,
         "time_unix_nano": 1, "observed_time_unix_nano": 1}
        for trace in (kept, dropped, waiting, None)
        for received in (LATER - 1, LATER)
    ]  # fmt: skip
    applied = apply_to_logs(pa.Table.from_pylist(rows, schema=LOGS), decisions)
    assert applied.table.column("trace_id").to_pylist() == [kept] * 2 + [waiting] * 2 + [None] * 2
    assert (applied.kept, applied.dropped, applied.late, applied.undecided) == (2, 2, 1, 4)


def test_nothing_decided_is_nothing_changed() -> None:
    spans = span_table(["f" * 32])
    assert apply_to_spans(spans, Decisions.none()).table is spans


@pytest.mark.parametrize("count", [0, 1])
def test_the_schema_stays(count: int) -> None:
    assert sample(span_table(["f" * 32] * count)).schema.equals(SPANS, check_metadata=True)
