"""Only what JSON can hold is read, within bounds, and every problem names its line."""

import json
import pickle
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument.yaml_files import MAX_DEPTH, YamlProblem, read_yaml

texts = st.text().filter(lambda text: "\x7f" not in text)  # the one that JSON leaves and YAML not
floats = st.floats(allow_nan=False, allow_infinity=False).filter(
    lambda number: "e" not in repr(number)  # without a dot, text in YAML 1.1
)
keys = texts.filter(lambda text: len(json.dumps(text)) <= 1024)  # the longest that YAML reads
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda inner: st.lists(inner) | st.dictionaries(keys, inner),
    max_leaves=20,
)


@given(json_values)
def test_json_is_read_as_it_is(value: Any) -> None:
    """Keys and texts of all planes, in escapes as JSON writes them."""
    assert read_yaml(json.dumps(value)).data == value


def test_a_key_that_is_too_long_for_yaml_is_refused() -> None:
    assert read_yaml(json.dumps({"k" * 1022: 1})).data == {"k" * 1022: 1}
    with pytest.raises(YamlProblem, match="line 1: is not YAML"):
        read_yaml(json.dumps({"k" * 1030: 1}))


READ: list[tuple[str, Any]] = [
    ("", None),
    ("a: 2020-01-01", {"a": "2020-01-01"}),
    ("a: yes", {"a": True}),
    ("a: 0x1F", {"a": 31}),
    ("a: !!str 5", {"a": "5"}),
    ("a: =", {"a": "="}),
    ('a: "\\ud83d\\ude00"', {"a": "\U0001f600"}),
    ("a: &x [1]\nb: *x\nc: [*x, *x]", {"a": [1], "b": [1], "c": [[1], [1]]}),
    ("[" * MAX_DEPTH + "]" * MAX_DEPTH, json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH)),
]


@pytest.mark.parametrize(("text", "data"), READ, ids=range(len(READ)))
def test_what_people_write_is_read(text: str, data: Any) -> None:
    assert read_yaml(text).data == data


def test_what_an_alias_stands_for_is_made_anew() -> None:
    data = read_yaml("a: &x [1]\nb: *x").data
    data["a"].append(2)
    assert data["b"] == [1]


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
WIDE = f"a: &a [{'x, ' * 1000}]\nb: [{'*a, ' * 1000}]"
CHAIN = "\n".join(
    ["a0: &a0 [" + "[" * 40 + "]" * 40 + "]"]
    + [f"a{n}: &a{n} " + "[" * 40 + f"*a{n - 1}" + "]" * 40 for n in range(1, 50)]
)

REFUSED: list[tuple[str | bytes, str]] = [
    (LAUGHS, "line 1: aliases stand for more than 100000 values"),
    (WIDE, "line 1: aliases stand for more than 100000 values"),
    (CHAIN, "is not YAML: nested more than 64 deep"),
    ("a: 1\nb: &x [*x]", "line 2: an alias stands for something that holds it"),
    ("a: 1\nb: &x {c: [*x]}", "line 2: an alias stands for something that holds it"),
    ("a:\n  b: !!binary aGk=", "line 2: is not YAML that JSON can hold: tag"),
    ("a: !!set {b}", "line 1: is not YAML that JSON can hold: tag 'tag:yaml.org,2002:set'"),
    ("a: !!omap [b: 1]", "line 1: is not YAML that JSON can hold: tag"),
    ("a: !!timestamp 2020-01-01", "line 1: is not YAML that JSON can hold: tag"),
    ("a: !!python/object:os.system x", "line 1: is not YAML that JSON can hold: tag"),
    ("a: !mine x", "line 1: is not YAML that JSON can hold: tag '!mine'"),
    ("a: !!seq {b: 1}", "line 1: is not YAML that JSON can hold: tag"),
    ("a: 1\n1: a", "line 2: the key '1' is no text; put it in quotes"),
    ("on: 1", "line 1: the key 'on' is no text; put it in quotes"),
    ("null: 1", "line 1: the key 'null' is no text; put it in quotes"),
    ("? [a]\n: b", "line 1: the key is no text; put it in quotes"),
    ("a: &x {b: 1}\nc:\n  <<: *x", "line 3: merging with << is not read"),
    ("a: 1\na: 2", "line 2: the key 'a' occurs twice"),
    ("a: .nan", "line 1: '.nan' is no number that JSON can hold"),
    ("a: -.inf", "line 1: '-.inf' is no number that JSON can hold"),
    ("a: 1.0e+999", "line 1: '1.0e+999' is no number that JSON can hold"),
    ("a: !!int x", "line 1: is not YAML: 'x' is no int"),
    ("a: !!bool x", "line 1: is not YAML: 'x' is no bool"),
    ("a: " + "9" * 5000, "... is longer than 400 characters"),
    (
        "\na: 0x" + "f" * 900_000,
        "line 2: '0xffffffffffffffffffffffffffffffffffffff'... is longer than 400 characters",
    ),
    ("a: 1" + ":59" * 300_000, "... is longer than 400 characters"),
    ("a: 0x" + "f" * 300, "is too large a number"),
    ("a: " + "9" * 390, "is too large a number"),
    ('a: 1\nb: "\\ud800"', "line 2: half a character"),
    ('a: 1\n"\\udc00": b', "line 2: half a character"),
    ("a: 1\nb: '\ud800'", "line 2: is not YAML: special characters are not allowed"),
    (b"a: 1\nb: \xff", "line 2: is not YAML: invalid start byte"),
    ("\n" + "[" * 5000, "line 2: is not YAML: nested more than 64 deep"),
    ("- " * 5000, "line 1: is not YAML: nested more than 64 deep"),
    ("[" * 65 + "]" * 65, "line 1: is not YAML: nested more than 64 deep"),
    ("a: 1\n---\nb: 2", "line 2: is not YAML: expected a single document"),
    ("a: *x", "line 1: is not YAML: found undefined alias 'x'"),
    ("a: [", "is not YAML: while parsing a flow node"),
]


@pytest.mark.parametrize(("text", "problem"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_refused_is_named_with_its_line(text: str | bytes, problem: str) -> None:
    """Quickly, and in one line."""
    started = time.process_time()
    with pytest.raises(YamlProblem) as caught:
        read_yaml(text)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.line is not None
    assert time.process_time() - started < 5


def test_a_problem_reads_well_and_travels() -> None:
    problem = pickle.loads(pickle.dumps(YamlProblem("is wrong", 3)))
    assert (str(problem), problem.problem, problem.line) == ("line 3: is wrong", "is wrong", 3)
    assert str(YamlProblem("is wrong")) == "is wrong"
