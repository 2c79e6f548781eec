"""Was every planted failure found, at its span? The demo's own test of the scorer."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from toolverdict.scenarios.demo.conversations import Conversation


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the scorer said of one conversation. ``right`` is whether it is what was planted."""

    conversation: Conversation
    passed: bool | None
    span_id: str | None
    is_root_cause: bool
    right: bool


def check(played: Sequence[Conversation], out: Path) -> list[Outcome]:
    """Compares the results in ``out`` with what was planted, conversation by conversation."""
    verdicts = {v["case_id"]: v for v in pq.read_table(out / "verdicts").to_pylist()}
    findings = pq.read_table(out / "findings").to_pylist()
    tool_of = {c["span_id"]: c["tool"] for c in pq.read_table(out / "calls").to_pylist()}
    outcomes = []
    for conversation in played:
        verdict = verdicts.get(conversation.id)
        passed = verdict["passed"] if verdict is not None else None
        trajectory = verdict["trajectory_id"] if verdict is not None else None
        mine = [finding for finding in findings if finding["trajectory_id"] == trajectory]
        found = next((f for f in mine if _is_planted(f, conversation, tool_of)), None)
        clean = passed is True and not any(f["severity"] == "failure" for f in mine)
        outcomes.append(
            Outcome(
                conversation,
                passed,
                found["span_id"] if found else None,
                found["root_cause"] if found else False,
                clean if conversation.planted is None else found is not None,
            )
        )
    return outcomes


def _is_planted(
    finding: dict[str, Any], conversation: Conversation, tool_of: dict[str, str]
) -> bool:
    planted = conversation.planted
    if planted is None or finding["category"] != planted.category:
        return False
    if tool_of.get(finding["span_id"]) != planted.tool:
        return False
    details = (finding["key_path"], (finding["actual"] or "").strip('"'))
    return planted.detail is None or planted.detail in details
