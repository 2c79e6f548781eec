"""The error tree and its one mapping to statuses."""

import pickle
from http import HTTPStatus

import grpc
import pytest

from toolverdict.collector import errors
from toolverdict.collector.errors import CollectorError, status_of


def _subclasses(cls: type[CollectorError]) -> list[type[CollectorError]]:
    return [cls, *(sub for child in cls.__subclasses__() for sub in _subclasses(child))]


@pytest.mark.parametrize("cls", _subclasses(CollectorError), ids=lambda cls: cls.__name__)
def test_every_error_survives_pickling(cls: type[CollectorError]) -> None:
    error = pickle.loads(pickle.dumps(cls("what, where, what to do")))
    assert type(error) is cls
    assert error.args == ("what, where, what to do",)


@pytest.mark.parametrize(
    ("error", "http", "grpc_status", "retry"),
    [
        (errors.DecodeError("x"), 400, grpc.StatusCode.INVALID_ARGUMENT, False),
        (errors.PermanentError("x"), 400, grpc.StatusCode.INVALID_ARGUMENT, False),
        (errors.TooLargeError("x"), 413, grpc.StatusCode.RESOURCE_EXHAUSTED, False),
        (errors.UnsupportedMediaError("x"), 415, grpc.StatusCode.INVALID_ARGUMENT, False),
        (errors.StorageError("x"), 503, grpc.StatusCode.UNAVAILABLE, True),
        (errors.OverloadedError("x"), 503, grpc.StatusCode.UNAVAILABLE, True),
        (errors.TransientError("x"), 503, grpc.StatusCode.UNAVAILABLE, True),
        (ZeroDivisionError("a fault of ours"), 503, grpc.StatusCode.UNAVAILABLE, True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_status_of_every_error(
    error: Exception, http: int, grpc_status: grpc.StatusCode, retry: bool
) -> None:
    """B74: overload is never answered with a status that clients take for permanent."""
    status = status_of(error)
    assert (status.http, status.grpc) == (HTTPStatus(http), grpc_status)
    assert (status.retry_after_s is not None) is retry


def test_user_errors_end_with_exit_code_2() -> None:
    assert errors.ConfigError.exit_code == errors.LakeError.exit_code == 2
    assert errors.StorageError.exit_code == 1
