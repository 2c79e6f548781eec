"""``toolverdict definitions``: versions that were called, what they changed, tools described alike."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from toolverdict.instrument.catalogue.definitions import Catalogue, CatalogueError
from toolverdict.scoring.definitions.confusion import read_confusion
from toolverdict.scoring.definitions.overlap import (
    LEAST_OVERLAP,
    MOST_CHARS,
    long_descriptions,
    overlaps,
)
from toolverdict.scoring.definitions.terminal import print_definitions
from toolverdict.scoring.definitions.versions import State, changes, versions
from toolverdict.scoring.errors import ScoringError

app = typer.Typer(add_completion=False)

VERSION = 1
"""Version of the form of ``--json``."""


@app.command("definitions")
def definitions_command(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The results that `toolverdict score` wrote.")
    ],
    catalogs: Annotated[
        list[Path] | None,
        typer.Option(
            "--catalog",
            help="What `toolverdict catalog pin` wrote; several, from the oldest to the newest.",
        ),
    ] = None,
    least: Annotated[
        float,
        typer.Option("--overlap", min=0.0, max=1.0, help="Tell pairs of tools that are so alike."),
    ] = LEAST_OVERLAP,
    most_chars: Annotated[
        int, typer.Option("--max-description", min=1, help="Tell longer descriptions.")
    ] = MOST_CHARS,
    fail_on_unknown: Annotated[
        bool,
        typer.Option(
            "--fail-on-unknown", help="Exit 1 when a call was made under a definition not pinned."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show under which definitions tools were called, and which descriptions are hard to tell apart.

    Exits 0, 1 with --fail-on-unknown when there are such calls, 2 when it could not read.
    """
    try:
        catalogues = [Catalogue.load(path) for path in catalogs or ()]
        found = versions(out, catalogues)
        document: dict[str, Any] = {
            "version": VERSION,
            "versions": [asdict(one) for one in found],
            "changes": [asdict(one) for one in changes(out, found)],
            "long": [],
            "overlaps": [],
        }
        if catalogues:
            alike = overlaps(catalogues[-1], read_confusion(out), least)
            document["overlaps"] = [asdict(one) for one in alike]
            document["long"] = [
                asdict(one) for one in long_descriptions(catalogues[-1], most_chars)
            ]
    except (ScoringError, CatalogueError) as error:
        print(f"toolverdict definitions: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        print_definitions(document, Console())
    unknown = (State.UNKNOWN, State.UNPINNED, State.UNVERSIONED)
    if fail_on_unknown and any(one.state in unknown for one in found):
        raise typer.Exit(1)
