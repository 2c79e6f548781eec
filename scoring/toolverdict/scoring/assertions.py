"""Assertions on what an agent did, for tests: against a case, or against a policy.

They judge as the scorer does. A run that cannot be judged, since something was not captured, has
not passed: the text says what to do.
"""

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from toolverdict.instrument.errors import PolicyError
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.testing import CapturedSpans
from toolverdict.scoring.assertion_text import case_failure, policy_failure
from toolverdict.scoring.cases.files import Place
from toolverdict.scoring.cases.formats import read_case
from toolverdict.scoring.cases.load import load_cases
from toolverdict.scoring.cases.model import Case
from toolverdict.scoring.errors import InputError, ScoringError
from toolverdict.scoring.model import Thresholds, Trajectory
from toolverdict.scoring.verdicts import Judged, judge_trajectory
from toolverdict.scoring.witnessed import Spans, trajectories_of

CaseLike: TypeAlias = (
    Case
    | Mapping[str, Any]
    | Sequence[str | Mapping[str, Any] | list[Any]]
    | os.PathLike[str]
    | str
)
"""A case; the object of one, as a file would hold it; the expected calls alone, where a text is the
name of a tool whose arguments do not matter; or the path of a case file."""

_STRICT = Thresholds()


def assert_case(
    spans: Spans,
    case: CaseLike,
    *,
    case_id: str | None = None,
    policy: Policy | os.PathLike[str] | str | None = None,
    thresholds: Thresholds = _STRICT,
) -> None:
    """Asserts that the agent whose spans these are did what a case expects.

    Args:
        spans: of one run of the agent; of several, those are judged whose spans name the case.
        case: what was expected.
        case_id: which case of a file with several.
        policy: its rules are judged, too; without one, the decisions on the spans stand.
        thresholds: what the scores must reach.

    Raises:
        AssertionError: it did not, or it cannot be judged; the text says what was expected, what
            happened at which span, and why that is no pass.
        InputError: the case is none, or its file is missing; the message says where and why.
        PolicyError: the policy is none, or its file is missing.
    """
    __tracebackhide__ = True
    try:
        wanted, rules = _case(case, case_id), _policy(policy)
        runs = trajectories_of(spans)
    except (ScoringError, PolicyError) as error:
        raise error.with_traceback(None) from None
    for run in _played(runs, wanted):
        judged = judge_trajectory(replace(run, case_id=wanted.id), rules, wanted, thresholds)
        if judged.verdict.passed is not True:
            raise AssertionError(case_failure(wanted, judged))


def assert_no_forbidden(spans: Spans, policy: Policy | os.PathLike[str] | str) -> None:
    """Asserts that no call broke a rule: none forbidden, none early, none without its approval.

    A forbidden call that was blocked was still attempted, and fails.

    Args:
        spans: of any number of runs.
        policy: the rules, or the path of their file.

    Raises:
        AssertionError: one did, or for one it cannot be decided; the text says which and why.
        InputError: the spans are none.
        PolicyError: the policy is none, or its file is missing.
    """
    __tracebackhide__ = True
    try:
        rules, runs = _policy(policy), trajectories_of(spans)
    except (ScoringError, PolicyError) as error:
        raise error.with_traceback(None) from None
    if not runs:
        raise AssertionError(_NOTHING)
    judged = [judge_trajectory(run, rules, None, _STRICT) for run in runs]
    if broken := [one for one in judged if _broken(one)]:
        raise AssertionError(policy_failure(broken))


@dataclass(frozen=True, slots=True)
class WatchedAgent:
    """The agent under test, as its spans show it.

    ``spans`` are those that ended so far. They are an exporter of OpenTelemetry's, too: add them to
    a provider of your own, and spans of other instrumentations are judged with ours. ``folder`` is
    where relative paths are looked for first.
    """

    spans: CapturedSpans
    folder: Path

    def assert_case(
        self,
        case: CaseLike,
        *,
        case_id: str | None = None,
        policy: Policy | os.PathLike[str] | str | None = None,
        thresholds: Thresholds = _STRICT,
    ) -> None:
        """Asserts that the agent did what a case expects: see :func:`assert_case`."""
        __tracebackhide__ = True
        if isinstance(case, str | os.PathLike):
            case = self._beside(case)
        if isinstance(policy, str | os.PathLike):
            policy = self._beside(policy)
        assert_case(self.spans, case, case_id=case_id, policy=policy, thresholds=thresholds)

    def assert_no_forbidden(self, policy: Policy | os.PathLike[str] | str) -> None:
        """Asserts that no call broke a rule of a policy: see :func:`assert_no_forbidden`."""
        __tracebackhide__ = True
        if not isinstance(policy, Policy):
            policy = self._beside(policy)
        assert_no_forbidden(self.spans, policy)

    def _beside(self, path: os.PathLike[str] | str) -> Path:
        """The path beside the test, where there is such a file, else as it is."""
        beside = self.folder / path
        return beside if beside.exists() else Path(path)


_NOTHING = (
    "no span was captured, so nothing shows that the agent ran: is it instrumented, and did it run "
    "while spans were captured? An agent that calls no tool needs a span of its own: trajectory()"
)


def _case(case: CaseLike, case_id: str | None) -> Case:
    if isinstance(case, str | os.PathLike):
        return _of_file(Path(case), case_id)
    if case_id is not None:
        raise InputError("case_id chooses a case of a file; this case is given as it is")
    if isinstance(case, Case):
        return case
    document: dict[str, Any]
    if isinstance(case, Mapping):
        document = dict(case)
        if "case_id" not in document and "id" not in document:
            document["case_id" if "expected_calls" in document else "id"] = "the case"
    else:
        document = {"id": "the case", "expected_tool_calls": _calls(case)}
    read = read_case(Place("the case"), document)
    if read.notes:
        keys = ", ".join(sorted(read.notes))
        warnings.warn(f"nothing understands these keys of the case: {keys}", stacklevel=4)
    return read.case


def _calls(listed: Sequence[Any]) -> list[Any]:
    """Expected calls, with the names of tools spelt out; a list inside is in any order."""
    return [
        {"tool": one} if isinstance(one, str) else _calls(one) if isinstance(one, list) else one
        for one in listed
    ]


def _of_file(path: Path, case_id: str | None) -> Case:
    cases = load_cases(path).cases
    if case_id is None and len(cases) == 1:
        return next(iter(cases.values()))
    if case_id is None:
        raise InputError(f"{path}: holds {len(cases)} cases; choose one by case_id")
    if case_id not in cases:
        raise InputError(f"{path}: holds no case {case_id!r}; it has {', '.join(list(cases)[:20])}")
    return cases[case_id]


def _policy(policy: Policy | os.PathLike[str] | str | None) -> Policy | None:
    return Policy.load(policy) if isinstance(policy, str | os.PathLike) else policy


def _played(runs: Sequence[Trajectory], case: Case) -> Sequence[Trajectory]:
    """The runs to judge: those that name the case, else the one that there is."""
    named = [run for run in runs if run.case_id == case.id]
    if named:
        return named
    if not runs:
        raise AssertionError(f"{case.id} cannot be judged: {_NOTHING}")
    calling = [run for run in runs if run.calls]
    if len(calling) > 1:
        raise AssertionError(
            f"{case.id} cannot be judged: the spans are of {len(calling)} runs, and none names the "
            "case; put what belongs together in one span: trajectory() around the agent"
        )
    return calling or runs[:1]


def _broken(judged: Judged) -> bool:
    """Whether a rule was broken, or may have been."""
    if any(state is not None for state in judged.forbidden.values()) or None in (
        judged.forbidden.values()
    ):
        return True
    return any(ruling.violated is not False for ruling in judged.rulings)
