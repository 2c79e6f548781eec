"""Definitions as tables for people. Names come from traces: they are escaped, and no markup is read."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolverdict.scoring.definitions.versions import State
from toolverdict.scoring.printing import plain

_MOST_ROWS: Final = 40
_MOST_NAME_CHARS: Final = 60
_LOUD: Final = (State.UNKNOWN, State.CHANGED, State.UNPINNED)


def print_definitions(document: Mapping[str, Any], console: Console) -> None:
    """What :func:`toolverdict.scoring.definitions.cli.definitions_command` found."""
    _print(
        console,
        "Definitions that tools were called under",
        ("tool", "version", "state", "calls", "first call", "last call"),
        (
            (
                plain(one["tool"], _MOST_NAME_CHARS),
                plain(one["version"] or "-", _MOST_NAME_CHARS),
                Text(one["state"], "bold" if one["state"] in _LOUD else ""),
                f"{one['calls']:,}",
                one["first"][:16],
                one["last"][:16],
            )
            for one in document["versions"]
        ),
    )
    _print(
        console,
        "Before and after a change (p corrected for all that is compared)",
        ("tool", "before", "after", "rate", "new minus old", "p"),
        (
            (
                plain(change["tool"], _MOST_NAME_CHARS),
                plain(change["before"], _MOST_NAME_CHARS),
                plain(change["after"], _MOST_NAME_CHARS),
                one["rate"],
                _difference(one),
                "-" if one["p_holm"] is None else f"{one['p_holm']:.3f}",
            )
            for change in document["changes"]
            for one in change["differences"]
        ),
    )
    _print(
        console,
        "Tools that are described alike",
        ("tools", "alike", "called in place of the other", "words in common"),
        (
            (
                " / ".join(plain(name, _MOST_NAME_CHARS) for name in one["tools"]),
                f"{one['similarity']:.2f}",
                "no cases" if one["confused"] is None else str(one["confused"]),
                plain(", ".join(one["shared"])),
            )
            for one in document["overlaps"]
        ),
    )
    _print(
        console,
        "Long descriptions",
        ("tool", "characters", "words"),
        (
            (plain(one["tool"], _MOST_NAME_CHARS), f"{one['chars']:,}", f"{one['words']:,}")
            for one in document["long"]
        ),
    )


def _print(
    console: Console, title: str, names: Iterable[str], rows: Iterable[tuple[str | Text, ...]]
) -> None:
    """A table of the first rows; none where there is nothing to tell."""
    every = list(rows)
    if not every:
        return
    table = Table(box=box.SIMPLE, title=title, title_justify="left")
    for name in names:
        table.add_column(name, overflow="fold")
    for row in every[:_MOST_ROWS]:
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    if len(every) > _MOST_ROWS:
        table.caption = f"and {len(every) - _MOST_ROWS} more: --json"
    console.print(table)


def _difference(one: Mapping[str, Any]) -> str:
    if one["difference"] is None:
        return "None (n=0)"
    return f"{one['difference']:+.3f}  [{one['low']:+.3f}, {one['high']:+.3f}]"
