"""The examples in the README are run as they are written."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
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
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import capture_spans

README = Path(__file__).parents[2] / "instrument" / "README.md"
BLOCKS = dict(
    re.findall(
        r"^## ([^\n]+)\n.*?^```python\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE
    )
)
YAML = re.findall(r"^```yaml\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


def run(title: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(BLOCKS[title], f"README: {title}", "exec"), names)
    return names


def test_every_block_has_a_test() -> None:
    assert README.read_text().count("```python") == len(BLOCKS) == 10


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


def test_keep_approvals_keys_and_records(tmp_path: Path) -> None:
    """In a process of its own, which ends like any other, and is then verified by the command."""
    environment = {
        **os.environ,
        "OTEL_TRACES_EXPORTER": "none",
        "TOOLVERDICT_HASH_KEY": "6b" * 32,
        "TOOLVERDICT_CHECKPOINT_KEY": "7c" * 32,
    }
    example = [sys.executable, "-c", BLOCKS["Keep approvals, keys and records"]]
    subprocess.run(example, cwd=tmp_path, env=environment, check=True)
    (command,) = re.findall(r"`toolverdict (audit verify --db [^`]*)`", README.read_text())
    said = subprocess.run(
        [sys.executable, "-m", "toolverdict", *shlex.split(command)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == "2 records, anchored up to record 2\nwhole\n"


def test_find_out_what_became_of_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    names = run("Find out what became of a call")
    assert names["close_order"]("o-1") is None


def test_set_all_of_it_in_one_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    monkeypatch.setenv("TOOLVERDICT_HASH_KEY", "6b" * 32)
    monkeypatch.setenv("TOOLVERDICT_CHECKPOINT_KEY", "7c" * 32)
    Path("policy.yaml").write_text(YAML[0])
    telemetry = run("Set all of it in one call")["telemetry"]
    kept = settings.current()
    assert None not in (kept.policy, kept.approver, kept.idempotency, kept.audit)
    with trajectory("refund-bot"), pytest.raises(ApprovalRequired):
        tool(labels=["payment"], name="charge")(lambda: None)()
    telemetry.shutdown()
    assert not caplog.records


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
    Path("policy.yaml").write_text(YAML[0])
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


def test_the_policy_of_small_refunds_lets_no_other_run() -> None:
    @tool
    def verify_identity() -> bool:
        return True

    @tool(labels=["payment"], idempotency_key="customer_id")
    def refund(customer_id: str, amount: int, currency: str = "EUR") -> str:
        return customer_id

    session = {"customer_id": "c-1"}
    with capture_spans(policy=Policy.parse(YAML[1])), trajectory(session=session):
        with pytest.raises(ToolDenied, match="requires_unmet"):
            refund("c-1", 5, "EUR")
        verify_identity()
        assert refund("c-1", 5, "EUR") == "c-1"
        for customer, amount in (("c-1", 101), ("c-2", 5)):
            with pytest.raises(ToolDenied):
                refund(customer, amount, "EUR")


def test_a_rule_is_confirmed_as_it_says() -> None:
    (confirmed,) = re.findall(r"^    (confirmed: .*)$", README.read_text(), re.MULTILINE)
    rule = "{id: r, effect: allow, tools: [refund]"
    (plain,) = Policy.parse(f"{{version: 1, id: p, rules: [{rule}}}]}}").rules
    filled = confirmed.replace("sha256:...", plain.digest)
    (rule_now,) = Policy.parse(f"{{version: 1, id: p, rules: [{rule}, {filled}}}]}}").rules
    assert rule_now.is_confirmed


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
