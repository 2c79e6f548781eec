import threading

import pytest
from opentelemetry import trace

from toolverdict.instrument import configure, guard, settings, tool, trajectory
from toolverdict.instrument.testing import TEST_KEY, capture_spans, strict


@tool
def get(thing: object) -> object:
    return thing


def test_spans_are_a_sequence() -> None:
    with capture_spans() as spans:
        assert len(spans) == 0
        with trajectory("bot"):
            get(1)
        names = ["execute_tool get", "tool.call get", "invoke_agent bot"]
        assert [span.name for span in spans] == names
    assert spans[0] is spans[:1][0]
    assert [span.name for span in spans.tool_calls] == ["tool.call get"]
    assert spans.body_of(spans[1]) is spans[0]
    assert spans.body_of(spans[2]) is None
    assert repr(spans) == f"CapturedSpans({names})"


def test_nothing_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    with capture_spans(capture="full"):
        get(1)
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
    assert settings.current() == settings.Settings()
    with capture_spans() as outer:
        with capture_spans() as inner:
            get(1)
        get(2)
    assert (len(outer.tool_calls), len(inner.tool_calls)) == (1, 1)
    assert caplog.records == []


def test_spans_of_threads_are_captured() -> None:
    with capture_spans() as spans:
        thread = threading.Thread(target=get, args=(1,))
        thread.start()
        thread.join()
    assert len(spans.tool_calls) == 1


def test_an_agent_that_configures_itself_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    with capture_spans() as spans:
        configure(hash_key=b"0" * 16)
        get(1)
    assert len(spans.tool_calls) == 1


def test_hashes_are_the_same_in_every_run() -> None:
    with capture_spans() as spans:
        get("a")
    attributes = spans.tool_calls[0].attributes or {}
    assert attributes["tool.args_hash.key_id"] == TEST_KEY.id
    assert attributes["tool.args_hash"] == (
        "hmac-sha256:9aea0ef55f259b00c06b148efcbddfb40d1b62542f9306a445ed74163e5c915e"
    )


def test_faults_are_seen_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> object:
        raise RuntimeError("ours")

    monkeypatch.setattr("toolverdict.instrument.attempts.args_hash", broken)
    with capture_spans(), pytest.raises(RuntimeError, match="ours"):
        get(1)
    with capture_spans(strictly=False):
        assert get(1) == 1
        with strict(), pytest.raises(RuntimeError, match="ours"):
            get(1)
    assert guard.counts() == {"argument hash": 1}
