"""``toolverdict catalog``: pin what the tools are, see what changed since, and what they tell a model."""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from toolverdict.instrument.catalogue.definitions import Catalogue, CatalogueError, read_json
from toolverdict.instrument.catalogue.diff import ToolDiff, diff
from toolverdict.instrument.catalogue.sources import catalogue_of
from toolverdict.scorer_needed import scorer_needed

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


@app.command("audit")
def audit_command(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="CATALOG...", help="A lock file, or what `pin` takes."),
    ],
    lock: Annotated[
        Path | None,
        typer.Option("--lock", help="What the tools were: tells what changed since, too."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find descriptions that give a model orders, hide something, or are another tool's.

    Exits 0 when there is nothing to say, 1 with findings, 2 when a file cannot be read.
    """
    with scorer_needed("catalog audit"):
        from toolverdict.scoring.descriptions import audit
    try:
        found = audit(_catalogue(sources), Catalogue.load(lock) if lock is not None else None)
    except CatalogueError as error:
        _fail("audit", error)
    if as_json:
        document = {"version": 1, "ok": not found, "findings": [asdict(one) for one in found]}
        typer.echo(json.dumps(document, indent=2))
    else:
        for one in found:
            quote = f": {one.quote!r}" if one.quote else ""
            typer.echo(f"{one.tool}: {one.where}: {one.code} ({one.grade}): {one.message}{quote}")
        typer.echo(f"{len(found)} to look at" if found else "nothing to object to")
    raise typer.Exit(1 if found else 0)


def _catalogue(sources: list[str]) -> Catalogue:
    """A lock file, else the tools of the sources."""
    if len(sources) == 1 and sources[0].endswith((".json", ".lock")):
        try:
            document = read_json(sources[0])
        except CatalogueError:
            return Catalogue.load(sources[0])
        if isinstance(document, dict) and isinstance(document.get("tools"), dict):
            return Catalogue.load(sources[0])
    return catalogue_of(sources)


def _fail(command: str, error: CatalogueError) -> NoReturn:
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
