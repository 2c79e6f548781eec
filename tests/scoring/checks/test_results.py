"""Result handling without a case: what came next after a result that could not be used."""

from typing import Any

import pytest

from toolverdict.scoring.attempts import repaired
from toolverdict.scoring.cases.model import Case, Expectation
from toolverdict.scoring.checks.results import Handling, result_handling
from toolverdict.scoring.model import Captured, Category, ModelTurn, Thresholds, ToolCall
from toolverdict.scoring.testing import call, trajectory_of
from toolverdict.scoring.verdicts import judge_trajectory

FAILED = ["empty", "error", "timeout", "refused", "upstream_error", "permission_denied"]


def handled(*calls: ToolCall, **fields: Any) -> Handling:
    trajectory = trajectory_of(*calls, **fields)
    return result_handling(trajectory, repaired(trajectory.calls))


@pytest.mark.parametrize("outcome", FAILED)
@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ([call("get", {"id": "A-77"})], "retry_same"),
        ([call("get", {"id": "A-78"})], "retry_changed"),
        ([call("search", {"q": "A"})], "other_tool"),
        ([call("pay", {"order": "A-77"}, labels=("payment",))], "went_on"),
        ([], "end"),
    ],
    ids=["same", "changed", "other", "went on", "nothing"],
)
def test_what_came_next_is_told_after_each_kind_of_result(
    outcome: str, after: list[ToolCall], expected: str
) -> None:
    found = handled(call("get", {"id": "A-77"}, outcome=outcome), *after)
    assert found.reactions[0] == expected
    assert (found.share.hits == 0) == (expected == "went_on")


def test_an_answer_is_told_from_stopping_where_the_turns_are_known() -> None:
    failed = call("get", {"id": 1}, at=1, outcome="timeout")
    before, after = ModelTurn("t0", 0, 1), ModelTurn("t1", 9_000_000_000, None)
    assert handled(failed, turns=(before, after)).reactions == {0: "tell_user"}
    assert handled(failed, turns=(before,)).reactions == {0: "stop"}


def test_a_retry_is_one_though_the_agent_thought_before_it() -> None:
    calls = (
        call("get", {"id": 1}, outcome="timeout"),
        call("think", {"t": "again"}),
        call("get", {"id": 1}),
    )
    assert handled(*calls).reactions == {0: "retry_same"}


def test_with_nothing_captured_a_retry_is_one_of_two_kinds() -> None:
    assert handled(call("get", outcome="timeout"), call("get")).reactions == {0: "retry"}


@pytest.mark.parametrize("outcome", ["invalid_arguments", "permission_denied", "denied", "refused"])
def test_the_same_call_after_a_permanent_failure_is_futile(outcome: str) -> None:
    found = handled(*[call("pay", {"to": "bob"}, outcome=outcome)] * 2)
    (finding,) = found.findings
    assert (finding.category, finding.call_index) == (Category.FUTILE_RETRY, 1)
    assert not finding.fails


@pytest.mark.parametrize(
    ("first", "second", "arguments"),
    [
        ("timeout", "timeout", {"to": "bob"}),
        ("permission_denied", "ok", {"to": "bob"}),
        ("invalid_arguments", "invalid_arguments", {"to": "bob", "sum": 1}),
    ],
    ids=["transient", "it worked", "changed"],
)
def test_no_futile_retry(first: str, second: str, arguments: dict[str, Any]) -> None:
    calls = (call("pay", {"to": "bob"}, outcome=first), call("pay", arguments, outcome=second))
    assert handled(*calls).findings == ()


def test_a_futile_retry_is_seen_by_hashes_alone() -> None:
    hashed: dict[str, Any] = {"arguments_state": Captured.HASHED, "args_hash": "h"}
    found = handled(*[call("pay", outcome="refused", **hashed)] * 2)
    assert [finding.category for finding in found.findings] == [Category.FUTILE_RETRY]


@pytest.mark.parametrize(
    ("to", "codes"), [("A-77", []), ("B-88", ["result_ignored"])], ids=["used", "ignored"]
)
def test_an_earlier_result_that_a_case_binds_and_the_agent_ignored(
    to: str, codes: list[str]
) -> None:
    bound = {"to": {"$ref": "order.result.id"}}
    expected = (
        Expectation(tool="get", arguments={"q": 1}, id="order"),
        Expectation(tool="pay", arguments=bound),
    )
    calls = trajectory_of(call("get", {"q": 1}, result={"id": "A-77"}), call("pay", {"to": to}))
    judged = judge_trajectory(calls, None, Case(id="c", expected=expected), Thresholds())
    assert [finding.code for finding in judged.findings] == codes


def test_nothing_is_told_where_every_call_ended_well() -> None:
    assert handled(call("a", {}), call("b", {})) == handled()


def test_the_work_on_hostile_traces_is_bounded() -> None:
    """Every call fails and none has ended when the next begins: each looks a hundred ahead."""
    calls = [call("get", {"id": n}, at=n, lasts=1e6, outcome="error") for n in range(5_000)]
    assert len(handled(*calls).reactions) == 5_000
