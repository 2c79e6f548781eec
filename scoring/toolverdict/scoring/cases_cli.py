"""``toolverdict cases``: look case files over before anything depends on them."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from toolverdict.instrument.catalogue.definitions import Catalogue, CatalogueError
from toolverdict.scoring.cases.lint import CaseFinding, lint
from toolverdict.scoring.cases.load import CaseSet, load_cases
from toolverdict.scoring.cases.schema import published
from toolverdict.scoring.errors import ScoringError
from toolverdict.scoring.importers_cli import import_command

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Check case files, or print their schema."
)


@app.command("lint")
def lint_command(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="Cases: a file, or a folder of files.")
    ],
    catalog: Annotated[
        Path | None,
        typer.Option("--catalog", help="What `toolverdict catalog pin` wrote: the known tools."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find cases that nobody can fail or pass, and names that do not exist.

    Exits 0 when there is nothing to say, 1 with findings, 2 when a file cannot be read.
    """
    try:
        catalogue = Catalogue.load(catalog) if catalog is not None else None
        suite = load_cases(path, catalogue)
    except (ScoringError, CatalogueError) as error:
        print(f"toolverdict cases lint: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None
    findings = lint(suite, catalogue)
    if as_json:
        document = {
            "version": 1,
            "cases": len(suite.cases),
            "digest": suite.digest,
            "unknown_keys": list(suite.unknown_keys),
            "findings": [
                {
                    "code": finding.code,
                    "case": finding.case,
                    "where": _where(finding, suite, path),
                    "message": finding.message,
                }
                for finding in findings
            ],
        }
        typer.echo(json.dumps(document, indent=2))
    else:
        for finding in findings:
            case = f"case {finding.case}: " if finding.case is not None else ""
            where = _where(finding, suite, path)
            typer.echo(f"{where}: {finding.code}: {case}{finding.message}")
        cases = "case" if len(suite.cases) == 1 else "cases"
        said = f"{len(findings)} to look at" if findings else "nothing to object to"
        if suite.unknown_keys:
            said += f"; keys not understood: {', '.join(suite.unknown_keys)}"
        typer.echo(f"{len(suite.cases)} {cases}, {suite.digest}: {said}")
    raise typer.Exit(1 if findings else 0)


@app.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of case files, for editors."""
    typer.echo(published(), nl=False)


def _where(finding: CaseFinding, suite: CaseSet, path: Path) -> str:
    place = suite.places.get(finding.case or "")
    return str(path) if place is None else str(place)


app.command("import")(import_command)
