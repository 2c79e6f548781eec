"""Retries: which call repeats which, and what never counts as one."""

from typing import Any

import pytest

from toolverdict.scoring.attempts import chains, repaired, similarity
from toolverdict.scoring.checks.waste import (
    REFUSED_ARGUMENTS,
    TRANSIENT,
    duplicates,
    retries,
    waste_findings,
)
from toolverdict.scoring.model import Captured
from toolverdict.scoring.testing import call, placed

BAD = {"order": "A-77", "amount": "forty-two"}
GOOD = {"order": "A-77", "amount": 42.5}


def test_a_correction_after_refused_arguments_is_a_wasted_retry() -> None:
    calls = placed(call("refund", BAD, outcome="invalid_arguments"), call("refund", GOOD))
    assert [(place.attempt, place.retry_of) for place in calls] == [(1, None), (2, 0)]
    assert [(a.index, b.index) for a, b in retries(calls, REFUSED_ARGUMENTS)] == [(0, 1)]
    assert repaired(calls) == {0}
    (finding,) = waste_findings(calls)
    assert finding.span_id == calls[1].call.span_id
    assert calls[0].call.span_id in finding.message


def test_reads_between_attempts_do_not_hide_the_retry() -> None:
    calls = placed(
        call("refund", BAD, outcome="invalid_arguments"), call("think", {}), call("refund", GOOD)
    )
    assert calls[2].retry_of == 0


def test_the_same_call_after_a_time_out_is_a_transient_retry_and_no_waste() -> None:
    calls = placed(call("refund", GOOD, outcome="timeout"), call("refund", GOOD))
    assert retries(calls, REFUSED_ARGUMENTS) == []
    assert len(retries(calls, TRANSIENT)) == 1


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


def test_an_idempotency_key_decides_before_arguments_do() -> None:
    calls = placed(
        call("pay", GOOD, outcome="timeout", idempotency_key_hash="k1"),
        call("pay", GOOD, idempotency_key_hash="k2"),
    )
    assert calls[1].retry_of is None


def test_fifty_identical_successes_are_49_duplicates() -> None:
    assert len(duplicates(placed(*[call("get", {"id": 1}, result={"a": 1})] * 50))) == 49


def test_a_changing_result_is_polling_and_no_duplicate() -> None:
    """B169: repeats are judged on inputs and result."""
    calls = placed(*(call("status", {"job": 1}, result={"done": n}) for n in range(10)))
    assert duplicates(calls) == []


def test_similarity_is_bounded_work_on_hostile_texts() -> None:
    huge = {"a": "x" * 1_000_000}
    assert 0.0 <= similarity(huge, {"a": "y" * 1_000_000}) <= 1.0
    assert similarity({}, {}) == 1.0
