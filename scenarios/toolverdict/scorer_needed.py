"""Commands that need the scorer, beside ones that do not: a message where it is not installed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def scorer_needed(command: str) -> Iterator[None]:
    """Import what needs the scorer in here: what is missing is told, and how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("toolverdict."):
            raise
        print(  # noqa: T201
            f"toolverdict {command}: needs the package {error.name}; "
            "install it with: pip install 'toolverdict[scoring]'",
            file=sys.stderr,
        )
        raise typer.Exit(2) from None
