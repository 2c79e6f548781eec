"""One trajectory against its case: counts of what was right, and a finding for each thing wrong.

Retries are attempts of one call: the attempt that answers is the last, so that a wrong first try
counts once (and stays visible in ``arguments_first_attempt``), not as an extra call. Of several ways
to do the task the one that the trajectory comes nearest to is taken.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from toolverdict.instrument.decisions import DANGEROUS_LABELS
from toolverdict.scoring.attempts import chains
from toolverdict.scoring.cases.arguments import Comparison
from toolverdict.scoring.cases.assignment import Assignment, assign, first_tries
from toolverdict.scoring.cases.evidence import Evidence, findings_of, wrong_tools
from toolverdict.scoring.cases.limits import limit_findings
from toolverdict.scoring.cases.model import Case, Expectation, Reaction, Way
from toolverdict.scoring.cases.need import (
    Cell,
    Treatment,
    need_findings,
    needs,
    treatment,
    whole,
)
from toolverdict.scoring.cases.order import Constraint, Precedence, constraints, to_blame
from toolverdict.scoring.cases.pairing import (
    Pair,
    compare,
    ended_as_expected,
    may_pair,
    tool_of,
)
from toolverdict.scoring.cases.references import Answers
from toolverdict.scoring.model import (
    CaseScores,
    Finding,
    Measured,
    Part,
    Placed,
    Share,
    Trajectory,
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The scores of a trajectory against its case and the findings behind them.

    ``undecided``: of an expected call nothing shows whether it ended as expected. ``doubtful``: of
    an argument nothing shows whether it is right. ``reactions`` are what the case wants after calls
    (by index), ``forbidden`` the calls that it allows nobody to add, ``answered`` those that answer
    an expectation, with their earlier attempts.
    """

    scores: CaseScores
    findings: tuple[Finding, ...]
    undecided: bool
    doubtful: bool
    need: Cell | None
    reactions: Mapping[int, tuple[Reaction, ...]]
    forbidden: frozenset[int]
    answered: frozenset[int]


def judge(trajectory: Trajectory, case: Case) -> Judgement:
    """Scores need, selection, arguments and order; the findings derive from the same assignment."""
    attempts = chains(trajectory.calls)
    return max(
        (_judge(trajectory, case, way, attempts) for way in case.ways),
        key=lambda judgement: _nearness(judgement.scores),
    )


def _nearness(scores: CaseScores) -> tuple[float, float, float]:
    """What makes one way nearer than another; a score that is None has nothing wrong."""
    selection, keys, order = scores.selection, scores.keys.value, scores.order.value
    return (
        1.0 if selection is None else selection,
        1.0 if keys is None else keys,
        1.0 if order is None else order,
    )


def _judge(
    trajectory: Trajectory, case: Case, way: Way, attempts: Sequence[Sequence[Placed]]
) -> Judgement:
    precedes = Precedence(way.before, len(way.expected))
    attempts, assignment, answers = _assigned(trajectory, way, precedes, attempts)
    chain_of = {chain[-1].index: chain for chain in attempts}
    treated = {
        place.index: _treatment(case, place, way.expected, answers) for place in assignment.extra
    }
    extra = tuple(place for place in assignment.extra if treated[place.index] != "allow")
    assignment = Assignment(assignment.pairs, assignment.missing, extra)
    matched: dict[int, list[Placed]] = {}
    for pair in assignment.pairs:
        matched.setdefault(pair.expected, []).append(pair.call)
    ordered = constraints(matched, way.before)
    named = [p for p in assignment.pairs if way.expected[p.expected].arguments is not None]
    tries = [chain[0] for chain in attempts]
    first = first_tries(way.expected, named, tries, answers)
    evidence = Evidence(
        trajectory, way, precedes, assignment, ordered, to_blame(matched, way.before)
    )
    confused = wrong_tools(evidence)
    counted = [
        place
        for last in (*(pair.call for pair in assignment.pairs), *extra)
        for place in chain_of[last.index]
    ]
    cells = needs(case, trajectory, counted)
    findings = (
        *findings_of(evidence, confused),
        *need_findings(case, evidence, cells, counted),
        *limit_findings(trajectory, case.limits),
    )
    allowed = sum(len(chain_of[i]) for i, how in treated.items() if how == "allow")
    scores = CaseScores(
        pairs=len(assignment.pairs),
        missing=len(assignment.missing),
        extra=len(extra),
        arguments=_share(named, _wholly),
        arguments_first_attempt=_share(first, _wholly),
        keys=_share(named, lambda comparison: comparison.score),
        order=_held(ordered),
        arguments_high_risk=_share(
            [p for p in named if DANGEROUS_LABELS & set(p.call.call.labels)], _wholly
        ),
        raw_calls=len(trajectory.calls) - allowed,
        wholly_right=_wholly_right(assignment.pairs, way.expected),
        way=way.name,
        confused=tuple(
            (tool_of(way.expected[index].tool), place.call.tool)
            for index, place in confused.items()
        ),
        parts=tuple(_parts(assignment, way.expected, named, ordered)),
        needs=cells,
        measured=tuple(
            (pair.call.index, one)
            for pair in named
            for one in _measured(pair, way.expected[pair.expected])
        ),
    )
    return Judgement(
        scores=scores,
        findings=findings,
        undecided=any(
            ended_as_expected(way.expected[p.expected], p.call.call) is None
            for p in assignment.pairs
        ),
        doubtful=any(p.comparison is not None and not p.comparison.decided for p in named),
        need=whole(cells),
        reactions=_reactions(assignment.pairs, way.expected, chain_of),
        forbidden=frozenset(
            place.index
            for last in extra
            if treated[last.index] == "forbid"
            for place in chain_of[last.index]
        ),
        answered=frozenset(
            place.index for pair in assignment.pairs for place in chain_of[pair.call.index]
        ),
    )


def _assigned(
    trajectory: Trajectory,
    way: Way,
    precedes: Precedence,
    attempts: Sequence[Sequence[Placed]],
) -> tuple[Sequence[Sequence[Placed]], Assignment, Answers]:
    """The last attempts assigned; and what counts as the attempts of one call.

    A failed attempt answers for itself where the case lacks a call of the tool that may fail.
    """
    for together in (True, False):
        last = [chain[-1] for chain in attempts]
        assignment, answers = assign(way.expected, precedes, last, trajectory.calls)
        lacking = [way.expected[index] for index in assignment.missing] if together else []
        apart = {tool_of(e.tool) for e in lacking if e.outcome != "success" or e.on_result}
        if not any(len(chain) > 1 and tool_of(chain[0].call.tool) in apart for chain in attempts):
            break
        attempts = [
            part
            for chain in attempts
            for part in ([[p] for p in chain] if tool_of(chain[0].call.tool) in apart else [chain])
        ]
    return attempts, assignment, answers


def _treatment(
    case: Case, place: Placed, expected: Sequence[Expectation], answers: Answers
) -> Treatment:
    """What becomes of a call that answers no expectation; one past a stated count is penalised."""
    how = treatment(case.extra, place)
    return "penalise" if how == "allow" and _past_count(place, expected, answers) else how


def _past_count(place: Placed, expected: Sequence[Expectation], answers: Answers) -> bool:
    """Whether a call is right for an expectation whose count says that it is one too many."""
    for expectation in expected:
        stated = "count" in expectation.model_fields_set and expectation.count.max is not None
        if stated and tool_of(expectation.tool) == tool_of(place.call.tool):
            comparison = compare(expectation, place, answers)
            if may_pair(expectation, place.call) and (
                comparison is None or comparison.wholly_right
            ):
                return True
    return False


def _measured(pair: Pair, expectation: Expectation) -> Iterable[Measured]:
    """How near the arguments of a pair are, where they were compared by that."""
    if pair.comparison is not None and expectation.plan is not None:
        yield from expectation.plan.measured(pair.call.call.arguments)


def _wholly(comparison: Comparison) -> float:
    return float(comparison.wholly_right)


def _share(pairs: Iterable[Pair], hit: Callable[[Comparison], float]) -> Share:
    """Hits over the comparisons that could be made and say something."""
    total = Share()
    for pair in pairs:
        total += _one(pair, hit)
    return total


def _one(pair: Pair, hit: Callable[[Comparison], float]) -> Share:
    if pair.comparison is None or not pair.comparison.decided:
        return Share(unseen=1)
    return Share(hit(pair.comparison), 1)


def _held(ordered: Sequence[Constraint]) -> Share:
    total = Share()
    for constraint in ordered:
        total += _held_one(constraint)
    return total


def _held_one(constraint: Constraint) -> Share:
    return Share(unseen=1) if constraint.held is None else Share(float(constraint.held), 1)


def _wholly_right(pairs: Sequence[Pair], expected: Sequence[Expectation]) -> int | None:
    """Pairs with wholly right arguments; None where the arguments of one could not be compared."""
    right = 0
    for pair in pairs:
        if expected[pair.expected].arguments is None:
            right += 1
        elif pair.comparison is None or not pair.comparison.decided:
            return None
        else:
            right += pair.comparison.wholly_right
    return right


def _parts(
    assignment: Assignment,
    expected: Sequence[Expectation],
    named: Sequence[Pair],
    ordered: Sequence[Constraint],
) -> Iterable[Part]:
    """What each call adds to the sub-metrics, for rates by tool, label, agent and version."""
    for pair in assignment.pairs:
        yield Part("selection_accuracy", Share(1, 1), pair.call.call.tool, pair.call.index)
    for place in assignment.extra:
        yield Part("selection_accuracy", Share(0, 1), place.call.tool, place.index)
    for index in assignment.missing:
        yield Part("selection_accuracy", Share(0, 1), tool_of(expected[index].tool), None)
    for pair in named:
        tool, at = pair.call.call.tool, pair.call.index
        yield Part("argument_accuracy", _one(pair, _wholly), tool, at)
        yield Part("argument_key_score", _one(pair, lambda c: c.score), tool, at)
    for constraint in ordered:
        later = constraint.later
        yield Part("call_timing_accuracy", _held_one(constraint), later.call.tool, later.index)


def _reactions(
    pairs: Sequence[Pair],
    expected: Sequence[Expectation],
    chain_of: Mapping[int, Sequence[Placed]],
) -> dict[int, tuple[Reaction, ...]]:
    """What the case wants after each attempt of an expected call."""
    stated = {}
    for pair in pairs:
        for place in chain_of[pair.call.index]:
            reactions = expected[pair.expected].reactions_to(place.call.outcome)
            if reactions is not None:
                stated[place.index] = reactions
    return stated
