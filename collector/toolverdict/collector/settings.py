"""What an operator can set; every field names its unit."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from toolverdict.collector.limits import MIB, Limits

Port = Annotated[int, Field(ge=0, le=65535)]
PositiveInt = Annotated[int, Field(gt=0)]
PositiveFloat = Annotated[float, Field(gt=0, allow_inf_nan=False)]

_DEFAULTS = Limits()


class Fsync(StrEnum):
    """When a request that was written is brought to the disk."""

    ALWAYS = "always"
    """Before it is acknowledged: nothing acknowledged is lost."""
    INTERVAL = "interval"
    """Within ``fsync_interval_s``: the end of the power loses at most so much; a crash of the
    process alone loses nothing."""
    OFF = "off"
    """When the system likes: for tests, and for data that can be had again."""


class CollectorSettings(BaseModel):
    """Settings of one collector."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data_dir: Path
    """Folder of the lake and of the write-ahead log; created when missing."""

    lake_url: str | None = None
    """Where the lake is instead, in an object store; the log is in the folder all the same."""

    host: str = "127.0.0.1"
    """Address both servers listen on."""

    grpc_port: Port = 4317
    """TCP port for OTLP/gRPC; 0 takes a free one."""

    http_port: Port = 4318
    """TCP port for OTLP/HTTP; 0 takes a free one."""

    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes that share the two ports; each has a log of its own."""

    fsync: Fsync = Fsync.ALWAYS
    """When the log is brought to the disk."""

    fsync_interval_s: PositiveFloat = 1.0
    """Seconds between two syncs of the log with ``Fsync.INTERVAL``."""

    tls_certificate: Path | None = None
    """PEM file with the certificate of both servers and its chain; None serves without TLS."""

    tls_key: Path | None = None
    """PEM file with the key of the certificate."""

    tls_client_ca: Path | None = None
    """PEM file with who signs the certificates of clients; None asks clients for none."""

    tokens_file: Path | None = None
    """File with the bearer tokens that may send; None lets everybody."""

    redaction_file: Path | None = None
    """File with the rules of what is never stored; None stores everything."""

    flush_interval_s: PositiveFloat = 5.0
    """Seconds after which a segment with data is sealed and becomes Parquet."""

    compact_every_s: PositiveFloat | None = None
    """Seconds between two compactions of the lake by the collector; None leaves it to others."""

    retain_age_s: PositiveFloat | None = None
    """Hours of data that ended so many seconds ago are deleted when the lake is compacted."""

    retain_bytes: PositiveInt | None = None
    """The oldest hours are deleted when the lake is compacted, until it has no more bytes; of each
    tenant's lake by itself."""

    sampling_file: Path | None = None
    """File with the sampling policy by which traces stay when the lake is compacted; None keeps all."""

    max_body_bytes: PositiveInt = 16 * MIB
    """Largest request body, after inflation, over HTTP and gRPC alike."""

    max_request_records: PositiveInt = _DEFAULTS.records
    """Spans or log records in one request; a valid span has 30 bytes or more."""

    max_request_messages: PositiveInt = _DEFAULTS.messages
    """Protobuf messages, or JSON objects and arrays, in one request; an attribute is two."""

    max_attributes: PositiveInt = _DEFAULTS.attributes
    """Attributes of one span, event, link, log record, resource or scope."""

    max_events: PositiveInt = _DEFAULTS.events
    """Events of one span."""

    max_links: PositiveInt = _DEFAULTS.links
    """Links of one span."""

    max_value_bytes: PositiveInt = _DEFAULTS.value_bytes
    """Bytes of one text or bytes value of a record."""

    max_record_bytes: PositiveInt = _DEFAULTS.record_bytes
    """Weight of one record: the most it can take as columns; see ``weights.py``."""

    max_segment_bytes: PositiveInt = 32 * MIB
    """Size at which a segment is sealed before its time."""

    max_inflight_bytes: PositiveInt = 128 * MIB
    """Bytes of requests that may be between their first byte and their acknowledgement, in each
    process; a client gets half of it at most."""

    admission_timeout_s: PositiveFloat = 5.0
    """Seconds a request waits for room among those in flight before it is refused; exporters give
    up after ten."""

    max_wal_bytes: PositiveInt = 4096 * MIB
    """Bytes of sealed segments that may wait for Parquet before requests are refused."""

    body_timeout_s: PositiveFloat = 30.0
    """Seconds a client has to send the body of a request over HTTP."""

    head_timeout_s: PositiveFloat = 10.0
    """Seconds a new HTTP connection has to send the head of its first request."""

    max_connections: PositiveInt = 4096
    """Connections at a time, over HTTP and over gRPC; fewer where the system allows few files."""

    drain_timeout_s: PositiveFloat = 15.0
    """Seconds that requests in flight get to finish once the collector was told to stop."""

    @property
    def limits(self) -> Limits:
        """What a request and its records may hold."""
        return _DEFAULTS._replace(
            records=self.max_request_records,
            messages=self.max_request_messages,
            attributes=self.max_attributes,
            events=self.max_events,
            links=self.max_links,
            value_bytes=self.max_value_bytes,
            record_bytes=self.max_record_bytes,
        )

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("a TLS certificate and its key are given together")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise ValueError("a CA of clients needs a TLS certificate of the server")
        return self

    @model_validator(mode="after")
    def _check_upkeep(self) -> Self:
        keeps_all = self.retain_age_s is None and self.retain_bytes is None
        if self.compact_every_s is None and not keeps_all:
            raise ValueError("retention is part of the upkeep; say how often with --compact-every")
        if self.compact_every_s is None and self.sampling_file is not None:
            raise ValueError("sampling is part of the upkeep; say how often with --compact-every")
        return self
