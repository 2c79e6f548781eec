"""What was asked for at once, where only times and messages tell."""

from toolverdict.scoring.parallel import Step, overlapping


def test_calls_one_after_the_other_are_in_no_group() -> None:
    assert overlapping([Step(0, 1, "p"), Step(1, 2, "p"), Step(5, None, "p")]) == {}


def test_a_call_that_begins_before_another_has_ended_is_with_it() -> None:
    assert overlapping([Step(0, 9, "p"), Step(1, 2, "p"), Step(3, 4, "p")]) == {0: 0, 1: 0, 2: 0}


def test_under_another_parent_it_is_a_call_inside_or_elsewhere() -> None:
    assert overlapping([Step(0, 9, "p"), Step(1, 2, "q")]) == {}


def test_a_group_has_the_number_of_steps_before_it() -> None:
    groups = overlapping([Step(0, 1, "p"), Step(2, 5, "p"), Step(3, 4, "p"), Step(6, 7, "p")])
    assert groups == {1: 1, 2: 1}


def test_one_message_asks_for_all_its_calls_at_once() -> None:
    groups = overlapping([Step(0, 1, "p", "m"), Step(2, 3, "p", "m"), Step(4, 5, "p", "n")])
    assert groups == {0: 0, 1: 0}


def test_an_unfinished_call_holds_nobody() -> None:
    assert overlapping([Step(0, None, "p"), Step(1, 2, "p")]) == {}
