"""``summary.json``: every rate with its counts and interval, and what it was computed from."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from toolverdict.instrument.policy import Policy
from toolverdict.scoring.cases.load import CaseSet
from toolverdict.scoring.rates import Tally
from toolverdict.scoring.unit import CALL_RATES, SLICES, TRAJECTORY_RATES, Counts

VERSION = 1
"""Version of the form of ``summary.json``; a reader refuses a newer one."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The document, and the two things a person must be told beside the rates."""

    document: dict[str, Any]
    warnings: tuple[str, ...]
    counts: Counts

    @property
    def rates(self) -> dict[str, Any]:
        """Rates of the whole by name."""
        rates: dict[str, Any] = self.document["rates"]
        return rates


def summarise(lake: Path, policy: Policy | None, cases: CaseSet | None, counts: Counts) -> Summary:
    """The summary of all units together."""
    not_run = sorted(cases.cases.keys() - counts.played) if cases is not None else []
    warnings = tuple(_warnings(counts, cases, not_run))
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
        "rates": counts.whole.rates((*CALL_RATES, *TRAJECTORY_RATES)),
        **{name: _sliced(counts.slices[name]) for name in SLICES},
        "cases_not_run": not_run,
        "warnings": list(warnings),
    }
    return Summary(document, warnings, counts)


def _sliced(groups: dict[str, Tally]) -> dict[str, Any]:
    return {value: groups[value].rates() for value in sorted(groups)}


def _warnings(counts: Counts, cases: CaseSet | None, not_run: list[str]) -> list[str]:
    warnings = []
    if counts.spans and not counts.calls:
        warnings.append(
            "no span was recognised as a tool call; is the agent's dialect one that is read?"
        )
    if not_run:
        named = ", ".join(not_run[:5]) + (", ..." if len(not_run) > 5 else "")
        warnings.append(f"{len(not_run)} cases were played by no trajectory: {named}")
    if cases is not None and cases.unknown_keys:
        warnings.append(f"keys not understood in the cases: {', '.join(cases.unknown_keys)}")
    return warnings
