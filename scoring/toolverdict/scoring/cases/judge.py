"""One trajectory against its case: counts of what was right, and a finding for each thing wrong.

Retries are attempts of one call: the attempt that answers is the last, so that a wrong first try
counts once (and stays visible in ``arguments_first_attempt``), not as an extra call.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from toolverdict.instrument.names import bare_name
from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.attempts import chains
from toolverdict.scoring.cases.arguments import COMPARATOR, Comparison
from toolverdict.scoring.cases.assignment import Assignment, Pair, assign, compare
from toolverdict.scoring.cases.model import Case, Expectation
from toolverdict.scoring.cases.order import Broken, broken_constraints, to_blame
from toolverdict.scoring.model import (
    CaseScores,
    Category,
    Finding,
    Placed,
    Share,
    Trajectory,
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The scores of a trajectory against its case and the findings behind them.

    ``undecided``: of an expected call nothing shows whether it succeeded.
    """

    scores: CaseScores
    findings: tuple[Finding, ...]
    undecided: bool


def judge(trajectory: Trajectory, case: Case) -> Judgement:
    """Scores selection, arguments and order; the findings derive from the same assignment."""
    attempts = chains(trajectory.calls)
    chain_of = {chain[-1].index: chain for chain in attempts}
    assignment = assign(case.expected, [chain[-1] for chain in attempts])
    in_order = [pair.call for pair in assignment.pairs]
    broken = broken_constraints(in_order)
    findings = [
        *_selection(trajectory, case.expected, assignment),
        *_arguments(assignment.pairs),
        *_failed(assignment.pairs),
        *_order(broken, to_blame(in_order)),
    ]
    # Pairs whose expectation names arguments: as they ended, and as they were first tried.
    named = [
        pair for pair in assignment.pairs if case.expected[pair.expected].arguments is not None
    ]
    last = [pair.comparison for pair in named]
    first = [compare(case.expected[p.expected], chain_of[p.call.index][0]) for p in named]
    constraints = max(0, len(in_order) - 1)
    scores = CaseScores(
        pairs=len(assignment.pairs),
        missing=len(assignment.missing),
        extra=len(assignment.extra),
        arguments=_share(last, lambda comparison: comparison.wholly_right),
        arguments_first_attempt=_share(first, lambda comparison: comparison.wholly_right),
        keys=_share(last, lambda comparison: comparison.score),
        order=Share(constraints - len(broken), constraints),
    )
    undecided = any(pair.call.call.outcome is Outcome.UNKNOWN for pair in assignment.pairs)
    return Judgement(scores, tuple(findings), undecided)


def _share(comparisons: Sequence[Comparison | None], hit: Callable[[Comparison], float]) -> Share:
    """Hits over the comparisons that could be made."""
    made = [comparison for comparison in comparisons if comparison is not None]
    return Share(sum(map(hit, made)), len(made), len(comparisons) - len(made))


def _selection(
    trajectory: Trajectory, expected: Sequence[Expectation], assignment: Assignment
) -> Iterator[Finding]:
    """Missing and extra calls; a missing one with an extra one in its place is a wrong tool."""
    extra = list(assignment.extra)
    for index in assignment.missing:
        opens, closes = _gap(index, assignment.pairs)
        instead = next((c for c in extra if opens < c.call.start_ns < closes), None)
        wanted = expected[index].tool
        if instead is not None:
            extra.remove(instead)
            yield Finding.at_call(
                instead,
                Category.WRONG_TOOL,
                f"{instead.call.tool} was called where {wanted} was expected",
                expected=wanted,
                actual=instead.call.tool,
            )
            continue
        span_id, at_ns = _where_due(trajectory, closes)
        yield Finding(
            Category.MISSING_CALL,
            span_id,
            f"{wanted} was never called; the span is where the model should have asked for it",
            at_ns=at_ns,
            expected=wanted,
        )
    for place in extra:
        yield Finding.at_call(
            place,
            Category.EXTRA_CALL,
            _why_extra(place, expected),
            actual=place.call.tool,
        )


def _why_extra(place: Placed, expected: Sequence[Expectation]) -> str:
    wanted = sum(bare_name(e.tool) == bare_name(place.call.tool) for e in expected)
    if wanted:
        times = "once" if wanted == 1 else f"{wanted} times"
        return f"{place.call.tool} was called more often than expected ({times})"
    return f"{place.call.tool} was called and is not expected in this case"


def _gap(index: int, pairs: Sequence[Pair]) -> tuple[int, int]:
    """Between which times the missing call was due, by its matched neighbours."""
    opens, closes = -1, 1 << 63
    for pair in pairs:
        if pair.expected < index:
            opens = max(opens, pair.call.call.start_ns)
        else:
            closes = min(closes, pair.call.call.start_ns)
    return opens, closes


def _where_due(trajectory: Trajectory, closes: int) -> tuple[str, int]:
    """The model turn that should have asked for a call due before ``closes``, else the root."""
    last = max((place.call.start_ns for place in trajectory.calls), default=0)
    due = [turn for turn in trajectory.turns if turn.start_ns < closes]
    if due:
        return due[-1].span_id, min(closes - 1, max(last, due[-1].start_ns))
    return trajectory.root_span_id, min(closes - 1, last)


def _arguments(pairs: Sequence[Pair]) -> Iterator[Finding]:
    for pair in pairs:
        if pair.comparison is None:
            continue
        call = pair.call.call
        for mismatch in pair.comparison.mismatches:
            yield Finding.at_call(
                pair.call,
                Category.ARGUMENT_MISMATCH,
                f"{call.tool}: argument {mismatch.key_path} {mismatch.why}",
                key_path=mismatch.key_path,
                expected=mismatch.expected,
                actual=mismatch.actual,
                comparator=COMPARATOR,
            )


def _failed(pairs: Sequence[Pair]) -> Iterator[Finding]:
    """An expected call must have succeeded: a right call that failed did not do the task."""
    for pair in pairs:
        call = pair.call.call
        if not call.outcome.succeeded and call.outcome is not Outcome.UNKNOWN:
            yield Finding.at_call(
                pair.call,
                Category.CALL_FAILED,
                f"{call.tool} was expected to succeed and ended as {call.outcome.value}",
                expected="ok",
                actual=call.outcome.value,
            )


def _order(broken: Sequence[Broken], blamed: Sequence[Placed]) -> Iterator[Finding]:
    for place in blamed:
        yield Finding.at_call(
            place,
            Category.ORDER_INVERTED,
            f"{place.call.tool} was called out of its expected order",
        )
    for constraint in broken:
        if constraint.how == "premature":
            later, earlier = constraint.later, constraint.earlier
            yield Finding.at_call(
                later,
                Category.PREMATURE_CALL,
                f"{later.call.tool} started before {earlier.call.tool} had ended",
            )
