"""One run of a gate: from files to the answer, its exit code, and the document that says it all."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolverdict.instrument.policy import Policy
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.gate.checks import Check, State, all_checks
from toolverdict.scoring.gate.evidence import Culprit, Results
from toolverdict.scoring.gate.gate_file import GateFile
from toolverdict.scoring.terminal import plain

VERSION: Final = 1
"""Version of the form of the JSON document."""

EXIT_CODES: Final = {State.PASS: 0, State.FAIL: 1, State.INCONCLUSIVE: 3}
"""2 is a mistake in usage or configuration."""


@dataclass(frozen=True, slots=True)
class GateReport:
    """The checks of one run.

    Paths are as the user named them, in printable characters; ``lines`` is where keys stand.
    """

    gate: str
    out: str
    baseline: str | None
    checks: tuple[Check, ...]
    lines: dict[str, int]

    @property
    def state(self) -> State:
        """The worst of the checks: one failure fails, and then one doubt is a doubt."""
        return overall(check.state for check in self.checks)

    @property
    def exit_code(self) -> int:
        """What the command exits with."""
        return EXIT_CODES[self.state]

    def line(self, check: Check) -> int:
        """The line of the gate file that asks for a check."""
        return self.lines.get(check.key, 1)

    def count(self, state: State) -> int:
        """How many checks are in a state."""
        return sum(check.state is state for check in self.checks)


def overall(states: Iterable[State]) -> State:
    """The state of several together; nothing checked is nothing shown."""
    seen = set(states)
    if State.FAIL in seen:
        return State.FAIL
    return State.PASS if seen == {State.PASS} else State.INCONCLUSIVE


def run_gate(
    file: GateFile,
    results: Results,
    *,
    baseline: Results | None = None,
    policy: Policy | None = None,
    seed: int = 0,
) -> GateReport:
    """Runs every check of a gate.

    Raises:
        InputError: the gate asks for confirmed rules and no policy is given, it asks for a baseline
            and there is none, or the policy is not the one that the results were scored with.
    """
    gate = file.gate
    if gate.require_confirmed_rules and policy is None:
        raise InputError(f"{file.path}: require_confirmed_rules needs the policy; give --policy")
    if gate.waste_path is not None and baseline is None:
        raise InputError(f"{file.path}: waste_path needs results to compare with; give --baseline")
    scored_by = results.summary["policy"]
    if policy is not None and (scored_by is None or scored_by["digest"] != policy.digest):
        raise InputError(
            f"{results.out}: was not scored with policy {policy.id} as it is now; score again"
        )
    checks = tuple(all_checks(gate, results, policy, baseline, seed))
    lines = {check.key: file.line(check.key) for check in checks}
    return GateReport(
        _shown(file.path),
        _shown(results.out),
        None if baseline is None else _shown(baseline.out),
        checks,
        lines,
    )


def _shown(path: Path) -> str:
    """A path that is text in every format, even where the name of the file is none."""
    return plain(path, 4096)


def as_document(report: GateReport, toolverdict: str) -> dict[str, Any]:
    """The whole report for machines; ``toolverdict`` is the version that made it."""
    return {
        "version": VERSION,
        "toolverdict": toolverdict,
        "gate": report.gate,
        "out": report.out,
        "baseline": report.baseline,
        "state": report.state.value,
        "exit_code": report.exit_code,
        "checks": [
            {
                "id": check.id,
                "key": check.key or None,
                "line": report.line(check),
                "state": check.state.value,
                "hard": check.hard,
                "message": check.message,
                "limit": check.limit,
                "rate": None if check.rate is None else check.rate.as_json(),
                "culprits": [_culprit(one) for one in check.culprits],
            }
            for check in report.checks
        ],
    }


def _culprit(one: Culprit) -> dict[str, str | None]:
    return {
        "trajectory_id": one.trajectory_id,
        "trace_id": one.trace_id,
        "span_id": one.span_id,
        "case_id": one.case_id,
        "message": one.message,
    }
