"""Retry waste with its causes: what was wasted, what only looks so, and what it cost."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument.policy import Policy
from toolverdict.scoring.checks.waste import RepeatKind, Waste, waste, waste_findings
from toolverdict.scoring.known_tools import KnownTools
from toolverdict.scoring.model import Captured, Category, ModelTurn, ToolCall
from toolverdict.scoring.testing import call, placed, trajectory_of

BAD = {"order": "A-77", "amount": "forty-two"}
GOOD = {"order": "A-77", "amount": 42.5}
HASHED: dict[str, Any] = {"arguments_state": Captured.HASHED}


def of(*calls: ToolCall, **fields: Any) -> Waste:
    return waste(trajectory_of(*calls, **fields))


def kinds(found: Waste) -> dict[int, str]:
    return {index: repeat.kind.value for index, repeat in found.repeats.items()}


def test_a_correction_after_refused_arguments_is_retry_waste() -> None:
    calls = (call("refund", BAD, outcome="invalid_arguments"), call("refund", GOOD))
    found = of(*calls)
    assert kinds(found) == {1: "retry_waste"}
    at = placed(*calls)
    (finding,) = waste_findings(at, found)
    assert (finding.category, finding.span_id) == (Category.RETRY_WASTE, at[1].call.span_id)
    assert at[0].call.span_id in finding.message


@pytest.mark.parametrize("outcome", ["timeout", "rate_limited", "upstream_error"])
def test_a_retry_of_a_transient_failure_is_counted_apart_and_no_finding(outcome: str) -> None:
    calls = (call("refund", GOOD, outcome=outcome), call("refund", GOOD))
    found = of(*calls)
    assert kinds(found) == {1: "transient_retry"}
    assert list(waste_findings(placed(*calls), found)) == []


def test_a_correction_after_an_error_of_the_body_is_neither() -> None:
    calls = (call("refund", {**GOOD, "card": "a"}, outcome="error"), call("refund", GOOD))
    assert kinds(of(*calls)) == {}


def test_fifty_identical_successes_are_49_duplicates() -> None:
    found = of(*[call("get", {"id": 1}, result={"a": 1})] * 50)
    assert set(kinds(found).values()) == {"duplicate"}
    assert len(found.repeats) == 49


def test_a_changing_result_is_polling() -> None:
    """B169: repeats are judged on inputs and result."""
    found = of(*(call("status", {"job": 1}, result={"done": n}) for n in range(10)))
    assert set(kinds(found).values()) == {"polling"}


def test_a_tool_that_is_meant_to_be_polled_may_say_the_same_again() -> None:
    """B170: waiting is no waste where the tool is one to wait with."""
    found = of(*[call("status", {"job": 1}, result="waiting", labels=("polling",))] * 3)
    assert set(kinds(found).values()) == {"polling"}


def test_two_different_answers_of_a_payment_are_two_payments() -> None:
    calls = [call("pay", GOOD, result={"id": n}, labels=("payment",)) for n in range(2)]
    found = of(*calls)
    assert kinds(found) == {1: "duplicate"}
    assert found.repeats[1].side_effecting
    (finding,) = waste_findings(placed(*calls), found)
    assert finding.category is Category.DUPLICATE_CALL


def test_the_policy_may_say_that_a_tool_is_polled() -> None:
    policy = Policy.parse(
        "version: 1\nid: t\ntools: {status: {labels: [polling]}}\n"
        "rules: [{id: all, effect: allow, tools: ['*']}]\n"
    )
    trajectory = trajectory_of(*[call("status", {"job": 1}, result="waiting")] * 2)
    assert kinds(waste(trajectory, tools=KnownTools(policy))) == {1: "polling"}


def test_a_duplicate_of_a_read_is_waste_and_no_finding() -> None:
    calls = [call("get", {"id": 1})] * 2
    found = of(*calls)
    assert kinds(found) == {1: "duplicate"}
    assert list(waste_findings(placed(*calls), found)) == []


def test_a_sequence_made_again_at_once_is_a_loop() -> None:
    a, b = call("think", {"x": 1}, result="same"), call("book", {"y": 1}, outcome="error")
    calls = (a, b) * 3
    found = of(*calls)
    assert kinds(found) == {2: "loop", 3: "loop", 4: "loop", 5: "loop"}
    assert [repeat.of for repeat in found.repeats.values()] == [0, 1, 2, 3]
    (finding,) = waste_findings(placed(*calls), found)
    assert (finding.category, finding.call_index) == (Category.LOOP, 2)


def test_the_same_failing_call_is_a_loop_from_the_third_on() -> None:
    failing = call("book", {"y": 1}, outcome="error")
    assert kinds(of(failing, failing)) == {}
    assert kinds(of(failing, failing, failing)) == {1: "loop", 2: "loop"}


def test_a_loop_that_learns_something_is_polling_as_a_whole() -> None:
    calls: list[ToolCall] = []
    for state in ("waiting", "still waiting", "done"):
        calls += [call("status", {"job": 1}, result=state), call("sleep", {"s": 5}, result="ok")]
    assert set(kinds(of(*calls)).values()) == {"polling"}


def test_a_longer_cycle_of_failures_is_a_loop() -> None:
    """B169: read, edit that fails, test that fails, five times over."""
    cycle = (
        call("read", {"file": "a"}, result="text"),
        call("edit", {"file": "a"}, outcome="error"),
        call("test", {}, outcome="error"),
    )
    found = of(*cycle * 5)
    assert kinds(found) == dict.fromkeys(range(3, 15), "loop")


def test_the_same_calls_with_others_between_are_no_loop() -> None:
    calls = (call("a", {}), call("b", {}), call("c", {}), call("a", {}), call("d", {}))
    assert kinds(of(*calls)) == {3: "duplicate"}


def test_what_a_case_expects_twice_is_no_repetition() -> None:
    trajectory = trajectory_of(call("get", {"id": 1}), call("get", {"id": 1}))
    assert waste(trajectory, frozenset({0, 1})).repeats == {}


def test_with_hashes_only_equal_hashes_decide() -> None:
    calls = [call("get", args_hash=h, **HASHED) for h in ("h1", "h2", "h1")]
    assert kinds(of(*calls)) == {2: "duplicate"}


def test_what_nothing_shows_is_no_repetition_and_is_counted() -> None:
    found = of(call("get"), call("get"), call("get", {"id": 1}))
    assert (kinds(found), found.unseen) == ({}, 2)
    assert of(call("get")).unseen == 1
    assert of().unseen == 0


def test_names_of_servers_make_no_other_tool() -> None:
    calls = (call("mcp__shop__get", {"id": 1}), call("get", {"id": 1}))
    assert kinds(of(*calls)) == {1: "duplicate"}


def test_what_repeats_cost_in_seconds_and_tokens() -> None:
    turns = (ModelTurn("t0", 0, 1, tokens=900), ModelTurn("t1", 2, 3, tokens=1001))
    base = trajectory_of(*[call("get", {"id": 1}, lasts=2.0)] * 3)
    places = [replace(place, turn=turn) for place, turn in zip(base.calls, (0, 1, 1), strict=True)]
    found = waste(replace(base, calls=tuple(places), turns=turns))
    cost = found.cost(RepeatKind.DUPLICATE)
    assert (cost.calls, cost.seconds, cost.timed) == (2, 4.0, 2)
    # The second turn asked for both of them.
    assert (cost.tokens, cost.counted) == (1000, 2)
    assert found.cost(RepeatKind.LOOP).calls == 0


def test_tokens_and_seconds_that_nobody_recorded_are_not_counted() -> None:
    unfinished = call("get", {"id": 1}, end_ns=None)
    cost = of(call("get", {"id": 1}), unfinished).cost(RepeatKind.DUPLICATE)
    assert (cost.calls, cost.timed, cost.counted) == (1, 0, 0)


CALLS = st.builds(
    lambda tool, argument, outcome: call(tool, {"x": argument}, outcome=outcome),
    st.sampled_from("ab"),
    st.integers(0, 1),
    st.sampled_from(["ok", "error", "timeout", "invalid_arguments"]),
)


@given(st.lists(CALLS, max_size=30))
def test_a_repeat_names_an_earlier_call_of_the_same_tool(calls: list[ToolCall]) -> None:
    trajectory = trajectory_of(*calls)
    for index, repeat in waste(trajectory).repeats.items():
        assert 0 <= repeat.of < index
        assert trajectory.calls[repeat.of].call.tool == trajectory.calls[index].call.tool


@given(st.lists(st.integers(-(2**53), 2**53), unique=True, max_size=30))
def test_nothing_is_found_where_all_went_well_and_no_two_are_the_same(numbers: list[int]) -> None:
    assert of(*(call("get", {"id": number}) for number in numbers)) == Waste()


def test_a_cycle_of_a_hostile_length_is_found_at_once() -> None:
    """Twenty thousand calls: work that grows with their square would not end in a test's time."""
    made = [call(f"t{n % 31}", args_hash=f"h{n % 31}", at=n, **HASHED) for n in range(20_000)]
    assert len(of(*made).repeats) == 20_000 - 31
