"""The report as SARIF 2.1.0, which code scanners show: one rule a check, one result a culprit.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
"""

import hashlib
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from toolverdict.scoring.gate.checks import Check, State
from toolverdict.scoring.gate.evidence import Culprit
from toolverdict.scoring.gate.formats.words import MOST_LISTED, sentence, where
from toolverdict.scoring.gate.report import GateReport
from toolverdict.scoring.terminal import plain

_LEVELS = {State.FAIL: "error", State.INCONCLUSIVE: "warning"}


def as_sarif(report: GateReport, toolverdict: str) -> dict[str, Any]:
    """The log; ``toolverdict`` is the version that made it."""
    places = {check.id: place for place, check in enumerate(report.checks)}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "toolverdict",
                        "version": toolverdict,
                        "rules": [_rule(check) for check in report.checks],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [
                    {**result, "ruleIndex": places[result["ruleId"]]}
                    for check in report.checks
                    for result in _results(check, report)
                ],
                "properties": {"state": report.state.value, "exitCode": report.exit_code},
            }
        ],
    }


def _rule(check: Check) -> dict[str, Any]:
    return {
        "id": check.id,
        "shortDescription": {"text": f"Tool-call gate: {check.id}"},
        "defaultConfiguration": {"level": "error"},
    }


def _results(check: Check, report: GateReport) -> Iterator[dict[str, Any]]:
    """The check itself, then each of its culprits; nothing for a check that passes."""
    level = _LEVELS.get(check.state)
    if level is None:
        return
    yield _result(check, report, level, plain(check.message), None)
    for one in check.culprits[:MOST_LISTED]:
        yield _result(check, report, level, sentence(one), one)


def _result(
    check: Check, report: GateReport, level: str, text: str, culprit: Culprit | None
) -> dict[str, Any]:
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": quote(PurePath(report.gate).as_posix())},
            "region": {"startLine": report.line(check)},
        }
    }
    identity = check.id
    if culprit is not None:
        name = f"{plain(culprit.trace_id)}/{plain(culprit.span_id or '')}"
        location["logicalLocations"] = [{"fullyQualifiedName": name, "kind": "span"}]
        identity = f"{check.id} {where(culprit)} {text}"
    fingerprint = hashlib.sha256(identity.encode()).hexdigest()[:32]
    return {
        "ruleId": check.id,
        "level": level,
        "message": {"text": _message(text)},
        "locations": [location],
        "partialFingerprints": {"toolverdictGate/v1": fingerprint},
    }


def _message(text: str) -> str:
    """Text in which nothing is a link or a placeholder (sections 3.11.5 and 3.11.6)."""
    for special in "\\[]":
        text = text.replace(special, f"\\{special}")
    return text.replace("{", "{{").replace("}", "}}")
