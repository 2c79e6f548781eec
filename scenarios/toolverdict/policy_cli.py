"""``toolverdict policy``: look a policy file over before anything depends on it, and try it out."""

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
from toolverdict.scorer_needed import scorer_needed

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Check a policy, try it on a lake."
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


@app.command("replay")
def replay_command(
    lake: Annotated[
        str, typer.Argument(metavar="LAKE", help="Where `toolverdict collect` writes.")
    ],
    policy: Annotated[Path, typer.Option("--policy", help="The policy (YAML) that decides now.")],
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="OLD", help="Another policy, to compare with."),
    ] = None,
    audit: Annotated[
        Path | None,
        typer.Option("--audit", metavar="FILE", help="An approval store or an audit log."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where replay.json and decisions.parquet go.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    fail_on_change: Annotated[
        bool, typer.Option("--fail-on-change", help="Exit 1 if a call would be decided otherwise.")
    ] = False,
) -> None:
    """Decide the recorded calls again: what is not allowed, what became of it, what would change.

    Exits 0 when it is done, 1 with --fail-on-change and a change, 2 when something cannot be read or
    written, 3 when the lake holds no tool call.
    """
    with scorer_needed("policy replay"):
        from toolverdict.collector import CollectorError
        from toolverdict.scoring.errors import ScoringError
        from toolverdict.scoring.replay_cli import ReplayInputs, run_replay
    try:
        document = run_replay(ReplayInputs(lake, policy, against, audit, out), as_json=as_json)
    except (PolicyError, ScoringError, CollectorError) as error:
        print(f"toolverdict policy replay: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None
    if not document["calls"]:
        print(  # noqa: T201
            f"toolverdict policy replay: {lake}: holds no tool call, so nothing was decided",
            file=sys.stderr,
        )
        raise typer.Exit(3)
    raise typer.Exit(1 if fail_on_change and document["changes"] else 0)


def _line(finding: PolicyFinding) -> str:
    rule = f"rule {finding.rule}: " if finding.rule is not None else ""
    return f"{finding.code}: {rule}{finding.message}"
