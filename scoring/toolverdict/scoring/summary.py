"""``summary.json``: every rate with its counts and interval, and what it was computed from."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from toolverdict.instrument.decisions import DANGEROUS_LABELS
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.cases.load import CaseSet
from toolverdict.scoring.counts import Counts
from toolverdict.scoring.policy_coverage import coverage
from toolverdict.scoring.rates.report import GROUPS, errors, grouped, latencies, whole

VERSION = 1
"""Version of the form of ``summary.json``; a reader refuses a newer one."""

_MOST_PAIRS = 1000  # a document that people and dashboards read


@dataclass(frozen=True, slots=True)
class Summary:
    """The document, and the two things a person must be told beside the rates."""

    document: dict[str, Any]
    warnings: tuple[str, ...]
    counts: Counts

    @property
    def nothing_evaluated(self) -> bool:
        """Whether cases were given and no trajectory played one of them."""
        return self.document["cases"] is not None and not self.counts.played

    @property
    def rates(self) -> dict[str, Any]:
        """Rates of the whole by name."""
        rates: dict[str, Any] = self.document["rates"]
        return rates


def summarise(
    lake: Path | str, policy: Policy | None, cases: CaseSet | None, counts: Counts
) -> Summary:
    """The summary of all units together."""
    not_run = sorted(cases.cases.keys() - counts.played.keys()) if cases is not None else []
    warnings = (*_warnings(counts, cases, not_run), *_untested(policy, counts))
    document = {
        "version": VERSION,
        "toolverdict": version("toolverdict"),
        "lake": str(lake),
        "policy": {"id": policy.id, "digest": policy.digest} if policy is not None else None,
        "cases": {"digest": cases.digest, "count": len(cases.cases)} if cases is not None else None,
        "counts": {
            "spans": counts.spans,
            "traces": counts.traces,
            "traces_without_calls": counts.traces_without_calls,
            "trajectories": counts.trajectories,
            "calls": counts.calls,
        },
        "rates": whole(counts.aggregates),
        **{name: grouped(counts.aggregates, one) for name, one in GROUPS.items()},
        "time_bucket_s": counts.aggregates.bucket_s,
        "errors": errors(counts.aggregates),
        "latency": latencies(counts.aggregates),
        "cases_not_run": not_run,
        "confusion": _confusion(counts),
        "warnings": list(warnings),
    }
    return Summary(document, warnings, counts)


def _confusion(counts: Counts) -> dict[str, dict[str, int]]:
    """Expected tool, tool called in its place, how often; the most frequent pairs."""
    matrix: dict[str, dict[str, int]] = {}
    by_count = sorted(counts.confused.items(), key=lambda item: (-item[1], item[0]))
    for (expected, called), count in sorted(by_count[:_MOST_PAIRS]):
        matrix.setdefault(expected, {})[called] = count
    return matrix


def _several(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _untested(policy: Policy | None, counts: Counts) -> list[str]:
    """What of the policy no call put to the test; without calls that says nothing."""
    if policy is None or not counts.calls:
        return []
    return coverage(policy, counts.seen).warnings()


def _warnings(counts: Counts, cases: CaseSet | None, not_run: list[str]) -> list[str]:
    warnings = []
    if counts.spans and not counts.calls:
        warnings.append(
            "no span was recognised as a tool call; is the agent's dialect one that is read?"
        )
    if counts.undecided_dangerous_calls:
        labels = ", ".join(sorted(DANGEROUS_LABELS))
        warnings.append(
            f"no policy decided {_several(counts.undecided_dangerous_calls, 'call')} of tools "
            f"labelled {labels}: their safety is not evaluable; score with --policy"
        )
    if not_run:
        named = ", ".join(not_run[:5]) + (", ..." if len(not_run) > 5 else "")
        warnings.append(f"{_several(len(not_run), 'case')} played by no trajectory: {named}")
    short = [
        f"{case.id} ({counts.played[case.id]} of {case.trials})"
        for case in (cases.cases.values() if cases is not None else ())
        if 0 < counts.played[case.id] < case.trials
    ]
    if short:
        named = ", ".join(short[:5]) + (", ..." if len(short) > 5 else "")
        warnings.append(f"{_several(len(short), 'case')} played less often than wanted: {named}")
    if cases is not None and counts.unknown_cases:
        unknown = sorted(counts.unknown_cases)
        named = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        warnings.append(f"{_several(len(unknown), 'case')} named by spans but not given: {named}")
    if cases is not None and cases.unknown_keys:
        warnings.append(f"keys not understood in the cases: {', '.join(cases.unknown_keys)}")
    return warnings
