"""What frameworks raise to step out of a tool is no failure of it."""

import dataclasses
import sys
from types import ModuleType
from typing import Any

import pytest
from opentelemetry.trace import StatusCode

from toolverdict.instrument import ConfigurationError, configure, settings, tool, trajectory
from toolverdict.instrument.testing import capture_spans


@tool
def work(error: BaseException) -> None:
    raise error


def module(monkeypatch: pytest.MonkeyPatch, name: str, **classes: Any) -> Any:
    made = ModuleType(name)
    for key, base in classes.items():
        setattr(made, key, type(key, (base,), {"__module__": name}))
    monkeypatch.setitem(sys.modules, name, made)
    return made


@pytest.mark.parametrize(
    ("package", "name", "outcome"),
    [
        ("langgraph.errors", "GraphInterrupt", "pending_approval"),
        ("langgraph.errors", "GraphBubbleUp", "pending_approval"),
        ("langgraph.errors", "ParentCommand", "ok"),
        ("pydantic_ai.exceptions", "CallDeferred", "pending_approval"),
        ("pydantic_ai.exceptions", "ApprovalRequired", "pending_approval"),
        ("pydantic_ai.exceptions", "ModelRetry", "invalid_arguments"),
    ],
)
def test_frameworks_step_out(
    package: str, name: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B35: waiting for somebody is not an error, of the tool nor of the agent."""
    known = getattr(module(monkeypatch, package, **{name: Exception}), name)

    class NodeInterrupt(known):  # type: ignore[misc, valid-type]
        pass

    for error in (known(), NodeInterrupt()):
        with capture_spans() as spans, pytest.raises(known), trajectory("bot"):
            work(error)
        _, call, whole = spans
        failed = StatusCode.ERROR if outcome == "invalid_arguments" else StatusCode.UNSET
        assert (call.attributes or {})["tool.outcome"] == outcome
        assert (call.attributes or {})["tool.executed"] is True
        assert call.status.status_code is failed
        assert whole.status.status_code is failed
        assert bool(call.events) == (failed is StatusCode.ERROR)


def test_a_name_alone_excuses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """B37: a class of the same name, even one that pretends its module, is a failure."""
    module(monkeypatch, "langgraph.errors", GraphInterrupt=Exception)
    own = type("GraphInterrupt", (Exception,), {})
    pretending = type("GraphInterrupt", (Exception,), {"__module__": "langgraph.errors"})
    for known in (own, pretending):
        with capture_spans() as spans, pytest.raises(known):
            work(known())
        assert (spans.tool_calls[0].attributes or {})["tool.outcome"] == "error"


class Paused(BaseException):
    pass


@pytest.mark.parametrize("known", [Paused, f"{__name__}.Paused"])
def test_an_applications_own_interrupts(known: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    configure(hash_key=b"0" * 16, interrupts=[known])
    with capture_spans() as spans, pytest.raises(Paused):
        work(Paused())
    assert (spans.tool_calls[0].attributes or {})["tool.outcome"] == "pending_approval"
    settings.replace(dataclasses.replace(settings.current(), interrupts=("Paused", "x.Paused")))
    with capture_spans() as spans, pytest.raises(Paused):
        work(Paused())
    assert (spans.tool_calls[0].attributes or {})["tool.outcome"] == "error"


@pytest.mark.parametrize("wrong", ["a.B", ["B"], [int], [1]])
def test_interrupts_that_are_none_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="interrupts"):
        configure(interrupts=wrong)
