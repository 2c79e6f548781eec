"""What a person sees in the terminal after a run: head figures, failures with their span, rates.

Everything from traces is untrusted text: control characters are shown as escapes, and nothing is
read as markup.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.model import Category
from toolverdict.scoring.results import SUMMARY

_MOST_LISTED = 40
_MOST_NAME_CHARS = 60
_HEAD_RATES = (
    ("pass_rate", "trajectories passed"),
    ("need_precision", "calls needed where made"),
    ("need_recall", "calls made where needed"),
    ("selection_accuracy", "tool selection"),
    ("argument_accuracy", "arguments"),
    ("argument_accuracy_high_risk", "arguments, high risk"),
    ("call_timing_accuracy", "call timing"),
    ("result_handling", "result handling"),
    ("safety_compliance", "safety compliance"),
    ("forbidden_call_rate", "forbidden calls executed"),
    ("forbidden_attempt_rate", "forbidden calls attempted"),
    ("retry_waste_rate", "retry waste"),
)


def print_results(out: Path, console: Console) -> None:
    """Prints the results that a run left in ``out``."""
    summary = orjson.loads((out / SUMMARY).read_bytes())
    counts = summary["counts"]
    console.print(
        ", ".join(
            f"{counts[name]} {noun if counts[name] == 1 else plural}"
            for name, noun, plural in (
                ("trajectories", "trajectory", "trajectories"),
                ("calls", "tool call", "tool calls"),
                ("spans", "span", "spans"),
            )
        )
    )
    for warning in summary["warnings"]:
        console.print(Text.assemble(("warning: ", "yellow"), plain(warning)))
    console.print(_rates(summary))
    for line in (*_failures(out), *_by_tool(summary)):
        console.print(line, soft_wrap=True)


def plain(value: object, most: int = 400) -> str:
    """A text from a trace, safe on a terminal and no longer than ``most`` characters.

    Control and direction characters are escaped; a text that is cut ends in an ellipsis.
    """
    text = str(value)
    cut = text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in cut)


def rate_text(rate: dict[str, float | None]) -> str:
    """A rate with its counts and interval, or ``None (n=0)``."""
    if rate["value"] is None:
        return "None (n=0)"
    return (
        f"{rate['value']:.3f}  ({rate['numerator']:g}/{rate['denominator']:g})  "
        f"[{rate['low']:.3f}, {rate['high']:.3f}]"
    )


def _rates(summary: dict[str, Any]) -> Table:
    table = Table(box=box.SIMPLE, title="Rates, with counts and 95 % intervals")
    table.add_column("rate")
    table.add_column("value  (k/n)  [low, high]")
    table.add_column("coverage", justify="right")
    for name, words in _HEAD_RATES:
        rate = summary["rates"][name]
        coverage = rate["coverage"]
        table.add_row(words, rate_text(rate), "-" if coverage is None else f"{coverage:.0%}")
    return table


def _failures(out: Path) -> Iterator[Text]:
    """Each failed trajectory with its root cause, then each wasted retry."""
    verdicts = pq.read_table(out / "verdicts")
    findings = pq.read_table(out / "findings")
    failed = pc.invert(verdicts["passed"]).to_pylist().count(True)
    yield Text(f"Failed trajectories: {failed} of {verdicts.num_rows}", style="bold")
    yield from _listed(findings.filter(findings["root_cause"]), verdicts, out)
    yield from _not_evaluable(verdicts)
    category = findings["category"].cast(pa.string())
    wasted = findings.filter(pc.equal(category, pa.scalar(Category.RETRY_WASTE.value)))
    if wasted.num_rows:
        yield Text(f"Wasted retries: {wasted.num_rows}", style="bold")
        yield from _listed(wasted, verdicts, out)


_REMEDIES = {
    "arguments_not_captured": 'capture them: configure(capture="full")',
    "arguments_undecided": "see the findings not_evaluated; say more in the case, such as a zone",
    "reaction_unknown": "spans of the model's turns are missing: nothing shows what came after",
    "no_policy_and_no_case": "score with --policy or --cases",
    "unknown_case": "add the case that the spans name",
    "incomplete_trace": "spans are missing; score again when they are there",
}


def _not_evaluable(verdicts: pa.Table) -> Iterator[Text]:
    """How many trajectories could not be judged, why, and what would help."""
    reasons = Counter(verdicts.filter(pc.is_null(verdicts["passed"]))["reason"].to_pylist())
    if not reasons:
        return
    yield Text(f"Not evaluable: {reasons.total()} of {verdicts.num_rows}", style="bold")
    for reason, count in sorted((str(reason), count) for reason, count in reasons.items()):
        remedy = _REMEDIES.get(reason)
        yield Text(f"  {count} {reason}" + (f" ({remedy})" if remedy else ""))
    yield Text()


def _listed(findings: pa.Table, verdicts: pa.Table, out: Path) -> Iterator[Text]:
    """The first findings by case, each with its span and its sentence."""
    rows = pc.index_in(findings["trajectory_id"], value_set=verdicts["trajectory_id"])
    cases = pc.coalesce(verdicts["case_id"], verdicts["trajectory_id"]).take(rows)
    named = findings.append_column("case", cases)
    by_case = pc.sort_indices(
        named, sort_keys=[(name, "ascending") for name in ("case", "trajectory_id", "span_id")]
    )
    for finding in named.take(by_case).slice(0, _MOST_LISTED).to_pylist():
        yield Text.assemble(
            "  ",
            (plain(finding["case"], _MOST_NAME_CHARS), "bold"),
            ": ",
            (finding["category"], "red"),
            " at span ",
            (finding["span_id"], "cyan"),
        )
        yield Text(f"      {plain(finding['message'])}")
    if findings.num_rows > _MOST_LISTED:
        yield Text(f"  and {findings.num_rows - _MOST_LISTED} more in {out / 'findings'}")
    yield Text()


def _by_tool(summary: dict[str, Any]) -> Iterator[Text]:
    """How the calls of each tool ended, and how many were wasted."""
    yield Text("Calls per tool", style="bold")
    tools = list(summary["by_tool"].items())
    shown = [(plain(tool, _MOST_NAME_CHARS), rates) for tool, rates in tools[:_MOST_LISTED]]
    width = max((len(tool) for tool, _ in shown), default=0)
    for tool, rates in shown:
        count = rates["retry_waste_rate"]["denominator"]
        parts = [f"{count:g} call" + ("" if count == 1 else "s")]
        for name in (*(outcome.value for outcome in Outcome), "retry_waste"):
            count = rates.get(f"{name}_rate", {}).get("numerator")
            if count:
                parts.append(f"{count:g} {name.replace('_', ' ')}")
        yield Text(f"  {tool:<{width}}  {', '.join(parts)}")
    if len(tools) > _MOST_LISTED:
        yield Text(f"  and {len(tools) - _MOST_LISTED} more in {SUMMARY}")
    yield Text()
