"""``toolverdict failures``: parse, draw, write."""

import sys
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, cast

import orjson
import typer

from toolverdict.collector import CollectorError, Lake
from toolverdict.scoring.errors import InputError, ScoringError
from toolverdict.scoring.failures.document import as_document
from toolverdict.scoring.failures.lake import with_turns
from toolverdict.scoring.failures.markdown import as_markdown
from toolverdict.scoring.failures.outcome import Outcome
from toolverdict.scoring.failures.report import DIMENSIONS, Dimension, report

app = typer.Typer(add_completion=False)


class Format(StrEnum):
    """How the report is written."""

    MD = "md"
    JSON = "json"


@app.command("failures")
def failures_command(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Results of `toolverdict score`.")],
    lake: Annotated[
        str | None,
        typer.Option("--lake", help="The lake that was scored: tells the model's turns too."),
    ] = None,
    sample: Annotated[
        int, typer.Option("--sample", min=1, max=10_000, help="How many failures to draw.")
    ] = 20,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the draw.")] = 0,
    by: Annotated[
        str,
        typer.Option("--by", help="What failures of one stratum share: tool, error, category."),
    ] = ",".join(DIMENSIONS),
    format_: Annotated[Format, typer.Option("--format", help="Markdown or JSON.")] = Format.MD,
    file: Annotated[
        Path | None, typer.Option("--out", help="Write it here instead of printing it.")
    ] = None,
    with_arguments: Annotated[
        bool,
        typer.Option(
            "--with-arguments",
            help="Tell arguments, results and compared values too: may hold personal data.",
        ),
    ] = False,
) -> None:
    """A sample of the trajectories that failed: what happened, what to blame, and on what evidence.

    Exits 0 when the report was made, also where nothing failed; 2 on a mistake in usage.
    """
    try:
        found = report(
            Outcome(out),
            sample=sample,
            seed=seed,
            by=_dimensions(by),
            with_arguments=with_arguments,
        )
        if lake is not None:
            found = with_turns(found, Lake.open(lake))
        if format_ is Format.JSON:
            document = as_document(found, version("toolverdict"))
            text = orjson.dumps(document, option=orjson.OPT_INDENT_2).decode() + "\n"
        else:
            text = as_markdown(found)
        _write(text, file)
    except (ScoringError, CollectorError) as error:
        print(f"toolverdict failures: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None


def _dimensions(text: str) -> tuple[Dimension, ...]:
    """The dimensions that a text lists, each once.

    Raises:
        InputError: one is not known, or none is named.
    """
    named = dict.fromkeys(part.strip() for part in text.split(",") if part.strip())
    unknown = [name for name in named if name not in DIMENSIONS]
    if unknown or not named:
        what = f"{unknown[0]!r} is not known" if unknown else "names nothing"
        raise InputError(f"--by: {what}; name some of {', '.join(DIMENSIONS)}")
    return tuple(cast("Dimension", name) for name in named)


def _write(text: str, file: Path | None) -> None:
    if file is None:
        typer.echo(text, nl=False)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise InputError(f"{file}: cannot be written: {reason}; name another --out") from error
