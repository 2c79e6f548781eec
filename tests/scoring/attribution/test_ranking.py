"""Which span is blamed: earliest, not repaired, and not led to by an earlier fault."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument.policy import Policy
from toolverdict.scoring.attribution.ranking import LEAST_CONFIDENCE, attribute
from toolverdict.scoring.cases.model import Case, Expectation
from toolverdict.scoring.model import Category, Finding, Severity, Thresholds, Trajectory
from toolverdict.scoring.testing import ROOT_SPAN_ID, call, trajectory_of
from toolverdict.scoring.verdicts import Judged, judge_trajectory


def judged(
    trajectory: Trajectory, *expected: tuple[str, Any], policy: Policy | None = None
) -> Judged:
    made = tuple(Expectation(tool=tool, arguments=args) for tool, args in expected)
    case = Case(id="c", expected=made) if expected else None
    return judge_trajectory(trajectory, policy, case, Thresholds())


def causes(result: Judged) -> list[tuple[str, int | None, str | None]]:
    return [(f.category.value, f.call_index, f.caused_by) for f in result.findings if f.rank]


def test_what_a_wrong_value_led_to_is_a_consequence_of_it() -> None:
    """The wrong customer is looked up; her account number then goes into the payment."""
    calls = trajectory_of(
        call("find", {"customer": "C-9999"}, result={"iban": "DE99-OTHER"}),
        call("pay", {"to": "DE99-OTHER", "sum": 10}),
    )
    result = judged(
        calls, ("find", {"customer": "C-1042"}), ("pay", {"to": "DE00-RIGHT", "sum": 10})
    )
    first = calls.calls[0].call.span_id
    assert causes(result) == [("argument_mismatch", 0, None), ("argument_mismatch", 1, first)]
    assert (result.verdict.root_cause_span_id, result.verdict.confidence) == (first, 1.0)


def test_two_faults_that_have_nothing_in_common_are_two_candidates() -> None:
    calls = trajectory_of(call("find", {"customer": "C-9999"}), call("pay", {"sum": 11}))
    result = judged(calls, ("find", {"customer": "C-1042"}), ("pay", {"sum": 10}))
    assert [caused_by for _, _, caused_by in causes(result)] == [None, None]
    assert result.verdict.confidence == 0.5


def test_a_wrong_value_that_is_said_again_is_the_same_fault() -> None:
    calls = trajectory_of(call("a", {"id": "C-9999"}), call("b", {"id": "C-9999"}))
    result = judged(calls, ("a", {"id": "C-1042"}), ("b", {"id": "C-1042"}))
    assert causes(result)[1] == ("argument_mismatch", 1, calls.calls[0].call.span_id)


@pytest.mark.parametrize(
    ("wrong", "user"),
    [({"sum": 11}, ()), ({"to": "DE99-OTHER"}, ("to DE99-OTHER",))],
    ids=["a right value that both carry", "a value that the user gave"],
)
def test_values_that_tell_nothing_make_no_consequence(
    wrong: dict[str, Any], user: tuple[str, ...]
) -> None:
    right = {"order": "W1234567", "sum": 10, "to": "DE00-RIGHT"}
    first = call("find", {"order": "W1234567", "mail": "x"}, result={"iban": "DE99-OTHER"})
    result = judged(
        trajectory_of(first, call("pay", right | wrong), user=user),
        ("find", {"order": "W1234567", "mail": "y"}),
        ("pay", right),
    )
    assert not any(caused_by for _, _, caused_by in causes(result))
    assert result.verdict.confidence == 0.5


def test_what_was_put_right_is_never_the_cause() -> None:
    calls = trajectory_of(
        call("find", {"id": 1}, outcome="timeout"),
        call("find", {"id": 1}),
        call("pay", {"sum": 11}),
    )
    result = judged(calls, ("find", {"id": 1}), ("pay", {"sum": 10}))
    assert result.verdict.root_cause_category is Category.ARGUMENT_MISMATCH
    (repaired,) = [f for f in result.findings if f.repaired]
    assert repaired.rank is None


def test_a_crash_is_blamed_on_the_last_call_that_failed_for_good() -> None:
    calls = trajectory_of(
        call("a", {}, outcome="error"),
        call("b", {}),
        call("c", {}, outcome="upstream_error"),
        root_failed=True,
    )
    result = judged(calls)
    assert result.verdict.root_cause_span_id == calls.calls[2].call.span_id
    assert (result.verdict.reason, result.verdict.confidence) == ("call_failed", 0.5)
    assert causes(result)[-1][0] == "agent_failed"


def test_a_crash_that_no_call_explains_is_tied_to_the_root() -> None:
    result = judged(trajectory_of(call("a", {}), root_failed=True))
    assert result.verdict.root_cause_span_id == ROOT_SPAN_ID


def test_where_a_rule_was_broken_what_was_left_out_is_no_candidate() -> None:
    policy = Policy.parse(
        "version: 1\nid: t\nrules:\n"
        "  - {id: identity, effect: allow, tools: [get], requires: [verify]}\n"
        "  - {id: rest, effect: allow, tools: ['*']}\n"
    )
    result = judged(trajectory_of(call("get", {})), ("verify", {}), ("get", {}), policy=policy)
    assert causes(result)[0][0] == "requirement_unmet"
    assert result.verdict.confidence == 1.0


def test_with_many_faults_the_first_is_no_more_than_a_guess() -> None:
    wrong = [call(f"t{n}", {"x": n}) for n in range(7)]
    result = judged(trajectory_of(*wrong), *((f"t{n}", {"x": n + 100}) for n in range(7)))
    assert result.verdict.confidence is not None
    assert result.verdict.confidence < LEAST_CONFIDENCE
    assert result.verdict.root_cause_span_id == f"{0:016x}"  # every failure is tied to a span


def test_every_category_has_a_place_among_the_others() -> None:
    """A category without one would stop the judge at the first trajectory that has it."""
    at = f"{0:016x}"
    findings = [Finding(category, at, "m", call_index=0) for category in Category]
    assert sum(
        f.rank is not None for f in attribute(findings, trajectory_of(call("a", {})))
    ) == len(Category)


FINDINGS = st.builds(
    lambda category, index, severity, repaired: Finding(
        category,
        f"{index:016x}",
        "m",
        severity=severity,
        call_index=index,
        at_ns=index,
        repaired=repaired,
    ),
    st.sampled_from(list(Category)),
    st.integers(0, 5),
    st.sampled_from(list(Severity)),
    st.booleans(),
)


@given(st.lists(FINDINGS, max_size=12), st.randoms(use_true_random=False))
def test_every_failure_has_one_first_span_in_any_order_of_evidence(
    findings: list[Finding], random: Any
) -> None:
    trajectory = trajectory_of(*(call(f"t{n}", {"x": n}) for n in range(6)))
    ranked = attribute(findings, trajectory)
    first = [f for f in ranked if f.root_cause]
    assert len(first) == int(any(f.fails for f in findings))
    assert sorted(f.rank for f in ranked if f.rank) == list(
        range(1, sum(f.rank is not None for f in ranked) + 1)
    )
    assert not any(f.repaired and f.root_cause and f.severity is Severity.FAILURE for f in ranked)
    shuffled = list(findings)
    random.shuffle(shuffled)
    again = [f for f in attribute(shuffled, trajectory) if f.root_cause]
    assert [f.span_id for f in again] == [f.span_id for f in first]
