"""``toolverdict approvals``: look at what waits for an answer, and answer it.

Whatever is printed is made visible first: text that an agent chose must not be able to show a
reader anything else than it is.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from toolverdict.command_keys import key_of
from toolverdict.command_times import shown_time
from toolverdict.instrument.errors import ToolverdictError
from toolverdict.instrument.settings import HASH_KEY_ENV
from toolverdict.instrument.stores import lookalikes
from toolverdict.instrument.stores.approvals import (
    ApprovalRecord,
    ApprovalStore,
    ApproverKind,
    StoredStatus,
)

app = typer.Typer(add_completion=False, no_args_is_help=True)

_Db = Annotated[Path, typer.Option("--db", metavar="FILE", help="The file of the approval store.")]
_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_Id = Annotated[str, typer.Argument(metavar="ID", help="The approval.")]
_By = Annotated[str, typer.Option("--by", help="Who decides; never who asks.")]
_Kind = Annotated[
    ApproverKind, typer.Option("--kind", help="What they are; an llm_advisory decides nothing.")
]
_Note = Annotated[str, typer.Option("--note", help="What they say about it.")]
_Seen = Annotated[
    str | None,
    typer.Option("--seen", help="The presented_hash of what they saw; refused if it is another."),
]


@app.callback()
def _main() -> None:
    """See and answer approvals; rows are checked with the key in TOOLVERDICT_HASH_KEY.

    Exits 0 when it did what it was told, and 2 when it could not, or when no row is intact.
    """


@app.command("list")
def list_command(
    db: _Db,
    status: Annotated[
        StoredStatus | None, typer.Option("--status", help="Only those of this status.")
    ] = None,
    as_json: _Json = False,
) -> None:
    """List approvals, the oldest first."""
    with _opened(db) as store:
        known = store.list()
    records = [record for record in known if status in (None, record.status)]
    if as_json:
        typer.echo(json.dumps([_document(record) for record in records], indent=2))
    else:
        _print_list(records)
    if known and not any(record.intact for record in known):
        _fail(f"{db}: no approval in it is intact; is {HASH_KEY_ENV} the agent's?")


def _print_list(records: Sequence[ApprovalRecord]) -> None:
    if records:
        typer.echo(f"{'ID':<29}  {'STATUS':<9}  {'EXPIRES':<20}  TOOL")
    for record in records:
        line = f"{record.id}  {_state(record):<9}  {shown_time(record.expires_at)}  {record.tool}"
        warned = "  (look: hidden characters)" if _tricks(record) else ""
        flaw = "" if record.intact else f"  ({_flaw(record)})"
        asked = f"{line}  asked by {record.requester}{flaw}"
        typer.echo(lookalikes.made_visible(asked) + warned)


@app.command("show")
def show_command(approval_id: _Id, db: _Db, as_json: _Json = False) -> None:
    """Show one approval; its arguments, too, if they were stored."""
    with _opened(db) as store:
        record = _get(store, approval_id)
    _print(record, as_json=as_json)


@app.command("approve")
def approve_command(
    approval_id: _Id,
    db: _Db,
    by: _By,
    kind: _Kind = "human",
    note: _Note = "",
    seen: _Seen = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Approve it as it is now, without having seen it.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """Let one call run: the one that was seen.

    Say what was seen by --seen, with the presented_hash that show printed. Or say --yes: then what is
    approved is printed and approved as it is, unread. Without either it is printed, and nothing is
    approved.
    """
    with _opened(db) as store:
        shown = _get(store, approval_id)
        if seen is None and not yes:
            _print(shown, as_json=as_json)
            raise ToolverdictError(
                f"{approval_id}: not approved yet; look at what it is for, then add"
                f" --seen {shown.presented_hash}"
            )
        record = store.approve(
            approval_id, by, kind, note, seen=shown.presented_hash if seen is None else seen
        )
    _print(record, as_json=as_json)


@app.command("reject")
def reject_command(
    approval_id: _Id,
    db: _Db,
    by: _By,
    kind: _Kind = "human",
    note: _Note = "",
    seen: _Seen = None,
    as_json: _Json = False,
) -> None:
    """Deny a call, and its like for a while."""
    with _opened(db) as store:
        record = store.reject(approval_id, by, kind, note, seen=seen)
    _print(record, as_json=as_json)


@contextmanager
def _opened(db: Path) -> Iterator[ApprovalStore]:
    try:
        with ApprovalStore(db, key=key_of(HASH_KEY_ENV), create=False) as store:
            yield store
    except ToolverdictError as error:
        _fail(str(error))


def _fail(problem: str) -> NoReturn:
    print(lookalikes.made_visible(f"toolverdict approvals: {problem}"), file=sys.stderr)  # noqa: T201
    raise typer.Exit(2) from None


def _get(store: ApprovalStore, approval_id: str) -> ApprovalRecord:
    record = store.get(approval_id)
    if record is None:
        raise ToolverdictError(f"{approval_id}: there is no approval with this id")
    return record


def _print(record: ApprovalRecord, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_document(record), indent=2))
        return
    fields: dict[str, Any] = {
        "id": record.id,
        "status": _state(record),
        "expires": shown_time(record.expires_at),
        "requester": record.requester,
        **{name: value for name, value in record.content.items() if name not in ("v", "arguments")},
        "action": record.action_digest,
        "presented_hash": record.presented_hash,
    }
    if record.decided_by is not None:
        fields["decided"] = f"by {record.decided_by} ({record.decided_kind})"
    if record.note:
        fields["note"] = record.note
    for advice in record.advice:
        fields[f"advice of {advice.get('by')}"] = f"{advice.get('verdict')} {advice.get('note')}"
    if record.consumed_at is not None:
        fields["consumed"] = f"{shown_time(record.consumed_at)} by {record.consumed_by}"
    for name, value in fields.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        typer.echo(_line(f"{name}: {text}"))
    if record.arguments is None:
        typer.echo("arguments: not stored; the action is bound to their keyed hash")
    else:
        # Nothing is cut short: what is approved is all of it.
        typer.echo("arguments:\n" + lookalikes.made_visible(_arguments(record)))
    for warning in _warnings(record):
        typer.echo(f"warning: {warning}")


def _arguments(record: ApprovalRecord) -> str:
    """The arguments to be read; as they stand there, where a damaged row holds no JSON."""
    read = _read(record)
    return (
        record.arguments or "" if read is None else json.dumps(read, indent=2, ensure_ascii=False)
    )


def _read(record: ApprovalRecord) -> Any:
    try:
        return json.loads(record.arguments or "null")
    except (ValueError, RecursionError):
        return None


def _document(record: ApprovalRecord) -> dict[str, Any]:
    return {**record.as_json(), "warnings": list(_warnings(record))}


def _warnings(record: ApprovalRecord) -> tuple[str, ...]:
    return _tricks(record) if record.intact else (*_tricks(record), _flaw(record))


def _flaw(record: ApprovalRecord) -> str:
    """What is wrong with a record that is not intact."""
    key_id, ours = record.content.get("args_hash_key_id"), key_of(HASH_KEY_ENV).id
    if isinstance(key_id, str) and key_id != ours:
        return f"written with another hash key (id {key_id}, not {ours}); is {HASH_KEY_ENV} the agent's?"
    return "this record was changed by somebody else, or written with another hash key"


def _tricks(record: ApprovalRecord) -> tuple[str, ...]:
    """What a reader should know of its texts."""
    content = {**record.content, "arguments": _read(record)}
    # Text by text: written as JSON, control characters are escaped and would be no warning.
    texts = [record.note, record.requester, *_leaves(content)]
    found = dict.fromkeys(warning for text in texts for warning in lookalikes.warnings(text))
    return tuple(found)


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item)


def _line(text: str) -> str:
    return lookalikes.made_visible(text).replace("\n", "\\n").replace("\t", "\\t")


def _state(record: ApprovalRecord) -> str:
    return record.status if record.intact else f"{record.status} (damaged)"
