import logging
from types import SimpleNamespace

import pytest

from toolverdict.instrument import guard, tool
from toolverdict.instrument.testing import capture_spans


def test_faults_are_counted_and_logged_once_in_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("toolverdict.instrument.guard.time", clock)
    for _ in range(3):
        guard.fault("span end", ValueError("secret"))
    guard.fault("span start", ValueError("secret"))
    assert guard.counts() == {"span end": 3, "span start": 1}
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    now += guard.LOG_INTERVAL_S
    guard.fault("span end", ValueError("secret"))
    assert len(caplog.records) == 3
    assert caplog.messages[0] == "span end failed (ValueError); the tool is not affected"
    assert "secret" not in caplog.text


def test_faults_raise_when_strict_and_notes_do_not() -> None:
    with guard.strict():
        with guard.strict():
            pass
        with pytest.raises(ValueError, match="ours"):
            guard.fault("x", ValueError("ours"))
        guard.note("x", "said")
    guard.fault("x", ValueError("ours"))


def test_a_log_handler_that_raises_reaches_no_tool() -> None:
    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("no disk")

    log, handler = logging.getLogger("toolverdict.instrument"), Raising()
    log.addHandler(handler)
    try:
        guard.note("x", "said")
        guard.fault("y", ValueError("ours"))
        assert guard.counts() == {"x": 1, "y": 1}

        @tool(outcome=lambda result: 1 / 0)  # type: ignore[arg-type, return-value]
        def five() -> int:
            return 5

        with capture_spans(strictly=False):
            assert five() == 5
    finally:
        log.removeHandler(handler)


def test_a_span_that_ends_while_something_is_counted_does_not_wait_for_ever() -> None:
    with guard._state.lock:
        guard.note("x", "said")
