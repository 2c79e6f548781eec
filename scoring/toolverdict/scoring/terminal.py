"""What a person sees in the terminal after a run: head figures, failures with their span, rates.

Everything from traces is untrusted text: control characters are shown as escapes, and nothing is
read as markup.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from toolverdict.scoring.model import Category
from toolverdict.scoring.printing import plain as plain
from toolverdict.scoring.printing import rate_text
from toolverdict.scoring.rates.columns import encoded
from toolverdict.scoring.rates.terminal import latency_lines, print_groups
from toolverdict.scoring.results import SUMMARY

_MOST_LISTED = 40
_MOST_NAME_CHARS = 60
_OF_VERDICTS = ("trajectory_id", "case_id", "passed", "reason")
_OF_FINDINGS = ("trajectory_id", "span_id", "category", "message")
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
    ("failure_rate", "calls failed"),
    ("retry_waste_rate", "retry waste"),
    ("approval_asked_rate", "calls sent for approval"),
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
    for line in latency_lines(summary["latency"]["all"]):
        console.print(line)
        console.print()
    for line in _failures(out):
        console.print(line, soft_wrap=True)
    print_groups("tool", summary["by_tool"], summary["latency"]["by_tool"], console)


def _rates(summary: dict[str, Any]) -> Table:
    table = Table(box=box.SIMPLE, title="Rates, with counts and 95 % intervals")
    table.add_column("rate")
    table.add_column(Text("value  (k/n)  [low, high]"))
    table.add_column("coverage", justify="right")
    for name, words in _HEAD_RATES:
        rate = summary["rates"][name]
        coverage = rate["coverage"]
        table.add_row(words, rate_text(rate), "-" if coverage is None else f"{coverage:.0%}")
    return table


def _failures(out: Path) -> Iterator[Text]:
    """Each failed trajectory with its root cause, then each wasted retry."""
    verdicts = pq.read_table(out / "verdicts", columns=list(_OF_VERDICTS))
    failed = pc.sum(pc.invert(verdicts["passed"])).as_py() or 0
    yield Text(f"Failed trajectories: {failed} of {verdicts.num_rows}", style="bold")
    yield from _listed(_found(out, pc.field("root_cause")), verdicts, out)
    yield from _not_evaluable(verdicts)
    category = pc.field("category").cast(pa.string())
    wasted = _found(out, category == pa.scalar(Category.RETRY_WASTE.value))
    if wasted.num_rows:
        yield Text(f"Wasted retries: {wasted.num_rows}", style="bold")
        yield from _listed(wasted, verdicts, out)


def _found(out: Path, which: pc.Expression) -> pa.Table:
    return pq.read_table(out / "findings", columns=list(_OF_FINDINGS), filters=which)


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
    codes, reasons = encoded(verdicts.filter(pc.is_null(verdicts["passed"]))["reason"])
    if not len(codes):
        return
    yield Text(f"Not evaluable: {len(codes)} of {verdicts.num_rows}", style="bold")
    counts = np.bincount(codes[codes >= 0], minlength=len(reasons)).tolist()
    for reason, count in sorted(zip(reasons, counts, strict=True)):
        if not count:
            continue  # a word that only others have
        remedy = _REMEDIES.get(reason)
        yield Text(f"  {count} {reason}" + (f" ({remedy})" if remedy else ""))
    yield Text()


def _listed(findings: pa.Table, verdicts: pa.Table, out: Path) -> Iterator[Text]:
    """The first findings by case, each with its span and its sentence."""
    mine = verdicts.filter(
        pc.is_in(verdicts["trajectory_id"], value_set=pc.unique(findings["trajectory_id"]))
    )
    rows = pc.index_in(findings["trajectory_id"], value_set=mine["trajectory_id"])
    cases = pc.coalesce(mine["case_id"], mine["trajectory_id"]).take(rows)
    named = findings.append_column("case", cases)
    by_case = pc.sort_indices(
        named, sort_keys=[(name, "ascending") for name in ("case", "trajectory_id", "span_id")]
    )
    for finding in named.take(by_case.slice(0, _MOST_LISTED)).to_pylist():
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
