"""``toolverdict policy``: look a policy file over before anything depends on it."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from toolverdict.instrument.catalogue.definitions import Catalogue, CatalogueError
from toolverdict.instrument.errors import PolicyError
from toolverdict.instrument.policy.check import PolicyFinding, check_policy
from toolverdict.instrument.policy.policy import Policy
from toolverdict.instrument.policy.schema import published

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Check a policy file, or print its schema."
)


@app.command("check")
def check_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy (YAML).")],
    catalog: Annotated[
        Path | None,
        typer.Option("--catalog", help="What `toolverdict catalog pin` wrote: the known tools."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find rules that do not do what they seem to, and high-risk rules nobody answers for.

    Exits 0 when there is nothing to say, 1 with findings, 2 when a file cannot be read.
    """
    try:
        policy, places = Policy.load_with_places(file)
        tools = Catalogue.load(catalog).known_tools() if catalog is not None else None
    except (PolicyError, CatalogueError) as error:
        print(f"toolverdict policy check: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None
    findings = check_policy(policy, tools)
    if as_json:
        document = {
            "version": 1,
            "policy": policy.id,
            "digest": policy.digest,
            "findings": [
                {
                    "code": finding.code,
                    "rule": finding.rule,
                    "where": places.place(finding.path),
                    "message": finding.message,
                }
                for finding in findings
            ],
        }
        typer.echo(json.dumps(document, indent=2))
    else:
        for finding in findings:
            typer.echo(f"{file}: {places.place(finding.path)}: {_line(finding)}")
        rules = "rule" if len(policy.rules) == 1 else "rules"
        said = f"{len(findings)} to look at" if findings else "nothing to object to"
        typer.echo(f"policy {policy.id}, {len(policy.rules)} {rules}, {policy.digest}: {said}")
    raise typer.Exit(1 if findings else 0)


@app.command("schema")
def schema_command() -> None:
    """Print the JSON Schema of the policy file, for editors."""
    typer.echo(published(), nl=False)


def _line(finding: PolicyFinding) -> str:
    rule = f"rule {finding.rule}: " if finding.rule is not None else ""
    return f"{finding.code}: {rule}{finding.message}"
