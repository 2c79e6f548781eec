"""The policy file: what it can say, and what is said when it is wrong."""

from pathlib import Path

import pytest

from toolverdict.collector.errors import ConfigError
from toolverdict.collector.sampling import schema
from toolverdict.collector.sampling.policy import MATCHERS, SamplingPolicy

START = "version: 1\notherwise: {keep: 0.1}\n"


def test_the_matchers_are_those_of_the_issue() -> None:
    assert set(MATCHERS) == {
        "failed", "decisions", "outcomes", "labels", "tools", "agents", "slower_than_s", "new_tool"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("version: 1", "Field required"),
        ("version: 2\notherwise: {keep: 1}", "reads policy version 1"),
        ("version: 1\notherwise: {keep: 0.001}", "leaves silent failures unseen"),
        ("version: 1\notherwise: {keep: 0}", "greater than or equal to"),
        ("version: 1\notherwise: {keep: 0, allow_rare: true}", "greater than or equal to"),
        ("version: 1\notherwise: {keep: 1.5}", "less than or equal to 1"),
        ("version: 1\notherwise: {keep: yes}", "valid number"),
        (START + "rules: [{id: a, keep: 1}]", "needs a matcher"),
        (START + "rules: [{id: otherwise, keep: 1, failed: true}]", "another id"),
        (START + "rules: [{id: a, keep: 1, failed: false}]", "Input should be True"),
        (START + "rules: [{id: a, keep: 1, outcomes: [bad]}]", "'ok', 'empty'"),
        (START + "rules: [{id: a, keep: 1, tool: [x]}]", "did you mean 'tools'?"),
        (
            START + "rules: [{id: a, keep: 1, failed: true}, {id: a, keep: 1, failed: true}]",
            "used twice: a",
        ),
        (START + "rules: [{id: a, keep: 1, failed: true, cap: {traces: 0}}]", "greater than"),
        (START + "window_s: 0.5", "greater than or equal to 1"),
        (START + "quiet_s: .nan", "JSON"),
        ("[1]", "expected a mapping"),
        ("{", "YAML"),
        ("a: 1\na: 2", "line 2"),
        (" " * 1_000_001, "larger than"),
    ],
)
def test_a_wrong_file_is_named_in_one_line(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        SamplingPolicy.parse(text, source="sampling.yaml")
    message = str(raised.value)
    assert message.startswith("sampling.yaml: ")
    assert problem in message
    assert "\n" not in message


def test_the_line_is_named() -> None:
    text = (
        START + "rules:\n  - {id: a, keep: 1, failed: true}\n  - {id: b, keep: 2, failed: true}\n"
    )
    with pytest.raises(ConfigError, match=r"line 5.*keep"):
        SamplingPolicy.parse(text)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        SamplingPolicy.load(tmp_path / "absent.yaml")


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "sampling.yaml"
    file.write_text(START + "quiet_s: 5\nroot_grace_s: 7\nwindow_s: 60")
    policy = SamplingPolicy.load(file)
    assert policy.otherwise.keep == 0.1
    assert policy.patience.total_seconds() == 67


def test_rare_is_possible_for_who_asks() -> None:
    policy = SamplingPolicy.parse("{version: 1, otherwise: {keep: 0.001, allow_rare: true}}")
    assert policy.otherwise.keep == 0.001


def test_the_published_schema_is_that_of_the_models() -> None:
    assert schema.published() == schema.as_text()
