"""What a failed assertion says: what was expected, what happened at which span, and why it failed.

Texts come from a trace: whatever is not printable is shown as an escape, and nothing is endless.
"""

import json
from collections.abc import Iterator, Sequence
from difflib import ndiff
from typing import Any

from toolverdict.scoring.cases.model import Case, Expectation, Way
from toolverdict.scoring.cases.plans import EQUAL
from toolverdict.scoring.model import (
    VIOLATING,
    Captured,
    Category,
    Finding,
    ForbiddenState,
    Placed,
    Share,
    Trajectory,
)
from toolverdict.scoring.verdicts import Judged

_MAX_VALUE = 200
_MAX_DIFF_LINES = 40
_MAX_LISTED = 50
_INDENT = "    "

_WHAT_TO_DO = {
    "arguments_not_captured": "arguments were not captured: capture_spans(capture='full')",
    "incomplete_trace": "spans are missing; end every span before you assert",
    "arguments_undecided": "the trace does not show whether an argument is right",
    "outcome_unknown": "the trace does not show how an expected call ended",
    "order_unknown": "the trace does not show in which order calls were made",
    "forbidden_call_unknown": "the trace does not show whether a call was a forbidden one",
}
_RULES = VIOLATING


def case_failure(case: Case, judged: Judged) -> str:
    """Why a run did not pass its case."""
    verdict, run = judged.verdict, judged.trajectory
    lines = [f"{case.id} failed: {verdict.reason}"]
    if verdict.passed is None:
        why = _WHAT_TO_DO.get(verdict.reason or "", "the trace does not show enough")
        gaps = f" ({'; '.join(run.gaps[:3])})" if run.gaps else ""
        lines = [f"{case.id} cannot be judged: {verdict.reason}: {why}{gaps}"]
    lines += ["expected:", *_expected(case, verdict.scores.way if verdict.scores else None)]
    lines += ["happened:", *_happened(run)]
    found = [one for one in judged.findings if one.fails]
    if verdict.passed is None:
        found = [one for one in judged.findings if one.fails or _undecided(one)]
    if found:
        lines += ["because:", *_because(found)]
    lines += _scores(judged)
    return _printable(lines)


def policy_failure(broken: Sequence[Judged]) -> str:
    """Which calls broke a rule, or may have."""
    lines: list[str] = []
    for judged in broken:
        found = [one for one in judged.findings if one.fails and one.category in _RULES]
        lines += _because(found)
        told = {finding.call_index for finding in found}
        for place, ruling in zip(judged.trajectory.calls, judged.rulings, strict=True):
            if place.index not in told and ruling.violated is not False:
                why = ruling.reason or "a rule looks at what the trace does not show"
                lines.append(f"{_INDENT}undecided at {_at(place)}: {place.call.tool}: {why}")
        lines += ["happened:", *_happened(judged.trajectory, judged.forbidden)]
    certain = any(ruling.violated is True for judged in broken for ruling in judged.rulings)
    heading = "calls broke the policy:" if certain else "calls may have broken the policy:"
    return _printable([heading, *lines])


def _expected(case: Case, way: str | None) -> Iterator[str]:
    taken = next((one for one in case.ways if one.name == way), case.ways[0])
    if len(case.ways) > 1:
        yield f"{_INDENT}(of {len(case.ways)} ways, the nearest: {taken.name})"
    for number, call in enumerate(taken.expected[:_MAX_LISTED]):
        yield f"{_INDENT}{number + 1}. {call.tool}{_wanted(call)}{_when(number, taken)}"
    if not taken.expected and case.needs_tools is False:
        yield f"{_INDENT}no call"
    for rule in case.forbidden[:_MAX_LISTED]:
        of = f" with {_shown(rule.arguments)}" if rule.arguments is not None else ""
        before = f" before {' and '.join(rule.unless_after)}" if rule.unless_after else ""
        why = f" ({rule.reason})" if rule.reason else ""
        yield f"{_INDENT}never {rule.tool}{of}{before}{why}"


def _wanted(call: Expectation) -> str:
    said = ""
    if call.arguments is not None:
        least = "at least " if call.match == "subset" else ""
        said = f" {least}{_shown(call.arguments)}"
    if call.count.min != 1 or call.count.max != 1:
        most = "any number" if call.count.max is None else str(call.count.max)
        said += f", {call.count.min} to {most} times"
    if call.optional:
        said += ", optional"
    return said + (f", ends as {call.outcome}" if call.outcome != "success" else "")


def _when(number: int, way: Way) -> str:
    """After which others, where the order is not that of the list."""
    if way.before is None or not way.before[number]:
        return ""
    return f", after {', '.join(str(index + 1) for index in way.before[number])}"


def _happened(
    run: Trajectory, forbidden: dict[int, ForbiddenState | None] | None = None
) -> Iterator[str]:
    for place in run.calls[:_MAX_LISTED]:
        call = place.call
        state = (forbidden or {}).get(place.index)
        what = call.outcome.value + (f", {state.value}" if state is not None else "")
        arguments = "(arguments not captured)"
        if call.arguments_state is Captured.CAPTURED:
            arguments = _shown(call.arguments)
        again = f", retry of {place.retry_of + 1}" if place.retry_of is not None else ""
        yield f"{_INDENT}{place.index + 1}. {call.tool} {arguments}: {what}{again}, {_at(place)}"
    if len(run.calls) > _MAX_LISTED:
        yield f"{_INDENT}and {len(run.calls) - _MAX_LISTED} more"
    if not run.calls:
        yield f"{_INDENT}no call"


def _because(found: Sequence[Finding]) -> Iterator[str]:
    for finding in found[:_MAX_LISTED]:
        yield f"{_INDENT}{finding.category} at span {finding.span_id}: {finding.message}"
        yield from (f"{_INDENT * 2}{line}" for line in _diff(finding))
    if len(found) > _MAX_LISTED:
        yield f"{_INDENT}and {len(found) - _MAX_LISTED} more"


def _diff(finding: Finding) -> Sequence[str]:
    """Expected and actual line by line, where a sentence is too short to show them."""
    if finding.category is not Category.ARGUMENT_MISMATCH or finding.comparator != EQUAL:
        return ()
    expected, actual = finding.expected, finding.actual
    long = any(len(_compact(value)) > 60 for value in (expected, actual))
    if actual is None or not (long or isinstance(expected, dict | list)):
        return ()
    lines = list(ndiff(_pretty(expected), _pretty(actual)))
    lines = [line.rstrip() for line in lines if not line.startswith("?")]
    if len(lines) > _MAX_DIFF_LINES:
        return [*lines[:_MAX_DIFF_LINES], "..."]
    return lines


def _scores(judged: Judged) -> Iterator[str]:
    scores = judged.verdict.scores
    if scores is None:
        return
    shares = {
        "selection": scores.selection_share,
        "arguments": scores.arguments,
        "order": scores.order,
    }
    said = [f"{name} {_share(share)}" for name, share in shares.items() if share.of or share.unseen]
    if said:
        yield f"scores: {', '.join(said)}"


def _share(share: Share) -> str:
    unseen = f" ({share.unseen:g} not evaluable)" if share.unseen else ""
    return f"{share.hits:g}/{share.of:g}{unseen}"


def _undecided(finding: Finding) -> bool:
    return finding.category is Category.NOT_EVALUATED


def _at(place: Placed) -> str:
    return f"span {place.call.span_id}"


def _shown(value: Any) -> str:
    text = _compact(value)
    return text if len(text) <= _MAX_VALUE else text[: _MAX_VALUE - 3] + "..."


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def _pretty(value: Any) -> list[str]:
    text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True, default=repr)
    return [_cut(line) for line in text.split("\n")]


def _cut(line: str) -> str:
    return line if len(line) <= _MAX_VALUE else line[: _MAX_VALUE - 3] + "..."


def _printable(lines: Sequence[str]) -> str:
    return "\n".join(
        "".join(c if c.isprintable() else repr(c)[1:-1] for c in line) for line in lines
    )
