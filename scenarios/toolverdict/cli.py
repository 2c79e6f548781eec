"""The ``toolverdict`` command, which starts even where only the agent's side is installed."""

import sys


def main() -> None:
    """Entry point of the console script and of ``python -m toolverdict``."""
    try:
        from toolverdict.commands import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        print(  # noqa: T201
            "toolverdict: the commands need more than an agent does (to collect and score, the extra "
            "all); install it with: pip install 'toolverdict[commands]'",
            file=sys.stderr,
        )
        sys.exit(2)
    app(prog_name="toolverdict")
