"""``toolverdict demo``: the whole road on one machine in under a minute."""

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from toolverdict.collector import CollectorError
from toolverdict.scenarios.demo.run import run_demo
from toolverdict.scoring import ScoringError

app = typer.Typer(add_completion=False)


@app.command("demo")
def demo_command(
    out: Annotated[Path, typer.Option("--out", help="Folder for lake and results.")] = Path(
        "demo-out"
    ),
) -> None:
    """Play a refund agent, good and bad, through a real collector, and score it.

    Exits 0 when every planted failure was found at its span, else 1.
    """
    try:
        right = run_demo(out, Console())
    except (ScoringError, CollectorError, RuntimeError) as error:
        print(f"toolverdict demo: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None
    raise typer.Exit(0 if right else 1)
