"""``toolverdict compare``: parse, compare, print."""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolverdict.scoring.compare.comparison import Comparison, compare, is_worse
from toolverdict.scoring.errors import ScoringError
from toolverdict.scoring.gate.evidence import read_results
from toolverdict.scoring.gate.gated import GATED
from toolverdict.scoring.rates import Rate
from toolverdict.scoring.terminal import plain

VERSION = 1
"""Version of the form of the JSON document."""

app = typer.Typer(add_completion=False)


@app.command("compare")
def compare_command(
    base: Annotated[Path, typer.Argument(metavar="BASE", help="Results of the version before.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="Results of the new version.")],
    live: Annotated[
        bool, typer.Option("--live", help="Two samples of traffic, even where cases are the same.")
    ] = False,
    confidence: Annotated[
        float, typer.Option("--confidence", min=0.51, max=0.9999, help="Of the intervals.")
    ] = 0.95,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the bootstrap.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """What got worse between two versions? On the same cases in pairs, else as live traffic.

    Exits 0 when nothing got worse, 1 when a rate did or when the new version calls more tools and
    succeeds no more, 2 on a mistake in usage, 3 when nothing could be compared.
    """
    try:
        found = compare(
            read_results(base),
            read_results(new),
            mode="live" if live else "auto",
            confidence=confidence,
            seed=seed,
        )
    except ScoringError as error:
        print(f"toolverdict compare: {error}", file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None
    code = 1 if found.worse or found.waste.shown else 0 if found.comparable else 3
    if as_json:
        document = as_document(found, version("toolverdict")) | {"exit_code": code}
        typer.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        print_comparison(found, Console())
    raise typer.Exit(code)


def print_comparison(found: Comparison, console: Console) -> None:
    """Prints the differences and the waste path."""
    how = f"{found.cases_both} cases that both played" if found.mode == "paired" else "live traffic"
    table = Table(box=box.SIMPLE, title=f"New minus base, {how}; p corrected by Holm")
    for name in ("rate", "base (n)", "new (n)", "difference [low, high]", "p"):
        table.add_column(name)
    words = {gated.rate: gated.words for gated in GATED}
    for one in found.differences:
        style = "red" if is_worse(one, found.confidence) else ""
        p = "" if one.p_holm is None else f"{one.p_holm:.3g}"
        cells = (words[one.rate], _value(one.base), _value(one.new), str(one), p)
        table.add_row(*cells, style=style)
    console.print(table)
    console.print(
        Text(found.waste.sentence, style="red" if found.waste.shown else ""), soft_wrap=True
    )
    for what, cases in (("not played any more", found.cases_lost), ("new", found.cases_added)):
        if cases:
            named = ", ".join(plain(case, 60) for case in cases[:5])
            more = ", ..." if len(cases) > 5 else ""
            console.print(Text(f"{len(cases)} cases {what}: {named}{more}"), soft_wrap=True)


def as_document(found: Comparison, toolverdict: str) -> dict[str, Any]:
    """The comparison for machines; ``toolverdict`` is the version that made it."""
    return {
        "version": VERSION,
        "toolverdict": toolverdict,
        "mode": found.mode,
        "confidence": found.confidence,
        "seed": found.seed,
        "cases": {
            "both": found.cases_both,
            "lost": list(found.cases_lost),
            "added": list(found.cases_added),
        },
        "differences": [
            {
                "rate": one.rate,
                "base": one.base.as_json(),
                "new": one.new.as_json(),
                "difference": one.difference,
                "low": one.low,
                "high": one.high,
                "p": one.p,
                "p_holm": one.p_holm,
                "method": one.method,
                "units": one.units,
                "worse": is_worse(one, found.confidence),
            }
            for one in found.differences
        ],
        "waste_path": {
            **{name: getattr(found.waste, name) for name in found.waste.__dataclass_fields__},
            "sentence": found.waste.sentence,
        },
    }


def _value(rate: Rate) -> str:
    return "None (0)" if rate.value is None else f"{rate.value:.3f} ({rate.denominator:g})"
