"""``toolverdict cases import``: parse, call :func:`toolverdict.scoring.importers.import_cases`, write."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from toolverdict.scoring.errors import ScoringError
from toolverdict.scoring.importers import IMPORTERS, Strictness, import_cases
from toolverdict.scoring.importers.writing import write_cases

app = typer.Typer(add_completion=False)


class Order(StrEnum):
    """In which order expected calls are made."""

    LISTED = "listed"
    ANY = "any"


class Extra(StrEnum):
    """What becomes of calls that are not expected."""

    PENALISE = "penalise"
    ALLOW = "allow"
    FORBID = "forbid"


class Arguments(StrEnum):
    """How arguments are compared."""

    EXACT = "exact"
    SUBSET = "subset"
    IGNORE = "ignore"


@app.command("import")
def import_command(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=" | ".join(IMPORTERS))],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="Its file, or a folder of them.")],
    out: Annotated[
        Path, typer.Option("--out", help="The case file to write: .yaml, .json, .jsonl.")
    ],
    order: Annotated[
        Order | None, typer.Option("--order", help="Instead of what the source's evaluator does.")
    ] = None,
    extra: Annotated[Extra | None, typer.Option("--extra", help="Likewise.")] = None,
    args: Annotated[Arguments | None, typer.Option("--args", help="Likewise.")] = None,
) -> None:
    """Make cases of another tool's; what they cannot say is told on stderr, a line each.

    Exits 0 when it wrote cases, 2 when it could not.
    """
    strictness = Strictness(
        order=None if order is None else order.value,
        extra=None if extra is None else extra.value,
        args=None if args is None else args.value,
    )
    try:
        imported = import_cases(path, source, strictness)
        write_cases(out, imported.cases)
    except ScoringError as error:
        print(f"toolverdict cases import: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None
    for loss in imported.losses:
        print(f"not carried over: {loss}", file=sys.stderr)  # noqa: T201
    cases = "1 case" if len(imported.cases) == 1 else f"{len(imported.cases)} cases"
    typer.echo(f"{cases} in {out}")
