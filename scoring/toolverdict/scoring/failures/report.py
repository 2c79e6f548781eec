"""The failure report as values: strata with their sizes, and what happened in each drawn trajectory.

Arguments, results and values of findings are left out unless they are asked for: then, and only
then, the report may hold personal data. What is said of evidence without them is made of names that
the agent's developers gave (tools, keys, categories), never of values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from toolverdict.scoring.attribution.ranking import LEAST_CONFIDENCE
from toolverdict.scoring.attribution.taxonomies import taxonomies
from toolverdict.scoring.failures.outcome import Failure, Outcome
from toolverdict.scoring.failures.overview import Overview, overview
from toolverdict.scoring.failures.strata import Stratum, stratify
from toolverdict.scoring.model import Category

Dimension: TypeAlias = Literal["tool", "error", "category"]

DIMENSIONS: Final[tuple[Dimension, ...]] = ("tool", "error", "category")
FLOOR: Final = 1

_MOST_CALLS: Final = 200  # of one timeline: the first and the last half of them
_MOST_EVIDENCE: Final = 50

_COLUMNS: Final = {
    "calls": (
        *("span_id", "index", "turn", "tool", "outcome", "error_type", "attempt", "repeat"),
        *("start_time_unix_nano", "end_time_unix_nano"),
    ),
    "findings": (
        *("span_id", "category", "severity", "message", "rank", "root_cause", "call_index"),
        *("key_path", "comparator", "code", "repaired", "caused_by", "actual"),
    ),
    "verdicts": ("case_id", "agent", "reason", "confidence"),
}
_CONTENT: Final = {"calls": ("arguments", "result"), "findings": ("expected",)}
"""What may hold values, and is not even read unless it is asked for. Of what a finding says was
actually there only words of our own are told without (how a call ended)."""

# Their messages are made of names alone.
_SAYS_NO_VALUE: Final = frozenset(
    {
        Category.FORBIDDEN_CALL,
        Category.REQUIREMENT_UNMET,
        Category.APPROVAL_MISSING,
        Category.APPROVAL_DENIED,
        Category.APPROVAL_EXPIRED,
        Category.APPROVAL_REUSED,
        Category.APPROVAL_MISMATCH,
        Category.INJECTION_SUSPECTED,
        Category.WRONG_TOOL,
        Category.MISSING_CALL,
        Category.EXTRA_CALL,
        Category.ORDER_INVERTED,
        Category.PREMATURE_CALL,
        Category.UNUSABLE_RESULT_USED,
        Category.RESULT_MISHANDLED,
        Category.UNGROUNDED_ARGUMENT,
        Category.CALL_FAILED,
        Category.RETRY_WASTE,
        Category.FUTILE_RETRY,
        Category.LOOP,
        Category.DUPLICATE_CALL,
        Category.AGENT_FAILED,
        Category.TURN_SUSPECTED,
    }
)


@dataclass(frozen=True, slots=True)
class Event:
    """A call, or a request to the model, on the timeline.

    ``at_s`` is from the begin of the first of them, ``lasted_s`` None while it is unfinished.
    ``arguments`` and ``result`` are JSON texts, None where they were not asked for.
    """

    kind: Literal["call", "turn"]
    span_id: str
    at_s: float
    lasted_s: float | None
    turn: int | None = None
    index: int | None = None
    tool: str | None = None
    outcome: str | None = None
    error: str | None = None
    attempt: int | None = None
    repeat: str | None = None
    tokens: int | None = None
    arguments: str | None = None
    result: str | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """One thing wrong, at its span. ``rank`` 1 is the first of what the failure is blamed on."""

    category: str
    severity: str
    span_id: str
    sentence: str
    rank: int | None = None
    key_path: str | None = None
    repaired: bool = False
    caused_by: str | None = None
    expected: str | None = None
    actual: str | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawn trajectory: what happened and what it is blamed on.

    ``weight`` is for how many failures it stands, None where that is not known. ``cause`` is None
    where nothing says enough: the evidence is there all the same. ``others_call_it`` are the words
    of published taxonomies for the cause.
    """

    failure: Failure
    stratum: tuple[str, ...]
    weight: float | None
    case_id: str | None
    agent: str | None
    reason: str | None
    confidence: float | None
    timeline: tuple[Event, ...]
    calls_left_out: int
    cause: Evidence | None
    evidence: tuple[Evidence, ...]
    evidence_left_out: int
    others_call_it: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Report:
    """All of it; ``failures`` is how many there are, drawn or not."""

    by: tuple[Dimension, ...]
    seed: int
    failures: int
    strata: tuple[Stratum, ...]
    drawn: tuple[Drawn, ...]
    overview: Overview

    @property
    def strata_not_drawn(self) -> int:
        """Strata of which nothing was drawn, since there are more of them than places."""
        return sum(not stratum.drawn for stratum in self.strata)


def report(
    outcome: Outcome,
    *,
    sample: int,
    seed: int,
    by: Sequence[Dimension] = DIMENSIONS,
    with_arguments: bool = False,
) -> Report:
    """Draws failures and tells what happened in each.

    Args:
        outcome: the results.
        sample: how many to draw.
        seed: of the draw; the same seed draws the same from the same failures.
        by: what failures of one stratum have in common.
        with_arguments: tell arguments, results and values too.

    Raises:
        InputError: the results cannot be read.
    """
    failures = {failure.trajectory_id: failure for failure in outcome.failures()}
    members = [
        (one.trajectory_id, tuple(getattr(one, dimension) for dimension in by), one.weight)
        for one in failures.values()
    ]
    strata = stratify(members, sample, FLOOR, seed)
    drawn = [(id_, stratum) for stratum in strata for id_ in stratum.drawn]
    ids = [id_ for id_, _ in drawn]
    content = _CONTENT if with_arguments else {}
    calls, findings, verdicts = (
        outcome.rows(kind, (*_COLUMNS[kind], *content.get(kind, ())), ids) if ids else {}
        for kind in ("calls", "findings", "verdicts")
    )
    told = tuple(
        _told(
            failures[id_],
            stratum,
            sorted(calls[id_], key=lambda call: call["index"]),
            findings[id_],
            verdicts[id_][0],
            with_arguments,
        )
        for id_, stratum in drawn
    )
    return Report(tuple(by), seed, len(failures), tuple(strata), told, overview(outcome))


def _told(
    failure: Failure,
    stratum: Stratum,
    calls: Sequence[Mapping[str, Any]],
    findings: Sequence[Mapping[str, Any]],
    verdict: Mapping[str, Any],
    with_arguments: bool,
) -> Drawn:
    tools = {call["span_id"]: call["tool"] for call in calls}
    ordered = sorted(findings, key=_importance)
    evidence = tuple(_evidence(row, tools, with_arguments) for row in ordered[:_MOST_EVIDENCE])
    sure = (verdict["confidence"] or 0.0) >= LEAST_CONFIDENCE
    cause = evidence[0] if sure and evidence and evidence[0].rank == 1 else None
    shown = [
        *calls[: _MOST_CALLS // 2],
        *calls[max(_MOST_CALLS // 2, len(calls) - _MOST_CALLS // 2) :],
    ]
    start = min((call["start_time_unix_nano"] for call in calls), default=0)
    each = stratum.each
    named = ordered[0] if ordered and ordered[0]["rank"] == 1 else None
    return Drawn(
        failure=failure,
        stratum=stratum.key,
        weight=None if failure.weight is None or each is None else failure.weight * each,
        case_id=verdict["case_id"],
        agent=verdict["agent"],
        reason=verdict["reason"],
        confidence=verdict["confidence"],
        timeline=tuple(_event(call, start, with_arguments) for call in shown),
        calls_left_out=len(calls) - len(shown),
        cause=cause,
        evidence=evidence,
        evidence_left_out=len(findings) - len(evidence),
        others_call_it=_others_call(named) if named is not None else {},
    )


def _importance(row: Mapping[str, Any]) -> tuple[bool, int, bool, int, str, str]:
    index = row["call_index"]
    rank = row["rank"]
    return rank is None, rank or 0, index is None, index or 0, row["category"], row["span_id"]


def _event(call: Mapping[str, Any], start_ns: int, with_arguments: bool) -> Event:
    ended, began = call["end_time_unix_nano"], call["start_time_unix_nano"]
    return Event(
        kind="call",
        span_id=call["span_id"],
        at_s=(began - start_ns) / 1e9,
        lasted_s=None if ended is None else (ended - began) / 1e9,
        turn=call["turn"],
        index=call["index"],
        tool=call["tool"],
        outcome=call["outcome"],
        error=call["error_type"],
        attempt=call["attempt"],
        repeat=call.get("repeat"),
        arguments=call["arguments"] if with_arguments else None,
        result=call["result"] if with_arguments else None,
    )


def _evidence(row: Mapping[str, Any], tools: Mapping[str, str], with_arguments: bool) -> Evidence:
    return Evidence(
        category=row["category"],
        severity=row["severity"],
        span_id=row["span_id"],
        sentence=row["message"] if with_arguments else _sentence(row, tools),
        rank=row["rank"],
        key_path=row["key_path"],
        repaired=row["repaired"],
        caused_by=row.get("caused_by"),
        expected=row["expected"] if with_arguments else None,
        actual=row["actual"] if with_arguments else None,
    )


def _sentence(row: Mapping[str, Any], tools: Mapping[str, str]) -> str:
    """What is wrong, without values."""
    if row["category"] in _SAYS_NO_VALUE:
        return str(row["message"])
    what = (row["code"] or row["category"]).replace("_", " ")
    at = f", argument {row['key_path']}" if row["key_path"] else ""
    how = f" (compared as {row['comparator']})" if row["comparator"] else ""
    return f"{tools.get(row['span_id'], 'the run')}{at}: {what}{how}"


def _others_call(row: Mapping[str, Any]) -> dict[str, str]:
    detail = (row["actual"] or "").strip('"')
    named = ((one.name, one.word_for(row["category"], detail)) for one in taxonomies())
    return {name: word for name, word in named if word is not None}
