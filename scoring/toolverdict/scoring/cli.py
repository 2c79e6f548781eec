"""``toolverdict score``: parse, call :func:`toolverdict.scoring.run.score`, print."""

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal

import orjson
import typer
from rich.console import Console
from rich.progress import Progress

from toolverdict.collector import CollectorError
from toolverdict.collector.lake_cli import duration_of, time_of
from toolverdict.instrument.catalogue.definitions import Catalogue, CatalogueError
from toolverdict.instrument.errors import PolicyError
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.cases.load import load_cases
from toolverdict.scoring.cases.mapping import load_case_map
from toolverdict.scoring.errors import ScoringError
from toolverdict.scoring.model import Thresholds
from toolverdict.scoring.run import Engine, Engines, Inputs, Period, score
from toolverdict.scoring.summary import Summary
from toolverdict.scoring.terminal import print_results

app = typer.Typer(add_completion=False)

_LEAST = Thresholds()


def _since(text: str | None) -> datetime | Literal["last"] | None:
    """Raises typer.BadParameter when it is neither ``last`` nor a time."""
    if text is None:
        return None
    return "last" if text == "last" else time_of(text)


@app.command("score")
def score_command(
    lake: Annotated[
        str,
        typer.Argument(
            metavar="LAKE",
            help="Where `toolverdict collect` writes: a folder, s3://, gs://, az://.",
        ),
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
    catalog: Annotated[
        Path | None,
        typer.Option(
            "--catalog",
            help="What `toolverdict catalog pin` wrote: labels of tools, and how arguments compare where "
            "a case is silent.",
        ),
    ] = None,
    min_selection: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Least selection accuracy of a trajectory that passes.",
        ),
    ] = _LEAST.min_selection,
    min_arguments: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Least argument accuracy of a trajectory that passes.",
        ),
    ] = _LEAST.min_arguments,
    min_order: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Least call timing accuracy of a trajectory that passes.",
        ),
    ] = _LEAST.min_order,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="last|TIME",
            help="last: what is new, leaving what goes on for the next time. Else from the hour of a "
            "time on: 2026-11-30T14:00Z, or 24h for a day ago.",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(help="Up to the hour of a time.", parser=time_of),
    ] = None,
    grace: Annotated[
        timedelta,
        typer.Option(
            help="With --since last: how long an unfinished trace without news is waited for.",
            parser=duration_of,
        ),
    ] = "30m",  # type: ignore[assignment]
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes; else one for each core.")
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="What runs them: this machine, or a cluster.")
    ] = "local",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print summary.json instead of tables.")
    ] = False,
) -> None:
    """Score the tool calls in a lake: what failed, at which span, and how often.

    What an earlier run into the same OUT did by the same rules is not done again.

    Exits 0 when it scored, 2 when it could not, 3 when cases were given and none was played.
    """
    period = Period(_since(since), until, grace)
    try:
        catalogue = Catalogue.load(catalog) if catalog is not None else None
        inputs = Inputs(
            lake=lake,
            policy=Policy.load(policy) if policy is not None else None,
            cases=load_cases(cases, catalogue) if cases is not None else None,
            case_of=load_case_map(case_map) if case_map is not None else {},
            thresholds=Thresholds(min_selection, min_arguments, min_order),
            catalogue=catalogue,
        )
        summary = _score(inputs, out, period, Engines(engine, workers))
    except (ScoringError, CollectorError, PolicyError, CatalogueError) as error:
        print(f"toolverdict score: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(orjson.dumps(summary.document, option=orjson.OPT_INDENT_2).decode())
    else:
        console = Console()
        print_results(out, console)
        console.print(
            f"calls, findings, verdicts (Parquet) and summary.json are in {out}", markup=False
        )
    if summary.nothing_evaluated:
        print(  # noqa: T201
            "toolverdict score: no trajectory played one of the cases: nothing was evaluated; "
            "name the case in the spans, or give --case-map",
            file=sys.stderr,
        )
        raise typer.Exit(3)


def _score(inputs: Inputs, out: Path, period: Period, engines: Engines) -> Summary:
    """Scores with a progress bar on a terminal, silently elsewhere."""
    errors = Console(stderr=True)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        task = progress.add_task("scoring", total=None)

        def tell(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        return score(inputs, out, tell, period, engines)
