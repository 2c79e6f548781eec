"""``toolverdict score``: parse, call :func:`toolverdict.scoring.run.score`, print."""

import sys
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.console import Console
from rich.progress import Progress

from toolverdict.collector import CollectorError
from toolverdict.instrument.errors import PolicyError
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.cases.load import load_cases
from toolverdict.scoring.cases.mapping import load_case_map
from toolverdict.scoring.errors import ScoringError
from toolverdict.scoring.run import Inputs, score
from toolverdict.scoring.summary import Summary
from toolverdict.scoring.terminal import print_results

app = typer.Typer(add_completion=False)


@app.command("score")
def score_command(
    lake: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder that `toolverdict collect` writes.")
    ],
    out: Annotated[Path, typer.Option("--out", help="Where the results go.")],
    policy: Annotated[
        Path | None,
        typer.Option("--policy", help="Policy (YAML) to decide the recorded calls by, again."),
    ] = None,
    cases: Annotated[
        Path | None,
        typer.Option("--cases", help="Cases: a YAML, JSON or JSONL file, or a folder of them."),
    ] = None,
    case_map: Annotated[
        Path | None,
        typer.Option(
            "--case-map", help="JSON or YAML object: trace or conversation id to case id."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print summary.json instead of tables.")
    ] = False,
) -> None:
    """Score the tool calls in a lake: what failed, at which span, and how often.

    Exits 0 when it scored, 2 when it could not, 3 when cases were given and none was played.
    """
    try:
        inputs = Inputs(
            lake=lake,
            policy=Policy.load(policy) if policy is not None else None,
            cases=load_cases(cases) if cases is not None else None,
            case_of=load_case_map(case_map) if case_map is not None else {},
        )
        summary = _score(inputs, out)
    except (ScoringError, CollectorError, PolicyError) as error:
        print(f"toolverdict score: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(orjson.dumps(summary.document, option=orjson.OPT_INDENT_2).decode())
        return
    console = Console()
    print_results(out, console)
    console.print(
        f"calls, findings, verdicts (Parquet) and summary.json are in {out}", markup=False
    )


def _score(inputs: Inputs, out: Path) -> Summary:
    """Scores with a progress bar on a terminal, silently elsewhere."""
    errors = Console(stderr=True)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("scoring", total=None)

        def tell(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        return score(inputs, out, tell)
