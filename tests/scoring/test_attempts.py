"""Retries: which call repeats which, and what never counts as one."""

from typing import Any

import pytest

from toolverdict.scoring.attempts import chains, repaired, similarity
from toolverdict.scoring.model import Captured
from toolverdict.scoring.testing import call, placed

BAD = {"order": "A-77", "amount": "forty-two"}
GOOD = {"order": "A-77", "amount": 42.5}


def test_a_correction_after_refused_arguments_is_a_retry() -> None:
    calls = placed(call("refund", BAD, outcome="invalid_arguments"), call("refund", GOOD))
    assert [(place.attempt, place.retry_of) for place in calls] == [(1, None), (2, 0)]
    assert repaired(calls) == {0}


@pytest.mark.parametrize("executed", [True, None], ids=["its body ran", "nobody knows"])
def test_a_correction_after_an_error_is_a_retry(executed: bool | None) -> None:
    """The body ran and said no: what came next with other arguments is the same intent."""
    first = {"order": "A-77", "card": "gift_1", "amount": 42}
    calls = placed(
        call("refund", first, outcome="error", executed=executed),
        call("refund", {**first, "card": "gift_2"}),
    )
    assert calls[1].retry_of == 0


@pytest.mark.parametrize("outcome", ["timeout", "rate_limited", "upstream_error", "refused"])
def test_other_arguments_after_other_failures_are_another_call(outcome: str) -> None:
    calls = placed(call("refund", GOOD, outcome=outcome), call("refund", {**GOOD, "amount": 1.0}))
    assert calls[1].retry_of is None


def test_the_method_of_similarity_is_the_mean_over_all_keys() -> None:
    assert similarity({"a": 1, "b": 2}, {"a": 1, "b": 2}) == 1.0
    assert similarity({"a": 1, "b": 2}, {"a": 1}) == 0.5
    assert similarity({"a": "xx"}, {"a": "yy"}) == 0.0
    assert similarity({"a": "xy", "b": 1}, {"a": "xz", "b": 1}) == 0.75
    assert similarity({"a": True}, {"a": 1}) < 1.0
    assert similarity("abcd", "abcx") == 0.75


@pytest.mark.parametrize(
    ("keys", "same"), [((1, 1), True), ((1, 2), True), ((2, 3), False)], ids=str
)
def test_a_correction_has_at_least_half_in_common(keys: tuple[int, int], same: bool) -> None:
    """One key of one, of two and two of three are new."""
    changed, all_keys = keys[0], keys[1] + (keys == (1, 1))
    first = {f"k{i}": i for i in range(all_keys)}
    second = {f"k{i}": ("#" if i < changed else i) for i in range(all_keys)}
    calls = placed(call("put", first, outcome="invalid_arguments"), call("put", second))
    assert (calls[1].retry_of == 0) is same


def test_reads_between_attempts_do_not_hide_the_retry() -> None:
    calls = placed(
        call("refund", BAD, outcome="invalid_arguments"), call("think", {}), call("refund", GOOD)
    )
    assert calls[2].retry_of == 0


def test_the_same_call_after_a_time_out_is_a_retry() -> None:
    calls = placed(call("refund", GOOD, outcome="timeout"), call("refund", GOOD))
    assert calls[1].retry_of == 0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("get", {"id": "A-77"}, "timeout"), ("get", {"id": "A-78"}, "ok")),
        (("get", {"id": "A-77"}, "ok"), ("get", {"id": "A-77"}, "ok")),
        (("get", {"id": "A-77"}, "invalid_arguments"), ("put", {"id": "A-77"}, "ok")),
        (("pay", {"to": "bob", "sum": 1}, "invalid_arguments"), ("pay", {"x": 7, "y": 8}, "ok")),
    ],
    ids=["another object", "after success", "another tool", "nothing in common"],
)
def test_not_a_retry(first: tuple[str, Any, str], second: tuple[str, Any, str]) -> None:
    calls = placed(*(call(tool, args, outcome=outcome) for tool, args, outcome in (first, second)))
    assert calls[1].retry_of is None


def test_calls_at_the_same_time_are_no_retries_of_each_other() -> None:
    calls = placed(
        call("get", {"id": 1}, at=1, lasts=2, outcome="timeout"), call("get", {"id": 1}, at=2)
    )
    assert calls[1].retry_of is None


def test_each_failure_is_retried_once() -> None:
    calls = placed(*[call("get", {"id": 1}, outcome="timeout")] * 3, call("get", {"id": 1}))
    assert [place.retry_of for place in calls] == [None, 0, 1, 2]
    assert [place.attempt for place in calls] == [1, 2, 3, 4]
    assert [[p.index for p in chain] for chain in chains(calls)] == [[0, 1, 2, 3]]


def test_with_hashes_only_equal_hashes_decide() -> None:
    hashed: dict[str, Any] = {"arguments_state": Captured.HASHED}
    same = placed(
        call("get", outcome="timeout", args_hash="h1", **hashed),
        call("get", args_hash="h1", **hashed),
        call("get", args_hash="h2", **hashed),
    )
    assert [place.retry_of for place in same] == [None, 0, None]


def test_with_hashes_only_the_next_call_after_refused_arguments_is_its_correction() -> None:
    hashed: dict[str, Any] = {"arguments_state": Captured.HASHED}
    calls = placed(
        call("get", outcome="invalid_arguments", args_hash="h1", **hashed),
        call("get", args_hash="h2", **hashed),
        call("get", args_hash="h3", **hashed),
    )
    assert [place.retry_of for place in calls] == [None, 0, None]


def test_with_nothing_captured_only_a_failure_about_arguments_has_a_correction() -> None:
    about = placed(call("get", outcome="invalid_arguments"), call("get"))
    assert about[1].retry_of == 0
    transient = placed(call("get", outcome="timeout"), call("get"))
    assert transient[1].retry_of is None


def test_the_same_idempotency_key_is_the_same_intent_whatever_the_arguments() -> None:
    calls = placed(
        call("pay", GOOD, outcome="timeout", idempotency_key_hash="k1"),
        call("pay", {"other": 1}, idempotency_key_hash="k1"),
    )
    assert calls[1].retry_of == 0


def test_a_retry_reaches_back_over_eight_failures_of_a_tool() -> None:
    failures = [call("get", {"id": i}, outcome="timeout") for i in range(9)]
    calls = placed(*failures, call("get", {"id": 1}), call("get", {"id": 0}))
    assert [place.retry_of for place in calls[9:]] == [1, None]


def test_a_failed_call_is_repaired_by_a_success_alone() -> None:
    failed = [call("get", {"id": 1}, outcome="timeout")] * 2
    assert repaired(placed(*failed)) == frozenset()
    assert repaired(placed(*failed, call("get", {"id": 1}))) == {0, 1}


def test_an_idempotency_key_decides_before_arguments_do() -> None:
    calls = placed(
        call("pay", GOOD, outcome="timeout", idempotency_key_hash="k1"),
        call("pay", GOOD, idempotency_key_hash="k2"),
    )
    assert calls[1].retry_of is None


def test_similarity_is_bounded_work_on_hostile_texts() -> None:
    huge = {"a": "x" * 1_000_000}
    assert 0.0 <= similarity(huge, {"a": "y" * 1_000_000}) <= 1.0
    assert similarity({}, {}) == 1.0
