"""What a rule says about arguments: every doubt goes against the call."""

import math
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import IntEnum, StrEnum
from pathlib import PurePosixPath as Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from toolverdict.instrument.decisions import Call, Effect, ReasonCode
from toolverdict.instrument.errors import PolicyError
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.policy.reading import OneOf, PartlyKnown


def policy(effect: str, args: dict[str, Any], **more: Any) -> Policy:
    rule = {"id": "r", "effect": effect, "tools": ["pay"], "args": args, **more}
    return Policy.model_validate({"version": 1, "id": "p", "rules": [rule]})


def pay(arguments: Any, labels: tuple[str, ...] = ("payment",), **more: Any) -> Call:
    frozen = None if arguments is None else MappingProxyType(arguments)
    return Call("pay", frozenset(labels), "bot", arguments=frozen, **more)


def allowed(condition: dict[str, Any], arguments: Any, **more: Any) -> bool:
    decision = policy("allow", {"x": condition}).decide(pay(arguments, **more))
    return decision.effect is Effect.ALLOW


def denied(condition: dict[str, Any], arguments: Any, **more: Any) -> bool:
    decision = policy("deny", {"x": condition}).decide(pay(arguments, ("read",), **more))
    return decision.effect is Effect.DENY


NAN = math.nan
YES, NO, DOUBT = "holds", "fails", "doubt"

TABLE: list[tuple[dict[str, Any], Any, str]] = [
    ({"in": ["EUR", "USD"]}, "EUR", YES),
    ({"in": ["EUR", "USD"]}, "CHF", NO),
    ({"in": ["EUR", "USD"]}, "eur", DOUBT),
    ({"in": ["EUR", "USD"]}, "EUR\n", DOUBT),
    ({"in": ["EUR", "USD"]}, "\N{FULLWIDTH LATIN CAPITAL LETTER E}UR", DOUBT),
    ({"in": ["EUR", "USD"]}, "E\N{ZERO WIDTH SPACE}UR", DOUBT),
    ({"in": ["EUR", "USD"]}, 7, DOUBT),
    ({"in": ["EUR", "USD"]}, ["EUR"], DOUBT),
    ({"in": ["EUR", "USD"]}, None, DOUBT),
    ({"in": [1, 2]}, 1, YES),
    ({"in": [1, 2]}, 1.0, YES),
    ({"in": [1, 2]}, True, DOUBT),
    ({"in": [True]}, 1, DOUBT),
    ({"in": [1, 2]}, "1", DOUBT),
    ({"in": [1, 2]}, 3, NO),
    ({"in": [1, 2]}, NAN, DOUBT),
    ({"equals": False}, False, YES),
    ({"equals": False}, 0, DOUBT),
    ({"equals": False}, True, NO),
    ({"equals": 0}, 0.0, YES),
    ({"equals": ""}, "", YES),
    ({"range": {"min": 0, "max": 100}}, 100, YES),
    ({"range": {"min": 0, "max": 100}}, 0.5, YES),
    ({"range": {"min": 0, "max": 100}}, 100.01, NO),
    ({"range": {"min": 0, "max": 100}}, -1, NO),
    ({"range": {"min": 0, "max": 100}}, True, DOUBT),
    ({"range": {"min": 0, "max": 100}}, "50", DOUBT),
    ({"range": {"min": 0, "max": 100}}, NAN, DOUBT),
    ({"range": {"min": 0, "max": 100}}, math.inf, DOUBT),
    ({"range": {"min": 0, "max": 100}}, None, DOUBT),
    ({"range": {"min": 0, "max": 100}}, 2**70, NO),
    ({"range": {"min": 0}}, 10**400, YES),
    ({"range": {"max": 100}}, Decimal("99.99"), YES),
    ({"range": {"max": 100}}, Decimal("100.01"), NO),
    ({"range": {"max": 100}}, Decimal("sNaN"), DOUBT),
    ({"prefix": "https://shop.example/"}, "https://shop.example/a", YES),
    ({"prefix": "https://shop.example/"}, "https://shop.example.evil/", NO),
    ({"prefix": "https://shop.example/"}, "HTTPS://shop.example/a", DOUBT),
    ({"prefix": "https://shop.example/"}, " https://shop.example/a", DOUBT),
    ({"prefix": "/srv/data/"}, "/srv/data/../../etc/passwd", DOUBT),
    ({"prefix": "/srv/data/"}, "/srv/data/%2e%2e/etc", DOUBT),
    ({"prefix": ["/a/", "/b/"]}, "/b/c", YES),
    ({"prefix": "/a/"}, b"/a/b", DOUBT),
    ({"suffix": "@shop.example"}, "me@shop.example", YES),
    ({"suffix": "@shop.example"}, "me@shop.example.evil", NO),
    ({"suffix": "@shop.example"}, "x@evil.example\nBcc: me@shop.example", DOUBT),
    ({"suffix": "@shop.example"}, "me@shop.example\n", DOUBT),
    ({"pattern": "cust_[0-9]+"}, "cust_17", YES),
    ({"pattern": "cust_[0-9]+"}, "cust_17\n", DOUBT),
    ({"pattern": "cust_[0-9]+"}, "cust_\u0661\u0662", DOUBT),
    ({"pattern": "cust_[0-9]+"}, "cust_", NO),
    ({"pattern": "cust_[0-9]+"}, "x cust_17", NO),
    ({"pattern": "cust_[0-9]+"}, 17, DOUBT),
    ({"pattern": ["a+", "b+"]}, "bb", YES),
    ({"max_length": 3}, "abc", YES),
    ({"max_length": 3}, "abcd", NO),
    ({"max_length": 3}, [1, 2, 3], YES),
    ({"max_length": 3}, 5, DOUBT),
    ({"in": ["evil.example"]}, "evil.example" + " " * 10_001, DOUBT),
    ({"equals": "evil.example"}, "x" * 10_001, DOUBT),
    ({"in": ["evil.example"]}, "evil.ex\u0430mple", DOUBT),
    ({"in": ["evil.example"]}, "\u0395VIL.example", DOUBT),
    ({"in": ["evil.example"]}, "evil.example.", DOUBT),
    ({"in": ["evil.example"]}, "evil\u3002example", DOUBT),
    ({"in": ["evil-example"]}, "evil\u2011example", DOUBT),
    ({"in": ["evil.example"]}, "good.example", NO),
    ({"in": ["EUR"]}, Path("EUR"), YES),
    ({"in": ["EUR"]}, Decimal(5), DOUBT),
    ({"equals": "2026-01-02"}, date(2026, 1, 2), YES),
    ({"equals": "00000000-0000-0000-0000-000000000001"}, UUID(int=1), YES),
    ({"pattern": "Acct_[0-9]+"}, "ACCT_1", DOUBT),
    ({"pattern": "Acct_[0-9]+"}, "acct_1 ", DOUBT),
    ({"pattern": "Acct_[0-9]+"}, "Acct_1.", DOUBT),
    ({"pattern": "Acct_[0-9]+"}, "\u0410cct_1", DOUBT),
    ({"pattern": "Acct_[0-9]+"}, "Acct_x", NO),
    ({"pattern": "[a-z]+[A-Z]"}, "aBc", DOUBT),
    ({"pattern": "[a-z]+[A-Z]"}, "a1", NO),
    ({"pattern": "[a-z]+\\."}, "ABC.", DOUBT),
    ({"prefix": "/srv/data/"}, "/srv/data/\uff0e\uff0e/x", DOUBT),
    ({"prefix": "/srv/data/"}, "/srv/data/%25252e%25252e/x", DOUBT),
    ({"prefix": "/srv/data/"}, "/srv/data/%2525252525252525252e/x", DOUBT),
    ({"prefix": "/srv/data/"}, "/srv/data/%25%32%65/x", DOUBT),
    ({"prefix": "/srv/data/"}, "/srv/data/%c0%ae%c0%ae/x", DOUBT),
    ({"prefix": "/srv/data/"}, "/srv/data/a%20b", YES),
    ({"prefix": "/srv/data/"}, "/\u0455rv/data/x", DOUBT),
    ({"prefix": "shop."}, "shoplifter", NO),
    ({"suffix": "@shop.example"}, "me@shop.example.", DOUBT),
    ({"max_length": 3}, {1, 2, 3, 4}, NO),
    ({"range": {"min": 1}, "in": [0, 5]}, 5, YES),
    ({"range": {"min": 1}, "in": [0, 5]}, 0, NO),
]


@pytest.mark.parametrize(("condition", "value", "state"), TABLE, ids=range(len(TABLE)))
def test_a_permission_needs_certainty_and_so_does_an_escape(
    condition: dict[str, Any], value: Any, state: str
) -> None:
    assert allowed(condition, {"x": value}) is (state == YES)
    assert denied(condition, {"x": value}) is (state != NO)


@pytest.mark.parametrize("condition", [row[0] for row in TABLE[::6]], ids=str)
def test_a_missing_argument_permits_nothing_and_escapes_nothing(condition: dict[str, Any]) -> None:
    assert not allowed(condition, {"y": 1})
    assert denied(condition, {"y": 1})


@pytest.mark.parametrize("condition", [row[0] for row in TABLE[::6]], ids=str)
def test_arguments_that_were_not_captured_make_the_decision_unknown(
    condition: dict[str, Any],
) -> None:
    """METRICS 6: missing data is not compliance, and no violation either."""
    permitting = policy("allow", {"x": condition}).decide(pay(None))
    assert permitting.unknown
    assert permitting.at_best is not None
    assert (permitting.effect, permitting.at_best.effect) == (Effect.DENY, Effect.ALLOW)
    denying = policy("deny", {"x": condition}).decide(pay(None, ("read",)))
    assert denying.at_best is not None
    assert (denying.effect, denying.at_best.effect) == (Effect.DENY, Effect.ALLOW)


def test_a_member_of_an_enum_is_its_value() -> None:
    class Currency(StrEnum):
        EUR = "EUR"

    class Level(IntEnum):
        HIGH = 3

    assert allowed({"in": ["EUR"]}, {"x": Currency.EUR})
    assert not denied({"in": ["USD"]}, {"x": Currency.EUR})
    assert allowed({"range": {"max": 3}}, {"x": Level.HIGH})

    class Liar(str):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

    assert not allowed({"in": ["EUR"]}, {"x": Liar("EUR")})
    assert denied({"in": ["USD"]}, {"x": Liar("CHF")})


def test_what_makes_no_difference_is_not_unknown() -> None:
    rules = [
        {"id": "never", "effect": "deny", "tools": ["pay"]},
        {"id": "small", "effect": "allow", "tools": ["pay"], "args": {"x": {"equals": 1}}},
    ]
    both = Policy.model_validate({"version": 1, "id": "p", "rules": rules})
    assert not both.decide(pay(None)).unknown
    assert not policy("allow", {"x": {"equals": 1}}).decide(pay({"x": 2})).unknown
    assert not policy("allow", {"x": {"equals": 1}}).decide(pay({})).unknown


NESTED: list[tuple[str, Any, str]] = [
    ("x.to", {"x": {"to": "a"}}, YES),
    ("x.to", {"x": {"to": "b"}}, NO),
    ("x.to", {"x": {}}, DOUBT),
    ("x.to", {"x": "a"}, DOUBT),
    ("x.to", {"x": {"to": "b"}, "x.to": "a"}, DOUBT),
    ("x.to", {"x": {"to": {"to": "b"}}}, DOUBT),
    ("x.*", {"x": ["a", "a"]}, YES),
    ("x.*", {"x": ["a", "b"]}, DOUBT),
    ("x.*", {"x": ["b", "c"]}, NO),
    ("x.*", {"x": []}, DOUBT),
    ("x.*.to", {"x": [{"to": "a"}, {}]}, DOUBT),
    ("x.*.to", {"x": ({"to": "a"},)}, YES),
    ("x.*", {"x": {"k": "a", "l": "a"}}, YES),
    ("x.*", {"x": {"*": "a", "l": "b"}}, YES),
    ("x.a.b", {"x": {"a": {"b": "b"}, "a.b": "a"}}, DOUBT),
]


@pytest.mark.parametrize(("path", "arguments", "state"), NESTED, ids=range(len(NESTED)))
def test_a_path_leads_to_one_place_or_to_doubt(path: str, arguments: Any, state: str) -> None:
    condition = {path: {"equals": "a"}}
    permitted = policy("allow", condition).decide(pay(arguments)).effect is Effect.ALLOW
    escaped = policy("deny", condition).decide(pay(arguments, ("read",))).effect is Effect.ALLOW
    assert permitted is (state == YES)
    assert escaped is (state == NO)


@pytest.mark.parametrize(
    ("session", "value", "state"),
    [
        ({"user": "u1"}, "u1", YES),
        ({"user": "u1"}, "u2", NO),
        ({"user": "u1"}, "U1", DOUBT),
        ({"user": "u1"}, 1, DOUBT),
        ({"user": ""}, "", DOUBT),
        ({"user": None}, None, DOUBT),
        ({}, "u1", DOUBT),
        ({"user": 7}, 7, YES),
        ({"user": 1}, True, DOUBT),
    ],
)
def test_the_model_may_not_make_up_an_id(session: dict[str, Any], value: Any, state: str) -> None:
    """S37: an administrator's id is nobody's to construct."""
    own = {"equals_session": "user"}
    assert allowed(own, {"x": value}, session=session) is (state == YES)
    assert denied(own, {"x": value}, session=session) is (state != NO)


def test_without_a_session_its_values_are_unknown() -> None:
    decision = policy("allow", {"x": {"equals_session": "user"}}).decide(pay({"x": "u1"}))
    assert decision.effect is Effect.DENY
    assert decision.unknown


@pytest.mark.parametrize(
    ("answer", "permits", "denies", "unknown"),
    [
        (True, True, True, False),
        (False, False, False, False),
        (None, False, True, True),
        ("yes", False, True, False),
        (1, False, True, False),
    ],
)
def test_only_a_plain_yes_makes_a_value_trusted(
    answer: Any, permits: bool, denies: bool, unknown: bool
) -> None:
    def asked(value: object) -> Any:
        return answer

    assert allowed({"trusted": True}, {"x": 1}, is_trusted=asked) is permits
    assert denied({"trusted": True}, {"x": 1}, is_trusted=asked) is denies
    decision = policy("allow", {"x": {"trusted": True}}).decide(pay({"x": 1}, is_trusted=asked))
    assert decision.unknown is unknown


def test_a_trust_that_fails_denies() -> None:
    def failing(value: object) -> bool:
        raise RuntimeError("secret")

    decision = policy("allow", {"x": {"trusted": True}}).decide(pay({"x": 1}, is_trusted=failing))
    assert (decision.effect, decision.reason_code) == (Effect.DENY, ReasonCode.POLICY_ERROR)
    assert "secret" not in decision.reason


def test_all_paths_of_a_rule_must_hold() -> None:
    both = policy("allow", {"amount": {"range": {"max": 100}}, "currency": {"equals": "EUR"}})
    assert both.decide(pay({"amount": 5, "currency": "EUR"})).effect is Effect.ALLOW
    assert both.decide(pay({"amount": 5, "currency": "USD"})).effect is Effect.DENY
    assert both.decide(pay({"amount": 500, "currency": "EUR"})).effect is Effect.DENY


def test_requirements_of_a_rule_hold_for_the_arguments_that_it_means() -> None:
    large = policy("allow", {"x": {"range": {"min": 100}}}, requires=["verify"])
    assert large.decide(pay({"x": 500})).reason_code is ReasonCode.REQUIRES_UNMET
    assert large.decide(pay({"x": "?"})).reason_code is ReasonCode.REQUIRES_UNMET
    assert large.decide(pay({"x": 5})).reason_code is ReasonCode.NO_RULE


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.sampled_from([row[0] for row in TABLE]), _ANYTHING)
def test_whatever_is_passed_is_decided_and_nothing_is_both_in_and_out(
    condition: dict[str, Any], value: Any
) -> None:
    """What a permission takes, a denial with the same condition never lets escape."""
    if allowed(condition, {"x": value}):
        assert denied(condition, {"x": value})
    decision = policy("allow", {"x": condition}).decide(pay({"x": value}))
    assert decision.reason_code is not ReasonCode.POLICY_ERROR


@dataclass
class Money:
    amount: float


class Order(BaseModel):
    price: Money
    keys: dict[int, str] = {}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("x.amount", Money(5)),
        ("x.price.amount", Order(price=Money(5))),
        ("x.*", {5, 50}),
        ("x.*", frozenset({5})),
        ("x.1", {1: 5}),
        ("x.keys.*", {"keys": (5, 6)}),
    ],
)
def test_what_json_reads_as_an_object_or_an_array_is_one(path: str, value: object) -> None:
    by = policy("allow", {path: {"range": {"max": 100}}})
    assert by.decide(pay({"x": value})).effect is Effect.ALLOW
    by = policy("deny", {path: {"range": {"min": 1000}}})
    assert by.decide(pay({"x": value}, ("read",))).effect is Effect.ALLOW


@pytest.mark.parametrize(
    ("value", "effect", "unknown"),
    [
        (OneOf(5, 6), Effect.ALLOW, False),
        (OneOf(5, 500), Effect.DENY, True),
        (OneOf("5", Decimal(5)), Effect.DENY, True),
        (OneOf(500, "x"), Effect.DENY, True),
        (OneOf(500, 600), Effect.DENY, False),
        (OneOf(), Effect.DENY, True),
        ([OneOf()], Effect.DENY, False),
    ],
)
def test_what_is_known_in_part_is_decided_as_far_as_that_goes(
    value: object, effect: Effect, unknown: bool
) -> None:
    by = policy("allow", {"x": {"range": {"max": 100}}})
    decision = by.decide(Call("pay", frozenset({"payment"}), arguments=PartlyKnown(x=value)))
    assert (decision.effect, decision.unknown) == (effect, unknown)
    within = policy("allow", {"y.x": {"range": {"max": 100}}})
    nested = PartlyKnown(y=OneOf())
    decision = within.decide(Call("pay", frozenset({"payment"}), arguments=nested))
    assert (decision.effect, decision.unknown) == (Effect.DENY, True)


@pytest.mark.parametrize(
    "rule",
    [
        *["limits: ", "limits: {}", "stages: ", "stages: {}", "requires: ", "requires: []"],
        *["approval: ", "agents: ", "labels: ", "confirmed: ", "idempotency: ", "reason: "],
        *["limits: {per_trajectory: }", "limits: {per_window: }", "stages: {before: }"],
        *["labels: [PAYMENT]", "labels: [' payment']", "labels: [pay-ment]", "labels: [paymnt]"],
        *["labels: ['p\u0430yment']", "labels: [external-message]", "labels: [Write]"],
    ],
)
def test_a_key_that_would_mean_nothing_is_refused_where_it_stands(rule: str) -> None:
    text = f"version: 1\nid: p\nrules:\n- id: r\n  effect: allow\n  tools: [a]\n  {rule}\n"
    with pytest.raises(PolicyError) as caught:
        Policy.parse(text, source="policy.yaml")
    said = str(caught.value)
    assert said.startswith(f"policy.yaml: line 7, rules.0.{rule.split(':')[0]}")
    assert "\n" not in said


@pytest.mark.parametrize("entry", ["{}", "{labels: [Payment]}", "{labels: }", ""])
def test_so_is_one_of_a_tool(entry: str) -> None:
    with pytest.raises(PolicyError, match="line 4"):
        Policy.parse(f"version: 1\nid: p\ntools:\n  pay: {entry}\nrules: []\n")


HEAD = "version: 1\nid: p\nrules:\n  - id: r\n    effect: allow\n    tools: [a]\n    args:\n      "

PROBLEMS = [
    (
        "x: {}",
        "line 8, rules.0.args.x: is empty; it needs a key, such as equals, equals_session, in",
    ),
    ("x: {ranges: {min: 1}}", "rules.0.args.x.ranges: unknown key 'ranges'; did you mean 'range'?"),
    ("x: {range: {}}", "rules.0.args.x.range: is empty; it needs a key, such as max, min"),
    ("x: {range: {minimum: 1}}", "unknown key 'minimum'; did you mean 'min'?"),
    ("x: {range: {min: true}}", "rules.0.args.x.range.min: expected a number"),
    ("x: {range: {min: '1'}}", "rules.0.args.x.range.min: expected a number"),
    ("x: {range: {min: 2, max: 1}}", "the range is empty: min is larger than max"),
    ("x: {in: []}", "rules.0.args.x.in: List should have at least 1 item"),
    ("x: {in: [null]}", "rules.0.args.x.in.0: expected a text, a number, true or false"),
    ("x: {in: [[1]]}", "rules.0.args.x.in.0: expected a text, a number, true or false"),
    ("x: {pattern: '(a+)+'}", "rules.0.args.x.pattern.0: '(' is not read here"),
    ("x: {pattern: '[a-z]+a'}", "what follows a repetition can be read as part of it"),
    ("x: {max_length: '3'}", "rules.0.args.x.max_length: Input should be a valid integer"),
    ("x: {trusted: false}", "trusted can only be true"),
    ("x..y: {equals: 1}", "a path is names with dots between them"),
    ("'*': {equals: 1}", "a path begins with the name of a parameter"),
    ("x: {equals: null}", "line 8, rules.0.args.x.equals: has no value"),
    ("x: {range: , prefix: a}", "line 8, rules.0.args.x.range: has no value"),
    ("x: {range: {min: 1, max: }}", "rules.0.args.x.range.max: has no value"),
    ("x: {in_: [1]}", "unknown key 'in_'; did you mean 'in'?"),
]


@pytest.mark.parametrize(("text", "message"), PROBLEMS, ids=range(len(PROBLEMS)))
def test_a_condition_that_says_nothing_is_refused(text: str, message: str) -> None:
    """A safety setting that is ignored in silence is the worst kind of bug."""
    with pytest.raises(PolicyError) as caught:
        Policy.parse(HEAD + text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
