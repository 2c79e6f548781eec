"""The two OTLP signals the collector takes, and what differs between them."""

from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsPartialSuccess,
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

Request: TypeAlias = ExportTraceServiceRequest | ExportLogsServiceRequest
Response: TypeAlias = ExportTraceServiceResponse | ExportLogsServiceResponse


class Signal(IntEnum):
    """One OTLP signal; the number is what the frames of the write-ahead log carry."""

    TRACES = 1
    LOGS = 2


class Wire(NamedTuple):
    """Names and messages of one signal (opentelemetry-proto, collector/*/v1)."""

    request: type[ExportTraceServiceRequest] | type[ExportLogsServiceRequest]
    respond: Callable[[int, str], Response]
    """(rejected count, reason) to the response; a reason with count 0 is a warning."""
    rejected_field: str
    """The count of the partial success, in snake_case."""
    rejected_json_name: str
    http_path: str
    grpc_service: str
    noun: str


def _traces_response(rejected: int, reason: str) -> Response:
    if not reason:
        return ExportTraceServiceResponse()
    return ExportTraceServiceResponse(
        partial_success=ExportTracePartialSuccess(rejected_spans=rejected, error_message=reason)
    )


def _logs_response(rejected: int, reason: str) -> Response:
    if not reason:
        return ExportLogsServiceResponse()
    return ExportLogsServiceResponse(
        partial_success=ExportLogsPartialSuccess(
            rejected_log_records=rejected, error_message=reason
        )
    )


WIRE: Final[dict[Signal, Wire]] = {
    Signal.TRACES: Wire(
        request=ExportTraceServiceRequest,
        respond=_traces_response,
        rejected_field="rejected_spans",
        rejected_json_name="rejectedSpans",
        http_path="/v1/traces",
        grpc_service="opentelemetry.proto.collector.trace.v1.TraceService",
        noun="spans",
    ),
    Signal.LOGS: Wire(
        request=ExportLogsServiceRequest,
        respond=_logs_response,
        rejected_field="rejected_log_records",
        rejected_json_name="rejectedLogRecords",
        http_path="/v1/logs",
        grpc_service="opentelemetry.proto.collector.logs.v1.LogsService",
        noun="log records",
    ),
}
