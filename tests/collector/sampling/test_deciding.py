"""Which traces are decided, when, and by which rule."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.collector.errors import LakeError
from toolverdict.collector.sampling import deciding
from toolverdict.collector.sampling.deciding import Decisions, decide
from toolverdict.collector.sampling.policy import SamplingPolicy
from toolverdict.collector.sampling.testing import (
    SECOND_NS,
    START_NS,
    random_trace_ids,
    span_table,
)
from toolverdict.collector.sampling.thresholds import threshold_of
from toolverdict.collector.sampling.traces import Traces, columns_needed, gather

LATER = START_NS + 86_400 * SECOND_NS
A, B, C = (digit * 32 for digit in "abc")


def policy_of(*rules: str, **more: object) -> SamplingPolicy:
    lines = ["version: 1", *(f"{key}: {value}" for key, value in more.items())]
    if "otherwise" not in more:
        lines.append("otherwise: {keep: 0.25}")
    return SamplingPolicy.parse(
        "\n".join([*lines, "rules:" if rules else "", *map("- {}".format, rules)])
    )


def decisions_of(spans: pa.Table, policy: SamplingPolicy, **more: Any) -> Decisions:
    return decide(
        gather(spans, policy), policy, more.get("tools", {}), more.get("until", LATER)
    ).decisions


def rules_of(spans: pa.Table, policy: SamplingPolicy) -> dict[str, str]:
    """The first letter of each trace id and the rule that decided it."""
    found = decisions_of(spans, policy)
    ids = found.ids.tobytes().hex()
    return {ids[32 * n]: policy.names[rule] for n, rule in enumerate(found.rule)}


@pytest.mark.parametrize(
    ("rule", "columns"),
    [
        ("failed: true", {"status_code": [1, 2]}),
        ("failed: true", {"error_type": [None, "TimeoutError"]}),
        ("failed: true", {"tool_outcome": ["empty", "timeout"]}),
        ("decisions: [deny]", {"policy_decision": ["allow", "deny"]}),
        ("outcomes: [refused, permission_denied]", {"tool_outcome": ["denied", "refused"]}),
        ("tools: ['refund*']", {"gen_ai_tool_name": ["get_order", "shop.refund_order"]}),
        ("tools: [refund]", {"tool_name": [None, "refund"], "gen_ai_tool_name": ["refunds", None]}),
        ("agents: ['pay-*']", {"gen_ai_agent_name": ["play-1", "pay-1"]}),
        ("slower_than_s: 2", {"end_time_unix_nano": [START_NS + 2_000_000_000, START_NS + 2_000_000_001]}),
        ("labels: [payment]", {"tool_name": ["t", "t"], "attributes": ['{"tool.labels":["read"]}', '{"tool.labels":["read","payment"]}']}),
        ("labels: ['p]\"']", {"tool_name": ["t", "t"], "attributes": ['{"a":"\\"tool.labels\\":[\\"p]\\"]"}', '{"tool.labels":["p]\\""]}']}),
        ("labels: [x]", {"tool_name": ["t", "t"], "attributes": ['{"tool.labels":"x"}', '{"$pairs":[["a",1],["tool.labels",["x"]]]}']}),
    ],
)  # fmt: skip
def test_a_matcher_finds_its_trace(rule: str, columns: dict[str, list[Any]]) -> None:
    """Of two traces the second one."""
    spans = span_table([A, B], **columns)
    policy = policy_of(f"{{id: it, keep: 1, {rule}}}")
    assert rules_of(spans, policy) == {"a": "otherwise", "b": "it"}


def test_what_is_said_about_spans_is_said_about_one() -> None:
    spans = span_table(
        [A, A, B, B],
        gen_ai_tool_name=["refund", "get_order", "refund", "get_order"],
        tool_outcome=["ok", "timeout", "timeout", "ok"],
        gen_ai_agent_name=[None, None, None, "bot"],
    )
    rule = "{id: it, keep: 1, tools: [refund], outcomes: [timeout], agents: [bot]}"
    assert rules_of(spans, policy_of(rule)) == {"a": "otherwise", "b": "it"}


def test_latency_is_that_of_the_whole_trace() -> None:
    """And a span that never ended, or whose start is not set, says nothing."""
    second = SECOND_NS
    spans = span_table(
        [A, A, B, B, C],
        start_time_unix_nano=[START_NS, START_NS + 5 * second, START_NS, 0, START_NS],
        end_time_unix_nano=[
            START_NS + second,
            START_NS + 6 * second,
            START_NS + second,
            START_NS,
            0,
        ],
    )
    policy = policy_of("{id: slow, keep: 1, slower_than_s: 5}")
    assert rules_of(spans, policy) == {"a": "slow", "b": "otherwise", "c": "otherwise"}


def test_the_largest_probability_counts_whatever_the_order() -> None:
    spans = span_table([A], status_code=[2], policy_decision=["deny"])
    rules = ["{id: low, keep: 0.5, failed: true}", "{id: high, keep: 0.9, decisions: [deny]}"]
    for ordered in (rules, rules[::-1]):
        found = decisions_of(spans, policy_of(*ordered))
        assert found.threshold.tolist() == [threshold_of(0.9)]


def test_otherwise_is_only_for_what_nothing_matches() -> None:
    spans = span_table([A], gen_ai_agent_name=["load-test"])
    policy = policy_of("{id: load, keep: 0.01, agents: [load-test]}")
    assert decisions_of(spans, policy).threshold.tolist() == [threshold_of(0.01)]


# --- when ---------------------------------------------------------------------------------------

RECEIVED = START_NS - START_NS % (60 * SECOND_NS) + 30 * SECOND_NS


@pytest.mark.parametrize(
    ("parents", "ends", "waits_s"),
    [
        ([None, "0" * 15 + "1"], [1, 1], 60),
        (["0" * 15 + "9", "0" * 15 + "1"], [1, 1], 600),
        ([None, "0" * 15 + "1"], [0, 1], 600),
    ],
    ids=["the root has ended", "there is no root", "the root runs"],
)
def test_a_trace_is_decided_when_it_is_quiet(
    parents: list[str | None], ends: list[int], waits_s: int
) -> None:
    """Counted from the last span received, and only when its decision window has ended."""
    spans = span_table(
        [A, A],
        parent_span_id=parents,
        end_time_unix_nano=[end * (START_NS + SECOND_NS) for end in ends],
        received_time_unix_nano=[RECEIVED - 900 * SECOND_NS, RECEIVED],
    )
    policy = policy_of(quiet_s=600, root_grace_s=60, window_s=60)
    window_ends = RECEIVED + (waits_s + 30) * SECOND_NS
    traces = gather(spans, policy)
    early = decide(traces, policy, {}, window_ends - 1)
    assert (len(early.decisions), early.waiting) == (0, 1)
    late = decide(traces, policy, {}, window_ends)
    assert (len(late.decisions), late.waiting) == (1, 0)


def test_a_new_tool_is_new_in_its_first_window_only() -> None:
    minute = 60 * SECOND_NS
    spans = span_table(
        [A, B, C],
        gen_ai_tool_name=["refund", "refund", "old"],
        received_time_unix_nano=[RECEIVED, RECEIVED + minute, RECEIVED],
    )
    policy = policy_of("{id: new, keep: 1, new_tool: true}", quiet_s=0, root_grace_s=0)
    decided = decide(gather(spans, policy), policy, {"old": 5}, LATER)
    assert [policy.names[rule] for rule in decided.decisions.rule] == [
        "new", "otherwise", "otherwise"
    ]  # fmt: skip
    first = RECEIVED - RECEIVED % minute
    assert decided.tools == {"old": 5, "refund": first}
    again = decide(gather(spans, policy), policy, decided.tools, LATER)
    assert again.decisions.rule.tolist() == decided.decisions.rule.tolist()


def test_names_without_end_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deciding, "MOST_TOOLS", 2)
    spans = span_table([A, B, C], gen_ai_tool_name=["a", "b" * 257, "c"])
    policy = policy_of("{id: new, keep: 1, new_tool: true}")
    decided = decide(gather(spans, policy), policy, {"z": 1}, LATER)
    assert set(decided.tools) == {"z", "a"}
    assert [policy.names[r] for r in decided.decisions.rule] == ["new", "otherwise", "otherwise"]


# --- caps ---------------------------------------------------------------------------------------


def test_a_cap_keeps_the_largest_and_says_with_which_probability() -> None:
    ids = [f"{number:032x}" for number in (10, 20, 30, 40, 50)]
    found = decisions_of(span_table(ids), policy_of(otherwise="{keep: 1, cap: {traces: 2}}"))
    assert found.kept.tolist() == [False, False, False, True, True]
    assert found.threshold.tolist() == [31] * 5


def test_a_cap_that_is_not_reached_changes_nothing() -> None:
    ids = [f"{number:032x}" for number in (10, 20)]
    found = decisions_of(span_table(ids), policy_of(otherwise="{keep: 1, cap: {traces: 2}}"))
    assert found.threshold.tolist() == [0, 0]


def test_a_cap_by_agent_is_one_for_each() -> None:
    """A trace of two agents has to pass in both groups; those of none are a group."""
    ids = [f"{number:032x}" for number in (10, 20, 30, 40, 40, 50, 60)]
    agents = ["a", "a", "b", "a", "b", None, None]
    policy = policy_of(otherwise="{keep: 1, cap: {traces: 1, by: agent}}")
    found = decisions_of(span_table(ids, gen_ai_agent_name=agents), policy)
    assert found.threshold.tolist() == [21, 21, 31, 31, 51, 51]
    assert found.kept.tolist() == [False, False, False, True, False, True]


@pytest.mark.parametrize(
    ("by", "column"), [("service", "service_name"), ("tool", "gen_ai_tool_name")]
)
def test_a_cap_by(by: str, column: str) -> None:
    ids = [f"{number:032x}" for number in (10, 20, 30)]
    policy = policy_of(otherwise=f"{{keep: 1, cap: {{traces: 1, by: {by}}}}}")
    found = decisions_of(span_table(ids, **{column: ["a", "a", "b"]}), policy)
    assert found.kept.tolist() == [False, True, True]


def test_a_cap_is_one_for_each_window() -> None:
    ids = [f"{number:032x}" for number in (10, 20, 30)]
    received = [RECEIVED, RECEIVED, RECEIVED + 60 * SECOND_NS]
    policy = policy_of(otherwise="{keep: 1, cap: {traces: 1}}")
    found = decisions_of(span_table(ids, received_time_unix_nano=received), policy)
    assert found.kept.tolist() == [False, True, True]


def test_traces_that_share_their_randomness_stay_or_go_together() -> None:
    ids = [f"{number:032x}" for number in (1, 2, 3, 4)]
    states = ["ot=rv:00000000000009", "ot=rv:00000000000009", "ot=rv:00000000000007", ""]
    policy = policy_of(otherwise="{keep: 1, cap: {traces: 1}}")
    found = decisions_of(span_table(ids, trace_state=states), policy)
    assert found.kept.tolist() == [True, True, False, False]
    assert found.threshold.tolist() == [8] * 4


@given(
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from("abc"), st.booleans()), max_size=40),
    st.integers(1, 5),
)
def test_the_threshold_of_a_kept_trace_does_not_depend_on_its_own_randomness(
    drawn: list[tuple[int, str, bool]], cap: int
) -> None:
    """What makes 1 / probability its weight: any other randomness above it gives the same one."""
    unique = {number: (agent, failed) for number, agent, failed in drawn}
    policy = policy_of(
        "{id: failed, keep: 0.9999999, failed: true, cap: {traces: 3}}",
        otherwise=f"{{keep: 1, cap: {{traces: {cap}, by: agent}}}}",
    )

    def found(numbers: list[int]) -> Decisions:
        spans = span_table(
            [f"{place:018x}{number:014x}" for place, number in enumerate(numbers)],
            gen_ai_agent_name=[agent for agent, _ in unique.values()],
            status_code=[2 if failed else 0 for _, failed in unique.values()],
        )
        return decisions_of(spans, policy)

    numbers = [number + (1 << 55) for number in unique]
    first = found(numbers)
    for place in np.flatnonzero(first.kept).tolist():
        for other in (int(first.threshold[place]), (1 << 56) - 1):
            if other in numbers:
                continue
            again = found([*numbers[:place], other, *numbers[place + 1 :]])
            assert again.threshold[place] == first.threshold[place]
            assert again.kept[place]


# --- randomness ---------------------------------------------------------------------------------


def randomness_of(spans: pa.Table, policy: SamplingPolicy) -> Traces:
    return gather(spans, policy)


def test_the_randomness_is_that_of_the_id_or_rv() -> None:
    traces = gather(
        span_table(
            ["01" * 16, "02" * 16, "02" * 16],
            trace_state=["", "", "v=1,ot=rv:0000000000000a"],
        ),
        policy_of(),
    )
    assert traces.randomness.tolist() == [0x01010101010101, 10]
    assert traces.explicit.tolist() == [False, True]
    assert traces.unknown.tolist() == [False, False]


def test_spans_that_disagree_about_it_make_it_unknown() -> None:
    states = ["ot=rv:0000000000000a", "ot=rv:0000000000000b"]
    assert gather(span_table([A, A], trace_state=states), policy_of()).unknown.tolist() == [True]


@pytest.mark.parametrize("state", ["", "ot=th:0", "vendor=1"])
def test_a_conversation_shares_its_randomness(state: str) -> None:
    spans = span_table(
        [A, B, C], gen_ai_conversation_id=["conv", "conv", "other"], trace_state=[state] * 3
    )
    traces = gather(spans, policy_of(randomness="conversation"))
    first, second, third = traces.randomness.tolist()
    assert first == second != third
    assert traces.explicit.all()
    own = gather(spans, policy_of())
    assert not own.explicit.any()


@pytest.mark.parametrize(
    ("conversations", "state"),
    [
        (["c", "c"], "ot=th:8"),
        (["c", "c"], "ot=rv:00000000000001"),
        (["c", "c"], "ot=th:wrong"),
        (["c", "d"], ""),
        ([None, None], ""),
    ],
    ids=["was sampled", "has its own", "was sampled, unknown how", "two conversations", "none"],
)
def test_a_trace_keeps_its_own_randomness(conversations: list[str | None], state: str) -> None:
    spans = span_table([A, A], gen_ai_conversation_id=conversations, trace_state=[state, ""])
    of_conversation = gather(spans, policy_of(randomness="conversation"))
    assert of_conversation.randomness.tolist() == gather(spans, policy_of()).randomness.tolist()


# --- as a whole ---------------------------------------------------------------------------------


def test_order_and_division_into_tables_change_nothing() -> None:
    random = np.random.default_rng(1)
    ids = random_trace_ids(random, 200)
    rows = random.integers(0, 200, 900)
    spans = span_table(
        [ids[row] for row in rows],
        status_code=random.integers(0, 3, 900),
        gen_ai_tool_name=np.array([f"tool{n}" for n in range(30)])[random.integers(0, 30, 900)],
        gen_ai_agent_name=np.array(["a", "b"])[random.integers(0, 2, 900)],
        received_time_unix_nano=START_NS + random.integers(0, 600, 900) * SECOND_NS,
    )
    policy = policy_of(
        "{id: failed, keep: 0.5, failed: true, cap: {traces: 2, by: tool}}",
        "{id: new, keep: 1, new_tool: true, cap: {traces: 2, by: agent}}",
    )
    first = decide(gather(spans, policy), policy, {}, LATER)
    turned = spans.take(random.permutation(900))
    in_half = [
        turned.filter(
            pa.array([int(str(id)[-1], 16) % 2 == half for id in turned["trace_id"].to_pylist()])
        )
        for half in (0, 1)
    ]
    second = decide(Traces.union([gather(half, policy) for half in in_half]), policy, {}, LATER)
    assert len(first.decisions) == len(set(rows.tolist()))
    assert len(set(first.decisions.threshold.tolist())) > 10
    for name in ("ids", "kept", "threshold", "randomness", "unknown", "rule"):
        assert getattr(first.decisions, name).tolist() == getattr(second.decisions, name).tolist()
    assert first.tools == second.tools


def test_a_trace_in_two_tables_is_a_mistake_of_the_caller() -> None:
    part = gather(span_table([A]), policy_of())
    with pytest.raises(ValueError, match="one table"):
        Traces.union([part, part])


def test_an_empty_table_is_no_problem() -> None:
    policy = policy_of(
        "{id: l, keep: 1, labels: [x], failed: true}",
        otherwise="{keep: 1, cap: {traces: 1, by: tool}}",
        randomness="conversation",
    )
    assert len(decisions_of(span_table([]), policy)) == 0


def test_the_columns_that_are_needed_are_enough() -> None:
    policy = policy_of("{id: l, keep: 1, labels: [x]}", randomness="conversation")
    spans = span_table([A], tool_name=["t"], attributes=['{"tool.labels":["x"]}'])
    narrow = spans.select(columns_needed(policy))
    assert decisions_of(narrow, policy).rule.tolist() == [0]


@pytest.mark.parametrize("wrong", ["", "ab", "g" * 32, "a" * 31 + " "])
def test_what_is_no_trace_id_is_an_error_of_the_lake(wrong: str) -> None:
    with pytest.raises(LakeError, match="32 hex digits"):
        gather(span_table([A, wrong]), policy_of())


def test_damaged_attributes_are_an_error_of_the_lake() -> None:
    spans = span_table([A], tool_name=["t"], attributes=['{"tool.labels":["\\x"]}'])
    with pytest.raises(LakeError, match="column attributes"):
        gather(spans, policy_of("{id: l, keep: 1, labels: [x]}"))
