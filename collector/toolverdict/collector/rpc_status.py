"""The ``google.rpc`` messages of an error answer, as OTLP asks for them."""

from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from toolverdict.collector.errors import CollectorError, ErrorStatus


def message_of(error: Exception) -> str:
    """What a client is told; of a fault of our own it learns nothing but that."""
    return str(error) if isinstance(error, CollectorError) else "internal error of the collector"


def code_of(status: ErrorStatus) -> int:
    """The number of the gRPC status."""
    return int(status.grpc.value[0])


def status_bytes(status: ErrorStatus, message: str) -> bytes:
    """google.rpc.Status in protobuf, with RetryInfo when a retry makes sense."""
    details: list[Any] = []
    if status.retry_after_s is not None:
        detail = Any()
        detail.Pack(_retry_info(status.retry_after_s))
        details.append(detail)
    encoded: bytes = Status(
        code=code_of(status), message=message, details=details
    ).SerializeToString()
    return encoded


def retry_info_bytes(retry_after_s: int) -> bytes:
    """google.rpc.RetryInfo in protobuf."""
    encoded: bytes = _retry_info(retry_after_s).SerializeToString()
    return encoded


def _retry_info(retry_after_s: int) -> RetryInfo:
    return RetryInfo(retry_delay=Duration(seconds=retry_after_s))
