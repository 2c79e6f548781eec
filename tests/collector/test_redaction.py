"""What the rules name is on no disk, not even in the log."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from toolverdict.collector.errors import ConfigError
from toolverdict.collector.lake import Lake
from toolverdict.collector.redaction import MASK, read_redactor
from toolverdict.collector.schema import attributes_of
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_request, make_span, otlp_json_of, post

Serve = Callable[..., AbstractAsyncContextManager[Any]]
SECRET = "4111111111111111"


def _text(key: str, text: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=text))


def _rules(folder: Path, *rules: str, key: str = "0123456789abcdef") -> Path:
    (folder / "key").write_text(key)
    path = folder / "redact.yaml"
    lines = "".join(f"  - {rule}\n" for rule in rules)
    path.write_text(f"version: 1\nhash_key_file: {folder / 'key'}\nrules:\n{lines}")
    return path


def _redacted(rules: Path, request: ExportTraceServiceRequest) -> ExportTraceServiceRequest:
    body = read_redactor(rules).redact(Signal.TRACES, request.SerializeToString())
    return ExportTraceServiceRequest.FromString(body)


def _everywhere() -> ExportTraceServiceRequest:
    """A request with the same secret and the same key in every place there is."""
    nested = AnyValue(kvlist_value=KeyValueList(values=[_text("user.email", SECRET)]))
    listed = AnyValue(array_value=ArrayValue(values=[nested, AnyValue(string_value=SECRET)]))
    request = make_request(
        make_span(
            1,
            name=SECRET,
            trace_state=f"v={SECRET}",
            attributes=[_text("user.email", SECRET), KeyValue(key="deep", value=listed)],
            events=[Span.Event(name=SECRET, attributes=[_text("user.email", SECRET)])],
            links=[Span.Link(trace_state=SECRET, attributes=[_text("user.email", SECRET)])],
            status=Status(message=f"refused {SECRET}"),
        )
    )
    resource = request.resource_spans[0]
    resource.schema_url = SECRET
    resource.resource.attributes.append(_text("user.email", SECRET))
    scope = resource.scope_spans[0].scope
    scope.name, scope.version = SECRET, SECRET
    scope.attributes.append(_text("user.email", SECRET))
    return request


@pytest.mark.parametrize("action", ["drop", "hash", "mask"])
def test_a_text_is_found_wherever_there_is_text(tmp_path: Path, action: str) -> None:
    rules = _rules(tmp_path, f"{{text: '[0-9]{{16}}', action: {action}}}")
    redacted = _redacted(rules, _everywhere())
    assert SECRET not in str(redacted)
    span = redacted.resource_spans[0].scope_spans[0].spans[0]
    assert span.status.message.startswith("refused ")
    assert span.trace_id == make_span(1).trace_id


def test_an_attribute_is_found_wherever_there_are_keys(tmp_path: Path) -> None:
    redacted = _redacted(_rules(tmp_path, "{attribute: 'user.*', action: drop}"), _everywhere())
    assert "user.email" not in str(redacted)


def test_a_hash_is_keyed_and_keeps_equal_values_equal(tmp_path: Path) -> None:
    request = make_request(
        make_span(
            1,
            attributes=[
                _text("a", "same"),
                _text("b", "same"),
                _text("c", "other"),
                KeyValue(key="d", value=AnyValue(int_value=7)),
            ],
        )
    )

    def values(key: str) -> list[str]:
        rules = _rules(tmp_path, "{attribute: '?', action: hash}", key=key)
        (span,) = _redacted(rules, request).resource_spans[0].scope_spans[0].spans
        return [item.value.string_value for item in span.attributes]

    first, second, third, number = values("0123456789abcdef")
    assert first == second != third
    assert len({len(first), len(number)}) == 1
    assert len(first) == 32
    assert values("another-key-0123")[0] != first


def test_the_first_rule_that_names_a_key_decides(tmp_path: Path) -> None:
    rules = _rules(
        tmp_path, "{attribute: user.id, action: mask}", "{attribute: 'user.*', action: drop}"
    )
    request = make_request(make_span(1, attributes=[_text("user.id", "7"), _text("user.x", "8")]))
    (span,) = _redacted(rules, request).resource_spans[0].scope_spans[0].spans
    assert [(item.key, item.value.string_value) for item in span.attributes] == [("user.id", MASK)]


def test_unknown_fields_are_left_out(tmp_path: Path) -> None:
    """Field 15 of a request is none we know; what it holds cannot be judged."""
    body = make_request(make_span(1)).SerializeToString() + b"\x7a\x10" + SECRET.encode()
    redacted = read_redactor(_rules(tmp_path, "{attribute: x, action: drop}")).redact(
        Signal.TRACES, body
    )
    assert SECRET.encode() not in redacted


def test_log_records_are_redacted(tmp_path: Path) -> None:
    record = LogRecord(
        body=AnyValue(string_value=f"card {SECRET}"), attributes=[_text("user.email", "x@y.z")]
    )
    request = ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(scope_logs=[ScopeLogs(log_records=[record])])]
    )
    rules = _rules(
        tmp_path, "{text: '[0-9]{16}', action: mask}", "{attribute: user.email, action: drop}"
    )
    body = read_redactor(rules).redact(Signal.LOGS, request.SerializeToString())
    (kept,) = ExportLogsServiceRequest.FromString(body).resource_logs[0].scope_logs[0].log_records
    assert kept.body.string_value == f"card {MASK}"
    assert not kept.attributes


@pytest.mark.parametrize("kind", ["application/x-protobuf", "application/json"])
async def test_nothing_of_it_reaches_a_file(serve: Serve, tmp_path: Path, kind: str) -> None:
    """Neither the log nor Parquet, whatever the encoding was."""
    rules = _rules(
        tmp_path, "{text: '[0-9]{16}', action: mask}", "{attribute: user.email, action: hash}"
    )
    request = _everywhere()
    body = request.SerializeToString() if kind.endswith("protobuf") else otlp_json_of(request)
    async with serve(redaction_file=rules) as collector:
        answer = await asyncio.to_thread(post, f"{collector.http}/v1/traces", body, kind)
        assert answer.status == 200
        assert collector.wal_bytes() > 0
        assert _files_with(tmp_path, SECRET.encode()) == []
    assert _files_with(tmp_path, SECRET.encode()) == []
    (row,) = Lake.open(tmp_path).read_spans(0).to_pylist()
    assert SECRET not in str(row)
    assert len(attributes_of(row)["user.email"]) == 32


def _files_with(folder: Path, content: bytes) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path in files if content in path.read_bytes()]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("rules: [", "not YAML"),
        ("rules: []\nversion: 1", "rules"),
        ("version: 2\nrules: [{attribute: a, action: drop}]", "version"),
        ("version: 1\nrules: [{attribute: a, action: burn}]", "action"),
        ("version: 1\nrules: [{action: drop}]", "either an attribute or a text"),
        ("version: 1\nrules: [{attribute: a, text: b, action: drop}]", "either"),
        ("version: 1\nrules: [{text: '(', action: drop}]", "rules.0.text"),
        ("version: 1\nrules: [{attribute: a, action: hash}]", "hash_key_file"),
        ("version: 1\nrules: [{attribute: a, action: drop, note: x}]", "note"),
        ("just a text", "the file"),
    ],
)
def test_a_wrong_file_is_told_in_one_line(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "redact.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=reason) as caught:
        read_redactor(path)
    assert "\n" not in str(caught.value)


def test_a_missing_or_short_key_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="16 bytes or more"):
        read_redactor(_rules(tmp_path, "{attribute: a, action: hash}", key="short"))
    path = _rules(tmp_path, "{attribute: a, action: hash}")
    (tmp_path / "key").unlink()
    with pytest.raises(ConfigError, match=r"cannot read .*key"):
        read_redactor(path)


def _one(rules: Path, value: AnyValue) -> AnyValue:
    attribute = KeyValue(key="gen_ai.tool.call.arguments", value=value)
    (span,) = (
        _redacted(rules, make_request(make_span(1, attributes=[attribute])))
        .resource_spans[0]
        .scope_spans[0]
        .spans
    )
    return span.attributes[0].value


@pytest.mark.parametrize(
    "value", [AnyValue(int_value=int(SECRET)), AnyValue(double_value=float(SECRET))]
)
def test_a_text_is_found_in_numbers(tmp_path: Path, value: AnyValue) -> None:
    rules = _rules(tmp_path, r"{text: '\b[0-9]{16}\b', action: mask}")
    assert _one(rules, value) == AnyValue(string_value=MASK)
    for other in (AnyValue(int_value=7), AnyValue(double_value=0.5), AnyValue(bool_value=True)):
        assert _one(rules, other) == other


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        (f'{{"card": {SECRET}, "n": 1.50}}', f'{{"card":"{MASK}","n":1.50}}'),
        (f'{{"card": "\\u0034{SECRET[1:]}"}}', f'{{"card":"{MASK}"}}'),
        ('{"card": 4.111111111111111e15}', f'{{"card":"{MASK}"}}'),
        ('[{"user.email": {"a": 1}, "b": null}]', '[{"b":null}]'),
        ('{"user\\u002eemail": 1, "a": true}', '{"a":true}'),
        ('{"user.email": 1, "user.email": 2}', "{}"),
        (r'{"inner": "{\"user.email\":\"x\"}"}', '{"inner":"{}"}'),
        ('{"a": 1.0, "a":  2}', '{"a": 1.0, "a":  2}'),
        ("[1e999999999, NaN, -12345678901234567890123]",) * 2,
        (f"{{broken {SECRET}", f"{{broken {MASK}"),
    ],
)
def test_json_in_a_text_is_looked_into(tmp_path: Path, text: str, redacted: str) -> None:
    """Arguments of tools are JSON in a string; what no rule names stays as it was."""
    rules = _rules(
        tmp_path, r"{text: '\b[0-9]{16}\b', action: mask}", "{attribute: user.email, action: drop}"
    )
    assert _one(rules, AnyValue(string_value=text)).string_value == redacted


def test_keys_in_json_are_masked_and_hashed(tmp_path: Path) -> None:
    rules = _rules(tmp_path, "{attribute: m, action: mask}", "{attribute: h, action: hash}")
    text = _one(rules, AnyValue(string_value='{"m":[1],"h":"x"}')).string_value
    plain = _one(
        _rules(tmp_path, "{attribute: 'gen_ai.*', action: hash}"), AnyValue(string_value="x")
    )
    assert text == f'{{"m":"{MASK}","h":"{plain.string_value}"}}'


@pytest.mark.parametrize("text", ["[" * 100_000, "{" + " " * 2_000_000, "[" + "9" * 10_000 + "]"])
def test_hostile_json_is_only_text(tmp_path: Path, text: str) -> None:
    rules = _rules(tmp_path, "{attribute: user.email, action: drop}")
    assert _one(rules, AnyValue(string_value=text)).string_value == text
