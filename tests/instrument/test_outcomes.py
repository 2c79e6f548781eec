import asyncio
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest

from toolverdict.instrument import Outcome, errors
from toolverdict.instrument.outcomes import error_type, outcome_of_exception, outcome_of_result


class Card(pydantic.BaseModel):
    number: int


def validation_error() -> Exception:
    try:
        Card.model_validate({"number": "4111-secret"})
    except pydantic.ValidationError as error:
        return error
    raise AssertionError


def with_status(**attributes: object) -> Exception:
    error = Exception("GET failed")
    vars(error).update(attributes)
    return error


EXCEPTIONS: list[tuple[BaseException, str]] = [
    (errors.InvalidArguments(), "invalid_arguments"),
    (errors.PermissionDenied(), "permission_denied"),
    (errors.Refused(), "refused"),
    (errors.RateLimited(), "rate_limited"),
    (errors.UpstreamError(), "upstream_error"),
    (errors.ToolTimeout(), "timeout"),
    (errors.ToolDenied("t", "rule"), "denied"),
    (errors.ApprovalRequired("t", "a"), "pending_approval"),
    (TimeoutError(), "timeout"),
    (TimeoutError(), "timeout"),
    (PermissionError(), "permission_denied"),
    (ConnectionRefusedError(), "upstream_error"),
    (validation_error(), "invalid_arguments"),
    (asyncio.CancelledError(), "cancelled"),
    (GeneratorExit(), "cancelled"),
    (KeyboardInterrupt(), "cancelled"),
    (ValueError(), "error"),
    (TypeError(), "error"),
    (with_status(status_code=400), "invalid_arguments"),
    (with_status(status_code=401), "permission_denied"),
    (with_status(status=403), "permission_denied"),
    (with_status(status=404), "error"),
    (with_status(status=408), "timeout"),
    (with_status(status=422), "invalid_arguments"),
    (with_status(response=SimpleNamespace(status_code=429)), "rate_limited"),
    (with_status(response=SimpleNamespace(status_code=500)), "upstream_error"),
    (with_status(status_code=503), "upstream_error"),
    (with_status(status_code=504), "timeout"),
    (with_status(status_code="429"), "error"),
    (with_status(status=True), "error"),
]


@pytest.mark.parametrize(
    ("error", "outcome"), EXCEPTIONS, ids=[f"{type(e).__name__}-{o}" for e, o in EXCEPTIONS]
)
def test_exceptions(error: BaseException, outcome: str) -> None:
    assert outcome_of_exception(error) == outcome


def test_a_name_alone_says_nothing() -> None:
    """B37: a user's class of a known name is not the known class."""
    kind = type("ValidationError", (Exception,), {"__module__": "pydantic_core"})
    assert outcome_of_exception(kind()) is Outcome.ERROR


def test_an_exception_that_fails_when_looked_at_is_an_error() -> None:
    class Nasty(Exception):
        @property
        def response(self) -> object:
            raise RuntimeError("no response")

    assert outcome_of_exception(Nasty()) is Outcome.ERROR


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        (None, "empty"),
        ("", "empty"),
        ([], "empty"),
        ({}, "empty"),
        ((), "empty"),
        (0, "ok"),
        (False, "ok"),
        ("error: not found", "ok"),
        ({"error": "not found"}, "error"),
        ({"error": None}, "ok"),
        ({"error": ""}, "ok"),
        ({"isError": True}, "error"),
        ({"isError": "true"}, "ok"),
        (SimpleNamespace(isError=True), "error"),
        (SimpleNamespace(isError=False), "ok"),
        ({"is_error": True}, "error"),
        ({"is_error": 1}, "ok"),
        (SimpleNamespace(is_error=True), "error"),
        (SimpleNamespace(is_error=False), "ok"),
        (["error"], "ok"),
    ],
    ids=repr,
)
def test_results(result: Any, outcome: str) -> None:
    """B38: a failure reported in band is a failure; text is never searched for one."""
    assert outcome_of_result(result) == outcome


def test_nothing_is_ok_from_a_tool_that_returns_nothing() -> None:
    assert outcome_of_result(None, returns_none=True) is Outcome.OK


def test_every_outcome_is_of_one_kind() -> None:
    succeeded = {outcome for outcome in Outcome if outcome.succeeded}
    failed = {outcome for outcome in Outcome if outcome.failed}
    assert succeeded == {Outcome.OK, Outcome.EMPTY}
    assert set(Outcome) - succeeded - failed == {
        Outcome.CANCELLED,
        Outcome.PENDING_APPROVAL,
        Outcome.UNKNOWN,
    }
    assert not succeeded & failed


def test_error_type_is_qualified() -> None:
    assert error_type(ValueError()) == "ValueError"
    assert error_type(errors.Refused()) == "toolverdict.instrument.errors.Refused"
    assert error_type(asyncio.CancelledError()) == "asyncio.exceptions.CancelledError"
