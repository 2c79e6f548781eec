"""What is found of a call stands in columns, from which its rates follow."""

from typing import Any

import pytest

from toolverdict.instrument.policy import Policy
from toolverdict.scoring.cases.model import Case, Forbidden
from toolverdict.scoring.model import Thresholds
from toolverdict.scoring.rates.testing import aggregates_of
from toolverdict.scoring.tables import calls_table
from toolverdict.scoring.testing import call, trajectory_of
from toolverdict.scoring.verdicts import judge_trajectory

NOTHING: dict[str, Any] = {
    "forbidden": None,
    "compliant": True,
    "needs_approval": False,
    "approval_missing": False,
    "repeat": None,
    "handling": None,
}
CASE = Case(id="c", forbidden=(Forbidden(tool="delete"), Forbidden(tool="pay", arguments={"a": 1})))


def row(*calls: Any, case: Case | None = None, policy: str | None = None) -> dict[str, Any]:
    """The columns of the last call."""
    judged = judge_trajectory(
        trajectory_of(*calls), Policy.parse(policy) if policy else None, case, Thresholds()
    )
    found = calls_table([judged]).to_pylist()[-1]
    return {name: found[name] for name in NOTHING}


def test_nothing_is_found_of_a_call_that_was_allowed_and_ended_well() -> None:
    assert row(call("get", {"a": 1})) == NOTHING


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "executed"),
        ({"executed": False, "outcome": "denied"}, "blocked"),
        ({"executed": None}, "unknown"),
    ],
)
def test_a_forbidden_call_says_what_became_of_it(fields: dict[str, Any], state: str) -> None:
    found = row(call("delete", {}, **fields), case=CASE)
    assert (found["forbidden"], found["compliant"]) == (state, False)


def test_what_cannot_be_decided_is_neither_forbidden_nor_compliant() -> None:
    found = row(call("pay"), case=CASE)
    assert (found["forbidden"], found["compliant"]) == ("undecided", None)
    found = row(call("get", policy_decision=None))
    assert found == NOTHING | dict.fromkeys(("compliant", "needs_approval", "approval_missing")) | {
        "forbidden": "undecided"
    }


@pytest.mark.parametrize(("status", "missing"), [("approved", False), ("requested", True)])
def test_a_call_says_whether_an_approval_is_missing(status: str, missing: bool) -> None:
    rule = "{version: 1, id: p, rules: [{id: a, effect: require_approval, tools: [pay]}]}"
    found = row(call("pay", {}, approval_status=status), policy=rule)
    assert (found["needs_approval"], found["approval_missing"]) == (True, missing)
    assert found["compliant"] is not missing


def test_a_repeated_call_says_why() -> None:
    refused = call("get", {"a": "x", "b": 1}, outcome="invalid_arguments")
    assert row(refused, call("get", {"a": "y", "b": 1}))["repeat"] == "retry_waste"
    late = call("get", {"a": 1}, outcome="timeout")
    assert row(late, call("get", {"a": 1}))["repeat"] == "transient_retry"
    same = call("get", {"a": 1}, result="r")
    assert row(same, same)["repeat"] == "duplicate"


def test_a_result_that_could_not_be_used_says_how_it_was_handled() -> None:
    lost = call("get", {"id": "o_9"}, outcome="empty")
    assert row(lost)["handling"] == "well"
    assert row(call("get", outcome="empty", args_hash="h"))["handling"] == "undecided"
    pay = call("pay", {"id": "o_9"}, labels=("payment",))
    judged = judge_trajectory(trajectory_of(lost, pay), None, None, Thresholds())
    assert calls_table([judged])["handling"].to_pylist() == ["badly", None]
    rates = aggregates_of(judged).rates("tool")["get"]
    assert (rates["result_handling"].hits, rates["result_handling"].of) == (0, 1)
