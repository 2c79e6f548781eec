"""The findings of a case: each thing that is not as it should be, at its span, in one sentence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from toolverdict.scoring.cases.assignment import Assignment
from toolverdict.scoring.cases.model import Expectation, Way
from toolverdict.scoring.cases.order import Constraint, Late, Precedence
from toolverdict.scoring.cases.pairing import Pair, ended_as_expected, tool_of
from toolverdict.scoring.cases.plans import EQUAL, Mismatch
from toolverdict.scoring.model import Category, Finding, Placed, Trajectory

_END = 1 << 63


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the findings are made of: a trajectory and how it compares with one way."""

    trajectory: Trajectory
    way: Way
    precedes: Precedence
    assignment: Assignment
    ordered: Sequence[Constraint]
    blamed: Sequence[Late]


def findings_of(evidence: Evidence, confused: Mapping[int, Placed]) -> Iterator[Finding]:
    """Every finding. ``confused`` are the missing calls in whose place another tool was called."""
    yield from _selection(evidence, confused)
    for pair in evidence.assignment.pairs:
        yield from _arguments(pair)
        yield from _ended_otherwise(pair, evidence.way.expected[pair.expected])
    yield from _order(evidence)


def wrong_tools(evidence: Evidence) -> dict[int, Placed]:
    """Missing calls and the extra call in the place of each: one made in the time it was due."""
    extra = list(evidence.assignment.extra)
    found = {}
    for index in dict.fromkeys(evidence.assignment.missing):
        opens, closes = _due(index, evidence)
        instead = next((c for c in extra if opens < c.call.start_ns < closes), None)
        if instead is not None:
            extra.remove(instead)
            found[index] = instead
    return found


def _selection(evidence: Evidence, confused: Mapping[int, Placed]) -> Iterator[Finding]:
    """Missing and extra calls; a missing one with an extra one in its place is a wrong tool."""
    expected = evidence.way.expected
    told: set[int] = set()
    for index in evidence.assignment.missing:
        wanted, instead = expected[index].tool, confused.get(index)
        if instead is not None and index not in told:
            told.add(index)
            yield Finding.at_call(
                instead,
                Category.WRONG_TOOL,
                f"{instead.call.tool} was called where {wanted} was expected",
                expected=wanted,
                actual=instead.call.tool,
            )
            continue
        span_id, at_ns = _where_due(evidence.trajectory, _due(index, evidence)[1])
        yield Finding(
            Category.MISSING_CALL,
            span_id,
            f"{wanted} was never called; the span is where the model should have asked for it"
            if not any(pair.expected == index for pair in evidence.assignment.pairs)
            else f"{wanted} was called less often than expected",
            at_ns=at_ns,
            expected=wanted,
        )
    instead_of = {place.index for place in confused.values()}
    for place in evidence.assignment.extra:
        if place.index not in instead_of:
            message = _why_extra(place, expected)
            yield Finding.at_call(place, Category.EXTRA_CALL, message, actual=place.call.tool)


def _why_extra(place: Placed, expected: Sequence[Expectation]) -> str:
    wanted = sum(
        e.count.max or e.count.min for e in expected if tool_of(e.tool) == tool_of(place.call.tool)
    )
    if wanted:
        times = "once" if wanted == 1 else f"{wanted} times"
        return f"{place.call.tool} was called more often than expected ({times})"
    return f"{place.call.tool} was called and is not expected in this case"


def _due(index: int, evidence: Evidence) -> tuple[int, int]:
    """Between which times the missing call was due, by the matched calls around it."""
    opens, closes = -1, _END
    for pair in evidence.assignment.pairs:
        if evidence.precedes(pair.expected, index):
            opens = max(opens, pair.call.call.start_ns)
        elif evidence.precedes(index, pair.expected):
            closes = min(closes, pair.call.call.start_ns)
    return opens, closes


def _where_due(trajectory: Trajectory, closes: int) -> tuple[str, int]:
    """The model turn that should have asked for a call due before ``closes``, else the root."""
    last = max((place.call.start_ns for place in trajectory.calls), default=0)
    due = [turn for turn in trajectory.turns if turn.start_ns < closes]
    if due:
        return due[-1].span_id, min(closes - 1, max(last, due[-1].start_ns))
    return trajectory.root_span_id, min(closes - 1, last)


def _arguments(pair: Pair) -> Iterator[Finding]:
    comparison = pair.comparison
    if comparison is None:
        return
    if comparison.unreadable:
        yield Finding.at_call(
            pair.call,
            Category.MALFORMED_ARGUMENTS,
            f"{pair.call.call.tool}: the arguments are no JSON object",
            actual=pair.call.call.arguments,
            expected={m.key_path: m.expected for m in comparison.mismatches},
            comparator=EQUAL,
        )
        return
    for mismatch in comparison.mismatches:
        yield _argument(pair.call, Category.ARGUMENT_MISMATCH, mismatch)
    for mismatch in comparison.undecided:
        yield _argument(pair.call, Category.NOT_EVALUATED, mismatch)
    for key in comparison.coerced:
        yield Finding.at_call(
            pair.call,
            Category.ARGUMENT_COERCED,
            f"{pair.call.call.tool}: argument {key} is a number in text; the tool's schema says number",
            key_path=key,
            actual=None,
        )


def _argument(place: Placed, category: Category, mismatch: Mismatch) -> Finding:
    how = ""
    if mismatch.comparator != EQUAL and mismatch.chosen != "case":
        by = "by the catalogue" if mismatch.chosen == "catalogue" else "as its form suggests"
        how = f" (compared as {mismatch.comparator}, {by})"
    return Finding.at_call(
        place,
        category,
        f"{place.call.tool}: argument {mismatch.key_path} {mismatch.why}{how}",
        key_path=mismatch.key_path,
        expected=mismatch.expected,
        actual=mismatch.actual,
        comparator=mismatch.comparator,
        code=mismatch.code,
    )


def _ended_otherwise(pair: Pair, expectation: Expectation) -> Iterator[Finding]:
    """A right call that failed did not do the task; one that should have failed and did not, too."""
    call = pair.call.call
    if ended_as_expected(expectation, call) is False:
        wanted = "succeed" if expectation.outcome == "success" else "fail"
        yield Finding.at_call(
            pair.call,
            Category.CALL_FAILED,
            f"{call.tool} was expected to {wanted} and ended as {call.outcome.value}",
            expected="ok" if wanted == "succeed" else "failure",
            actual=call.outcome.value,
        )


def _order(evidence: Evidence) -> Iterator[Finding]:
    for late in evidence.blamed:
        tool, other = late.call.call.tool, late.other.call.tool
        yield Finding.at_call(
            late.call,
            Category.ORDER_INVERTED,
            f"{tool} was called before {other}, which comes first"
            if late.too_early
            else f"{tool} was called after {other}, which comes later",
            expected=f"{other} first" if late.too_early else f"{tool} first",
        )
    for constraint in evidence.ordered:
        if constraint.broken == "premature":
            later, earlier = constraint.later, constraint.earlier
            yield Finding.at_call(
                later,
                Category.PREMATURE_CALL,
                f"{later.call.tool} started before {earlier.call.tool} had ended",
                expected=f"{earlier.call.tool} ended",
            )
