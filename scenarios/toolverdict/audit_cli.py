"""``toolverdict audit``: check that an audit log is what was written."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from toolverdict.command_keys import key_of
from toolverdict.instrument.errors import StoreError, ToolverdictError
from toolverdict.instrument.settings import HASH_KEY_ENV
from toolverdict.instrument.stores import lookalikes
from toolverdict.instrument.stores.audit import (
    CHECKPOINT_KEY_ENV,
    Verification,
    read_checkpoints,
    verify,
)

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def _main() -> None:
    """Check audit logs."""


@app.command("verify")
def verify_command(
    db: Annotated[Path, typer.Option("--db", metavar="FILE", help="The file of the log.")],
    checkpoints: Annotated[
        Path | None,
        typer.Option(
            "--checkpoints", metavar="FILE", help="Its checkpoints, from where they were sent to."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a log with the keys in TOOLVERDICT_HASH_KEY and TOOLVERDICT_CHECKPOINT_KEY.

    Exits 0 when it is whole, 1 when something was changed or a call has no end, 2 when it could not
    be checked.
    """
    try:
        found = _verify(db, checkpoints)
    except ToolverdictError as error:
        message = lookalikes.made_visible(f"toolverdict audit: {error}")
        print(message, file=sys.stderr)  # noqa: T201
        raise typer.Exit(2) from None
    if as_json:
        typer.echo(json.dumps({**asdict(found), "sound": found.sound}, indent=2))
    else:
        _print(found)
    if not found.sound:
        raise typer.Exit(1)


def _verify(db: Path, checkpoints: Path | None) -> Verification:
    key = key_of(HASH_KEY_ENV)
    if checkpoints is None:
        return verify(db, key=key)
    try:
        lines = checkpoints.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as error:
        raise StoreError(f"{checkpoints}: cannot be read ({error.strerror})") from None
    anchors, torn = read_checkpoints(lines)
    found = verify(db, key=key, checkpoint_key=key_of(CHECKPOINT_KEY_ENV), checkpoints=anchors)
    return Verification(**{**asdict(found), "warnings": (*found.warnings, *torn)})


def _print(found: Verification) -> None:
    anchored = "none" if found.anchored is None else f"up to record {found.anchored}"
    typer.echo(f"{found.records} records, anchored {anchored}")
    for problem in found.problems:
        typer.echo(f"problem: {problem}")
    for seq in found.unfinished:
        typer.echo(f"problem: record {seq} is an intent without an outcome")
    for seq in found.in_flight:
        typer.echo(f"in flight: record {seq}")
    for warning in found.warnings:
        typer.echo(f"warning: {warning}")
    typer.echo("whole" if found.sound else "NOT whole")
