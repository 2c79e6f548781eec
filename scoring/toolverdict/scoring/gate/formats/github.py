"""The report for GitHub Actions: annotations at the lines of the gate file, and a job summary.

Source: GitHub, "Workflow commands for GitHub Actions". A message ends with its line, so it is
escaped; and text from a trace that looks like a command is not to be run as one.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from toolverdict.scoring.errors import InputError
from toolverdict.scoring.gate.checks import Check, State
from toolverdict.scoring.gate.formats.words import MOST_LISTED, and_more, sentence
from toolverdict.scoring.gate.report import GateReport
from toolverdict.scoring.terminal import plain

_COMMANDS = {State.FAIL: "error", State.INCONCLUSIVE: "warning"}
_MARKS = {State.PASS: "✅", State.FAIL: "❌", State.INCONCLUSIVE: "❔"}
_MOST_SUMMARY_BYTES = 900_000  # GitHub refuses 1 MiB
_MARKDOWN = frozenset("\\`*_{}[]<>()#+-.!|&~@:$^='\"/")


def annotations(report: GateReport) -> Iterator[str]:
    """A workflow command for every check that does not pass."""
    for check in report.checks:
        command = _COMMANDS.get(check.state)
        if command is None:
            continue
        said = {
            "file": report.gate,
            "line": str(report.line(check)),
            "title": f"toolverdict gate: {check.id} {check.state.value}",
        }
        properties = ",".join(f"{name}={_property(value)}" for name, value in said.items())
        yield f"::{command} {properties}::{_data(_text(check))}"


@contextmanager
def commands_stopped(stream: TextIO) -> Iterator[None]:
    """What is written to ``stream`` inside is not read for commands."""
    token = secrets.token_hex(16)
    print(f"::stop-commands::{token}", file=stream, flush=True)
    try:
        yield
    finally:
        print(f"::{token}::", file=stream, flush=True)


def job_summary(report: GateReport) -> str:
    """The report as Markdown; every character of a text stands for itself."""
    lines = [
        f"## Tool-call gate: {_MARKS[report.state]} {report.state.value}",
        "",
        "| check | state | figures |",
        "| --- | --- | --- |",
        *(
            f"| {_markdown(check.id)} | {_MARKS[check.state]} {check.state.value} "
            f"| {_markdown(check.message)} |"
            for check in report.checks
        ),
    ]
    for check in report.checks:
        if check.state is State.PASS or not check.culprits:
            continue
        lines += ["", f"### {_markdown(check.id)}", ""]
        lines += [f"- {_markdown(sentence(one))}" for one in check.culprits[:MOST_LISTED]]
        more = and_more(len(check.culprits))
        lines += [f"- {more}"] if more else []
    text = "\n".join(lines) + "\n"
    if len(text.encode()) > _MOST_SUMMARY_BYTES:
        kept = text.encode()[:_MOST_SUMMARY_BYTES].decode(errors="ignore")
        text = kept[: kept.rindex("\n") + 1] + "\nThe summary was cut; the JSON report has all.\n"
    return text


def append_job_summary(report: GateReport) -> None:
    """Adds the summary to the file that GitHub names; without one there is nothing to do.

    Raises:
        InputError: the file cannot be written.
    """
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(job_summary(report))
    except OSError as error:
        raise InputError(f"GITHUB_STEP_SUMMARY: cannot be written: {error.strerror}") from error


def _text(check: Check) -> str:
    """The message and the first culprits, on lines of their own."""
    shown = check.culprits[:3]
    more = len(check.culprits) - len(shown)
    lines = [plain(check.message), *(sentence(one) for one in shown)]
    return "\n".join([*lines, f"and {more} more"] if more else lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _markdown(text: str) -> str:
    return "".join(f"&#{ord(c)};" if c in _MARKDOWN else c for c in plain(text))
