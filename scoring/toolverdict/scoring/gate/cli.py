"""``toolverdict gate``: parse, run the gate, tell everybody who asked, exit with the answer."""

import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console

from toolverdict.instrument.errors import PolicyError
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.errors import InputError, ScoringError
from toolverdict.scoring.gate.evidence import read_results
from toolverdict.scoring.gate.formats.github import (
    annotations,
    append_job_summary,
    commands_stopped,
)
from toolverdict.scoring.gate.formats.junit import as_junit
from toolverdict.scoring.gate.formats.sarif import as_sarif
from toolverdict.scoring.gate.formats.terminal import print_report
from toolverdict.scoring.gate.gate_file import load_gate, published_schema
from toolverdict.scoring.gate.gated import GATED
from toolverdict.scoring.gate.report import GateReport, as_document, run_gate
from toolverdict.scoring.gate.self_test import SPLITS, self_test

app = typer.Typer(add_completion=False)

_STDOUT = Path("-")


def _print_schema(asked: bool) -> None:
    if asked:
        typer.echo(published_schema(), nl=False)
        raise typer.Exit


@app.command("gate")
def gate_command(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The results that `toolverdict score` wrote.")
    ],
    gate: Annotated[Path, typer.Option("--gate", help="What must be reached (YAML).")],
    baseline: Annotated[
        Path | None, typer.Option("--baseline", help="Results of the version before.")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", help="The policy of the results: are its rules confirmed?"),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", help="Write the report as JSON; - is the output.")
    ] = None,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML.")] = None,
    sarif: Annotated[Path | None, typer.Option("--sarif", help="Write SARIF 2.1.0.")] = None,
    github: Annotated[
        bool | None,
        typer.Option(
            "--github/--no-github",
            help="Annotations and job summary; by default where GITHUB_ACTIONS is true.",
        ),
    ] = None,
    try_self: Annotated[
        bool,
        typer.Option("--self-test", help="Compare random halves of OUT: how often a false alarm?"),
    ] = False,
    splits: Annotated[
        int, typer.Option("--splits", min=1, max=100_000, help="Of the self-test.")
    ] = SPLITS,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of what is drawn at random.")] = 0,
    _schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            callback=_print_schema,
            is_eager=True,
            help="Print the JSON Schema of the gate file.",
        ),
    ] = False,
) -> None:
    """May this version go out? Checks results against a gate file.

    Exits 0 when every check passes, 1 when one fails, 2 on a mistake in usage or configuration, 3
    when the evidence does not decide. The self-test exits 1 when alarms are too many, 3 when there
    is nothing to split.
    """
    try:
        file, results = load_gate(gate), read_results(out)
        if try_self:
            limited = [one for one in GATED if getattr(file.gate, one.key) is not None]
            test = self_test(
                results,
                limited or GATED,
                confidence=file.gate.confidence,
                splits=splits,
                seed=seed,
            )
            typer.echo(test.sentence)
            for rate, alarms in test.by_rate.items():
                if alarms:
                    typer.echo(f"  {rate}: {alarms}")
            raise typer.Exit(3 if test.alarms.value is None else int(test.too_many))
        report = run_gate(
            file,
            results,
            baseline=read_results(baseline) if baseline is not None else None,
            policy=Policy.load(policy) if policy is not None else None,
            seed=seed,
        )
        _write(report, json, junit, sarif)
        on_github = os.environ.get("GITHUB_ACTIONS") == "true" if github is None else github
        _tell(report, on_github, quiet=json == _STDOUT)
    except (ScoringError, PolicyError) as error:
        print(f"toolverdict gate: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None
    raise typer.Exit(report.exit_code)


def _write(report: GateReport, json: Path | None, junit: Path | None, sarif: Path | None) -> None:
    """Writes the documents that were asked for."""
    made = version("toolverdict")
    if json is not None:
        _write_one(json, orjson.dumps(as_document(report, made), option=orjson.OPT_INDENT_2))
    if junit is not None:
        _write_one(junit, as_junit(report))
    if sarif is not None:
        _write_one(sarif, orjson.dumps(as_sarif(report, made), option=orjson.OPT_INDENT_2))


def _write_one(path: Path, content: bytes) -> None:
    content = content.rstrip(b"\n") + b"\n"
    if path == _STDOUT:
        typer.echo(content.decode(), nl=False)
        return
    try:
        path.write_bytes(content)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error


def _tell(report: GateReport, on_github: bool, *, quiet: bool) -> None:
    """Tells the person at the terminal, and GitHub."""
    if on_github:
        # A document on the output stays one: the annotations then go beside it.
        for line in annotations(report):
            print(line, file=sys.stderr if quiet else sys.stdout)
        append_job_summary(report)
    if quiet:
        return
    if not on_github:
        print_report(report, Console())
        return
    with commands_stopped(sys.stdout):
        print_report(report, Console())
