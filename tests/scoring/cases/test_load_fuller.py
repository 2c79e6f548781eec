"""The fuller form of a case: order, counts, alternatives, extras, limits, reactions, references."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from toolverdict.instrument.yaml_files import read_yaml
from toolverdict.scoring.cases.load import load_cases
from toolverdict.scoring.cases.model import Case, Extra, Limits
from toolverdict.scoring.cases.schema import as_text, json_schema, published
from toolverdict.scoring.errors import InputError

FULL = """\
- id: refund
  input: Please refund order A-77
  need: required
  expected_tool_calls:
    - {id: who, tool: verify_identity, args_subset: {user_id: u_1}}
    - - {id: order, tool: get_order, args: {number: A-77}, on_result: {empty: tell_user, failure: [retry, stop]}}
      - {tool: get_policy, optional: true, count: {min: 0, max: 3}}
    - tool: refund
      args:
        order_id: {$ref: order.result.id}
        amount: {$money: 42.5, currency: EUR, tolerance: 0.01}
        currency: EUR
    - {tool: audit, after: [who], count: 2, outcome: any}
  forbidden_tool_calls:
    - {tool: send_mail, args_subset: {to: {$regex: ".*@evil.example"}}, reason: never}
    - {tool: refund, unless_after: verify_identity}
    - delete_user
  extra: {default: forbid, allow: [think, get_*], penalise: search, failed: allow}
  limits: {calls: 10, seconds: 30, retries: 2, per_tool: {search: 3}}
  trials: 5
"""


def loaded(folder: Path, text: str, name: str = "cases.yaml") -> Case:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    (case,) = load_cases(path).cases.values()
    return case


def test_everything_a_case_can_say(tmp_path: Path) -> None:
    case = loaded(tmp_path, FULL)
    assert [e.tool for e in case.expected] == [
        "verify_identity",
        "get_order",
        "get_policy",
        "refund",
        "audit",
    ]
    assert case.before == ((), (0,), (0,), (1, 2), (0,))
    who, order, policy, _, audit = case.expected
    assert (who.id, who.match, order.match) == ("who", "subset", "exact")
    assert order.on_result == {"empty": ("tell_user",), "failure": ("retry", "stop")}
    assert (policy.optional, policy.least, policy.count.max) == (True, 0, 3)
    assert (audit.count.min, audit.count.max, audit.outcome) == (2, 2, "any")
    assert [rule.unless_after for rule in case.forbidden] == [(), ("verify_identity",), ()]
    assert case.extra == Extra(
        default="forbid", allow=("think", "get_*"), penalise=("search",), failed="allow"
    )
    assert case.limits == Limits(calls=10, seconds=30, retries=2, per_tool={"search": 3})
    assert (case.need, case.trials) == ("required", 5)


@pytest.mark.parametrize(
    ("calls", "before"),
    [
        ([["a", "b"], "c"], ((), (), (0, 1))),
        (["a", ["b", "c"], ["d"]], ((), (0,), (0,), (1, 2))),
        ([[["a", "b"], "c"], "d"], ((), (0,), (), (1, 2))),
        ([[], "a", [], "b"], ((), (0,))),
    ],
    ids=str,
)
def test_lists_inside_lists_are_in_any_order_and_in_order_in_turn(
    tmp_path: Path, calls: Any, before: Any
) -> None:
    def spelt(item: Any) -> Any:
        return [spelt(one) for one in item] if isinstance(item, list) else {"tool": item}

    text = json.dumps({"id": "c", "expected_tool_calls": spelt(calls)})
    assert loaded(tmp_path, text, "c.json").before == before


def test_a_plain_list_is_in_order_and_order_any_switches_that_off(tmp_path: Path) -> None:
    calls = [{"tool": "a"}, {"tool": "b"}]
    plain = {"id": "c", "expected_calls": calls}
    assert loaded(tmp_path, json.dumps(plain), "c.json").before is None
    assert loaded(tmp_path, json.dumps({**plain, "order": "listed"}), "c.json").before is None
    free = loaded(tmp_path, json.dumps({**plain, "order": "any"}), "c.json")
    assert free.before == ((), ())


def test_alternatives_have_names_and_an_order_of_their_own(tmp_path: Path) -> None:
    case = loaded(
        tmp_path,
        """\
id: c
alternatives:
  - [{tool: a}, {tool: b}]
  - {name: short, order: any, expected_tool_calls: [{tool: c}, {tool: d}]}
""",
    )
    assert [(way.name, way.before) for way in case.ways] == [("1", None), ("short", ((), ()))]


def test_a_case_that_only_says_whether_a_tool_is_needed(tmp_path: Path) -> None:
    assert loaded(tmp_path, "{id: c, need: required}").needs_tools is True


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("{id: c, expected_tool_calls: [{tool: a, arg: {}}]}", "did you mean 'args'?"),
        (
            "{id: c, expected_tool_calls: [{tool: a, args: {x: {$mony: 1}}}]}",
            "line 1, expected_tool_calls.0.args.x: unknown comparator $mony; did you mean $money?",
        ),
        (
            "{id: c, expected_tool_calls: [{tool: a, args_subset: {x: [{$mony: 1}]}}]}",
            "expected_tool_calls.0.args_subset.x.0: unknown comparator",
        ),
        (
            "{id: c, forbidden_tool_calls: [{tool: a, args_subset: {x: {$mony: 1}}}]}",
            "forbidden_tool_calls.0.args_subset.x: unknown",
        ),
        (
            "{id: c, expected_tool_calls: [{tool: a, after: [b]}]}",
            "0.after: no expected call has the id 'b'",
        ),
        ("{id: c, expected_tool_calls: [{tool: a, id: who, after: [hwo]}]}", "did you mean 'who'?"),
        (
            "{id: c, expected_tool_calls: [{tool: a, id: x, after: y}, {tool: b, id: y}]}",
            "waits for a call that waits for this one",
        ),
        (
            "{id: c, expected_tool_calls: [{tool: a, id: x}, {tool: b, id: x}]}",
            "1.id: the id 'x' stands for another call",
        ),
        (
            "{id: c, expected_tool_calls: [{tool: a, count: 0}]}",
            "0.count.max: Input should be greater than or equal to 1",
        ),
        (
            "{id: c, expected_tool_calls: [{tool: a, count: {min: 3, max: 2}}]}",
            "max is smaller than min",
        ),
        ("{id: c, expected_tool_calls: [{tool: a, count: {mn: 3}}]}", "0.count.mn: unknown key"),
        (
            "{id: c, expected_tool_calls: [{tool: a, on_result: {emty: stop}}]}",
            "unknown result 'emty'",
        ),
        (
            "{id: c, expected_tool_calls: [{tool: a, on_result: {empty: weep}}]}",
            "on_result.empty.0: Input should be 'retry'",
        ),
        (
            "{id: c, expected_tool_calls: [{tool: a, on_result: {empty: []}}]}",
            "empty needs a reaction",
        ),
        ("{id: c, expected_tool_calls: [], order: sorted}", "order: expected listed or any"),
        ("{id: c, expected_tool_calls: [], need: maybe}", "need: Input should be 'required'"),
        (
            "{id: c, expected_tool_calls: [], extra: maybe}",
            "extra.default: Input should be 'penalise'",
        ),
        ("{id: c, expected_tool_calls: [], extra: 5}", "extra: expected penalise, allow, forbid"),
        (
            "{id: c, expected_tool_calls: [], extra: {alow: [x]}}",
            "extra.alow: unknown key 'alow'; did you mean 'allow'?",
        ),
        (
            "{id: c, expected_tool_calls: [], extra: {allow: [1]}}",
            "extra.allow: expected a name or a list",
        ),
        ("{id: c, expected_tool_calls: [], limits: {cals: 5}}", "limits.cals: unknown key"),
        ("{id: c, expected_tool_calls: [], trials: 0}", "trials: Input should be greater"),
        (
            "{id: c, expected_tool_calls: [{tool: a}], alternatives: [[{tool: b}]]}",
            "expects calls and alternatives",
        ),
        ("{id: c, alternatives: {tool: a}}", "alternatives: expected a list of ways"),
        ("{id: c, alternatives: [5]}", "alternatives.0: expected a list of calls, or an object"),
        (
            "{id: c, alternatives: [{name: x}]}",
            "expected a list of calls under expected_tool_calls",
        ),
        ("{id: c, alternatives: [{nme: x, expected_tool_calls: []}]}", "did you mean 'name'?"),
        (
            "{id: c, alternatives: [{name: x, expected_tool_calls: [{tool: ''}]}]}",
            "alternatives.0.expected_tool_calls.0.tool: String should have",
        ),
        (
            "{id: c, forbidden_tool_calls: [{tool: a, unless_after: 5}]}",
            "unless_after: expected a name",
        ),
        (
            "{id: c, expected_calls: [], expected_tool_calls: []}",
            "give one of expected_tool_calls or expected_calls, not both",
        ),
        ("{case_id: c, expected_calls: [{tool: a, args: []}]}", "expected_calls.0.args"),
    ],
    ids=str,
)
def test_an_error_names_the_key_and_what_was_expected(
    tmp_path: Path, case: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, case)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "cases.yaml"))
    assert "\n" not in str(caught.value)


def test_an_error_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cases\.yaml: line 4, expected_tool_calls\.0\.args\.x:"):
        loaded(tmp_path, "id: c\nexpected_tool_calls:\n  - tool: a\n    args: {x: {$mony: 1}}\n")


def test_one_id_for_two_cases_names_both_places(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("{id: c, expected_tool_calls: []}")
    (tmp_path / "b.yaml").write_text("{id: c, expected_tool_calls: [{tool: a}]}")
    with pytest.raises(
        InputError, match=r"b\.yaml: .*stands for another case already, at .*a\.yaml"
    ):
        load_cases(tmp_path)


TURNS = """
id: refund
turns:
  - {input: Hello!, expected_tool_calls: []}
  - input: I want my money back.
    expected_tool_calls: [[{tool: get_user}, {tool: get_order, id: order}], {tool: refund}]
  - {input: And a receipt., expected_tool_calls: [{tool: send, after: [order]}]}
  - {need: either}
"""


def test_turns_are_one_list_of_calls_in_the_order_of_turns(tmp_path: Path) -> None:
    case = loaded(tmp_path, TURNS)
    assert [e.tool for e in case.expected] == ["get_user", "get_order", "refund", "send"]
    assert case.before == ((), (), (0, 1), (1,))
    assert [(turn.calls, turn.need) for turn in case.turns] == [
        (0, None),
        (3, None),
        (1, None),
        (0, "either"),
    ]
    assert case.turns[1].input == "I want my money back."
    assert case.needs_by_turn == (False, True, True, None)
    assert case.needs_tools is True
    assert (
        list(Draft202012Validator(json_schema()).iter_errors(read_yaml(TURNS.encode()).data)) == []
    )


def test_turns_without_nesting_are_in_the_listed_order(tmp_path: Path) -> None:
    plain = "case_id: c\nturns: [{expected_calls: [{tool: a}]}, {expected_calls: [{tool: b}]}]"
    assert loaded(tmp_path, plain).before is None
    assert loaded(tmp_path, plain + "\norder: any").before == ((), ())


@pytest.mark.parametrize(
    ("turns", "message"),
    [
        ("turns: 5", "turns: expected a list of turns, got a int"),
        ("turns: [hello]", "turns.0: expected an object with expected_calls, got a str"),
        ("turns: [{input: hi}]", "turns.0: says neither expected_calls nor need"),
        ("turns: [{expectd_calls: []}]", "did you mean 'expected_calls'?"),
        ("turns: [{need: maybe}]", "turns.0.need:"),
        ("turns: [{expected_calls: a}]", "turns.0.expected_calls: expected a list of calls"),
        ("turns: [{expected_calls: [{tol: a}]}]", "turns.0.expected_calls.0"),
        ("turns: [{expected_calls: [{tool: a, args: {x: {$mony: 1}}}]}]", "args.x:"),
        ("turns: []\nexpected_calls: []", "turns: give one of turns or expected_calls, not both"),
        ("turns: []\nalternatives: []", "turns: give one of turns or alternatives, not both"),
    ],
)
def test_an_error_in_a_turn_names_its_place(tmp_path: Path, turns: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        loaded(tmp_path, f"case_id: c\n{turns}\n")
    assert message in str(caught.value)


def test_the_published_schema_is_the_one_of_the_code() -> None:
    assert published() == as_text()


def test_the_schema_takes_what_the_loader_takes(tmp_path: Path) -> None:
    validator = Draft202012Validator(json_schema())
    assert list(validator.iter_errors(read_yaml(FULL).data)) == []
    seed_a = {
        "case_id": "a",
        "expected_calls": [{"tool": "x", "args_match": {"u": 1}}],
        "forbidden_calls": ["y"],
    }
    assert list(validator.iter_errors(seed_a)) == []
    for wrong in ({"id": "c"}, {"id": "c", "expected_tool_calls": ["a"]}, {"id": "c", "need": "x"}):
        assert list(validator.iter_errors(wrong))
