"""``toolverdict import``: parse, call :func:`toolverdict.scoring.importing.import_files`, print."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from toolverdict.collector import CollectorError
from toolverdict.collector.signals import WIRE
from toolverdict.scoring.errors import ScoringError
from toolverdict.scoring.importing import import_files

app = typer.Typer(add_completion=False)


@app.command("import")
def import_command(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="OTLP/JSON, one document or one a line, or a trace that Tempo exported; "
            "plain, gzip or zstd.",
        ),
    ],
    lake: Annotated[
        Path,
        typer.Option("--lake", metavar="DIR", help="The lake; made when it is not there."),
    ],
) -> None:
    """Bring traces and logs from files into a lake that no collector is at work on.

    Exits 0 when all was taken, 1 when a part was not (a line each on stderr), 2 when it could not.
    """
    try:
        imported = import_files(files, lake)
    except (ScoringError, CollectorError) as error:
        print(f"toolverdict import: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None
    counts = " and ".join(
        f"{count:,} {WIRE[signal].noun}" for signal, count in sorted(imported.accepted.items())
    )
    typer.echo(f"{counts or 'nothing'} in {lake}")
    if imported.is_whole:
        return
    faults = [
        *imported.faults,
        *(
            f"{count:,} {WIRE[signal].noun} are not valid and were left out"
            for signal, count in sorted(imported.refused.items())
            if count
        ),
    ]
    if imported.more_faults:
        faults.append(f"and {imported.more_faults:,} more")
    for fault in faults:
        print(f"toolverdict import: {fault}", file=sys.stderr)  # noqa: T201
    raise typer.Exit(1)
