"""What a rule demands besides arguments: order, number, keys, approvals, and the shadow mode."""

import copy
import pickle
from typing import Any

import pytest

from toolverdict.instrument.decisions import ApprovalTerms, Call, Decision, Earlier, Effect
from toolverdict.instrument.policy import Policy


def policy(*rules: dict[str, Any], **more: Any) -> Policy:
    named = [
        {"id": f"r{index}", **({} if "labels" in rule else {"tools": ["pay"]}), **rule}
        for index, rule in enumerate(rules)
    ]
    return Policy.model_validate({"version": 1, "id": "p", "rules": named, **more})


def pay(*labels: str, tool: str = "pay", done: tuple[str, ...] = (), **more: Any) -> Call:
    return Call(tool, frozenset(labels or ("read",)), "bot", frozenset(done), **more)


def said(decision: Decision) -> tuple[str, str]:
    return decision.effect.value, decision.reason_code.value


ALLOW = {"effect": "allow"}


def earlier(*tools: str, at: float | None = 0.0) -> list[Earlier]:
    return [Earlier(tool, frozenset({"read"}), at) for tool in tools]


def test_a_denial_may_hold_only_until_something_is_done() -> None:
    """It is the order that is wrong then, and that is what is said."""
    decide = policy({"effect": "deny", "unless_after": ["verify", "consent"]}).decide
    assert said(decide(pay())) == ("deny", "requires_unmet")
    assert decide(pay()).reason == "call consent, verify first, with success"
    assert said(decide(pay(done=("verify",)))) == ("deny", "requires_unmet")
    assert said(decide(pay(done=("verify", "evil.consent")))) == ("deny", "requires_unmet")
    assert said(decide(pay(done=("verify", "consent")))) == ("allow", "no_rule")


def test_a_request_for_approval_may_lapse() -> None:
    decide = policy({"effect": "require_approval", "unless_after": ["ask_desk"]}).decide
    assert said(decide(pay())) == ("require_approval", "rule")
    assert said(decide(pay(done=("ask_desk",)))) == ("allow", "no_rule")


def test_a_permission_lapses_on_the_first_doubt() -> None:
    decide = policy({"effect": "allow", "unless_after": ["close", "cancel"]}).decide
    assert said(decide(pay("payment"))) == ("allow", "rule")
    assert said(decide(pay("payment", done=("shop.close",)))) == ("deny", "no_rule")


def test_a_plain_denial_goes_before_one_that_may_be_lifted() -> None:
    decide = policy({"effect": "deny", "unless_after": ["verify"]}, {"effect": "deny"}).decide
    assert said(decide(pay())) == ("deny", "rule")
    assert decide(pay()).rule_ids == ("r1",)


def test_stages_say_where_a_call_may_stand() -> None:
    stages = {"after": ["get_order", "get_invoice"], "before": ["close_*"]}
    decide = policy({**ALLOW, "stages": stages}).decide
    none: list[Earlier] = []
    assert said(decide(pay(earlier=none))) == ("deny", "requires_unmet")
    assert decide(pay(earlier=none)).reason == "call get_order or get_invoice first, with success"
    done = ("get_invoice",)
    assert said(decide(pay(done=done, earlier=earlier(*done)))) == ("allow", "rule")
    closed = earlier("get_invoice", "shop.close_case")
    assert said(decide(pay(done=done, earlier=closed))) == ("deny", "stage")


def test_whether_it_comes_too_late_may_not_be_known() -> None:
    decide = policy({**ALLOW, "stages": {"before": ["close"]}}).decide
    unsure = decide(pay())
    assert said(unsure) == ("deny", "stage")
    assert unsure.at_best is not None
    assert said(unsure.at_best) == ("allow", "rule")
    certain = decide(pay(done=("close",)))
    assert said(certain) == ("deny", "stage")
    assert not certain.unknown


@pytest.mark.parametrize("effect", ["allow", "require_approval"])
def test_a_limit_counts_what_was_let_through(effect: str) -> None:
    decide = policy({"effect": effect, "limits": {"per_trajectory": 2}}).decide
    assert said(decide(pay(earlier=earlier("pay", "other")))) == (effect, "rule")
    full = decide(pay(earlier=earlier("pay", "shop.pay")))
    assert said(full) == ("deny", "limit")
    assert full.reason == "there have been as many such calls as are allowed"
    assert said(decide(pay(tool="other", earlier=earlier("pay", "pay")))) == ("allow", "no_rule")


def test_a_limit_over_labels_counts_all_tools_with_them() -> None:
    rule = {
        "labels": ["payment"],
        "effect": "allow",
        "limits": {"per_trajectory": 1},
    }
    decide = policy(rule).decide
    other = [Earlier("refund", frozenset({"payment"}))]
    assert said(decide(pay("payment", earlier=other))) == ("deny", "limit")
    assert said(decide(pay("payment", earlier=earlier("refund")))) == ("allow", "rule")


def test_a_window_slides() -> None:
    window = {"per_window": {"calls": 2, "seconds": 60}}
    decide = policy({**ALLOW, "limits": window}).decide
    before = [*earlier("pay", at=0.0), *earlier("pay", at=50.0)]
    assert said(decide(pay(earlier=before, at_s=59.0))) == ("deny", "limit")
    assert said(decide(pay(earlier=before, at_s=60.0))) == ("allow", "rule")
    assert said(decide(pay(earlier=before))) == ("deny", "limit")
    timeless = earlier("pay", "pay", at=None)
    assert said(decide(pay(earlier=timeless, at_s=1e9))) == ("deny", "limit")
    assert said(decide(pay(earlier=before, at_s=10.0))) == ("deny", "limit")  # a clock set back


def test_outside_of_a_trajectory_nothing_that_is_limited_is_let_through() -> None:
    decision = policy({**ALLOW, "limits": {"per_trajectory": 5}}).decide(pay())
    assert said(decision) == ("deny", "limit")
    assert decision.reason == "how many such calls there were is not known"
    assert decision.unknown


def test_a_limit_of_none_is_a_denial() -> None:
    decide = policy({**ALLOW, "limits": {"per_trajectory": 0}}).decide
    assert said(decide(pay(earlier=[]))) == ("deny", "limit")


@pytest.mark.parametrize(
    ("key", "effect", "unknown"),
    [(True, "allow", False), (False, "deny", False), (None, "deny", True)],
)
def test_an_idempotency_key_can_be_required(key: bool | None, effect: str, unknown: bool) -> None:
    """S36."""
    decision = policy({**ALLOW, "idempotency": "required"}).decide(pay(idempotency_key=key))
    assert (decision.effect, decision.unknown) == (effect, unknown)
    if effect == "deny":
        assert decision.reason_code == "idempotency_missing"


def test_an_approval_has_the_terms_of_all_rules_that_ask() -> None:
    ask = {"effect": "require_approval"}
    one = {**ask, "approval": {"ttl_s": 600, "approvers": ["ann", "bob"]}}
    two = {**ask, "approval": {"ttl_s": 60, "approvers": ["bob", "eve"]}}
    assert policy(ask).decide(pay()).approval == ApprovalTerms()
    both = policy(one, two, ask).decide(pay()).approval
    assert both == ApprovalTerms(60.0, frozenset({"bob"}))
    nobody = policy(one, {**ask, "approval": {"approvers": ["eve"]}}).decide(pay())
    assert said(nobody) == ("deny", "policy_error")
    assert policy(ALLOW).decide(pay()).approval is None


def test_the_policy_adds_labels_and_takes_none_away() -> None:
    tools = {"pay": {"labels": ["payment"], "owner": "ann"}}
    decide = policy(tools=tools).decide
    assert said(decide(pay())) == ("deny", "no_rule")
    assert decide(pay()).labels == {"payment", "read"}
    assert decide(pay()).dangerous
    assert said(decide(pay(tool="shop.pay"))) == ("deny", "no_rule")
    assert said(decide(pay("write", tool="other"))) == ("deny", "no_rule")
    by_label = {"labels": ["payment"]}
    asked = policy({**by_label, "effect": "require_approval"}, tools=tools)
    assert said(asked.decide(pay())) == ("require_approval", "rule")


def test_a_label_that_may_be_another_tools_permits_nothing() -> None:
    rule = {"labels": ["cheap"], "effect": "allow"}
    decide = policy(rule, tools={"pay": {"labels": ["cheap"]}}).decide
    assert said(decide(pay("payment"))) == ("allow", "rule")
    assert said(decide(pay("payment", tool="evil.pay"))) == ("deny", "no_rule")


@pytest.mark.parametrize(
    ("version", "effect", "unknown"),
    [("2.1.0", "allow", False), ("2.2.0", "deny", False), (None, "deny", True)],
)
def test_a_policy_is_for_one_schema_version(
    version: str | None, effect: str, unknown: bool
) -> None:
    decide = policy(ALLOW, tools={"pay": {"schema_version": "2.1.0"}}).decide
    decision = decide(pay(schema_version=version))
    assert (decision.effect, decision.unknown) == (effect, unknown)
    assert decide(pay(tool="other")).effect is Effect.ALLOW


@pytest.mark.parametrize("effect", ["allow", "deny", "require_approval"])
def test_a_shadow_policy_decides_and_enforces_nothing(effect: str) -> None:
    decision = policy({"effect": effect}, mode="shadow").decide(pay())
    assert (decision.effect, decision.mode, decision.enforced) == (effect, "shadow", False)
    assert policy({"effect": effect}).decide(pay()).enforced


def test_a_shadow_policy_that_fails_enforces_nothing_either() -> None:
    broken: Any = object()
    decision = policy(ALLOW, mode="shadow").decide(broken)
    assert (decision.effect, decision.enforced) == (Effect.DENY, False)


def test_yesterdays_policy_has_the_digest_that_it_had() -> None:
    """Approvals are bound to it."""
    text = """
version: 1
id: refunds
rules:
  - {id: never-delete, effect: deny, tools: [delete_user], reason: never}
  - {id: human, effect: require_approval, labels: [payment], agents: ["bot-*"]}
  - {id: identity, effect: allow, tools: [get_order], requires: [verify_identity]}
"""
    digest = "sha256:f83d9f11fe01bdd93d06bbec45a79155c09c910b0165f02c272281e92621a2b3"
    assert Policy.parse(text).digest == digest
    assert Policy.parse(text + "mode: enforce\n").digest == digest
    assert Policy.parse(text + "mode: shadow\n").digest != digest


def test_who_confirmed_a_rule_changes_no_digest() -> None:
    plain = policy(ALLOW)
    confirmation = {"by": "ann", "at": "2026-11-30", "digest": plain.rules[0].digest}
    confirmed = policy({**ALLOW, "confirmed": confirmation})
    assert confirmed.digest == plain.digest
    assert confirmed.rules[0].is_confirmed
    changed = policy({**ALLOW, "confirmed": confirmation, "requires": ["verify"]})
    assert not changed.rules[0].is_confirmed
    assert not plain.rules[0].is_confirmed


def test_a_copy_decides_by_its_own_rules() -> None:
    """What was compiled of the old rules does not go along."""
    allowing = policy(ALLOW)
    assert allowing.decide(pay("payment")).effect is Effect.ALLOW
    other = allowing.model_copy(update={"rules": ()})
    assert other.decide(pay("payment")).effect is Effect.DENY
    assert other.digest != allowing.digest
    for again in (pickle.loads(pickle.dumps(allowing)), copy.deepcopy(allowing)):
        assert again == allowing
        assert again.decide(pay("payment")).effect is Effect.ALLOW


def test_hostile_names_do_not_fill_the_memory() -> None:
    decide = policy(ALLOW).decide
    for index in range(5_000):
        decide(pay(tool=f"tool_{index}"))
    assert said(decide(pay("payment", tool="pay"))) == ("allow", "rule")
    assert said(decide(pay("payment", tool="x" * 100_000))) == ("deny", "no_rule")
