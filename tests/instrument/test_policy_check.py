"""``policy check`` and the published schema."""

import copy
from typing import Any

import pytest
from pydantic import ValidationError

from toolverdict.instrument.policy import Policy
from toolverdict.instrument.policy.check import KnownTool, check_policy, unconfirmed_rules
from toolverdict.instrument.policy.schema import as_text, json_schema, published

TOOLS = {
    "refund": KnownTool(frozenset({"payment"}), frozenset({"order_id", "amount"})),
    "get_order": KnownTool(frozenset({"read"}), frozenset({"order_id"})),
    "web/search": KnownTool(frozenset(), None),
}


def policy(*rules: dict[str, Any], **more: Any) -> Policy:
    named = [{"id": f"r{index}", **rule} for index, rule in enumerate(rules)]
    return Policy.model_validate({"version": 1, "id": "p", "rules": named, **more})


def codes(made: Policy, tools: dict[str, KnownTool] | None = TOOLS) -> list[tuple[str, str | None]]:
    found = [(f.code, f.rule) for f in check_policy(made, tools)]
    return [one for one in found if one[0] != "unconfirmed"]


def allow(*tools: str, **more: Any) -> dict[str, Any]:
    return {"effect": "allow", "tools": list(tools), **more}


def deny(*tools: str, **more: Any) -> dict[str, Any]:
    return {"effect": "deny", "tools": list(tools), **more}


CASES: list[tuple[list[dict[str, Any]], list[tuple[str, str | None]]]] = [
    ([allow("refund"), deny("delete_*")], [("unknown_tool", "r1")]),
    ([allow("refund", requires=["get_ordr"])], [("unknown_tool", "r0")]),
    ([allow("search")], []),
    ([{"effect": "deny", "labels": ["permission"]}], [("never_matches", "r0")]),
    (
        [{"effect": "deny", "labels": ["raed"]}],
        [("unknown_label", "r0"), ("never_matches", "r0")],
    ),
    ([deny("get_order", labels=["payment"])], [("never_matches", "r0")]),
    ([deny("refund", args={"amont": {"range": {"min": 1}}})], [("unknown_argument", "r0")]),
    ([deny("*", args={"amount": {"range": {"min": 1}}})], []),
    ([allow("refund"), deny("refund")], [("unreachable", "r0")]),
    ([allow("refund"), deny("*")], [("unreachable", "r0")]),
    ([allow("refund"), {"effect": "deny", "labels": ["payment"]}], [("unreachable", "r0")]),
    ([allow("refund"), deny("refund", args={"amount": {"equals": 1}})], []),
    ([allow("refund"), deny("refund", unless_after=["get_order"])], []),
    ([allow("refund"), deny("refund", agents=["intern"])], []),
    ([allow("refund"), {**deny("refund"), "effect": "require_approval"}], [("unreachable", "r0")]),
    ([allow("refund", requires=["get_order"]), {**deny("*"), "effect": "require_approval"}], []),
    (
        [deny("refund", args={"amount": {"in": [1], "range": {"min": 2}}})],
        [("never_matches", "r0")],
    ),
    (
        [deny("refund", args={"amount": {"prefix": "a", "range": {"min": 2}}})],
        [("never_matches", "r0")],
    ),
    (
        [allow("refund", requires=["get_order"], stages={"before": ["get_*"]})],
        [("never_matches", "r0")],
    ),
    ([deny("refund", requires=["get_order"])], [("no_effect", "r0")]),
]


@pytest.mark.parametrize(("rules", "expected"), CASES, ids=range(len(CASES)))
def test_a_rule_that_does_not_do_what_it_seems_is_found(
    rules: list[dict[str, Any]], expected: list[tuple[str, str | None]]
) -> None:
    assert codes(policy(*rules)) == expected


def test_without_a_catalogue_only_what_the_policy_says_itself() -> None:
    assert codes(policy(allow("anything"), deny("else", labels=["custom"])), None) == []
    assert codes(policy({"effect": "deny", "labels": ["reads"]}), None) == [("unknown_label", "r0")]
    assert codes(policy(allow("a"), deny("a")), None) == [("unreachable", "r0")]
    assert codes(policy(allow("a_*"), deny("a_b")), None) == []


def test_entries_are_checked_too() -> None:
    made = policy(tools={"refnd": {"labels": ["cheap"]}}, untrusted_sources=["mail.*"])
    assert codes(made) == [("unknown_tool", None), ("unknown_tool", None)]
    message = check_policy(made, TOOLS)[0].message
    assert message == "no tool is called 'refnd'; did you mean 'refund'?"


def test_a_high_risk_rule_is_confirmed_by_somebody_as_it_is_worded() -> None:
    """S41: who, when, which rule."""
    rule = allow("refund", args={"amount": {"range": {"max": 100}}})
    digest = policy(rule).rules[0].digest
    confirmed = {**rule, "confirmed": {"by": "ann", "at": "2026-11-30", "digest": digest}}
    assert unconfirmed_rules(policy(rule), TOOLS) == ("r0",)
    assert unconfirmed_rules(policy(confirmed), TOOLS) == ()
    raised = {**confirmed, "args": {"amount": {"range": {"max": 10_000}}}}
    assert unconfirmed_rules(policy(raised), TOOLS) == ("r0",)
    (finding,) = check_policy(policy(raised), TOOLS)
    assert finding.code == "unconfirmed"
    assert "not the one that ann confirmed" in finding.message
    (again,) = check_policy(policy(rule), TOOLS)
    assert digest in again.message


def test_which_rules_are_high_risk() -> None:
    assert unconfirmed_rules(policy(allow("get_order"), deny("refund")), TOOLS) == ()
    assert unconfirmed_rules(policy({"effect": "allow", "labels": ["write"]})) == ("r0",)
    assert unconfirmed_rules(policy({**deny("*"), "effect": "require_approval"}), TOOLS) == ("r0",)
    labelled = policy(allow("x"), tools={"x": {"labels": ["permission"]}})
    assert unconfirmed_rules(labelled) == ("r0",)


def test_the_published_schema_is_that_of_the_models() -> None:
    """Make it anew: python -c 'from toolverdict.instrument.policy.schema import *; print(as_text(), end="")'."""
    assert published() == as_text()


GOOD: list[dict[str, Any]] = [
    {"version": 1, "id": "p", "rules": []},
    {
        "version": 1,
        "id": "p",
        "mode": "shadow",
        "tools": {"refund": {"labels": ["payment"], "schema_version": "1", "owner": "ann"}},
        "untrusted_sources": ["mail.*"],
        "rules": [
            {
                "id": "r",
                "effect": "require_approval",
                "tools": ["refund"],
                "args": {
                    "amount": {"range": {"min": 0, "max": 10.5}},
                    "to.name": {"in": ["a", 1, True], "prefix": "a", "suffix": ["b"]},
                    "id": {"equals_session": "user", "pattern": "[a-z]+", "max_length": 3},
                    "text": {"trusted": True, "equals": "x"},
                },
                "requires": ["verify"],
                "unless_after": ["x"],
                "stages": {"after": ["a"], "before": ["b"]},
                "limits": {"per_trajectory": 1, "per_window": {"calls": 1, "seconds": 0.5}},
                "approval": {"ttl_s": 60, "approvers": ["ann"]},
                "idempotency": "required",
                "confirmed": {"by": "ann", "at": "now", "digest": "sha256:" + "0" * 64},
                "reason": "",
            }
        ],
    },
]


def changed(path: list[Any], value: Any) -> dict[str, Any]:
    made: dict[str, Any] = copy.deepcopy(GOOD[1])
    target: Any = made
    for step in path[:-1]:
        target = target[step]
    if value is None:
        del target[path[-1]]
    else:
        target[path[-1]] = value
    return made


RULE: list[Any] = ["rules", 0]
BAD = [
    changed(["version"], 2),
    changed(["id"], ""),
    changed(["id"], None),
    changed(["mode"], "off"),
    changed(["extra"], 1),
    changed(["tools"], {}),
    changed(["tools", "refund", "label"], ["x"]),
    changed([*RULE, "effect"], "forbid"),
    changed([*RULE, "tools"], []),
    changed([*RULE, "tools"], None),
    changed([*RULE, "args"], {}),
    changed([*RULE, "args", "amount"], {}),
    changed([*RULE, "args", "amount", "range"], {}),
    changed([*RULE, "args", "amount", "range", "min"], "1"),
    changed([*RULE, "args", "amount", "ranges"], {}),
    changed([*RULE, "args", "id", "max_length"], -1),
    changed([*RULE, "args", "text", "trusted"], False),
    changed([*RULE, "limits", "per_trajectory"], "1"),
    changed([*RULE, "limits", "per_window", "seconds"], 0),
    changed([*RULE, "limits", "per_window", "calls"], None),
    changed([*RULE, "approval", "ttl_s"], 0),
    changed([*RULE, "idempotency"], "yes"),
    changed([*RULE, "confirmed", "digest"], "sha256:0"),
]


@pytest.mark.parametrize("document", GOOD, ids=range(len(GOOD)))
def test_the_schema_takes_what_the_models_take(document: dict[str, Any]) -> None:
    Policy.model_validate(document)
    assert fits(document, json_schema())


@pytest.mark.parametrize("document", BAD, ids=range(len(BAD)))
def test_the_schema_refuses_what_the_models_refuse(document: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Policy.model_validate(document)
    assert not fits(document, json_schema())


KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


def fits(value: Any, schema: Any, root: Any = None) -> bool:
    """As much of a validator as this one schema needs."""
    root = schema if root is None else root
    if "$ref" in schema and not fits(value, root["$defs"][schema["$ref"].split("/")[-1]], root):
        return False
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    typed = any(
        isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))
        for kind in kinds
    )
    if kinds and not typed:
        return False
    if "const" in schema and (value != schema["const"] or type(value) is not type(schema["const"])):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "anyOf" in schema and not any(fits(value, choice, root) for choice in schema["anyOf"]):
        return False
    if isinstance(value, dict):
        known = schema.get("properties", {})
        more = schema.get("additionalProperties", True)
        return (
            all(name in value for name in schema.get("required", []))
            and len(value) >= schema.get("minProperties", 0)
            and (more is not False or set(value) <= set(known))
            and all(fits(value[name], known[name], root) for name in known if name in value)
            and all(
                fits(value[name], more, root)
                for name in value
                if name not in known and isinstance(more, dict)
            )
        )
    if isinstance(value, list):
        items = schema.get("items", {})
        return len(value) >= schema.get("minItems", 0) and all(fits(v, items, root) for v in value)
    if isinstance(value, str):
        pattern = schema.get("pattern")
        return len(value) >= schema.get("minLength", 0) and (not pattern or len(value) == 71)
    return not (
        ("minimum" in schema and value < schema["minimum"])
        or ("exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"])
    )
