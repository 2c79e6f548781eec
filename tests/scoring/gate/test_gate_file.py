"""The gate file: the published form as it is, and one clear line for every mistake."""

from pathlib import Path

import jsonschema  # type: ignore[import-untyped]
import pytest

from toolverdict.instrument.yaml_files import read_yaml
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.gate.gate_file import (
    Gate,
    json_schema,
    load_gate,
    published_schema,
    schema_text,
)
from toolverdict.scoring.gate.gated import GATED

PRINTED = """\
tool_call_gate:
  min_selection_accuracy: 0.97
  min_argument_accuracy_high_risk: 0.99
  max_forbidden_tool_call_rate: 0
  require_trace_fields: ["tool.name", "tool.args_hash", "policy.decision"]
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "gate.yaml"
    path.write_text(text)
    return path


def test_the_published_form_is_read_as_it_is(tmp_path: Path) -> None:
    file = load_gate(written(tmp_path, PRINTED))
    assert file.gate.min_selection_accuracy == 0.97
    assert file.gate.max_forbidden_tool_call_rate == 0
    assert file.gate.require_trace_fields == ("tool.name", "tool.args_hash", "policy.decision")
    assert file.line("max_forbidden_tool_call_rate") == 4
    assert file.line("min_pass_rate") == 1  # not written: the gate's own line


def test_it_may_be_json(tmp_path: Path) -> None:
    path = written(tmp_path, '{"version": 1, "tool_call_gate": {"min_pass_rate": 1}}')
    assert load_gate(path).gate.min_pass_rate == 1


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("tool_call_gate: {}", "line 1, tool_call_gate", "has no limit"),
        ("tool_call_gate:\n  min_coverage: 1", "line 1, tool_call_gate", "has no limit"),
        ("tool_call_gate: [1]", "gate.yaml", "expected an object"),
        ("gate: {min_pass_rate: 1}", "gate.yaml", "the key tool_call_gate"),
        ("tool_call_gate:\n  min_pas_rate: 1", "line 2", "did you mean 'min_pass_rate'?"),
        ("tool_call_gate: {min_pass_rate: 1}\nmore: 1", "line 2, more", "unknown key"),
        ("tool_call_gate:\n  min_pass_rate: 97", "line 2", "less than or equal to 1, got 97"),
        ("tool_call_gate:\n  min_pass_rate: true", "line 2", "valid number, got true"),
        ("tool_call_gate:\n  min_pass_rate: '0.9'", "line 2", 'valid number, got "0.9"'),
        ("tool_call_gate:\n  min_pass_rate: .nan", "line 2", "no number that JSON can hold"),
        (
            "tool_call_gate:\n  require_trace_fields: [tool.nam]",
            "line 2, tool_call_gate.require_trace_fields",
            "unknown field 'tool.nam'; did you mean 'tool.name'?",
        ),
        (
            "tool_call_gate:\n  min_pass_hat: {k: 0, min: 1}",
            "line 2, tool_call_gate.min_pass_hat.k",
            "greater than or equal to 1, got 0",
        ),
        ("tool_call_gate:\n  waste_path: {x: 1}", "line 2", "known are max_call_growth"),
        ("tool_call_gate:\n  min_pass_rate: 1\n  min_pass_rate: 0", "line 3", "occurs twice"),
        ("version: 2\ntool_call_gate: {min_pass_rate: 1}", "line 1, version", "got 2"),
        ("tool_call_gate: {", "gate.yaml", "is not YAML"),
    ],
)
def test_a_mistake_is_one_line_with_file_line_and_key(
    tmp_path: Path, text: str, where: str, said: str
) -> None:
    with pytest.raises(InputError) as raised:
        load_gate(written(tmp_path, text))
    message = str(raised.value)
    assert message.startswith(str(tmp_path / "gate.yaml"))
    assert where in message
    assert said in message
    assert "\n" not in message


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_gate(tmp_path / "none.yaml")


def test_the_published_schema_is_that_of_the_models() -> None:
    assert published_schema() == schema_text()


def test_the_schema_takes_what_the_reader_takes_and_refuses_unknown_keys() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    validator.validate(read_yaml(PRINTED).data)
    assert not validator.is_valid({"tool_call_gate": {"min_pas_rate": 1}})
    assert not validator.is_valid({"tool_call_gate": {"min_pass_rate": 2}})
    assert not validator.is_valid({})


def test_every_limit_of_the_file_is_a_rate_that_is_checked() -> None:
    limits = {name for name in Gate.model_fields if name.startswith(("min_", "max_"))}
    settings = {"min_coverage", "max_drop_from_baseline", "min_pass_hat"}
    assert limits - settings == {gated.key for gated in GATED}
