"""Files of traces and logs, as the export requests that a collector takes.

Known are OTLP/JSON, as one document, a list of them, or one a line (what the file exporter of the
OpenTelemetry Collector writes), and what Tempo answers for a trace, of any age. Each may be plain,
gzip or zstd, and the file exporter's own zstd, a length before each message.
"""

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, cast

import orjson
import pyarrow as pa

from toolverdict.collector import CollectorError
from toolverdict.collector.content import inflate
from toolverdict.collector.signals import Signal
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.tempo import otlp_of_tempo

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_LENGTH: Final = 4  # bytes, big-endian, before each compressed message
_MAX_DOCUMENT: Final = 256 * 2**20
_WHOLE: Final = 8 * 2**20
"""Bytes up to which a document stays one request; a larger one is sent resource by resource."""

_SIGNALS: Final = {"resourceSpans": Signal.TRACES, "resourceLogs": Signal.LOGS}
_SNAKE: Final = {"resource_spans": "resourceSpans", "resource_logs": "resourceLogs"}
_METRICS: Final = ("resourceMetrics", "resource_metrics")
_TEMPO: Final = ("batches", "trace")


class Found(NamedTuple):
    """One export request of a file, or why a piece of it is none.

    Attributes:
        where: the file and the number of the document in it, for messages.
        signal: None where the piece is none.
        body: OTLP/JSON.
        fault: what is wrong; empty for a request.
    """

    where: str
    signal: Signal | None
    body: bytes
    fault: str = ""


def requests_in(path: Path) -> Iterator[Found]:
    """The export requests of one file, in its order; metrics are passed over.

    Raises:
        InputError: when the file cannot be read, or is no JSON at all.
    """
    try:
        for number, document in enumerate(_documents(path), start=1):
            where = f"{path}, document {number}"
            if isinstance(document, _NoJson):
                yield Found(where, None, b"", document.fault)
            else:
                yield from _requests(where, document)
    except (OSError, EOFError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise InputError(f"{path}: cannot be read: {reason}") from error


class _NoJson(NamedTuple):
    fault: str


def _documents(path: Path) -> Iterator[Any]:
    """The documents of a file: all of it, or its lines, whichever are JSON."""
    with path.open("rb") as file:
        head = file.read(_LENGTH + len(_ZSTD))
        file.seek(0)
        if head[_LENGTH:] == _ZSTD:
            yield from (_parsed(text) for text in _messages(file))
            return
        stream = _inflated(file, head)
        first = _first_line(stream)
        document = _parsed(first)
        if not isinstance(document, _NoJson):
            yield document
            while line := stream.readline(_MAX_DOCUMENT + 1):
                if line.strip():
                    yield _parsed(line)
            return
        document = _parsed(first + stream.read(_MAX_DOCUMENT))
        if isinstance(document, _NoJson):
            raise InputError(
                f"{path}: neither it nor its first line is JSON: {document.fault}; give OTLP/JSON, "
                "one document or one a line, or what Tempo answers for a trace"
            )
        yield document


def _first_line(stream: BinaryIO) -> bytes:
    while line := stream.readline(_MAX_DOCUMENT + 1):
        if line.strip():
            return line
    return b""


def _inflated(file: BinaryIO, head: bytes) -> BinaryIO:
    if head.startswith(_GZIP):
        return cast(BinaryIO, gzip.open(file))
    if head.startswith(_ZSTD):
        return io.BufferedReader(
            cast(
                io.RawIOBase, pa.CompressedInputStream(pa.PythonFile(cast(io.IOBase, file)), "zstd")
            )
        )
    return file


def _messages(file: BinaryIO) -> Iterator[bytes]:
    """The messages of a file in which each has its compressed length before it."""
    while head := file.read(_LENGTH):
        length = int.from_bytes(head, "big")
        body = file.read(min(length, _MAX_DOCUMENT))
        try:
            yield inflate(body, "zstd", _MAX_DOCUMENT)
        except CollectorError:
            yield b""  # cut off where the exporter was
        if len(body) < length:
            return


def _parsed(text: bytes) -> Any:
    if len(text) > _MAX_DOCUMENT:
        return _NoJson(f"it has more than {_MAX_DOCUMENT // 2**20} MiB")
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return _NoJson(str(error))


def _requests(where: str, document: Any) -> Iterator[Found]:
    if isinstance(document, list):
        for inner in document:
            yield from _requests(where, inner if isinstance(inner, dict) else None)
        return
    if not isinstance(document, dict):
        yield Found(where, None, b"", "it is no object")
        return
    if any(key in document for key in _TEMPO):
        try:
            document = otlp_of_tempo(document)
        except ValueError as error:
            yield Found(where, None, b"", str(error))
            return
    named = {_SNAKE.get(key, key): value for key, value in document.items()}
    known = [key for key in _SIGNALS if key in named]
    if not known and not any(key in document for key in _METRICS):
        yield Found(where, None, b"", "it has neither resourceSpans nor resourceLogs nor batches")
    for key in known:
        for body in _bodies(key, named[key]):
            yield Found(where, _SIGNALS[key], body)


def _bodies(key: str, resources: Any) -> Iterator[bytes]:
    """The bodies of requests: one, unless it were large."""
    whole = orjson.dumps({key: resources})
    if len(whole) <= _WHOLE or not isinstance(resources, list):
        yield whole
        return
    for resource in resources:
        yield orjson.dumps({key: [resource]})
