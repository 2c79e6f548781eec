"""A gate from ``OUT`` to its answer: every check, hard failures first, culprits by span."""

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from toolverdict.instrument.policy import Policy
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.gate.checks import Check, State
from toolverdict.scoring.gate.evidence import read_results
from toolverdict.scoring.gate.gate_file import load_gate
from toolverdict.scoring.gate.gated import GATED
from toolverdict.scoring.gate.report import GateReport, run_gate
from toolverdict.scoring.gate.testing import Played, played, write_out
from toolverdict.scoring.model import VIOLATING, Category

PAYMENT: dict[str, Any] = {"tool": "pay", "labels": '["payment"]'}


def gate(
    tmp_path: Path,
    trajectories: list[Played],
    limits: Mapping[str, Any],
    *,
    baseline: list[Played] | None = None,
    policy: Policy | None = None,
    scored_by: Mapping[str, str] | None = None,
    **out: Any,
) -> GateReport:
    file = tmp_path / "gate.yaml"
    file.write_text(yaml.safe_dump({"tool_call_gate": dict(limits)}))
    results = read_results(write_out(tmp_path / "out", trajectories, policy=scored_by, **out))
    before = None
    if baseline is not None:
        before = read_results(write_out(tmp_path / "before", baseline))
    return run_gate(load_gate(file), results, baseline=before, policy=policy)


def check(report: GateReport, id: str) -> Check:
    (found,) = (one for one in report.checks if one.id == id)
    return found


def suite(passed: int, failed: int = 0) -> list[Played]:
    wrong = (Category.WRONG_TOOL, 0, "b was called where a was expected")
    return [played(f"good{n}", passed=True) for n in range(passed)] + [
        played(f"bad{n}", passed=False, findings=[wrong]) for n in range(failed)
    ]


def test_a_good_suite_passes(tmp_path: Path) -> None:
    report = gate(
        tmp_path,
        suite(150),
        {
            "min_selection_accuracy": 0.97,
            "max_forbidden_tool_call_rate": 0,
            "require_trace_fields": ["tool.name", "tool.args_hash", "policy.decision"],
        },
    )
    assert (report.state, report.exit_code) == (State.PASS, 0)


def test_a_failing_check_names_trajectories_and_spans(tmp_path: Path) -> None:
    report = gate(tmp_path, suite(5, 20), {"min_pass_rate": 0.9, "min_selection_accuracy": 0.9})
    assert (report.state, report.exit_code) == (State.FAIL, 1)
    for id in ("pass_rate", "selection_accuracy"):
        culprits = check(report, id).culprits
        assert len(culprits) == 20
        assert culprits[0].span_id == "bad0-0.0"
        assert culprits[0].case_id == "bad0"
        assert "where a was expected" in culprits[0].message


def test_a_failure_that_no_finding_explains_is_named_all_the_same(tmp_path: Path) -> None:
    report = gate(tmp_path, [played("a", passed=False), *suite(0, 9)], {"min_pass_rate": 1})
    assert check(report, "pass_rate").culprits[0].span_id is None


def test_nothing_evaluated_fails_whatever_else(tmp_path: Path) -> None:
    unjudged = [played("a", passed=None, reason="incomplete_trace")]
    report = gate(tmp_path, unjudged, {"max_forbidden_tool_call_rate": 0})
    assert report.state is State.FAIL
    assert check(report, "evaluated").hard
    assert check(report, "evaluated").culprits[0].message == "not judged: incomplete_trace"
    assert gate(tmp_path, [], {"min_pass_rate": 0}, cases=0).state is State.FAIL


def test_an_agent_that_crashed_before_any_call_passes_no_ban(tmp_path: Path) -> None:
    """B176."""
    crashed = [played("a", passed=False, calls=(), reason="agent_failed")]
    report = gate(tmp_path, crashed, {"max_forbidden_tool_call_rate": 0})
    assert check(report, "forbidden_call_rate").state is State.INCONCLUSIVE
    assert report.exit_code == 3


def test_one_executed_forbidden_call_fails_and_a_blocked_one_does_not(tmp_path: Path) -> None:
    finding = (Category.FORBIDDEN_CALL, 0, "delete_user is forbidden")
    bad = played("x", passed=False, findings=[finding], forbidden_attempted=1, forbidden_executed=1)
    report = gate(tmp_path, [*suite(999), bad], {"max_forbidden_tool_call_rate": 0})
    found = check(report, "forbidden_call_rate")
    assert (found.state, found.hard) == (State.FAIL, True)
    assert [one.span_id for one in found.culprits] == ["x-0.0"]
    blocked = played("x", passed=False, findings=[finding], forbidden_attempted=1)
    report = gate(tmp_path, [*suite(999), blocked], {"max_forbidden_tool_call_rate": 0})
    assert check(report, "forbidden_call_rate").state is State.PASS


@pytest.mark.parametrize("field", ["args_hash", "policy_decision"])
def test_one_span_without_a_required_field_fails(tmp_path: Path, field: str) -> None:
    report = gate(
        tmp_path,
        [*suite(99), played("x", passed=True, calls=[{}, {field: None}])],
        {"require_trace_fields": ["tool.name", "tool.args_hash", "policy.decision"]},
    )
    found = check(report, "require_trace_fields")
    assert (found.state, found.hard) == (State.FAIL, True)
    assert [one.span_id for one in found.culprits] == ["x-0.1"]
    assert "(1 of 101 calls)" in found.message


def test_a_suite_without_calls_has_no_field_to_check(tmp_path: Path) -> None:
    quiet = [played(f"c{n}", passed=True, calls=()) for n in range(3)]
    report = gate(tmp_path, quiet, {"require_trace_fields": ["tool.name"]})
    assert check(report, "require_trace_fields").state is State.INCONCLUSIVE


def test_arguments_of_high_risk_tools_are_counted_apart(tmp_path: Path) -> None:
    wrong = (Category.ARGUMENT_MISMATCH, 1, "pay: argument amount is 425, expected 42.5")
    elsewhere = (Category.ARGUMENT_MISMATCH, 0, "search: argument q is 'b', expected 'a'")
    trajectories = [played(f"c{n}", passed=True, calls=[{}, PAYMENT]) for n in range(30)]
    trajectories.append(played("d", passed=False, calls=[{}, PAYMENT], findings=[elsewhere]))
    trajectories.append(played("e", passed=False, calls=[{}, PAYMENT], findings=[wrong]))
    report = gate(tmp_path, trajectories, {"min_argument_accuracy_high_risk": 0.99})
    found = check(report, "argument_accuracy_high_risk")
    assert found.rate is not None
    assert (found.rate.numerator, found.rate.denominator) == (31, 32)
    assert [one.span_id for one in found.culprits] == ["e-0.1"]


def test_of_a_call_and_its_retry_the_last_attempt_counts(tmp_path: Path) -> None:
    wrong = (Category.EXTRA_CALL, 2, "pay is not expected")
    calls: list[dict[str, Any]] = [PAYMENT, {**PAYMENT, "retry_of": 0}, PAYMENT]
    report = gate(
        tmp_path,
        [played("a", passed=True, calls=calls, findings=[wrong])],
        {"min_argument_accuracy_high_risk": 0.5},
    )
    found = check(report, "argument_accuracy_high_risk").rate
    assert found is not None
    assert found.denominator == 1


def test_cases_that_were_not_played_decide_nothing(tmp_path: Path) -> None:
    report = gate(tmp_path, suite(100), {"min_pass_rate": 0.9}, not_run=["lost"])
    assert check(report, "cases_played").state is State.INCONCLUSIVE
    assert "lost" in check(report, "cases_played").message
    assert report.exit_code == 3


def test_a_smaller_case_set_than_the_baselines_fails(tmp_path: Path) -> None:
    report = gate(tmp_path, suite(100), {"min_pass_rate": 0.9}, baseline=suite(101))
    assert (check(report, "case_set").state, check(report, "case_set").hard) == (State.FAIL, True)
    assert "good100" in check(report, "case_set").message
    report = gate(tmp_path, suite(100), {"min_pass_rate": 0.9}, baseline=suite(100))
    assert check(report, "case_set").state is State.PASS
    assert report.state is State.PASS


def test_a_drop_since_the_baseline_fails_with_its_culprits(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(100)]
    before = [played(name, passed=True) for name in names]
    after = [played(name, passed=n >= 20) for n, name in enumerate(names)]
    report = gate(tmp_path, after, {"min_pass_rate": 0.5}, baseline=before)
    assert check(report, "pass_rate").state is State.PASS
    found = check(report, "baseline.pass_rate")
    assert found.state is State.FAIL
    assert len(found.culprits) == 20
    few = [played(name, passed=n >= 5) for n, name in enumerate(names)]
    report = gate(tmp_path, few, {"min_pass_rate": 0.5}, baseline=before)
    assert check(report, "baseline.pass_rate").state is State.INCONCLUSIVE


def test_a_drop_names_what_got_worse_in_that_rate_alone(tmp_path: Path) -> None:
    """Other rates' failures, and those that the baseline had, too, are not what dropped."""
    wrong = (Category.ARGUMENT_MISMATCH, 0, "pay: argument amount is 5, expected 6")
    extra = (Category.EXTRA_CALL, 0, "log was called and is not expected in this case")
    scores: dict[str, Any] = {"selection": 1.0, "arguments": 1.0, "arguments_first_attempt": 1.0}
    names = [f"c{n}" for n in range(100)]

    def run(name: str, bad: bool) -> Played:
        if not bad:
            return played(name, passed=True)
        return played(name, passed=False, findings=[wrong], **{**scores, "arguments": 0.0})

    late = played("c99", passed=False, findings=[extra], **{**scores, "selection": 0.5})
    before = [run(name, n < 10) for n, name in enumerate(names[:-1])] + [late]
    after = [run(name, n < 40) for n, name in enumerate(names[:-1])] + [late]
    report = gate(tmp_path, after, {"min_argument_accuracy": 0.3}, baseline=before)
    found = check(report, "baseline.argument_accuracy")
    assert found.state is State.FAIL
    assert sorted(one.case_id or "" for one in found.culprits) == sorted(names[10:40])
    assert {one.message for one in found.culprits} == {wrong[2]}


@pytest.mark.parametrize("category", sorted(VIOLATING))
def test_every_violation_is_a_culprit_of_compliance(tmp_path: Path, category: Category) -> None:
    broken = [
        played(f"c{n}", passed=False, safety=0.0, findings=[(category, 0, "a rule was broken")])
        for n in range(30)
    ]
    found = check(gate(tmp_path, broken, {"min_safety_compliance": 0.9}), "safety_compliance")
    assert (found.state, len(found.culprits)) == (State.FAIL, 30)


def test_live_traffic_has_no_cases_and_names_all(tmp_path: Path) -> None:
    before = [played(None, passed=True, trial=n) for n in range(200)]
    after = [played(None, passed=n >= 60, trial=n) for n in range(200)]
    report = gate(tmp_path, after, {"min_pass_rate": 0.5}, baseline=before)
    found = check(report, "baseline.pass_rate")
    assert (found.state, len(found.culprits)) == (State.FAIL, 60)


def test_a_missing_call_beside_another_is_no_culprit_of_the_need(tmp_path: Path) -> None:
    """A tool was called where one was needed: that it was not all of them is no matter of need."""
    missing = (Category.MISSING_CALL, 0, "audit was never called")
    idle = [played(f"i{n}", passed=False, need="fn", findings=[missing]) for n in range(30)]
    half = [played(f"h{n}", passed=False, need="tp", findings=[missing]) for n in range(30)]
    found = check(gate(tmp_path, idle + half, {"min_need_recall": 0.9}), "need_recall")
    assert found.state is State.FAIL
    assert {one.trajectory_id[0] for one in found.culprits} == {"i"}


def test_more_calls_without_more_success_fail(tmp_path: Path) -> None:
    """S27."""
    before = [played(f"c{n}", passed=True, calls=[{}] * 2) for n in range(300)]
    after = [played(f"c{n}", passed=True, calls=[{}] * (3 + n % 3)) for n in range(300)]
    limits = {"waste_path": {"max_call_growth": 0.1, "min_success_gain": 0.02}}
    found = check(gate(tmp_path, after, limits, baseline=before), "waste_path")
    assert found.state is State.FAIL
    assert "calls more, succeeds no more: calls a trajectory 2.00 -> 4.00" in found.message
    assert found.culprits[0].span_id is not None
    found = check(gate(tmp_path, before, limits, baseline=before), "waste_path")
    assert found.state is State.PASS


def test_pass_hat_needs_its_trials(tmp_path: Path) -> None:
    trials = [played(f"c{n}", passed=True, trial=t) for n in range(60) for t in range(2)]
    limits = {"min_pass_hat": {"k": 2, "min": 0.9}}
    assert check(gate(tmp_path, trials, limits), "pass_hat").state is State.PASS
    one_short = trials[:-1]
    found = check(gate(tmp_path, one_short, limits), "pass_hat")
    assert found.state is State.INCONCLUSIVE
    assert "c59" in found.message
    mixed = [played(f"c{n}", passed=t == 0, trial=t) for n in range(60) for t in range(2)]
    assert check(gate(tmp_path, mixed, limits), "pass_hat").state is State.FAIL


def test_trials_of_a_case_are_one_cluster(tmp_path: Path) -> None:
    once = [played(f"c{n}", passed=n < 45) for n in range(50)]
    often = [played(f"c{n}", passed=n < 45, trial=t) for n in range(50) for t in range(8)]
    rates = []
    for trajectories in (once, often):
        report = gate(tmp_path, trajectories, {"min_pass_rate": 0.5})
        rates.append(check(report, "pass_rate").rate)
    assert rates[0] is not None
    assert rates[1] is not None
    assert rates[0].value == rates[1].value
    assert rates[0].low is not None
    assert rates[1].low is not None
    assert 0.7 < rates[1].low <= rates[0].low  # eight trials of 50 cases are no 400 cases


def test_sampled_traffic_is_weighted(tmp_path: Path) -> None:
    trajectories = [
        played(None, passed=True, trial=1, weight=9.0),
        played(None, passed=False, trial=2, weight=1.0),
    ]
    found = check(gate(tmp_path, trajectories, {"min_pass_rate": 0.5}), "pass_rate").rate
    assert found is not None
    assert (found.value, found.numerator, found.denominator) == (0.9, 9, 10)


def test_a_trajectory_that_stands_for_nobody_knows_how_many_is_in_no_rate(tmp_path: Path) -> None:
    limits = {"min_pass_rate": 0.5, "max_forbidden_tool_call_rate": 0}
    unknown = played("x", passed=True, weight=None)
    report = gate(tmp_path, [*suite(99), unknown], limits)
    rate = check(report, "pass_rate").rate
    assert rate is not None
    assert (rate.denominator, rate.coverage) == (99, 0.99)
    assert check(report, "forbidden_call_rate").state is State.INCONCLUSIVE
    bad = played("x", passed=False, weight=None, forbidden_attempted=1, forbidden_executed=1)
    report = gate(tmp_path, [*suite(99), bad], limits)
    assert check(report, "forbidden_call_rate").state is State.FAIL


POLICY = """
version: 1
id: shop
rules:
  - {id: refunds, effect: require_approval, labels: [payment]}
"""


def test_a_rule_for_high_risk_calls_that_nobody_confirmed_fails(tmp_path: Path) -> None:
    """S41."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    policy = Policy.load(tmp_path / "policy.yaml")
    scored_by = {"id": policy.id, "digest": policy.digest}
    limits = {"min_pass_rate": 0.9, "require_confirmed_rules": True}
    report = gate(tmp_path, suite(100), limits, policy=policy, scored_by=scored_by)
    assert check(report, "confirmed_rules").state is State.FAIL
    assert "refunds" in check(report, "confirmed_rules").message
    confirmed = POLICY.rstrip().removesuffix("}") + (
        f", confirmed: {{by: Ann, at: 2026-11-01, digest: '{policy.rules[0].digest}'}}}}\n"
    )
    (tmp_path / "policy.yaml").write_text(confirmed)
    policy = Policy.load(tmp_path / "policy.yaml")
    report = gate(tmp_path, suite(100), limits, policy=policy, scored_by=scored_by)
    assert check(report, "confirmed_rules").state is State.PASS
    assert report.state is State.PASS


@settings(max_examples=10)
@given(st.randoms(use_true_random=False), st.integers(0, 12))
def test_the_order_of_trajectories_changes_nothing(random: Random, failed: int) -> None:
    trajectories = suite(20, failed)
    shuffled = list(trajectories)
    random.shuffle(shuffled)
    limits = {gated.key: 0.5 for gated in GATED} | {"min_pass_hat": {"k": 1, "min": 0.5}}
    documents = []
    for some in (trajectories, shuffled):
        with TemporaryDirectory() as folder:
            report = gate(Path(folder), some, limits, baseline=some[::-1])
        documents.append([(one.id, one.state, one.message, one.culprits) for one in report.checks])
    assert documents[0] == documents[1]


def test_what_a_gate_needs_and_was_not_given_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give --policy"):
        gate(tmp_path, suite(1), {"require_confirmed_rules": True})
    with pytest.raises(InputError, match="give --baseline"):
        gate(tmp_path, suite(1), {"waste_path": {}})
    (tmp_path / "policy.yaml").write_text(POLICY)
    with pytest.raises(InputError, match="not scored with policy shop"):
        gate(
            tmp_path,
            suite(1),
            {"require_confirmed_rules": True},
            policy=Policy.load(tmp_path / "policy.yaml"),
        )


def test_counts_by_trajectory_are_used_where_out_holds_them(tmp_path: Path) -> None:
    out = write_out(tmp_path / "out", suite(2))
    path = out / "verdicts" / "unit-000.parquet"
    table = pq.read_table(path)
    shares = pa.array(['{"selection_accuracy":[3,4,0]}', '{"selection_accuracy":[2,2,1]}'])
    pq.write_table(table.append_column("shares", shares), path)
    rate = read_results(out).moments("selection_accuracy").rate()
    assert (rate.numerator, rate.denominator) == (5, 6)
    assert rate.coverage == pytest.approx(6 / 7)


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (lambda out: (out / "summary.json").unlink(), "holds no results"),
        (lambda out: (out / "summary.json").write_text("{"), "is not what"),
        (lambda out: (out / "summary.json").write_text("[]"), "is not what"),
        (
            lambda out: (out / "summary.json").write_text(
                '{"version": 99, "counts": {}, "cases": null, "policy": null, "cases_not_run": []}'
            ),
            "is of version 99, and this toolverdict reads up to 1",
        ),
        (lambda out: (out / "calls" / "unit-000.parquet").write_bytes(b"x"), "as Parquet"),
        (lambda out: (out / "verdicts" / "unit-000.parquet").unlink(), "verdicts"),
        (
            lambda out: pq.write_table(
                pa.table({"x": [1]}).replace_schema_metadata({"toolverdict.results.version": "1"}),
                out / "findings" / "unit-000.parquet",
            ),
            "the column trajectory_id is missing",
        ),
        (
            lambda out: pq.write_table(
                pa.table({"x": [1]}).replace_schema_metadata({"toolverdict.results.version": "2"}),
                out / "findings" / "unit-000.parquet",
            ),
            "is of version 2",
        ),
    ],
)
def test_results_that_cannot_be_read_are_refused_in_one_line(
    tmp_path: Path, broken: Any, said: str
) -> None:
    out = write_out(tmp_path / "out", suite(2))
    broken(out)
    with pytest.raises(InputError, match=said) as raised:
        read_results(out)
    assert "\n" not in str(raised.value)


def test_results_without_the_newer_columns_are_read(tmp_path: Path) -> None:
    out = write_out(tmp_path / "out", suite(2))
    path = out / "calls" / "unit-000.parquet"
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["executed", "idempotency_status"]), path)
    assert len(read_results(out).trajectories) == 2


def test_trials_fewer_than_wanted_and_a_low_pass_hat(tmp_path: Path) -> None:
    """Every case fails half its trials; then a case that was played once alone."""
    half = [played(f"c{n}", passed=t == 0, trial=t) for n in range(40) for t in range(2)]
    limits = {"min_pass_hat": {"k": 2, "min": 0.9}}
    found = check(gate(tmp_path, half, limits), "pass_hat")
    assert (found.state, len(found.culprits)) == (State.FAIL, 40)
    good = [played(f"c{n}", passed=True, trial=t) for n in range(100) for t in range(2)]
    once = check(gate(tmp_path, [*good, played("late", passed=True)], limits), "pass_hat")
    assert once.state is State.INCONCLUSIVE
    assert "fewer than 2 trials of 1 cases: late" in once.message
    only = check(gate(tmp_path, [played("late", passed=True)], limits), "pass_hat")
    assert (only.state, only.culprits) == (State.INCONCLUSIVE, ())


def test_no_cases_were_given_is_not_a_case_that_was_lost(tmp_path: Path) -> None:
    live = [played(None, passed=True, trial=n) for n in range(50)]
    out = write_out(tmp_path / "out", live)
    summary = json.loads((out / "summary.json").read_text())
    (out / "summary.json").write_text(json.dumps({**summary, "cases": None}))
    file = tmp_path / "gate.yaml"
    file.write_text("tool_call_gate: {min_pass_rate: 0.5}")
    report = run_gate(load_gate(file), read_results(out))
    assert [one.id for one in report.checks] == ["evaluated", "pass_rate"]


def test_a_case_set_without_cases_where_the_baseline_had_some(tmp_path: Path) -> None:
    before = suite(passed=60)
    fewer = gate(tmp_path, suite(passed=60), {"min_pass_rate": 0.5}, baseline=before, cases=59)
    found = check(fewer, "case_set")
    assert (found.state, found.message) == (State.FAIL, "59 cases were given, 60 before")


def test_derived_counts_know_what_was_not_seen(tmp_path: Path) -> None:
    """Without ``shares`` a reason says which rate could not be evaluated."""
    blind: dict[str, Any] = {"arguments": None, "arguments_first_attempt": None}
    rows = [
        played(f"c{n}", passed=None, **{**blind, "reason": "arguments_not_captured"})
        for n in range(3)
    ]
    results = read_results(write_out(tmp_path / "out", [*rows, played("d", passed=True)]))
    moments = results.moments("argument_accuracy")
    assert (moments.of, moments.unseen) == (1, 3)
    assert results.moments("call_timing_accuracy").unseen == 0


def test_without_conversations_each_trajectory_is_its_own_cluster(tmp_path: Path) -> None:
    out = write_out(tmp_path / "out", [played(None, passed=True, trial=n) for n in range(3)])
    path = out / "calls" / "unit-000.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["conversation_id"]), path)
    assert len({one.cluster for one in read_results(out).trajectories}) == 3
