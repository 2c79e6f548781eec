"""``toolverdict catalog``: pin what the tools are, and see what changed since."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from toolverdict.instrument.catalogue.definitions import Catalogue, CatalogueError
from toolverdict.instrument.catalogue.diff import ToolDiff, diff
from toolverdict.instrument.catalogue.sources import catalogue_of

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Pin the tools, and see what changed since."
)


@app.command("pin")
def pin_command(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE...",
            help="JSON of tools (MCP, OpenAI, Anthropic), SERVER=FILE, or a Python module[:name].",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="The lock file to write.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Write down what the tools are now. A Python module is imported, which runs it.

    Exits 0 when it is written, 2 when a source cannot be read.
    """
    try:
        catalogue = catalogue_of(sources)
        _write(out, catalogue.lock())
    except CatalogueError as error:
        _fail("pin", error)
    if as_json:
        document = {"version": 1, "tools": len(catalogue.tools), "digest": catalogue.digest}
        typer.echo(json.dumps(document, indent=2))
    else:
        typer.echo(f"{out}: {len(catalogue.tools)} tools, {catalogue.digest}")


@app.command("diff")
def diff_command(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A lock file.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="A later lock file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say what changed: compatible, widening, behaviour or breaking, and what needs a look.

    Exits 0 when nothing needs a look, 1 when something does, 2 when a file cannot be read.
    """
    try:
        found = diff(Catalogue.load(old), Catalogue.load(new))
    except CatalogueError as error:
        _fail("diff", error)
    bad = any(tool.problems for tool in found)
    if as_json:
        document = {"version": 1, "ok": not bad, "tools": [_document(tool) for tool in found]}
        typer.echo(json.dumps(document, indent=2))
    else:
        for tool in found:
            _print(tool)
        typer.echo("something needs a look" if bad else "nothing needs a look")
    raise typer.Exit(1 if bad else 0)


def _fail(command: str, error: CatalogueError) -> None:
    print(f"toolverdict catalog {command}: {error}", file=sys.stderr)  # noqa: T201
    raise typer.Exit(2) from None


def _write(out: Path, text: str) -> None:
    """Whole or not at all: a pin that is half written blocks whoever reads it."""
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(out)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise CatalogueError(str(out), f"cannot be written: {error.strerror}") from error


def _document(tool: ToolDiff) -> dict[str, object]:
    return {
        "tool": tool.key,
        "status": tool.status,
        "verdict": tool.verdict,
        "changes": [
            {"kind": c.kind.value, "path": c.path, "message": c.message} for c in tool.changes
        ],
        "problems": [{"code": p.code, "message": p.message} for p in tool.problems],
    }


def _print(tool: ToolDiff) -> None:
    verdict = f", {tool.verdict}" if tool.changes else ""
    typer.echo(f"{tool.key}: {tool.status}{verdict}")
    for change in tool.changes:
        where = f"{change.path}: " if change.path else ""
        typer.echo(f"  {change.kind.value:11}{where}{change.message}")
    for problem in tool.problems:
        typer.echo(f"  LOOK       {problem.code}: {problem.message}")
