"""Suspected turns: what the signs are, and that a run of talk is attributed through them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.scoring.attribution.turns import SIGNS, Step, signs, suspects
from toolverdict.scoring.model import Category, ModelTurn, Thresholds
from toolverdict.scoring.testing import ROOT_SPAN_ID, call, trajectory_of
from toolverdict.scoring.verdicts import judge_trajectory

TALK = (
    Step("1", "Which of the houses 2072 Akaikai Loop and 2017 Komo Mai Drive sold for more?"),
    Step("2", "I will look that up in the register of sales of the county for both of them."),
    Step("3", "exit code 124", is_result=True, failed=True),
    Step("4", "It timed out. Let us assume that the first sold for $850,000, the other $950,000."),
    Step("5", "The answer is that 2017 Komo Mai Drive sold for more, namely for $950,000 in all."),
    Step("6", "TERMINATE"),
)


def sign(name: str) -> list[float]:
    at = SIGNS.index(name)
    return [row[at] for row in signs(TALK)]


def test_the_turn_that_made_up_the_answer_is_the_first_suspect() -> None:
    first = suspects(TALK)[0]
    assert first.span_id == "4"
    assert "it assumes or estimates instead of finding out" in first.signs


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("assumes", [3]),
        ("failed", [2]),
        ("first_failure_follows", [1]),
        ("follows_failure", [3]),
        ("answers_result", [3]),
        ("brief", [2, 5]),
    ],
)
def test_signs_are_where_they_should_be(name: str, steps: list[int]) -> None:
    assert [i for i, value in enumerate(sign(name)) if value] == steps


def test_what_the_task_gave_is_nobodys_invention() -> None:
    assert sign("new_values")[0] == 0.0
    assert sign("answer_origin")[3] > 0.0
    assert sign("answer_origin")[0] == 0.0


@given(
    st.lists(
        st.builds(
            Step,
            span_id=st.uuids().map(str),
            text=st.text(max_size=80),
            is_result=st.booleans(),
            failed=st.booleans(),
        ),
        max_size=12,
    )
)
def test_probabilities_add_up_to_one_whatever_was_said(steps: list[Step]) -> None:
    found = suspects(steps)
    assert len(found) == len(steps)
    if steps:
        assert math.isclose(sum(one.probability for one in found), 1.0)
    assert found == sorted(found, key=lambda one: -one.probability)


def test_only_the_first_thousand_steps_are_looked_at() -> None:
    assert len(suspects([Step(str(n), "a " * 50_000) for n in range(1_001)])) == 1_000


def test_a_run_that_failed_as_a_whole_is_blamed_on_the_turn() -> None:
    said = [step for step in TALK if not step.is_result]
    turns = tuple(
        ModelTurn(f"turn-{step.span_id}", 2 * n * 10**9, None, text=step.text)
        for n, step in enumerate(said)
    )
    timed_out = call("run", {"code": "x"}, at=3, lasts=0.5, outcome="timeout", result="exit 124")
    again = call("run", {"code": "x"}, at=3.6, lasts=0.1, result="ok")
    trajectory = trajectory_of(timed_out, again, turns=turns, root_failed=True)
    result = judge_trajectory(trajectory, None, None, Thresholds())
    first, second = (f for f in result.findings if f.rank)
    assert (first.category, first.span_id) == (Category.TURN_SUSPECTED, "turn-4")
    assert first.confidence == result.verdict.confidence
    assert second.span_id == ROOT_SPAN_ID


def test_without_texts_the_run_is_blamed_as_a_whole() -> None:
    turns = (ModelTurn("t", 0, 1),)
    trajectory = trajectory_of(call("a", {}), turns=turns, root_failed=True)
    result = judge_trajectory(trajectory, None, None, Thresholds())
    assert result.verdict.root_cause_span_id == ROOT_SPAN_ID
