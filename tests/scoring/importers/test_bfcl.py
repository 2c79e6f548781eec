"""Possible answers of BFCL: allowed values, arguments that may be left out, turns, irrelevance."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from toolverdict.scoring.errors import InputError
from toolverdict.scoring.importers import Imported
from toolverdict.scoring.testing import call


def answer(*functions: Any, name: str = "simple_python_0", **more: Any) -> dict[str, Any]:
    return {"id": name, "ground_truth": list(functions), **more}


AREA = {"area": {"base": [10], "height": [5], "unit": ["cm", "centimetre", ""]}}


def test_values_are_those_that_are_allowed(
    imported: Callable[..., Imported], passes: Callable[..., bool]
) -> None:
    (case,) = imported("bfcl", answer(AREA)).cases
    base = {"base": 10, "height": 5}
    assert passes(case, call("area", base))
    assert passes(case, call("area", {**base, "unit": "cm"}))
    assert passes(case, call("area", {**base, "unit": "centimetre"}))
    assert not passes(case, call("area", {**base, "unit": "m"}))
    assert not passes(case, call("area", {"base": 10}))
    assert not passes(case, call("area", {**base, "colour": "red"}))
    assert not passes(case, call("area", {**base, "base": 11}))
    assert not passes(case)


def test_what_may_be_left_out_is_optional(imported: Callable[..., Imported]) -> None:
    (case,) = imported("bfcl", answer(AREA)).cases
    (expected,) = case["expected_tool_calls"]
    assert expected["args"]["unit"] == {"$optional": {"$enum": ["cm", "centimetre"]}}


def test_an_argument_that_must_be_left_out(
    imported: Callable[..., Imported], passes: Callable[..., bool]
) -> None:
    (case,) = imported("bfcl", answer({"mail": {"to": ["a"], "cc": [""], "bcc": []}})).cases
    assert case["expected_tool_calls"] == [{"tool": "mail", "args": {"to": "a"}}]
    assert not passes(case, call("mail", {"to": "a", "cc": "b"}))


def test_calls_of_one_answer_are_in_any_order(
    imported: Callable[..., Imported], passes: Callable[..., bool]
) -> None:
    (case,) = imported("bfcl", answer({"play": {"n": [1]}}, {"play": {"n": [2]}})).cases
    one, two = call("play", {"n": 1}), call("play", {"n": 2})
    assert passes(case, one, two)
    assert passes(case, two, one)
    assert not passes(case, one, one)
    assert not passes(case, one)


OBJECTS = {"find": {"where": [{"city": ["Oslo", "Bergen"], "limit": [3, ""]}], "ids": [[1, 2]]}}


@pytest.mark.parametrize(
    ("where", "right"),
    [
        ({"city": "Oslo", "limit": 3}, True),
        ({"city": "Bergen"}, True),
        ({"city": "Bergen", "limit": 4}, False),
        ({"limit": 3}, False),
        ({"city": "Oslo", "zip": 1}, False),
    ],
)
def test_in_an_object_each_key_has_values_of_its_own(
    imported: Callable[..., Imported], passes: Callable[..., bool], where: Any, right: bool
) -> None:
    (case,) = imported("bfcl", answer(OBJECTS)).cases
    assert passes(case, call("find", {"where": where, "ids": [1, 2]})) is right
    assert not passes(case, call("find", {"where": where, "ids": [2, 1]}))


def test_objects_in_a_list(imported: Callable[..., Imported], passes: Callable[..., bool]) -> None:
    (case,) = imported("bfcl", answer({"book": {"who": [[{"name": ["Mia", "M"]}]]}})).cases
    assert passes(case, call("book", {"who": [{"name": "M"}]}))
    assert not passes(case, call("book", {"who": [{"name": "Li"}]}))


def test_turns_are_cases(imported: Callable[..., Imported], passes: Callable[..., bool]) -> None:
    turns = [["cd(folder='docs')", "grep('a.txt', pattern='x\ny')"], ["sum(n=[1, 2])"], []]
    made = imported("bfcl", answer(*turns, name="multi_turn_base_0"))
    first, second, third = made.cases
    assert [case["id"] for case in made.cases] == [f"multi_turn_base_0#{n}" for n in range(3)]
    assert first["expected_tool_calls"] == [
        {"tool": "cd", "args": {"folder": "docs"}},
        {"tool": "grep", "args_subset": {"pattern": "x\ny"}},
    ]
    assert second["expected_tool_calls"] == [{"tool": "sum", "args": {"n": [1, 2]}}]
    assert third["expected_tool_calls"] == []
    cd, grep = call("cd", {"folder": "docs"}), call("grep", {"f": "a.txt", "pattern": "x\ny"})
    assert passes(first, cd, grep)
    assert not passes(first, grep, cd)
    assert any("an argument without a name is not compared" in loss for loss in made.losses)


def test_a_computed_argument_is_a_loss(imported: Callable[..., Imported]) -> None:
    made = imported("bfcl", answer("binomial(n=20, p=1/6)"))
    assert made.cases[0]["expected_tool_calls"] == [{"tool": "binomial", "args_subset": {"n": 20}}]
    assert "cases.json: ground_truth.0: an argument that is computed is not compared" in made.losses


def test_irrelevance_expects_no_call(
    imported: Callable[..., Imported], passes: Callable[..., bool]
) -> None:
    question = [[{"role": "user", "content": "How heavy is the moon?"}]]
    line = {"id": "irrelevance_3", "question": question, "function": []}
    (case,) = imported("bfcl", line).cases
    assert case["input"] == "How heavy is the moon?"
    assert passes(case)
    assert not passes(case, call("bmi", {}))


def test_lines_in_a_file_that_is_called_json(imported: Callable[..., Imported]) -> None:
    lines = [answer(AREA, name="a"), answer(AREA, name="b")]
    made = imported("bfcl", "\n".join(json.dumps(line) for line in lines) + "\n")
    assert [case["id"] for case in made.cases] == ["a", "b"]


def test_losses(imported: Callable[..., Imported]) -> None:
    many = {f"k{number}": [number, ""] for number in range(5)}
    lines = [answer(AREA, name="a"), answer({"f": many}, name="b"), answer("Oslo", name="memory_1")]
    made = imported("bfcl", lines)
    assert made.losses == (
        "cases.json: 0: what the user asks stands in another file of BFCL (2 places in all)",
        "cases.json: 0.ground_truth.0.area.unit: an argument that may be left out must not be an "
        "empty text, which BFCL takes, too (6 places in all)",
        "cases.json: 0.ground_truth.0.area.unit: texts are compared exactly; BFCL ignores letter "
        "case, spaces and , . / - _ * ^",
        "cases.json: 2.ground_truth: the answer is a text, not calls: no case was made",
    )


def test_many_arguments_may_be_left_out(
    imported: Callable[..., Imported], passes: Callable[..., bool]
) -> None:
    many = {f"k{number}": [number, ""] for number in range(12)}
    (case,) = imported("bfcl", answer({"f": many})).cases
    assert passes(case, call("f", {"k3": 3, "k11": 11}))
    assert not passes(case, call("f", {"k3": 4}))
    assert not passes(case, call("f", {"k12": 12}))


def test_a_name_with_a_dot_is_told(imported: Callable[..., Imported]) -> None:
    made = imported("bfcl", answer({"math.factorial": {"n": [5]}}))
    assert made.cases[0]["expected_tool_calls"] == [{"tool": "math.factorial", "args": {"n": 5}}]
    assert any("a name with a dot is kept" in loss for loss in made.losses)


def test_more_values_than_anybody_reads(imported: Callable[..., Imported]) -> None:
    wide = {f"k{number}": [1, 2, 3] for number in range(30)}  # 3^30 objects
    made = imported("bfcl", answer({"f": {"where": [wide]}}))
    assert made.cases[0]["expected_tool_calls"] == [
        {"tool": "f", "args": {"where": {"$any": True}}}
    ]
    assert any("has more than 64 possible values" in loss for loss in made.losses)


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"ground_truth": []}, "expected the key 'id'"),
        (answer({"f": {"a": 3}}), "ground_truth.0.f.a: expected a list of possible values"),
        (answer({"f": {}, "g": {}}), "ground_truth.0: expected one function, got 2"),
        (answer(["f(", "g()"]), "ground_truth.0.0: expected a call in Python, got 'f\\('"),
        (answer(7), "ground_truth.0: expected an object, got a int"),
        ({"id": "x"}, "holds no case of bfcl; .*names no possible answer"),
    ],
)
def test_a_file_of_something_else_is_one_line(
    imported: Callable[..., Imported], document: Any, why: str
) -> None:
    with pytest.raises(InputError, match=why):
        imported("bfcl", document)
