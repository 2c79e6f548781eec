"""Identifiers that stand in nothing the agent was told: made up, or not evaluable."""

from typing import Any

import pytest

from toolverdict.scoring.checks.grounding import ungrounded_findings
from toolverdict.scoring.model import ToolCall
from toolverdict.scoring.testing import call, trajectory_of

ASKED = ("Cancel my order #W1234567, my mail is ann@example.org",)


def made_up(*calls: ToolCall, user: tuple[str, ...] = ASKED, **fields: Any) -> list[Any]:
    return [f.actual for f in ungrounded_findings(trajectory_of(*calls, user=user, **fields))]


@pytest.mark.parametrize(
    "value", ["#W7654321", "credit_card_7334", "bob@example.org", "90210-4411"]
)
def test_an_identifier_from_nowhere_is_found(value: str) -> None:
    assert made_up(call("cancel", {"id": value})) == [value]


@pytest.mark.parametrize(
    "value",
    [
        "#W1234567",
        "ANN@example.org",
        "2024-05-01",
        "10:30",
        "economy",
        "cancel it now",
        99_999,
        True,
    ],
)
def test_what_was_said_or_may_be_written_freely_is_not(value: Any) -> None:
    assert made_up(call("cancel", {"id": value})) == []


def test_an_earlier_result_and_the_operator_may_have_given_it() -> None:
    first = call("find", {"name": "ann"}, result={"user": "ann_77"})
    assert made_up(first, call("get", {"user": "ann_77"})) == []
    assert made_up(call("get", {"user": "ann_77"}), system_texts=("be ann_77",)) == []


def test_only_the_first_call_with_it_is_to_blame() -> None:
    calls = [call("get", {"user": "ann_77"}, result="none") for _ in range(3)]
    assert made_up(*calls) == ["ann_77"]


def test_nothing_is_claimed_where_something_was_not_captured() -> None:
    unseen = call("find", {"name": "ann"})
    assert made_up(unseen, call("get", {"user": "ann_77"})) == []
    assert made_up(call("get", {"user": "ann_77"}), user=()) == []
    denied = call("find", {"name": "ann"}, outcome="denied")
    assert made_up(denied, call("get", {"user": "ann_77"})) == ["ann_77"]


def test_it_warns_and_fails_nothing() -> None:
    calls = trajectory_of(call("get", {"user": "ann_77"}), user=ASKED)
    (finding,) = ungrounded_findings(calls)
    assert (finding.fails, finding.grade) == (False, "suspect")
    assert "ann_77" not in finding.message


def test_the_work_on_hostile_texts_is_bounded() -> None:
    """Fifty texts of a million characters, searched for a value each time: it gives up."""
    result = "x" * 1_000_000
    calls = [call("get", {"id": f"id-{n}"}, result=result) for n in range(50)]
    assert len(made_up(*calls)) < 50
