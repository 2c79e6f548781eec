"""The subcommands of ``toolverdict``: each one's package is loaded when it is called.

A machine that only collects has no scorer installed: the command still starts, lists what there
is, and says which extra a missing one needs.
"""

import importlib
import sys
from importlib.metadata import version
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup


class _Command(NamedTuple):
    module: str
    extra: str
    help: str


_COMMANDS = {
    "demo": _Command("toolverdict.scenarios.cli", "all", "Play, collect, score and report."),
    "collect": _Command("toolverdict.collector.cli", "collector", "Take OTLP, keep it as Parquet."),
    "lake": _Command("toolverdict.collector.lake_cli", "collector", "Look after a lake."),
    "import": _Command("toolverdict.scoring.import_cli", "scoring", "Bring traces in from files."),
    "score": _Command("toolverdict.scoring.cli", "scoring", "Score the tool calls in a lake."),
    "cases": _Command(
        "toolverdict.scoring.cases_cli", "scoring", "Check cases, print their schema."
    ),
    "gate": _Command("toolverdict.scoring.gate.cli", "scoring", "May this version go out?"),
    "compare": _Command("toolverdict.scoring.compare.cli", "scoring", "What got worse since?"),
    "failures": _Command("toolverdict.scoring.failures.cli", "scoring", "What failed, by example."),
    "rates": _Command("toolverdict.scoring.rates.cli", "scoring", "Rates by tool, agent, hour."),
    "definitions": _Command(
        "toolverdict.scoring.definitions.cli", "scoring", "Which tool versions, which alike?"
    ),
    "policy": _Command("toolverdict.policy_cli", "commands", "Check a policy, try it on a lake."),
    "catalog": _Command("toolverdict.catalog_cli", "commands", "Pin the tools, audit them."),
    "approvals": _Command("toolverdict.approvals_cli", "commands", "See and answer approvals."),
    "keys": _Command(
        "toolverdict.keys_cli", "commands", "See idempotency keys, resolve lost calls."
    ),
    "audit": _Command("toolverdict.audit_cli", "commands", "Check an audit log."),
}


class _LazyGroup(TyperGroup):
    """Lists commands from the table above; loads the package of the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What a list of commands shows of one, without loading it."""
        command = _COMMANDS.get(cmd_name)
        return None if command is None else TyperCommand(cmd_name, help=command.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if name is None else _load(name), rest


def _load(name: str) -> Any:
    command = _COMMANDS[name]
    try:
        module = importlib.import_module(command.module)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("toolverdict"):
            raise
        print(  # noqa: T201
            f"toolverdict {name}: needs the package {error.name}; "
            f"install it with: pip install 'toolverdict[{command.extra}]'",
            file=sys.stderr,
        )
        raise typer.Exit(2) from None
    return typer.main.get_command(module.app)


app = typer.Typer(
    cls=_LazyGroup,
    add_completion=False,
    # A traceback with the values of locals would print what must stay out of logs.
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Collect the tool calls of AI agents as OpenTelemetry spans and score them offline.",
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"toolverdict {version('toolverdict')}")
        raise typer.Exit


@app.callback()
def _main(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    pass
