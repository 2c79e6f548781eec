"""``policy replay``: recorded calls decided again, against what was decided and against another policy."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from toolverdict.collector.testing import make_request, make_span, post, running_collector
from toolverdict.instrument import ApprovalRequest
from toolverdict.instrument.hashing import HashKey
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.stores.approvals import ApprovalStore
from toolverdict.instrument.stores.audit import AuditLog
from toolverdict.policy_cli import app
from toolverdict.scoring.approvals import NO_APPROVALS, Approvals, Given
from toolverdict.scoring.model import Thresholds, ToolCall
from toolverdict.scoring.policy_coverage import SeenTool, coverage, seen_in
from toolverdict.scoring.replay import Replay, is_change, redecided
from toolverdict.scoring.tables import calls_table
from toolverdict.scoring.testing import call, trajectory_of
from toolverdict.scoring.verdicts import judge_trajectory

OPEN = "version: 1\nid: open\nrules:\n  - {id: all, effect: allow, tools: ['*']}\n"
STRICT = """
version: 1
id: strict
rules:
  - {id: never, effect: deny, tools: [drop_table]}
  - {id: ask, effect: require_approval, tools: [refund]}
  - {id: rest, effect: allow, tools: [look], requires: [login]}
  - {id: unmet, effect: deny, tools: [nobody_calls_this]}
"""


def replayed(
    *calls: ToolCall, against: str | None = None, approvals: Approvals = NO_APPROVALS
) -> dict[str, Any]:
    policy = Policy.parse(STRICT)
    old = Policy.parse(against) if against is not None else None
    counted = Replay(policy, old)
    for one in redecided(trajectory_of(*calls), policy, old, approvals):
        counted.add(one)
    return counted.document()


def test_what_became_of_the_calls_of_a_rule() -> None:
    document = replayed(
        call("drop_table", {}),
        call("drop_table", {}, outcome="denied"),
        call("drop_table", {}, executed=None),
        call("other", {}),
    )
    (never,) = [row for row in document["rules"] if row["rule"] == "never"]
    states = (never["attempted"], never["blocked"], never["executed"], never["unknown"])
    assert states == (3, 1, 1, 1)
    assert document["decisions"] == {"allow": 1, "deny": 3}


def test_changes_since_recorded_have_examples_that_do_not_depend_on_order() -> None:
    calls = [
        call(
            "drop_table",
            {},
            span_id=f"{i:016x}",
            policy_decision="allow",
            policy_reason_code="rule",
        )
        for i in range(1, 30)
    ]
    (there,) = replayed(*calls)["since_recorded"]
    (back,) = replayed(*reversed(calls))["since_recorded"]
    assert there == back
    assert (there["from"], there["to"], there["calls"], there["changed"]) == (
        "allow",
        "deny",
        29,
        True,
    )
    assert len(set(there["example_span_ids"])) == 5


def test_what_was_never_decided_is_no_change() -> None:
    """Nobody decided: 'no_policy', a foreign word, nothing."""
    document = replayed(
        call("drop_table", {}, policy_decision="allow", policy_reason_code="no_policy"),
        call("drop_table", {}, policy_decision="perhaps"),
        call("drop_table", {}, policy_decision=None),
    )
    assert document["changes"] == 0
    assert {row["from"] for row in document["since_recorded"]} == {"none"}


def test_another_policy_is_compared_call_by_call() -> None:
    document = replayed(call("drop_table", {}), call("other", {}), against=OPEN)
    moves = {(row["from"], row["to"]): row["calls"] for row in document["since_against"]}
    assert moves == {("allow", "deny"): 1, ("allow", "allow"): 1}
    assert document["changes"] == 1


def test_a_decision_of_a_shadow_is_counted_apart() -> None:
    document = replayed(
        call("drop_table", {}, policy_decision="deny", policy_enforced=False),
        call("drop_table", {}, policy_decision="deny", outcome="denied"),
    )
    assert document["recorded_in_shadow"] == 1
    assert [row["from"] for row in document["since_recorded"]] == ["deny", "deny (shadow)"]


def test_a_decision_that_needs_what_was_not_captured_is_undecided() -> None:
    limited = "version: 1\nid: p\nrules:\n  - {id: small, effect: allow, tools: [pay], args: {amount: {range: {max: 5}}}}\n"
    policy = Policy.parse(limited)
    (one,) = redecided(trajectory_of(call("pay", labels=("payment",))), policy, None, NO_APPROVALS)
    assert one.decision == "undecided"
    assert not is_change("allow", one.decision)


def test_approvals_are_checked() -> None:
    good: dict[str, Any] = {"approval_id": "a1", "approval_status": "approved"}
    document = replayed(
        call("refund", {"n": 1}, **good),
        call("refund", {"n": 2}, **good),
        call("refund", {"n": 3}),
        call("refund", {"n": 3}, outcome="denied"),
    )
    assert document["approvals"] == {
        "approval_mismatch": 1,
        "approval_missing": 1,
        "good": 1,
        "not_run": 1,
    }


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (Given(tool="refund", args_hash="h", requester="bot", approver="ann"), "good"),
        (Given(tool="delete", args_hash="h"), "approval_mismatch"),
        (Given(args_hash="other"), "approval_mismatch"),
        (Given(requester="Ann", approver="ann"), "approval_mismatch"),
        (Given(expires_ns=1), "approval_expired"),
        (Given(status="rejected"), "approval_denied"),
        (Given(uses=2), "approval_reused"),
    ],
)
def test_the_record_of_an_approval_says_more_than_the_span(given: Given, fault: str) -> None:
    document = replayed(
        call("refund", {}, args_hash="h", approval_id="a1", approval_status="approved"),
        approvals=Approvals({"a1": given}),
    )
    assert document["approvals"] == {fault: 1}


def test_a_real_store_and_its_log_are_read(tmp_path: Path) -> None:
    """One file may hold both; the log counts how often an approval was used."""
    key = HashKey.of("6b" * 32)
    path = tmp_path / "records.db"
    asked = ApprovalRequest(
        id="appr_x",
        tool="refund",
        arguments={},
        args_hash="h",
        labels=("payment",),
        agent="bot",
        conversation_id="run",
        call_id="call_1",
        policy_id="p",
        policy_digest="sha256:p",
        rule_ids=("ask",),
        reason="",
    )
    with ApprovalStore(path, key=key) as store:
        first = store.request(asked)
        store.approve(first.id, by="ann")
    log = AuditLog(path, key=key)
    body = {
        "tool": "refund",
        "tool.args_hash": "h",
        "approval.id": first.id,
        "approval.status": "approved",
    }
    log.append("intent", body)
    approved: dict[str, Any] = {"approval_id": first.id, "approval_status": "approved"}
    right = call("refund", {}, args_hash="h", **approved)
    other = call("refund", {}, args_hash="i", **approved)
    assert replayed(right, approvals=Approvals.read(path))["approvals"] == {"good": 1}
    assert replayed(other, approvals=Approvals.read(path))["approvals"] == {"approval_mismatch": 1}
    late = call("refund", {}, args_hash="h", at=4e9, **approved)
    assert replayed(late, approvals=Approvals.read(path))["approvals"] == {"approval_expired": 1}
    log.append("intent", body)
    assert replayed(right, approvals=Approvals.read(path))["approvals"] == {"approval_reused": 1}
    log.close()


def test_rules_that_met_no_call_are_told() -> None:
    found = coverage(Policy.parse(STRICT), [SeenTool("srv.look"), SeenTool("drop_table")])
    assert found.silent_rules == ("ask", "unmet")
    assert found.missing_tools == ("login",)
    assert len(found.warnings()) == 2


def test_what_was_seen_is_read_from_the_table_of_calls() -> None:
    calls = [
        call("look", {}, exposed_as="mcp__srv__look", labels=("read",), agent="bot"),
        call("look", {}, exposed_as="mcp__srv__look", labels=("read",), agent="bot"),
        call("drop_table", {}),
    ]
    judged = judge_trajectory(trajectory_of(*calls), None, None, Thresholds())
    assert seen_in(calls_table([judged])) == {
        SeenTool("mcp__srv__look", frozenset({"read"}), "bot"),
        SeenTool("drop_table"),
    }
    assert seen_in(calls_table([])) == set()


# --- the command -----------------------------------------------------------------------------------


def run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["replay", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    spans = [
        make_span(
            number,
            attributes=[
                {"key": "gen_ai.operation.name", "value": {"string_value": "execute_tool"}},
                {"key": "gen_ai.tool.name", "value": {"string_value": tool}},
            ],
        )
        for number, tool in ((1, "drop_table"), (2, "[bold]look\x1b[31m"))
    ]
    with running_collector(folder) as collector:
        body = make_request(*spans).SerializeToString()
        assert post(f"{collector.http}/v1/traces", body).status == 200
    return folder


@pytest.fixture
def policies(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "strict.yaml").write_text(STRICT)
    (tmp_path / "open.yaml").write_text(OPEN)
    return tmp_path / "strict.yaml", tmp_path / "open.yaml"


def test_the_command_prints_and_writes(
    lake: Path, policies: tuple[Path, Path], tmp_path: Path
) -> None:
    strict, old = policies
    out = tmp_path / "out"
    code, printed, _ = run(lake, "--policy", strict, "--against", old, "--out", out)
    assert code == 0
    assert "drop_table" in printed
    assert "\x1b[31m" not in printed
    document = json.loads((out / "replay.json").read_text())
    rows = pq.read_table(out / "decisions.parquet").to_pylist()
    assert document["calls"] == len(rows) == 2
    assert {row["decision"] for row in rows} == {"allow", "deny"}
    assert sorted(path.name for path in out.iterdir()) == ["decisions.parquet", "replay.json"]


def test_exit_codes(lake: Path, policies: tuple[Path, Path], tmp_path: Path) -> None:
    strict, old = policies
    assert run(lake, "--policy", strict, "--against", old, "--fail-on-change")[0] == 1
    assert run(lake, "--policy", old, "--against", old, "--fail-on-change")[0] == 0
    code, _, error = run(tmp_path / "nowhere", "--policy", strict)
    assert (code, error.count("\n")) == (2, 1)
    code, _, error = run(lake, "--policy", tmp_path / "none.yaml")
    assert (code, error.count("\n")) == (2, 1)
    code, _, error = run(lake, "--policy", strict, "--audit", strict)
    assert (code, error.count("\n")) == (2, 1)


def test_a_lake_without_calls_is_3(policies: tuple[Path, Path], tmp_path: Path) -> None:
    from toolverdict.collector import Lake

    (tmp_path / "empty").mkdir()
    Lake.create(tmp_path / "empty")
    assert run(tmp_path / "empty", "--policy", policies[0])[0] == 3
