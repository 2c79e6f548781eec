"""Trajectory assertions of promptfoo: what each says, together and apart, and what none can say."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from toolverdict.scoring.errors import InputError
from toolverdict.scoring.importers import Imported
from toolverdict.scoring.testing import call

Import = Callable[..., Imported]
Passes = Callable[..., bool]


def config(*assertions: dict[str, Any], **more: Any) -> str:
    test = {"vars": {"request": "Refund A123"}, "assert": list(assertions), **more}
    return yaml.safe_dump({"prompts": ["{{request}}"], "tests": [test]})


def asserts(kind: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"type": kind, "value": value, **more}


def only(imported: Import, *assertions: dict[str, Any], **more: Any) -> dict[str, Any]:
    (case,) = imported("promptfoo", config(*assertions, **more), "promptfooconfig.yaml").cases
    return case


USED, SEQUENCE = "trajectory:tool-used", "trajectory:tool-sequence"
ARGUMENTS, STEPS = "trajectory:tool-args-match", "trajectory:step-count"


def calls(*tools: str) -> list[Any]:
    return [call(tool, {"id": "A123"}) for tool in tools]


@pytest.mark.parametrize(
    ("assertion", "right", "wrong"),
    [
        (asserts(USED, "look"), ["look", "look pay", "look look"], ["", "pay"]),
        (asserts(USED, ["look", "pay"]), ["pay look", "look x pay"], ["look"]),
        (
            asserts(USED, {"name": "look", "min": 2, "max": 3}),
            ["look look", "look x look look"],
            ["look", "look look look look"],
        ),
        (asserts(USED, {"name": "look", "min": 0, "max": 1}), ["x", "look"], ["look x look"]),
        (asserts(USED, {"name": "look", "max": 0}), ["pay"], ["look"]),
        (asserts(USED, {"pattern": "get_*", "min": 0, "max": 1}), ["x", "get_a"], ["get_a get_b"]),
        (asserts(f"not-{USED}", ["look", "del_*"]), ["pay"], ["look", "pay del_all"]),
        (asserts(f"not-{USED}", {"name": "look"}), ["pay"], ["look"]),
        (
            asserts(SEQUENCE, ["look", "pay"]),
            ["look pay", "look x pay"],
            ["pay look", "pay"],
        ),
        (
            asserts(SEQUENCE, {"mode": "exact", "steps": ["look", {"name": "pay"}]}),
            ["look pay"],
            ["look x pay", "pay look", "look pay pay"],
        ),
        (asserts(ARGUMENTS, {"name": "look", "args": {"id": "A123"}}), ["look pay"], ["pay"]),
        (asserts(f"not-{ARGUMENTS}", {"name": "look", "args": {"id": "A123"}}), ["pay"], ["look"]),
        (asserts(STEPS, {"type": "tool", "max": 2}), ["look pay", "x"], ["look pay x"]),
        (asserts(STEPS, {"type": "tool", "name": "look", "max": 1}), ["look pay"], ["look look"]),
        (asserts("trajectory:tool-set", ["look", "pay"]), ["pay look x"], ["pay"]),
        (
            asserts("trajectory:tool-set", {"mode": "exact", "tools": ["look", "pay"]}),
            ["pay look"],
            ["pay look x"],
        ),
        (
            asserts("tool-call-f1", ["look", "pay"]),
            ["pay look", "look pay pay"],
            ["look", "look pay x"],
        ),
        (asserts("tool-call-f1", "look, pay"), ["pay look"], ["look"]),
        (
            {"type": "assert-set", "assert": [asserts(USED, "look"), asserts(USED, "pay")]},
            ["pay look"],
            ["look"],
        ),
    ],
    ids=lambda value: value.get("type") if isinstance(value, dict) else "",
)
def test_each_assertion(
    imported: Import, passes: Passes, assertion: Any, right: list[str], wrong: list[str]
) -> None:
    case = only(imported, assertion)
    for run in right:
        assert passes(case, *calls(*run.split())), run
    for run in wrong:
        assert not passes(case, *calls(*run.split())), run


def test_what_is_said_of_one_tool_is_one_expectation(imported: Import, passes: Passes) -> None:
    case = only(
        imported,
        asserts(USED, "pay"),
        asserts(ARGUMENTS, {"name": "look", "args": {"id": "A123"}, "mode": "exact"}),
        asserts(SEQUENCE, ["look", "pay"]),
        asserts(f"not-{USED}", "delete"),
        description="refund",
    )
    assert case == {
        "id": "refund",
        "input": "Refund A123",
        "expected_tool_calls": [{"tool": "look", "args": {"id": "A123"}}, {"tool": "pay"}],
        "extra": "allow",
        "forbidden_tool_calls": [{"tool": "delete"}],
    }
    assert passes(case, *calls("look", "pay"))


def test_calls_that_are_counted_are_no_part_of_a_sequence(imported: Import) -> None:
    counted = asserts(USED, {"name": "look", "min": 2})
    for other in (
        asserts(SEQUENCE, ["look", "pay"]),
        asserts(ARGUMENTS, {"name": "look", "args": {"id": 1}}),
    ):
        made = imported("promptfoo", config(counted, other), "c.yaml")
        assert made.cases[0]["expected_tool_calls"] == [
            {"tool": "look", "count": {"min": 2, "max": None}}
        ]
        assert f"this form of {other['type']} is not carried over" in made.losses[0]


def test_arguments_of_one_of_several_calls(imported: Import) -> None:
    arguments = asserts(ARGUMENTS, {"name": "look", "args": {"id": "A123"}})
    again = asserts(ARGUMENTS, {"name": "look", "args": {"id": "A124"}})
    made = imported("promptfoo", config(asserts(SEQUENCE, ["look", "look"]), arguments), "c.yaml")
    assert [loss.rsplit(": ", 1)[1] for loss in made.losses] == [
        "a tool of a sequence that is called too early, too, may be taken for inverted",
        "arguments that any call of a tool may have are expected of the first one",
    ]
    assert only(imported, arguments, again)["expected_tool_calls"] == [
        {"tool": "look", "args_subset": {"id": "A123"}},
        {"tool": "look", "args_subset": {"id": "A124"}},
    ]


def test_a_sequence_and_a_tool_beside_it(imported: Import, passes: Passes) -> None:
    case = only(imported, asserts(SEQUENCE, ["look", "pay"]), asserts(USED, "note"))
    for run in ("note look pay", "look note pay", "look pay note"):
        assert passes(case, *calls(*run.split())), run
    assert not passes(case, *calls("pay", "note", "look"))
    assert not passes(case, *calls("look", "pay"))


def test_arguments_that_are_ignored(imported: Import, passes: Passes) -> None:
    value = {"name": "look", "args": {"id": "A123", "at": 1}, "mode": "exact", "ignore": ["at"]}
    case = only(imported, asserts(ARGUMENTS, value))
    assert passes(case, call("look", {"id": "A123", "at": 2}))
    assert not passes(case, call("look", {"id": "A124", "at": 1}))


def test_variables_and_defaults(imported: Import) -> None:
    text = yaml.safe_dump(
        {
            "defaultTest": {
                "vars": {"blocked": ["delete"]},
                "assert": [asserts(f"not-{USED}", "{{blocked}}")],
            },
            "tests": [
                {"vars": {"tool": "look"}, "assert": [asserts(USED, "{{ tool }}")]},
                {"description": "only shared"},
            ],
        }
    )
    first, second = imported("promptfoo", text, "c.yaml").cases
    assert first["input"] == "look"
    assert first["expected_tool_calls"] == [{"tool": "look", "count": {"min": 1, "max": None}}]
    assert first["forbidden_tool_calls"] == [{"tool": "delete"}]
    assert second["need"] == "either"
    assert second["id"] == "only shared"


@pytest.mark.parametrize(
    ("assertion", "loss"),
    [
        (asserts("contains", "x"), "contains is not carried over"),
        (asserts("trajectory:goal-success", "x"), "is not carried over, it needs a judge"),
        (asserts("tool-call-f1", ["look"], threshold=0.8), "is not carried over with a threshold"),
        (
            asserts(f"not-{SEQUENCE}", ["a", "b"]),
            "this form of not-trajectory:tool-sequence is not",
        ),
        (asserts(USED, {"pattern": "get_*", "min": 2}), "this form of trajectory:tool-used is not"),
        (asserts(USED, "get_*"), "this form of trajectory:tool-used is not"),
        (asserts(f"not-{USED}", {"name": "a", "min": 2}), "this form of not-trajectory:tool-used"),
        (asserts(STEPS, {"type": "reasoning", "max": 2}), "this form of trajectory:step-count is"),
        (asserts(STEPS, {"type": "tool", "min": 2}), "this form of trajectory:step-count is not"),
        (asserts(ARGUMENTS, {"name": "get_*", "args": {}}), "this form of trajectory:tool-args"),
        (asserts(USED, {"name": "look", "max": 2}), "this form of trajectory:tool-used is not"),
        (asserts(USED, {"type": "search", "name": "a"}), "this form of trajectory:tool-used is"),
        (asserts(SEQUENCE, [{"type": "command", "name": "a"}]), "this form of trajectory:tool-seq"),
        (asserts("trajectory:tool-set", ["get_*"]), "this form of trajectory:tool-set is not"),
        (asserts("tool-call-f1", ["get_*"]), "this form of tool-call-f1 is not carried over"),
        (asserts(ARGUMENTS, {"name": "look", "args": "x"}), "this form of trajectory:tool-args"),
        (
            asserts(f"not-{ARGUMENTS}", {"name": "x", "args": {"a": 1}, "mode": "exact"}),
            "forbidden with at least these arguments",
        ),
        (asserts(USED, "get_{{kind}}"), "trajectory:tool-used with a template is not carried over"),
        ({"$ref": "#/assertionTemplates/x"}, "an assertion without a type is not carried over"),
        (
            asserts(ARGUMENTS, {"name": "look", "args": {"a": {"b": 1}}}),
            "objects inside arguments must be equal as a whole",
        ),
    ],
)
def test_what_cannot_be_said_is_a_loss(imported: Import, assertion: Any, loss: str) -> None:
    made = imported("promptfoo", config(asserts(USED, "look"), assertion), "c.yaml")
    assert len(made.losses) == 1
    assert loss in made.losses[0]
    assert made.losses[0].startswith("c.yaml: line ")


def test_tests_that_say_nothing_of_tools(imported: Import) -> None:
    tests = [
        "file://more.yaml",
        {"assert": [asserts("contains", "x")]},
        {"vars": {"a": "x", "b": "y"}, "assert": [asserts(USED, "look")]},
    ]
    made = imported("promptfoo", yaml.safe_dump({"tests": tests}), "c.yaml")
    assert len(made.cases) == 1
    assert [loss.rsplit(": ", 1)[1] for loss in made.losses] == [
        "tests in another file are not read",
        "contains is not carried over",
        "no case was made",
        "the prompt is not read; the input is not carried over",
    ]


@pytest.mark.parametrize(
    ("prompts", "asked"),
    [
        (["Explain {{ topic }} to {{who}}"], "Explain tides to me"),
        (["{{topic}}", "Of {{topic}}"], None),
        (["file://prompt.txt"], None),
        (["{% if topic %}{{topic}}{% endif %}"], None),
        ([{"id": "file://p.py"}], None),
    ],
)
def test_the_input_is_the_prompt(imported: Import, prompts: Any, asked: str | None) -> None:
    test = {"vars": {"topic": "tides", "who": "me"}, "assert": [asserts(USED, "look")]}
    text = yaml.safe_dump({"prompts": prompts, "tests": [test]})
    made = imported("promptfoo", text, "c.yaml")
    assert made.cases[0].get("input") == asked
    assert bool(made.losses) == (asked is None)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("prompts: [a]\n", "expected the key 'tests'"),
        ("tests: file://t.yaml\n", "names another file of tests; import that one"),
        ("tests: [{assert: [{type: 'trajectory:tool-used'}]}]\n", "expected the key 'value'"),
        (
            config(asserts(USED, {"name": "a", "min": -1})),
            "line 7, tests.0.assert.0.value.min: expected a number from 0",
        ),
        ("tests: [{assert: [{type: 'trajectory:tool-args-match', value: {name: a}}]}]\n", "'args'"),
        ("tests: [\n", "c.yaml:"),
    ],
)
def test_a_file_of_something_else_is_one_line(imported: Import, content: str, why: str) -> None:
    with pytest.raises(InputError) as caught:
        imported("promptfoo", content, "c.yaml")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
