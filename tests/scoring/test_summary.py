"""What a summary warns of, each in a line that says what to do."""

from collections import Counter
from pathlib import Path

import pytest

from toolverdict.instrument.policy import Policy
from toolverdict.scoring.cases.load import load_cases
from toolverdict.scoring.counts import Counts
from toolverdict.scoring.policy_coverage import SeenTool
from toolverdict.scoring.summary import summarise

CASES = """
- {id: a, trials: 3, input: x, expected_tool_calls: [{tool: look}]}
- {id: b, input: x, expected_tool_calls: [{tool: look}]}
"""
POLICY = """
version: 1
id: shop
rules:
  - {id: never, effect: deny, tools: [drop]}
  - {id: first, effect: allow, tools: [pay], requires: [verify]}
"""


@pytest.mark.parametrize(
    ("counts", "warning"),
    [
        (Counts(spans=3), "no span was recognised as a tool call"),
        (Counts(undecided_dangerous_calls=1), "no policy decided 1 call of tools labelled"),
        (Counts(undecided_dangerous_calls=2), "no policy decided 2 calls of tools labelled"),
        (Counts(played=Counter(a=3)), "1 case played by no trajectory: b"),
        (Counts(played=Counter(a=1, b=1)), "1 case played less often than wanted: a (1 of 3)"),
        (Counts(unknown_cases={"z", "y"}), "2 cases named by spans but not given: y, z"),
    ],
)
def test_what_is_missing_is_told(tmp_path: Path, counts: Counts, warning: str) -> None:
    (tmp_path / "cases.yaml").write_text(CASES)
    cases = load_cases(tmp_path / "cases.yaml")
    warnings = summarise("lake", None, cases, counts).warnings
    assert any(line.startswith(warning) for line in warnings), warnings


def test_rules_that_met_no_call_and_tools_nobody_called() -> None:
    policy = Policy.parse(POLICY)
    seen = {SeenTool("pay"), SeenTool("look")}
    told = summarise("lake", policy, None, Counts(calls=2, seen=seen)).warnings
    assert told == (
        "rules of the policy that met no call: never",
        "tools that the policy requires before others and nobody called: verify",
    )
    assert summarise("lake", policy, None, Counts(seen=seen)).warnings == ()
