"""``toolverdict rates``: any rate of an ``OUT``, of the whole or by a dimension."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console

from toolverdict.scoring.errors import ScoringError
from toolverdict.scoring.rates import dimensions
from toolverdict.scoring.rates.aggregate import Aggregates
from toolverdict.scoring.rates.reading import read_aggregates
from toolverdict.scoring.rates.report import errors, grouped, latencies, whole
from toolverdict.scoring.rates.terminal import print_groups, print_whole

app = typer.Typer(add_completion=False)

VERSION = 1
"""Version of the form of ``--json``."""


class By(StrEnum):
    """What rates can be grouped by."""

    TOOL = "tool"
    AGENT = "agent"
    LABEL = "label"
    MODEL = "model"
    VERSION = "version"
    SCHEMA = "schema"
    HOUR = "hour"


_DIMENSIONS = {
    By.VERSION: dimensions.SERVICE_VERSION,
    By.SCHEMA: dimensions.SCHEMA_VERSION,
    By.HOUR: dimensions.TIME,
}


@app.command("rates")
def rates_command(
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="The results that `toolverdict score` wrote.")
    ],
    by: Annotated[
        By | None,
        typer.Option("--by", help="A row for each of these; without it, every rate of the whole."),
    ] = None,
    minutes: Annotated[
        int, typer.Option("--minutes", min=1, max=525_600, help="How long an --by hour is.")
    ] = 60,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every rate of every row as JSON.")
    ] = False,
) -> None:
    """Print rates with their 95 % intervals, which know that calls of one trajectory fail together.

    Exits 0 when it could read the results, else 2.
    """
    try:
        aggregates = read_aggregates(out, minutes * 60)
    except ScoringError as error:
        print(f"toolverdict rates: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None
    document = _document(aggregates, by)
    if as_json:
        typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    elif by is None:
        print_whole(document, Console())
    else:
        print_groups(by.value, document["groups"], document["latency"], Console())


def _document(aggregates: Aggregates, by: By | None) -> dict[str, Any]:
    head = {"version": VERSION, "by": by, "time_bucket_s": aggregates.bucket_s}
    latency = latencies(aggregates)
    if by is None:
        rates = whole(aggregates)
        return {**head, "rates": rates, "errors": errors(aggregates), "latency": latency["all"]}
    return {
        **head,
        "groups": grouped(aggregates, _DIMENSIONS.get(by, by.value)),
        "latency": latency.get(f"by_{by.value}", {}),
    }
