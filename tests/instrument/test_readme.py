"""The examples in the README are run as they are written."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace

from toolverdict.instrument import (
    ApprovalRequired,
    Refused,
    ToolDenied,
    settings,
    tool,
    trajectory,
)
from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.stores.audit import read_checkpoints, verify
from toolverdict.instrument.testing import capture_spans

README = Path(__file__).parents[2] / "instrument" / "README.md"
BLOCKS = dict(
    re.findall(
        r"^## ([^\n]+)\n.*?^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE
    )
)


def run(title: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(BLOCKS[title], f"README: {title}", "exec"), names)
    return names


def test_every_block_has_a_test() -> None:
    assert README.read_text().count("```python") == len(BLOCKS) == 8


def test_witness_tool_calls() -> None:
    names = run("Witness tool calls")
    with capture_spans(capture="full") as spans:
        asyncio.run(names["run_agent"]())
    assert [span.name for span in spans] == [
        "execute_tool get_order",
        "tool.call get_order",
        "execute_tool refund",
        "tool.call refund",
        "invoke_agent refund-bot",
    ]
    assert "secret" not in str([dict(span.attributes or {}) for span in spans])


def test_keep_approvals_keys_and_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = settings.replace(None)
    try:
        names = run("Keep approvals, keys and records")
        kept = settings.current()
        assert kept.audit is not None
        kept.audit.close()
        names["approvals"].close()
        assert kept.idempotency is not None
        kept.idempotency.close()
    finally:
        settings.replace(before)
    found = verify(
        "audit.db",
        key=HashKey.of("6b" * 32),
        checkpoint_key=HashKey.of("7c" * 32),
        checkpoints=read_checkpoints(Path("elsewhere.jsonl").read_text().splitlines())[0],
    )
    assert (found.records, found.sound, found.anchored) == (2, True, 2)


def test_take_arguments_as_they_should_be() -> None:
    with capture_spans() as spans:
        run("Take arguments as they should be")
    outcomes = [(span.attributes or {})["tool.outcome"] for span in spans.tool_calls]
    assert outcomes == ["ok", "invalid_arguments"]


def test_call_tools_in_threads() -> None:
    names = run("Call tools in threads")
    with capture_spans() as spans:
        asyncio.run(names["work_in_threads"]())
    assert len(spans.tool_calls) == 4
    assert len({span.context.trace_id for span in spans if span.context}) == 1


def test_send_the_spans_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    names = run("Send the spans somewhere")
    assert names["telemetry"].flush(timeout_s=1.0) is True
    assert not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def test_decide_before_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    blocks = re.findall(r"^```yaml\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)
    yaml, more = blocks
    Policy.parse(f"version: 1\nid: refunds\nrules:\n{more}")
    Path("policy.yaml").write_text(yaml)
    run("Decide before it runs")
    refund = run("Witness tool calls")["refund"]
    answers = iter(["no", "yes"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(answers))

    @tool
    def verify_identity() -> bool:
        return True

    async def agent() -> None:
        with pytest.raises(ToolDenied, match="requires_unmet"):
            await refund("o-1", 1.0)
        with trajectory():
            verify_identity()
            with pytest.raises(ToolDenied, match="approval_rejected"):
                await refund("o-1", 1.0)
            assert (await refund("o-1", 1.0))["status"] == "refunded"

    asyncio.run(agent())
    with capture_spans(policy=Policy.load("policy.yaml"), approver=None), trajectory():
        verify_identity()
        with pytest.raises(ApprovalRequired):
            asyncio.run(refund("o-1", 1.0))


def test_say_what_went_wrong() -> None:
    names = run("Say what went wrong")
    with capture_spans() as spans:
        with pytest.raises(Refused):
            names["cancel_order"]("sent-1")
        with pytest.raises(TimeoutError):
            names["cancel_order"]("o-1")
        names["search"]("")
    outcomes = [(span.attributes or {})["tool.outcome"] for span in spans.tool_calls]
    assert outcomes == ["refused", "timeout", "empty"]


def test_test() -> None:
    run("Test")
