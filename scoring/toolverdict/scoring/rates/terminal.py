"""Rates as tables for people. Names come from traces: they are escaped, and no markup is read."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.printing import plain, rate_text

_Rates = Mapping[str, Mapping[str, float | None]]
_MOST_ROWS: Final = 40
_MOST_NAME_CHARS: Final = 60
_TOLD: Final = (
    *(f"{outcome.value}_rate" for outcome in Outcome if outcome is not Outcome.OK),
    "forbidden_attempt_rate",
    "policy_denial_rate",
    "approval_asked_rate",
    "retry_waste_rate",
    "transient_retry_rate",
    "duplicate_call_rate",
    "loop_rate",
)
"""Rates whose hits are worth a word in a row, in this order."""

_WORDS: Final = {
    "forbidden_attempt_rate": "forbidden",
    "policy_denial_rate": "denied by policy",
    "approval_asked_rate": "sent for approval",
    "duplicate_call_rate": "duplicate",
    "loop_rate": "in loops",
}


def print_whole(document: Mapping[str, Any], console: Console) -> None:
    """Every rate of which there is something, the errors, and how long calls took."""
    table = Table(box=box.SIMPLE, title="Rates, with counts and 95 % intervals")
    table.add_column("rate", no_wrap=True)
    table.add_column(Text("value  (k/n)  [low, high]"))
    table.add_column("coverage", justify="right")
    nothing = []
    for name, rate in document["rates"].items():
        if rate["value"] is None:
            nothing.append(name)
        else:
            table.add_row(name, rate_text(rate), f"{rate['coverage']:.0%}")
    console.print(table)
    if nothing:
        console.print(f"None (n=0): {', '.join(nothing)}", style="dim", markup=False)
        console.print()
    if document["errors"]:
        console.print(_errors(document["errors"]))
    for line in latency_lines(document["latency"]):
        console.print(line)


def _errors(found: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE, title="Errors by tool, kind and code")
    for name in ("tool", "kind", "code"):
        table.add_column(name, overflow="fold")
    table.add_column("of its calls", no_wrap=True)
    for one in found[:_MOST_ROWS]:
        names = (plain(one[key], _MOST_NAME_CHARS) for key in ("tool", "kind", "code"))
        table.add_row(*(Text(name) for name in names), rate_text(one))
    if len(found) > _MOST_ROWS:
        table.caption = f"and {len(found) - _MOST_ROWS} more: --json"
    return table


def latency_lines(latency: Mapping[str, float] | None) -> Iterator[Text]:
    """How long calls took, where any is known."""
    if latency is not None:
        ranks = ", ".join(f"{name} {seconds(latency[name])}" for name in ("p50", "p90", "p99"))
        yield Text(f"Latency of {latency['calls']} calls: {ranks}")


def print_groups(
    by: str,
    groups: Mapping[str, _Rates],
    latency: Mapping[str, Mapping[str, float]],
    console: Console,
) -> None:
    """A row for each group, the largest first; times in their order."""
    if not groups:
        console.print(Text(f"no call has a {by}"))
        return
    names = list(groups)
    if by != "hour":
        names.sort(key=lambda name: (-_calls(groups[name]), name))
    table = Table(box=box.SIMPLE, title=f"Calls by {by}")
    table.add_column(by, overflow="fold")
    table.add_column("calls", justify="right")
    table.add_column("failed, 95 % interval", no_wrap=True)
    passed = any("pass_rate" in rates for rates in groups.values())
    if passed:
        table.add_column("passed", justify="right", no_wrap=True)
    table.add_column("what happened")
    if latency:
        table.add_column("p50", justify="right", no_wrap=True)
        table.add_column("p99", justify="right", no_wrap=True)
    for name in names[:_MOST_ROWS]:
        rates = groups[name]
        table.add_row(
            Text(plain(name, _MOST_NAME_CHARS)),
            f"{_calls(rates):,.0f}",
            _percent(rates.get("failure_rate"), interval=True),
            *([_percent(rates.get("pass_rate"))] if passed else []),
            ", ".join(_happened(rates)),
            *(_ranks(latency.get(name)) if latency else ()),
        )
    if len(names) > _MOST_ROWS:
        table.caption = f"and {len(names) - _MOST_ROWS} more: toolverdict rates --json"
    console.print(table)


def _ranks(latency: Mapping[str, float] | None) -> Iterator[str]:
    for rank in ("p50", "p99"):
        yield "-" if latency is None else seconds(latency[rank])


def _calls(rates: _Rates) -> float:
    rate = rates.get("retry_waste_rate")
    if rate is None:
        return 0.0
    of, coverage = rate["denominator"] or 0.0, rate["coverage"]
    return of / coverage if coverage else 0.0


def _happened(rates: _Rates) -> Iterator[str]:
    for name in _TOLD:
        hits = rates.get(name, {}).get("numerator")
        if hits:
            yield f"{hits:,.6g} {_WORDS.get(name, name.removesuffix('_rate').replace('_', ' '))}"


def _percent(rate: Mapping[str, float | None] | None, *, interval: bool = False) -> str:
    if rate is None or rate["value"] is None:
        return "None (n=0)"
    if not interval or rate["low"] is None or rate["high"] is None:
        return f"{rate['value']:.1%}"
    return f"{rate['value']:.1%} [{rate['low']:.1%}, {rate['high']:.1%}]"


def seconds(value: float) -> str:
    """A duration with three digits: ``820 us``, ``1.25 s``, ``3.2 min``."""
    for unit, size in (("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if value >= size * (1 if unit != "min" else 2):
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e6:.3g} us"
