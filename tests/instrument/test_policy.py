from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument.decisions import Call, Earlier, Effect, ReasonCode
from toolverdict.instrument.errors import PolicyError
from toolverdict.instrument.policy import Policy

REFUNDS = """
version: 1
id: refunds
rules:
  - id: never-delete
    effect: deny
    tools: [delete_user]
    reason: users are never deleted by an agent
  - id: refunds-need-a-human
    effect: require_approval
    labels: [payment]
  - id: identity-first
    effect: allow
    tools: [get_order, refund_payment]
    requires: [verify_identity]
"""


def policy(*rules: dict[str, Any]) -> Policy:
    named = [{"id": f"r{index}", **rule} for index, rule in enumerate(rules)]
    return Policy.model_validate({"version": 1, "id": "p", "rules": named})


def call(tool: str, *labels: str, agent: str | None = "bot", done: tuple[str, ...] = ()) -> Call:
    return Call(tool, frozenset(labels), agent, frozenset(done))


def test_the_example_decides() -> None:
    refunds = Policy.parse(REFUNDS)
    denied = refunds.decide(call("delete_user"))
    assert (denied.effect, denied.rule_ids, denied.reason_code) == (
        Effect.DENY,
        ("never-delete",),
        ReasonCode.RULE,
    )
    assert denied.reason == "users are never deleted by an agent"
    early = refunds.decide(call("refund_payment", "payment"))
    assert (early.effect, early.reason_code) == (Effect.DENY, ReasonCode.REQUIRES_UNMET)
    assert early.rule_ids == ("identity-first",)
    assert early.reason == "call verify_identity first, with success"
    later = refunds.decide(call("refund_payment", "payment", done=("verify_identity",)))
    assert (later.effect, later.rule_ids) == (Effect.REQUIRE_APPROVAL, ("refunds-need-a-human",))
    allowed = refunds.decide(call("get_order", done=("verify_identity",)))
    assert (allowed.effect, allowed.rule_ids) == (Effect.ALLOW, ("identity-first",))


def test_the_strictest_rule_wins_in_any_order() -> None:
    allow = {"id": "a", "effect": "allow", "tools": ["*"]}
    ask = {"id": "q", "effect": "require_approval", "tools": ["*"]}
    deny = {"id": "d", "effect": "deny", "tools": ["*"]}
    assert policy(allow, ask, deny).decide(call("x")).effect is Effect.DENY
    assert policy(deny, ask, allow).decide(call("x")).effect is Effect.DENY
    assert policy(allow, ask).decide(call("x")).effect is Effect.REQUIRE_APPROVAL
    assert policy(allow).decide(call("x")).effect is Effect.ALLOW


@pytest.mark.parametrize("label", ["write", "payment", "permission", "external_message"])
def test_without_a_rule_a_dangerous_tool_is_denied(label: str) -> None:
    nothing = policy()
    denied = nothing.decide(call("x", label))
    assert (denied.effect, denied.reason_code) == (Effect.DENY, ReasonCode.NO_RULE)
    allowed = nothing.decide(call("x", "read"))
    assert (allowed.effect, allowed.reason_code) == (Effect.ALLOW, ReasonCode.NO_RULE)


def test_all_matchers_of_a_rule_must_match() -> None:
    rule = {"effect": "deny", "tools": ["pay_*"], "labels": ["payment"], "agents": ["bot-*"]}
    decide = policy(rule).decide
    assert decide(call("pay_x", "payment", "read", agent="bot-1")).effect is Effect.DENY
    assert decide(call("pay_x", "read", agent="bot-1")).effect is Effect.ALLOW
    assert decide(call("get_x", "read", agent="bot-1")).effect is Effect.ALLOW
    assert decide(call("pay_x", "read", "payment", agent="human")).reason_code is ReasonCode.NO_RULE


def test_an_unknown_agent_is_restricted_and_permitted_nothing() -> None:
    rules = [
        {"effect": "deny", "tools": ["delete"], "agents": ["intern"]},
        {"effect": "allow", "tools": ["pay"], "agents": ["cashier"]},
    ]
    decide = policy(*rules).decide
    assert decide(call("delete", agent=None)).effect is Effect.DENY
    assert decide(call("pay", "payment", agent=None)).effect is Effect.DENY
    assert decide(call("pay", "payment", agent="cashier")).effect is Effect.ALLOW


@pytest.mark.parametrize("name", ["mcp__fs__delete_file", "fs.delete_file", "fs/delete_file"])
def test_a_forbidden_tool_is_forbidden_on_every_server(name: str) -> None:
    """B139: a policy that names the bare tool does not fail open."""
    assert policy({"effect": "deny", "tools": ["delete_file"]}).decide(call(name)).effect == "deny"
    asked = policy({"effect": "require_approval", "tools": ["delete_file"]})
    assert asked.decide(call(name)).effect == "require_approval"


def test_a_permission_is_not_inherited_by_another_server() -> None:
    """B140: permitting search permits no server's search."""
    decide = policy({"effect": "allow", "tools": ["send"]}).decide
    assert decide(call("send", "write")).effect is Effect.ALLOW
    assert decide(call("mcp__evil__send", "write")).effect is Effect.DENY


def test_a_requirement_holds_where_the_permission_does_not() -> None:
    rule = {"effect": "allow", "tools": ["refund"], "requires": ["verify"]}
    decide = policy(rule).decide
    assert decide(call("shop.refund")).reason_code is ReasonCode.REQUIRES_UNMET
    assert decide(call("shop.refund", done=("evil.verify",))).effect is Effect.DENY
    assert decide(call("shop.refund", done=("verify",))).effect is Effect.ALLOW


def test_all_requirements_must_be_met() -> None:
    rule = {"effect": "allow", "tools": ["refund"], "requires": ["a", "b_*"]}
    decide = policy(rule).decide
    assert decide(call("refund", done=("a",))).reason == "call b_* first, with success"
    assert decide(call("refund", done=("a", "b_1"))).effect is Effect.ALLOW


def test_what_goes_wrong_while_deciding_denies() -> None:
    """A fault in the policy never lets a call through."""

    class Broken:
        tool = "x"

        def __getattr__(self, name: str) -> object:
            raise RuntimeError("secret")

    broken: Any = Broken()
    decision = policy({"effect": "allow", "labels": ["read"]}).decide(broken)
    assert (decision.effect, decision.reason_code) == (Effect.DENY, ReasonCode.POLICY_ERROR)
    assert "secret" not in decision.reason


def test_the_digest_is_of_the_meaning() -> None:
    text = dedent(REFUNDS)
    spaced = "# a comment\n" + text.replace("[delete_user]", "\n      - delete_user")
    assert Policy.parse(spaced).digest == Policy.parse(text).digest
    assert Policy.parse(text.replace("delete_user", "delete_users")).digest != (
        Policy.parse(text).digest
    )
    assert Policy.parse(text).digest.startswith("sha256:")


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Policy.parse(REFUNDS).id = "other"


HEAD = "version: 1\nid: p\nrules:\n  - id: r\n    effect: deny\n"

PROBLEMS = [
    ("", "p.yaml: expected a mapping with version, id and rules"),
    ("- 1", "p.yaml: expected a mapping with version, id and rules"),
    ("a: [", "p.yaml: line 1: is not YAML: "),
    ("a: !!python/object:os.system x", "p.yaml: line 1: is not YAML that JSON can hold: tag"),
    ("a: !!int x", "p.yaml: line 1: is not YAML: 'x' is no int"),
    ("id: a\nid: b", "p.yaml: line 2: the key 'id' occurs twice"),
    (HEAD + "    tools: [a]\n    tools: [b]", "p.yaml: line 7: the key 'tools' occurs twice"),
    (
        HEAD + "    tool: [a]",
        "p.yaml: line 6, rules.0.tool: unknown key 'tool'; did you mean 'tools'?",
    ),
    (HEAD, "p.yaml: line 4, rules.0: a rule needs tools, labels or agents to match"),
    (HEAD + "    tools: []", "p.yaml: line 6, rules.0.tools: List should have at least 1 item"),
    (HEAD + "    tools: a", "p.yaml: line 6, rules.0.tools: a list is expected, such as [a, b]"),
    (HEAD + "    tools: ['']", "p.yaml: line 6, rules.0.tools.0: String should have at least 1"),
    (HEAD + "    tools: [1]", "p.yaml: line 6, rules.0.tools.0: Input should be a valid string"),
    (
        "version: 1\nid: p\nrules:\n  - {id: r, effect: forbid, tools: [a]}",
        "p.yaml: line 4, rules.0.effect: Input should be 'allow', 'deny' or 'require_approval'",
    ),
    ("version: 2\nid: p\nrules: []", "p.yaml: line 1, version: this toolverdict reads policy ver"),
    ("version: true\nid: p\nrules: []", "p.yaml: line 1, version: this toolverdict reads"),
    ("version: 1\nid: p", "p.yaml: line 1, rules: Field required"),
    (
        HEAD + "    tools: [a]\n" + HEAD[23:] + "    tools: [b]",
        "rule ids must be unique; used twice: r",
    ),
    ("[" * 5000, "p.yaml: line 1: is not YAML: nested more than 64 deep"),
    (HEAD + '    tools: [a]\n    reason: "\\ud800"', "p.yaml: line 7: half a character"),
]


@pytest.mark.parametrize(("text", "message"), PROBLEMS, ids=range(len(PROBLEMS)))
def test_what_is_wrong_with_a_file_is_said_in_one_line(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("p.yaml").write_text(text)
    with pytest.raises(PolicyError) as caught:
        Policy.load("p.yaml")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"none\.yaml: cannot be read: No such file"):
        Policy.load(tmp_path / "none.yaml")
    (tmp_path / "big.yaml").write_bytes(b"#" * 1_000_001)
    with pytest.raises(PolicyError, match="is larger than 1000000 bytes"):
        Policy.load(tmp_path / "big.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PolicyError, match="is not YAML"):
        Policy.load(tmp_path / "binary.yaml")


def test_a_file_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(REFUNDS)
    assert Policy.load(tmp_path / "p.yaml") == Policy.parse(REFUNDS)


def test_a_policy_without_a_digest_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told when the file is read, and not at the first call."""

    def failing(content: object) -> bytes:
        raise rfc8785.CanonicalizationError("secret")

    monkeypatch.setattr("rfc8785.dumps", failing)
    with pytest.raises(PolicyError, match=r"^p\.yaml: has no digest: CanonicalizationError$"):
        Policy.parse(REFUNDS, source="p.yaml")


def test_a_rule_for_a_name_with_metacharacters_means_that_name() -> None:
    rule = {"effect": "deny", "tools": ["refund[1]"]}
    assert policy(rule).decide(call("refund[1]")).effect is Effect.DENY
    assert policy(rule).decide(call("mcp__shop__refund[1]")).effect is Effect.DENY
    required = policy({"effect": "allow", "tools": ["pay"], "requires": ["verify[1]"]})
    assert required.decide(call("pay", done=("verify[1]",))).effect is Effect.ALLOW


MIXED = """
version: 1
id: mixed
tools: {versioned: {schema_version: "2"}}
rules:
  - {id: d1, effect: deny, tools: [drop_*]}
  - {id: d2, effect: deny, tools: [mail], unless_after: [verify]}
  - {id: d3, effect: deny, tools: [get_file], args: {path: {prefix: [/etc/]}}}
  - {id: q1, effect: require_approval, labels: [payment], approval: {ttl_s: 60}}
  - {id: a1, effect: allow, tools: ["get_*", mail, versioned], labels: [read, write]}
  - {id: a2, effect: allow, tools: [refund], limits: {per_trajectory: 1}, agents: [bot]}
  - {id: a3, effect: allow, tools: [book], idempotency: required}
"""
CALLS = st.builds(
    Call,
    tool=st.sampled_from(
        ["drop_it", "mail", "get_file", "get_it", "refund", "versioned", "book", "other"]
    ),
    labels=st.frozensets(st.sampled_from(["read", "write", "payment"])),
    agent=st.sampled_from(["bot", "other", None]),
    succeeded=st.frozensets(st.just("verify")),
    arguments=st.sampled_from([None, {}, {"path": "/etc/passwd"}, {"path": "/srv/x"}]),
    earlier=st.sampled_from([None, (), (Earlier("refund"),)]),
    idempotency_key=st.sampled_from([None, True, False]),
    schema_version=st.sampled_from([None, "1", "2"]),
)
OTHER_DAYS = Policy.parse(MIXED)


@given(CALLS)
def test_what_was_asked_before_makes_no_difference(call: Call) -> None:
    """Decisions that names alone settle are remembered; no other is."""
    assert OTHER_DAYS.decide(call) == Policy.parse(MIXED).decide(call)
