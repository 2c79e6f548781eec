"""Mutated requests to both decoders, which must take, refuse and yield the same.

    python tests/fuzz/decoders.py --seconds 60              with the native decoder as installed
    python tests/fuzz/decoders.py --seconds 60 --sanitize   compiled anew with ASan and UBSan

Mutations are of two kinds: of the fields of a message somewhere in the tree, with all lengths put
right again, so that the change is reached; and of bytes, so that lengths are wrong. Ends with the
first difference, and leaves the body that made it in the file it names.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from google.protobuf.descriptor import Descriptor
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    EntityRef,
    InstrumentationScope,
    KeyValue,
    KeyValueList,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

if TYPE_CHECKING:
    from toolverdict.collector.decoders import Decoder
    from toolverdict.collector.limits import Limits
    from toolverdict.collector.signals import Signal

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
SMALLEST_TABLE = 1024
"""Arrow has one offset more than rows in each column of text."""
RECORD_MESSAGES = 5  # the limits behind it are of bytes
EXTENSION = "toolverdict.collector._decode"
NUMBERS = [0, 1, 2, 127, 128, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]
DOUBLES = [0.0, -0.0, 1.5, 1e15, 1e16, 123456789012345678.0, 1e-4, 1e-5, 1.5e-7, 5e-324, 1.8e308]
TEXTS = ["", "a", "$bytes", "tool.name", 'quo"te', "back\\slash", "\x00\x1f\x7f\n", "é€\U0001f600"]
TEXTS += ["k" * 300, "gen_ai.tool.name", "service.name", "x" * 40 + '"' + "y" * 9, "input.value"]
SCRAPS = [
    b"\x80", b"\xff" * 9 + b"\x01", b"\x0b\x0c", b"\x7b\x7c", b"\x7b\x00\x00\x7c", b"\x0a\x00",
    b"\x12\x03\xed\xa0\x80", b"\x0a\x02\xc0\x80", b"\x80\x80\x80\x80\x10", b"\x0a\x80\x80\x80\x80\x00",
    b"\x7e", b"\x00\x00",
    b"\x0a\x04\xf4\x90\x80\x80", b"\x0a\x03\xe0\x9f\xbf", b"\x7b" * 95 + b"\x7c" * 95,
]  # fmt: skip


def main() -> None:
    """Fuzz until the time or the count is up; exit code 1 on a difference."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--count", type=int, default=sys.maxsize, help="bodies at most")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    parser.add_argument("--sanitize", action="store_true")
    parser.add_argument("--extension", type=Path, help="file of the compiled native decoder")
    options = parser.parse_args()
    if options.sanitize:
        sys.exit(_run_sanitized(options))
    if options.extension:
        _use_extension(options.extension)
    sys.exit(_fuzz(Random(options.seed), options))


class Comparison:
    """Asks both decoders about bodies, each of which stands between two sound ones."""

    def __init__(self, sound: "dict[Signal, bytes]") -> None:
        """Import the decoders, not before it is known which native one."""
        from toolverdict.collector.decode import PythonDecoder
        from toolverdict.collector.native import NativeDecoder

        self._sound = sound
        self._both: list[Decoder] = [PythonDecoder(), NativeDecoder()]

    def of(self, signal: "Signal", body: bytes, limits: "Limits") -> "tuple[Outcome, Outcome]":
        """What both say; they should be equal."""
        python, native = (self._outcome(one, signal, body, limits) for one in self._both)
        return python, native

    def _outcome(
        self, decoder: "Decoder", signal: "Signal", body: bytes, limits: "Limits"
    ) -> "Outcome":
        from toolverdict.collector.errors import DecodeError
        from toolverdict.collector.otlp_wire import without

        verdict = None
        with suppress(DecodeError):
            accepted, rejected, warnings, over = decoder.judge(signal, body, limits)
            verdict = accepted, list(rejected.items()), list(warnings.items()), over
            check_what_is_stored(decoder, signal, without(body, over), accepted)
        builder = decoder.rows(signal)
        builder.feed(self._sound[signal], 1)
        before = builder.num_rows
        is_taken = False
        with suppress(DecodeError):
            builder.feed(body, 2)
            is_taken = True
        assert is_taken or builder.num_rows == before
        builder.feed(self._sound[signal], 3)
        fills = [builder.full_part(rows, 400 * rows * rows) for rows in range(1, 12)]
        parts = builder.take_sorted(builder.num_rows // 2, 2)
        table = builder.take()
        for made in (table, *(part for _, part in parts)):
            made.validate(full=True)
        return Outcome(verdict, is_taken, fills, table, parts)


class Outcome(NamedTuple):
    """All that a decoder says of a body."""

    verdict: object
    """None when it refuses the request."""
    is_taken: bool
    """Whether it decodes; a request that does not adds nothing."""
    fills: list[int]
    table: object
    parts: object


def check_what_is_stored(decoder: "Decoder", signal: "Signal", body: bytes, accepted: int) -> None:
    """What was accepted is stored, nothing else, and is no larger than its weight."""
    builder = decoder.rows(signal)
    builder.feed(body, 1)
    assert builder.num_rows == accepted
    taken = builder.take()
    builder.feed(body, 1)
    columns = taken.nbytes - SMALLEST_TABLE
    assert not taken.num_rows or builder.full_part(sys.maxsize, max(1, columns))


def _fuzz(rng: Random, options: argparse.Namespace) -> int:
    from toolverdict.collector.limits import Limits
    from toolverdict.collector.signals import Signal

    def some_limits() -> Limits:
        given = [10**6] * len(Limits._fields)
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(given))
            given[at] = rng.randrange(1, 2000 if at > RECORD_MESSAGES else 99 if at == 1 else 9)
        return Limits(*given)

    corpus: dict[Signal, list[bytes]] = {signal: [] for signal in Signal}
    descriptors = {
        Signal.TRACES: ExportTraceServiceRequest.DESCRIPTOR,
        Signal.LOGS: ExportLogsServiceRequest.DESCRIPTOR,
    }
    for _ in range(40):
        corpus[Signal.TRACES].append(traces(rng).SerializeToString())
        corpus[Signal.LOGS].append(logs(rng).SerializeToString())
    sound = {signal: sorted(bodies, key=len)[len(bodies) // 2] for signal, bodies in corpus.items()}
    comparison = Comparison(sound)
    counts: Counter[str] = Counter()
    end = time.monotonic() + options.seconds
    while counts["bodies"] < options.count and time.monotonic() < end:
        signal = rng.choice(list(Signal))
        body = rng.choice(corpus[signal])
        for _ in range(rng.choice([1, 1, 2, 4])):
            if rng.random() < 0.75:
                body = mutate_fields(rng, descriptors[signal], body)
            else:
                body = mutate_bytes(rng, body)
        limits = some_limits()
        expected, found = comparison.of(signal, body, limits)
        if expected != found:
            file = Path(tempfile.gettempdir(), "decoders-differ.bin")
            file.write_bytes(body)
            sys.stdout.write(f"{signal.name}, {limits}, {file}:\n{expected}\n{found}\n")
            return 1
        counts["bodies"] += 1
        counts["accepted"] += expected.is_taken
        is_refused = expected.verdict is None and expected.is_taken
        counts["over a limit"] += is_refused or "must not" in str(expected.verdict)
        if expected.is_taken and len(body) < 4000:
            corpus[signal][rng.randrange(len(corpus[signal]))] = body
    refused = counts["bodies"] - counts["accepted"]
    sys.stdout.write(
        f"{counts['bodies']} bodies, {counts['accepted']} decoded, {refused} malformed, "
        f"{counts['over a limit']} over a limit; no difference (seed {options.seed})\n"
    )
    return 0


def _run_sanitized(options: argparse.Namespace) -> int:
    """Compile with sanitizers and run this script with the result."""
    with tempfile.TemporaryDirectory() as folder:
        extension = Path(folder, "_decode.so")
        compiler = os.environ.get("CXX", "g++")
        subprocess.run(
            [
                *(compiler, "-std=c++17", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-shared"),
                *("-fPIC", "-fno-omit-frame-pointer", "-fsanitize=address,undefined"),
                "-fno-sanitize-recover=all",
                f"-I{sysconfig.get_path('include')}",
                *(str(ROOT / "collector/native/module.cpp"), "-o", str(extension)),
            ],
            check=True,
        )
        libraries = [
            subprocess.check_output([compiler, f"-print-file-name={name}"], text=True).strip()
            for name in ("libasan.so", "libubsan.so", "libstdc++.so")
        ]
        environment = {
            **os.environ,
            # The sanitizer first, and every body in a block of its own, with red zones around it.
            "LD_PRELOAD": ":".join(libraries),
            "PYTHONMALLOC": "malloc",
            "ASAN_OPTIONS": "detect_leaks=0",
        }
        arguments = ["--seconds", options.seconds, "--count", options.count, "--seed", options.seed]
        arguments += ["--extension", extension]
        command = [sys.executable, __file__, *map(str, arguments)]
        return subprocess.run(command, env=environment).returncode


def _use_extension(file: Path) -> None:
    spec = importlib.util.spec_from_file_location(EXTENSION, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[EXTENSION] = module
    import toolverdict.collector

    toolverdict.collector._decode = module


# --- requests -------------------------------------------------------------------------------------


def traces(rng: Random) -> ExportTraceServiceRequest:
    """A request with some spans, most of them sound."""
    return ExportTraceServiceRequest(
        resource_spans=[
            ResourceSpans(
                resource=resource(rng),
                schema_url=rng.choice(TEXTS),
                scope_spans=[
                    ScopeSpans(scope=scope(rng), spans=some(rng, span), schema_url="s")
                    for _ in range(rng.randrange(3))
                ],
            )
            for _ in range(rng.randrange(1, 3))
        ]
    )


def logs(rng: Random) -> ExportLogsServiceRequest:
    """A request with some log records."""
    return ExportLogsServiceRequest(
        resource_logs=[
            ResourceLogs(
                resource=resource(rng),
                scope_logs=[ScopeLogs(scope=scope(rng), log_records=some(rng, log_record))],
            )
            for _ in range(rng.randrange(1, 3))
        ]
    )


def some(rng: Random, make: Callable[[Random], T]) -> list[T]:
    return [make(rng) for _ in range(rng.randrange(4))]


def span(rng: Random) -> Span:
    return Span(
        trace_id=identifier(rng, 16),
        span_id=identifier(rng, 8),
        parent_span_id=rng.choice([b"", bytes(8), identifier(rng, 8)]),
        trace_state=rng.choice(TEXTS),
        name=rng.choice(TEXTS),
        kind=rng.choice(Span.SpanKind.values()),
        start_time_unix_nano=rng.choice(NUMBERS[:-2]),
        end_time_unix_nano=rng.choice(NUMBERS[:-2]),
        attributes=some(rng, pair),
        dropped_attributes_count=rng.choice(NUMBERS[:8]),
        events=[
            Span.Event(time_unix_nano=5, name=rng.choice(TEXTS), attributes=some(rng, pair))
            for _ in range(rng.randrange(3))
        ],
        links=[
            Span.Link(
                trace_id=rng.choice([b"", b"bad", *[identifier(rng, 16)] * 6]),
                span_id=rng.choice([b"", b"bad", *[identifier(rng, 8)] * 6]),
                attributes=some(rng, pair),
            )
            for _ in range(rng.randrange(3))
        ],
        status=rng.choice([None, Status(message=rng.choice(TEXTS), code=Status.STATUS_CODE_ERROR)]),
        flags=rng.choice(NUMBERS[:8]),
    )


def log_record(rng: Random) -> LogRecord:
    return LogRecord(
        trace_id=rng.choice([b"", identifier(rng, 16), b"short"]),
        span_id=rng.choice([b"", identifier(rng, 8)]),
        time_unix_nano=rng.choice(NUMBERS[:-2]),
        severity_text=rng.choice(TEXTS),
        body=rng.choice([None, value(rng)]),
        attributes=some(rng, pair),
    )


def identifier(rng: Random, size: int) -> bytes:
    return rng.randbytes(size) if rng.random() < 0.95 else bytes(size)


def resource(rng: Random) -> Resource:
    entity = EntityRef(type=rng.choice(TEXTS), id_keys=["a", rng.choice(TEXTS)])
    return Resource(attributes=some(rng, pair), entity_refs=rng.choice([[], [entity]]))


def scope(rng: Random) -> InstrumentationScope:
    return InstrumentationScope(name=rng.choice(TEXTS), attributes=some(rng, pair))


def pair(rng: Random) -> KeyValue:
    return KeyValue(key=rng.choice(TEXTS), value=value(rng))


def value(rng: Random, depth: int = 0) -> AnyValue:
    match rng.randrange(9 if depth < 4 else 6):
        case 6 if depth == 0 and rng.random() < 0.1:
            deep = AnyValue(int_value=1)
            for _ in range(rng.randrange(45, 48)):  # two levels each; 100 are taken
                deep = AnyValue(array_value=ArrayValue(values=[deep]))
            return deep
        case 0:
            return AnyValue()
        case 1:
            return AnyValue(int_value=rng.choice(NUMBERS) - 2**63)
        case 2:
            double = rng.choice([rng.choice(DOUBLES), rng.uniform(-1, 1) * 10 ** rng.randrange(30)])
            return AnyValue(double_value=double)
        case 3:
            return AnyValue(bool_value=rng.random() < 0.5)
        case 4:
            return AnyValue(bytes_value=rng.randbytes(rng.randrange(5)))
        case 7:
            items = [value(rng, depth + 1) for _ in range(rng.randrange(4))]
            return AnyValue(array_value=ArrayValue(values=items))
        case 8:
            pairs = [
                KeyValue(key=rng.choice(TEXTS), value=value(rng, depth + 1))
                for _ in range(rng.randrange(4))
            ]
            return AnyValue(kvlist_value=KeyValueList(values=pairs))
        case _:
            return AnyValue(string_value=rng.choice(TEXTS))


# --- mutations ------------------------------------------------------------------------------------


class Field(NamedTuple):
    """One field as it stands on the wire."""

    tag: int
    payload: bytes
    """Without the length, for wire type 2."""

    def encoded(self) -> bytes:
        length = varint(len(self.payload)) if self.tag & 7 == 2 else b""
        return varint(self.tag) + length + self.payload


def mutate_fields(rng: Random, descriptor: Descriptor, body: bytes) -> bytes:
    """Change the fields of one message in the tree."""
    fields = split(body)
    if fields is None:
        return mutate_bytes(rng, body)
    messages = [
        (index, child)
        for index, field in enumerate(fields)
        if field.tag & 7 == 2
        and (known := descriptor.fields_by_number.get(field.tag >> 3)) is not None
        and (child := known.message_type) is not None
    ]
    if messages and rng.random() < 0.8:
        index, child = rng.choice(messages)
        fields[index] = fields[index]._replace(
            payload=mutate_fields(rng, child, fields[index].payload)
        )
    else:
        change(rng, descriptor, fields)
    return b"".join(field.encoded() for field in fields)


def change(rng: Random, descriptor: Descriptor, fields: list[Field]) -> None:
    at = rng.randrange(len(fields) + 1)
    if not fields or rng.random() < 0.4:
        numbers = [*descriptor.fields_by_number, 99, 2**29 - 1]
        number = rng.choice(numbers)
        fields.insert(at, new_field(rng, number))
        return
    field = fields.pop(min(at, len(fields) - 1))
    match rng.randrange(5):
        case 0:
            fields[at:at] = [field, field]
        case 4 if parts := split(field.payload) if field.tag & 7 == 2 else None:
            cut = rng.randrange(len(parts) + 1)  # a message in two pieces is one message
            for piece in (parts[:cut], parts[cut:]):
                payload = b"".join(part.encoded() for part in piece)
                fields.insert(at, field._replace(payload=payload))
        case 1:
            fields.append(field)
        case 2:
            wire_type = rng.choice([0, 1, 2, 5])
            fields.insert(at, new_field(rng, field.tag >> 3, wire_type))
        case _:
            payload = mutate_bytes(rng, field.payload) if field.tag & 7 == 2 else field.payload
            fields.insert(at, field._replace(payload=payload))


def new_field(rng: Random, number: int, wire_type: int | None = None) -> Field:
    wire_type = rng.choice([0, 1, 2, 2, 3, 5]) if wire_type is None else wire_type
    tag = number << 3 | wire_type
    match wire_type:
        case 0:
            return Field(tag, varint(rng.choice(NUMBERS)))
        case 1:
            return Field(tag, rng.choice([rng.choice(NUMBERS).to_bytes(8, "little")]))
        case 2:
            return Field(tag, rng.choice([rng.choice(TEXTS).encode(), rng.choice(SCRAPS)]))
        case 3:
            inner = b"".join(new_field(rng, 1).encoded() for _ in range(rng.randrange(3)))
            return Field(tag, inner + varint(tag + 1))
        case _:
            return Field(tag, rng.randbytes(4))


def mutate_bytes(rng: Random, body: bytes) -> bytes:
    """Change, add or remove some bytes."""
    at = rng.randrange(len(body) + 1)
    match rng.randrange(5):
        case 0:
            return body[:at]
        case 1:
            return body[:at] + rng.choice(SCRAPS) + body[at:]
        case 2:
            return body[:at] + body[at + rng.randrange(1, 9) :]
        case 3:
            return body[:at] + bytes([rng.randrange(256)]) + body[at + 1 :]
        case _:
            return body[:at] + body[max(0, at - rng.randrange(1, 40)) :]


def split(body: bytes) -> list[Field] | None:
    """The fields of a message, None when they cannot be told apart (groups among them)."""
    fields, at = [], 0
    try:
        while at < len(body):
            tag, at = read_varint(body, at)
            start = at
            match tag & 7:
                case 0:
                    _, end = read_varint(body, at)
                case 1:
                    end = at + 8
                case 2:
                    length, start = read_varint(body, at)
                    end = start + length
                case 5:
                    end = at + 4
                case _:
                    return None
            if end > len(body):
                return None
            fields.append(Field(tag, body[start:end]))
            at = end
    except IndexError:
        return None
    return fields


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])


def read_varint(body: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = body[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


if __name__ == "__main__":
    main()
