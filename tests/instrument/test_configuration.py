import logging
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from toolverdict.instrument import (
    ApprovalRequest,
    ConfigurationError,
    PolicyError,
    ToolDenied,
    configure,
    settings,
    tool,
)
from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.stores.approvals import ApprovalStore
from toolverdict.instrument.stores.audit import AuditLog
from toolverdict.instrument.stores.idempotency import IdempotencyStore

KEY = "00112233445566778899aabbccddeeff"


@tool
def get(thing: object) -> object:
    return thing


@pytest.fixture(autouse=True)
def no_exporter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")


@pytest.fixture
def kept() -> InMemorySpanExporter:
    """The application has a provider of its own, and keeps its spans here."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return exporter


def test_an_applications_provider_is_used_as_it_is(kept: InMemorySpanExporter) -> None:
    provider: Any = trace.get_tracer_provider()
    processors = provider._active_span_processor._span_processors
    configure(hash_key=KEY)
    get(1)
    assert len(kept.get_finished_spans()) == 2
    assert provider._active_span_processor._span_processors == processors
    assert trace.get_tracer_provider() is provider


def test_without_configuration_the_global_provider_of_the_moment_is_used() -> None:
    get(1)
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    get(2)
    _, span = exporter.get_finished_spans()
    key_id: Any = (span.attributes or {})["tool.args_hash.key_id"]
    assert key_id.startswith("ephemeral-")


def test_a_provider_is_made_and_set_where_there_is_none() -> None:
    configure(service_name="bot", hash_key=KEY)
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    assert provider.resource.attributes["service.name"] == "bot"
    configure(hash_key=KEY, service_name="bot")
    assert trace.get_tracer_provider() is provider
    assert settings.current().provider is provider


def test_another_service_name_takes_effect() -> None:
    configure(service_name="one", hash_key=KEY)
    configure(service_name="other", hash_key=KEY)
    provider: Any = settings.current().provider
    assert provider.resource.attributes["service.name"] == "other"


def test_the_environment_names_the_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "from-env")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "team=tools")
    configure(hash_key=KEY)
    provider: Any = settings.current().provider
    assert provider.resource.attributes["service.name"] == "from-env"
    assert provider.resource.attributes["team"] == "tools"
    configure(hash_key=KEY, service_name="argument")
    provider = settings.current().provider
    assert provider.resource.attributes["service.name"] == "argument"


def test_a_provider_of_another_make_is_left_alone() -> None:
    foreign = trace.NoOpTracerProvider()
    trace.set_tracer_provider(foreign)
    configure(hash_key=KEY)
    assert settings.current().provider is foreign
    configure(hash_key=KEY, endpoint="http://127.0.0.1:4318").shutdown()
    assert isinstance(settings.current().provider, TracerProvider)
    assert trace.get_tracer_provider() is foreign


def test_the_second_configuration_replaces_the_first(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        "{version: 1, id: p, rules: [{id: d, effect: deny, tools: [get]}]}"
    )
    configure(policy=tmp_path / "p.yaml", hash_key=KEY)
    with pytest.raises(ToolDenied):
        get(1)
    configure(hash_key=KEY)
    assert get(1) == 1
    asks = Policy.parse(
        "{version: 1, id: p, rules: [{id: q, effect: require_approval, tools: [get]}]}"
    )
    configure(policy=asks, approver=lambda request: request.approve(), hash_key=KEY)
    assert get(1) == 1


def approve(request: ApprovalRequest) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"capture": "some"}, "capture is 'some'; use one of off, redacted, full"),
        ({"protocol": "http/json"}, "protocol is 'http/json'; use one of grpc, http/protobuf"),
        ({"hash_key": "00"}, "hash_key has 1 bytes and needs at least 16"),
        ({"endpoint": "collector", "protocol": "http/protobuf"}, "endpoint 'collector' is no URL"),
        ({"endpoint": "http://", "protocol": "grpc"}, "endpoint 'http://' names no host"),
    ],
)
def test_what_cannot_be_used_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        configure(**arguments)
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def test_a_bad_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot be read"):
        configure(policy=tmp_path / "none.yaml")


def test_the_key_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLVERDICT_HASH_KEY", KEY)
    configure()
    from_environment = settings.current().key
    configure(hash_key=bytes.fromhex(KEY))
    assert settings.current().key == from_environment
    settings.replace(None)
    assert settings.hash_key(settings.current()) == from_environment
    monkeypatch.setenv("TOOLVERDICT_HASH_KEY", "not hex")
    with pytest.raises(ConfigurationError, match="TOOLVERDICT_HASH_KEY is not hexadecimal"):
        configure()


def test_a_bad_key_breaks_no_tool(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An unconfigured process is told, and goes on."""
    monkeypatch.setenv("TOOLVERDICT_HASH_KEY", "not hex")
    trace.set_tracer_provider(TracerProvider(shutdown_on_exit=False))
    assert get(1) == 1
    assert settings.hash_key(settings.current()).id.startswith("ephemeral-")
    assert "TOOLVERDICT_HASH_KEY is not hexadecimal" in caplog.text


def test_a_process_that_records_nothing_is_not_warned(caplog: pytest.LogCaptureFixture) -> None:
    assert get(1) == 1
    assert caplog.records == []


def test_without_a_key_one_warning_says_what_that_means(caplog: pytest.LogCaptureFixture) -> None:
    configure()
    configure()
    settings.replace(None)
    get(1)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "argument hashes of different processes will not match" in caplog.text
    assert settings.hash_key(settings.current()).id.startswith("ephemeral-")


def test_what_the_environment_asks_and_we_cannot_do_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "zipkin")
    configure(hash_key=KEY).shutdown()
    assert "OTEL_TRACES_EXPORTER=zipkin is not supported here; using otlp" in caplog.text


def test_the_service_name_of_an_application_stays(
    kept: InMemorySpanExporter, caplog: pytest.LogCaptureFixture
) -> None:
    configure(hash_key=KEY, service_name="x", endpoint="http://127.0.0.1:4318").shutdown()
    assert "service_name has no effect" in caplog.text


def test_what_a_second_configure_drops_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "p.yaml").write_text(
        "{version: 1, id: p, rules: [{id: d, effect: deny, tools: [get]}]}"
    )
    configure(
        hash_key=KEY,
        policy=tmp_path / "p.yaml",
        approver=approve,
        capture="full",
        idempotency=IdempotencyStore(tmp_path / "agent.db"),
        audit=AuditLog(tmp_path / "audit.db"),
    )
    assert not caplog.records
    configure(hash_key=KEY, service_name="bot")
    (record,) = caplog.records
    assert "dropped: policy, approver, idempotency, audit, capture" in record.getMessage()
    configure(hash_key=KEY)
    configure(hash_key=KEY, policy=tmp_path / "p.yaml")
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("approver", "ann", "approver is of type str; give a function of an ApprovalRequest"),
        ("idempotency", "agent.db", "idempotency is of type str; give IdempotencyStore(path)"),
        ("audit", "audit.db", "audit is of type str; give AuditLog(path)"),
        ("policy", {"version": 1}, "policy is of type dict; give a path, or Policy.parse(text)"),
        ("hash_key", 7, "hash_key is of type int; give bytes or hexadecimal text"),
    ],
)
def test_a_setting_of_another_type_is_refused_in_one_line(
    setting: str, value: Any, said: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        configure(**{"hash_key": KEY, setting: value})
    assert str(refused.value).startswith(said)
    assert "\n" not in str(refused.value)
    assert settings.current().provider is None


def test_a_store_is_no_approver_and_has_one(tmp_path: Path) -> None:
    with (
        ApprovalStore(tmp_path / "agent.db", key=KEY) as store,
        pytest.raises(ConfigurationError, match=r"ApprovalStore; give store.approver\(\)$"),
    ):
        configure(hash_key=KEY, approver=store)  # type: ignore[arg-type]


@pytest.mark.parametrize("store", [ApprovalStore, IdempotencyStore, AuditLog])
def test_a_store_takes_its_key_as_text_and_nothing_that_is_none(store: Any, tmp_path: Path) -> None:
    for key in (KEY, bytes.fromhex(KEY), HashKey.of(KEY)):
        store(tmp_path / "agent.db", key=key).close()
    for no_key in (7, "short", "00"):
        with pytest.raises(ConfigurationError, match=r"^key "):
            store(tmp_path / "agent.db", key=no_key)


def test_a_key_that_is_never_set_is_named() -> None:
    nothing: Any = None
    with pytest.raises(ConfigurationError, match="hash_key is of type NoneType; give bytes or"):
        HashKey.of(nothing)
