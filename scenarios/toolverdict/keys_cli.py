"""``toolverdict keys``: the idempotency keys, and what a person found out about a lost call.

A call whose end nobody knows stops every other one with its key. Who has looked into the system
behind the tool says here what became of it.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, Literal, NoReturn

import typer

from toolverdict.command_keys import key_of
from toolverdict.command_times import shown_time
from toolverdict.instrument.errors import ToolverdictError
from toolverdict.instrument.settings import HASH_KEY_ENV
from toolverdict.instrument.stores import lookalikes
from toolverdict.instrument.stores.idempotency import (
    IdempotencyStore,
    KeyRecord,
    Reconciled,
    State,
    Unknown,
)

app = typer.Typer(add_completion=False, no_args_is_help=True)

Found = Literal["succeeded", "failed", "did-not-happen"]

_STATES: Final[dict[Found, Literal["succeeded", "failed_final", "failed_no_effect"]]] = {
    "succeeded": "succeeded",
    "failed": "failed_final",
    "did-not-happen": "failed_no_effect",
}

_Db = Annotated[Path, typer.Option("--db", metavar="FILE", help="The file of the key store.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.callback()
def _main() -> None:
    """See idempotency keys, and say what became of a call whose end is unknown.

    Keys are shown as keyed hashes; arguments and results are never shown. Rows are checked with the
    key in TOOLVERDICT_HASH_KEY; one that somebody else wrote is shown as damaged, and stops the calls
    with its key until it is resolved.

    Exits 0 when it did what it was told, and 2 when it could not, or when no row is intact.
    """


@app.command("list")
def list_command(
    db: _Db,
    state: Annotated[State | None, typer.Option("--state", help="Only those in this.")] = None,
    tool: Annotated[str | None, typer.Option("--tool", help="Only those of this tool.")] = None,
    as_json: _Json = False,
) -> None:
    """List keys, the one that changed longest ago first."""
    with _opened(db) as store:
        known = store.keys(tool=tool)
    records = [record for record in known if state in (None, record.state)]
    if as_json:
        typer.echo(json.dumps([record.as_json() for record in records], indent=2))
    else:
        for record in records:
            typer.echo(_line(record))
    if known and not any(record.intact for record in known):
        _fail(
            f"{db}: no key in it is intact: written with another hash key? is {HASH_KEY_ENV} the agent's?"
        )


@app.command("resolve")
def resolve_command(
    key_hash: Annotated[str, typer.Argument(metavar="KEY_HASH", help="As list shows it.")],
    db: _Db,
    found: Annotated[
        Found,
        typer.Option("--found", help="What became of the call; did-not-happen runs it again."),
    ],
    tool: Annotated[
        str | None, typer.Option("--tool", help="The tool, where several have this key.")
    ] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="The tenant, where several have this key.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """Say what became of a call whose end is unknown.

    Its result stays unknown: a repeated call is told that it was done, or has failed.
    """
    with _opened(db) as store:
        record = _the_one(store, key_hash, tool, tenant)
        lost = Unknown(record.tenant, record.tool, record.key_hash, record.token)
        unsure = record.state == "unknown" or not record.intact
        if not unsure or not store.resolve(lost, Reconciled(_STATES[found])):
            raise ToolverdictError(
                f"{key_hash}: its call is {record.state}, and only an unknown one can be resolved"
            )
        record = _the_one(store, key_hash, record.tool, record.tenant)
    typer.echo(json.dumps(record.as_json(), indent=2) if as_json else _line(record))


@contextmanager
def _opened(db: Path) -> Iterator[IdempotencyStore]:
    try:
        with IdempotencyStore(db, key=key_of(HASH_KEY_ENV), create=False) as store:
            yield store
    except ToolverdictError as error:
        _fail(str(error))


def _fail(problem: str) -> NoReturn:
    print(lookalikes.made_visible(f"toolverdict keys: {problem}"), file=sys.stderr)  # noqa: T201
    raise typer.Exit(2) from None


def _the_one(
    store: IdempotencyStore, key_hash: str, tool: str | None, tenant: str | None
) -> KeyRecord:
    found = [
        record
        for record in store.keys(tool=tool, key_hash=key_hash)
        if tenant in (None, record.tenant)
    ]
    if not found:
        raise ToolverdictError(f"{key_hash}: there is no such key; see toolverdict keys list")
    if len(found) > 1:
        raise ToolverdictError(f"{key_hash}: several have this key; add --tool, or --tenant")
    return found[0]


def _line(record: KeyRecord) -> str:
    when = shown_time(record.touched_at)
    state = record.state if record.intact else f"{record.state} (damaged)"
    of = f"{record.tool} ({record.tenant})" if record.tenant else record.tool
    line = lookalikes.made_visible(f"{state:<16}  {when}  {of}  {record.key_hash}")
    return line.replace("\n", "\\n").replace("\t", "\\t")
