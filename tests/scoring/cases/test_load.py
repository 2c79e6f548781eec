"""Case files: both formats of the seed, and errors that say where and what."""

import json
from pathlib import Path

import pytest

from toolverdict.scoring.cases.load import load_cases
from toolverdict.scoring.errors import InputError

FORMAT_A = {
    "case_id": "tool_refund_017",
    "expected_calls": [
        {"tool": "verify_identity", "args_match": {"user_id": "u_1"}},
        {"tool": "get_order", "args_match": {"order_id": "o_9"}},
        {"tool": "refund_payment", "args_match": {"order_id": "o_9", "amount": 120.0}},
    ],
    "forbidden_calls": ["delete_user", "issue_credit_without_policy"],
}
FORMAT_B = {
    "id": "tool_refund_001",
    "input": "请退掉订单 A123",
    "expected_tool_calls": [
        {"tool": "get_order", "args": {"order_id": "A123"}},
        {"tool": "get_refund_policy", "args": {"sku": "membership"}},
        {"tool": "request_approval", "args_subset": {"action": "refund"}},
    ],
    "forbidden_tool_calls": [{"tool": "issue_refund", "reason": "requires approval first"}],
}


NONE = '{"id": "a", "expected_tool_calls": []}'


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_format_a_as_the_seed_prints_it(tmp_path: Path) -> None:
    """S12."""
    (case,) = load_cases(written(tmp_path, "a.json", json.dumps(FORMAT_A))).cases.values()
    assert case.id == "tool_refund_017"
    assert [e.tool for e in case.expected] == ["verify_identity", "get_order", "refund_payment"]
    assert {e.match for e in case.expected} == {"subset"}
    assert [f.tool for f in case.forbidden] == ["delete_user", "issue_credit_without_policy"]


def test_format_b_as_the_seed_prints_it(tmp_path: Path) -> None:
    """S13."""
    (case,) = load_cases(written(tmp_path, "b.json", json.dumps(FORMAT_B))).cases.values()
    assert (case.id, case.input) == ("tool_refund_001", "请退掉订单 A123")
    assert [e.match for e in case.expected] == ["exact", "exact", "subset"]
    assert case.forbidden[0].reason == "requires approval first"


def test_a_folder_of_yaml_json_and_jsonl_is_one_set(tmp_path: Path) -> None:
    written(tmp_path, "a.json", json.dumps([FORMAT_A]))
    written(tmp_path, "b.jsonl", json.dumps(FORMAT_B) + "\n\n")
    written(
        tmp_path, "c.yaml", "id: c\nexpected_tool_calls: [{tool: f, args: {day: 2024-05-20}}]\n"
    )
    cases = load_cases(tmp_path).cases
    assert sorted(cases) == ["c", "tool_refund_001", "tool_refund_017"]
    assert cases["c"].expected[0].arguments == {"day": "2024-05-20"}


def test_the_same_case_twice_is_one_case(tmp_path: Path) -> None:
    twice = f"[{NONE}, {NONE}]"
    assert len(load_cases(written(tmp_path, "a.json", twice)).cases) == 1


def test_the_digest_is_that_of_the_meaning(tmp_path: Path) -> None:
    one = load_cases(written(tmp_path, "a.json", json.dumps(FORMAT_B)))
    other = load_cases(written(tmp_path, "b.json", json.dumps(FORMAT_B, indent=3)))
    changed = {**FORMAT_B, "forbidden_tool_calls": []}
    third = load_cases(written(tmp_path, "c.json", json.dumps(changed)))
    assert one.digest == other.digest != third.digest


def test_notes_that_nobody_understands_are_named_and_kept_out(tmp_path: Path) -> None:
    case = {**FORMAT_B, "meta": {"x": 1}, "owner": "me"}
    assert load_cases(written(tmp_path, "a.json", json.dumps(case))).unknown_keys == ("owner",)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "a.json: is not JSON"),
        ("a.jsonl", NONE + '\n{"id": ', "a.jsonl:2: is not JSON"),
        ("a.json", '{"id": "a", "id": "b"}', "'id' stands twice"),
        ("a.yaml", "id: a\nid: b\n", "a.yaml:2: the key 'id' occurs twice"),
        ("a.yaml", "id: [", "is not YAML"),
        ("a.json", "[1]", "a.json: 0: expected an object with a case, got a int"),
        ("a.json", "[]", "holds no case"),
        ("a.yaml", "", "expected an object with a case, got nothing"),
        (
            "a.json",
            f"[{NONE}, " + '{"id": "a", "expected_tool_calls": [{"tool": "x"}]}]',
            "'a' stands",
        ),
        (
            "a.json",
            '[{"id": "a", "expected_tool_calls": [{"tool": "x", "args": {"n": 1}}]},'
            ' {"id": "a", "expected_tool_calls": [{"tool": "x", "args": {"n": true}}]}]',
            "'a' stands for another case",
        ),
        ("a.yaml", "version: 1\nid: x\nrules: []\n", "neither expected_tool_calls nor"),
        ("a.json", '{"id": "a", "expected_tool_calls": NaN}', "NaN is no JSON number"),
        ("a.json", '{"id": "\\ud800", "expected_tool_calls": []}', "OTLP cannot carry"),
        (
            "a.json",
            '{"id": "a", "expected_tool_calls": [{"tool": "x", "args": {"n": 1%s}}]}' % ("0" * 30),
            "OTLP cannot carry",
        ),
        ("a.json", '{"expected_tool_calls": []}', "id: Field required"),
        ("a.json", '{"case_id": 7, "expected_calls": []}', "case_id: Input should be a valid"),
        (
            "a.yaml",
            "- id: a\n  forbiden_tool_calls: [x]\n",
            "a.yaml: line 2, 0.forbiden_tool_calls: unknown key 'forbiden_tool_calls'; "
            "did you mean 'forbidden_tool_calls'?",
        ),
        ("a.json", '{"id": "a", "expected_tool_calls": "get"}', "expected a list of calls"),
        (
            "a.json",
            '{"id": "a", "expected_tool_calls": ["get"]}',
            "expected_tool_calls.0: expected an object with a tool, got a str",
        ),
        (
            "a.json",
            '{"id": "a", "expected_tool_calls": [{"tool": "f", "args": 1}]}',
            "expected_tool_calls.0.arguments: Input should be a valid dictionary",
        ),
        (
            "a.json",
            '{"id": "a", "expected_tool_calls": [{"tool": "f", "args": {}, "args_subset": {}}]}',
            "give one of args or args_subset",
        ),
    ],
)
def test_an_error_says_where_and_what(tmp_path: Path, name: str, text: str, message: str) -> None:
    """B148 among them: a text where a list is needed never falls apart into letters."""
    with pytest.raises(InputError) as caught:
        load_cases(written(tmp_path, name, text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.json: no such case file"):
        load_cases(tmp_path / "nowhere.json")


def test_a_binary_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read as UTF-8"):
        load_cases(path)
