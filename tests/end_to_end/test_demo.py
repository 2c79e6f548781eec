"""The demo: every planted failure is found at its span, over a real collector."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from toolverdict.scenarios.demo.check import check
from toolverdict.scenarios.demo.conversations import conversations


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder that one run of the demo left, and what it printed."""
    out = tmp_path_factory.mktemp("demo") / "out"
    command = [sys.executable, "-m", "toolverdict", "demo", "--out", str(out)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return out, result.stdout


def test_each_planted_failure_is_named_with_its_span(demo: tuple[Path, str]) -> None:
    out, printed = demo
    outcomes = check(conversations(), out / "results")
    assert len(outcomes) >= 12
    for outcome in outcomes:
        assert outcome.right, outcome.conversation.id
        if outcome.conversation.planted is not None:
            assert outcome.span_id is not None
            assert outcome.span_id in printed


def test_everything_that_can_go_wrong_with_a_refund_is_planted() -> None:
    planted = {c.planted.what for c in conversations() if c.planted is not None}
    assert planted == {
        "wrong tool",
        "wrong amount",
        "wrong currency",
        "no identity check",
        "no approval",
        "retry after bad arguments",
        "empty result taken for success",
        "time-out taken for success",
        "downstream 5xx",
        "forbidden call",
        "injected instruction",
    }


def test_the_spans_carry_what_the_gate_needs(demo: tuple[Path, str]) -> None:
    """S34, S40: hash, decision, approval id and idempotency key are in the trace."""
    calls = pq.read_table(demo[0] / "results" / "calls").to_pylist()
    assert calls
    for call in calls:
        assert call["args_hash"].startswith("hmac-sha256:")
        assert call["policy_decision"] in ("allow", "deny", "require_approval")
        assert call["schema_version"]
        assert call["call_id"]
    paid = [c for c in calls if c["tool"] == "refund_payment" and c["executed"]]
    assert paid
    assert all(c["approval_id"] and c["idempotency_key_hash"] for c in paid)


def test_the_command_it_recommends_works(demo: tuple[Path, str]) -> None:
    out, printed = demo
    assert "toolverdict score" in printed
    command = [sys.executable, "-m", "toolverdict", "score", out / "lake", "--out", out / "again"]
    command += ["--policy", out / "policy.yaml", "--cases", out / "cases.yaml"]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    assert (out / "again" / "summary.json").read_bytes() == (
        out / "results" / "summary.json"
    ).read_bytes()


def test_a_second_demo_replaces_the_first_and_keeps_what_is_not_ours(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "toolverdict", "demo", "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    (tmp_path / "notes.txt").write_text("mine")
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert pq.read_table(tmp_path / "results" / "verdicts").num_rows == len(conversations())


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "precious.txt").write_text("mine")
    command = [sys.executable, "-m", "toolverdict", "demo", "--out", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "no demo made it" in result.stderr
    assert (tmp_path / "lake" / "precious.txt").read_text() == "mine"
