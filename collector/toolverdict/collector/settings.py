"""What an operator can set; every field names its unit."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MIB = 1024 * 1024

Port = Annotated[int, Field(ge=0, le=65535)]
PositiveInt = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class CollectorSettings(BaseModel):
    """Settings of one collector process."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data_dir: Path
    """Folder of the lake and of the write-ahead log; created when missing."""

    host: str = "127.0.0.1"
    """Address both servers listen on."""

    grpc_port: Port = 4317
    """TCP port for OTLP/gRPC; 0 takes a free one."""

    http_port: Port = 4318
    """TCP port for OTLP/HTTP; 0 takes a free one."""

    flush_interval_s: PositiveFloat = 5.0
    """Seconds after which a segment with data is sealed and becomes Parquet."""

    max_body_bytes: PositiveInt = 16 * MIB
    """Largest request body, after inflation, over HTTP and gRPC alike."""

    max_request_records: PositiveInt = 200_000
    """Spans or log records in one request; a valid span has 30 bytes or more."""

    max_request_messages: PositiveInt = 2_000_000
    """Protobuf messages, or JSON objects and arrays, in one request; an attribute is two."""

    max_segment_bytes: PositiveInt = 32 * MIB
    """Size at which a segment is sealed before its time."""

    max_inflight_bytes: PositiveInt = 128 * MIB
    """Bytes of requests that may be between their first byte and their acknowledgement."""

    max_wal_bytes: PositiveInt = 4096 * MIB
    """Bytes of sealed segments that may wait for Parquet before requests are refused."""

    body_timeout_s: PositiveFloat = 30.0
    """Seconds a client has to send the body of a request over HTTP."""

    head_timeout_s: PositiveFloat = 10.0
    """Seconds a new HTTP connection has to send the head of its first request."""

    max_http_connections: PositiveInt = 4096
    """HTTP connections at a time; fewer where the system allows few open files."""

    drain_timeout_s: PositiveFloat = 15.0
    """Seconds that requests in flight get to finish once the collector was told to stop."""
