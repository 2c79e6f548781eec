"""The report for a person at a terminal."""

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolverdict.scoring.gate.checks import State
from toolverdict.scoring.gate.formats.words import sentence
from toolverdict.scoring.gate.report import GateReport
from toolverdict.scoring.terminal import plain

_STYLES = {State.PASS: "green", State.FAIL: "red", State.INCONCLUSIVE: "yellow"}
_MOST_SHOWN = 10


def print_report(report: GateReport, console: Console) -> None:
    """Prints every check, and below it where it failed."""
    table = Table(box=box.SIMPLE)
    table.add_column("check", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("figures", overflow="fold")
    for check in report.checks:
        style = _STYLES[check.state]
        table.add_row(
            Text(check.id), Text(check.state.value, style=style), Text(plain(check.message))
        )
    console.print(table)
    for check in report.checks:
        if check.state is State.PASS or not check.culprits:
            continue
        console.print(Text(check.id, style="bold"))
        for one in check.culprits[:_MOST_SHOWN]:
            console.print(Text(f"  {sentence(one)}"), soft_wrap=True)
        if len(check.culprits) > _MOST_SHOWN:
            console.print(Text(f"  and {len(check.culprits) - _MOST_SHOWN} more; see --json"))
    state = report.state
    counts = ", ".join(f"{report.count(one)} {one.value}" for one in State if report.count(one))
    console.print(Text.assemble("gate: ", (state.value, f"bold {_STYLES[state]}"), f" ({counts})"))
