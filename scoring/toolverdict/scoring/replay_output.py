"""What a replay leaves behind: ``replay.json`` and ``decisions.parquet``, and the tables on a terminal."""

import os
from pathlib import Path
from typing import Any, Final, Self

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from toolverdict.scoring.errors import InputError
from toolverdict.scoring.replay import DECISIONS, Redecided

_BATCH: Final = 50_000
_MOST_ROWS: Final = 40


class DecisionsFile:
    """The decisions on their way to ``out``; leave the ``with`` block early and nothing changes.

    Raises:
        InputError: ``out`` cannot be written; also from the methods.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self._draft = out / f".decisions-{os.getpid()}.parquet"
        self._rows: list[dict[str, Any]] = []
        try:
            out.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(self._draft, DECISIONS, compression="zstd")
        except OSError as error:
            raise self._unwritable(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Removes the draft, if it is still one."""
        self._writer.close()
        self._draft.unlink(missing_ok=True)

    def add(self, one: Redecided) -> None:
        """One more call."""
        self._rows.append(one.row())
        if len(self._rows) == _BATCH:
            self._flush()

    def finish(self, document: dict[str, Any]) -> None:
        """Everything was decided: put both files in place, the document last."""
        self._flush()
        text = orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n"
        beside = self._draft.with_suffix(".json")
        try:
            self._writer.close()
            beside.write_bytes(text)
            os.replace(self._draft, self._out / "decisions.parquet")
            os.replace(beside, self._out / "replay.json")
        except OSError as error:
            raise self._unwritable(error) from error

    def _flush(self) -> None:
        try:
            self._writer.write_table(pa.Table.from_pylist(self._rows, schema=DECISIONS))
        except OSError as error:
            raise self._unwritable(error) from error
        self._rows.clear()

    def _unwritable(self, error: OSError) -> InputError:
        reason = error.strerror or type(error).__name__
        return InputError(f"{self._out}: cannot be written: {reason}; name another --out")


def print_replay(document: dict[str, Any], console: Console) -> None:
    """The tables that a person reads: what is not allowed by which rule, and what would change."""
    console.print(
        f"policy {escape(document['policy']['id'])}: {document['calls']} calls of "
        f"{document['trajectories']} trajectories, {document['changes']} decided otherwise"
    )
    stopped = [row for row in document["rules"] if row["decision"] != "allow"]
    columns = ("tool", "rule", "decision", "attempted", "blocked", "executed", "unknown")
    _table(console, "not allowed", columns, stopped)
    for key, title in (("since_recorded", "since recorded"), ("since_against", "against the old")):
        changed = [
            {**row, "examples": " ".join(row["example_span_ids"][:2])}
            for row in document[key]
            if row["changed"]
        ]
        _table(console, title, ("from", "to", "tool", "calls", "examples"), changed)
    for name, title in (("approvals", "approvals"), ("decisions", "decisions")):
        if document[name]:
            said = ", ".join(f"{word} {count}" for word, count in document[name].items())
            console.print(f"{title}: {said}", markup=False)
    for name, title in (
        ("silent_rules", "rules that met no call"),
        ("missing_tools", "required tools that nobody called"),
    ):
        if document[name]:
            console.print(f"{title}: {', '.join(document[name][:10])}", markup=False)


def _table(
    console: Console, title: str, columns: tuple[str, ...], rows: list[dict[str, Any]]
) -> None:
    if not rows:
        return
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column in _TEXTUAL else "right")
    for row in rows[:_MOST_ROWS]:
        table.add_row(*(escape(_cell(row[column])) for column in columns))
    console.print(table)
    if len(rows) > _MOST_ROWS:
        console.print(f"and {len(rows) - _MOST_ROWS} more; --json has all")


def _cell(value: object) -> str:
    text = "-" if value is None else str(value)
    return "".join(c if c.isprintable() else "\ufffd" for c in text)[:120]


_TEXTUAL: Final = frozenset({"tool", "rule", "decision", "from", "to", "examples"})
