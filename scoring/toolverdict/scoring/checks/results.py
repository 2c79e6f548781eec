"""Result handling: was what came back understood? An empty result is not a success.

Where the case says what to do after such a result, that is what counts. Elsewhere, the deterministic
part: after a call that returned nothing usable (empty, refused, timed out, 5xx, any failure) and was
not put right, the agent went on to a consequential call that shares a value with it, as if the first
had succeeded. Which values matter is not guessed: sharing one is enough, and where arguments were
not captured the handling is not evaluable. A call that met a permanent failure (refused arguments,
no permission, a refusal) and was made again just as it was is a futile retry, if it failed again.

What the agent did next is told of every such result, whether it was right or not. Nothing is found
in a trajectory in which every call ended well.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import islice

from toolverdict.instrument.decisions import DANGEROUS_LABELS
from toolverdict.instrument.names import bare_name
from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.cases.model import Reaction
from toolverdict.scoring.model import (
    Captured,
    Category,
    Finding,
    Json,
    Part,
    Placed,
    Share,
    Trajectory,
)
from toolverdict.scoring.values import as_text, leaves

PERMANENT = frozenset(
    {Outcome.INVALID_ARGUMENTS, Outcome.PERMISSION_DENIED, Outcome.DENIED, Outcome.REFUSED}
)
"""Failures that the same call will meet again."""

# What the agent's own side withheld was not a result to be misread.
_NOT_A_RESULT = frozenset({Outcome.DENIED, Outcome.PENDING_APPROVAL, Outcome.UNKNOWN})

_HORIZON = 100  # how many later calls may still build on it; bounds the work on hostile traces

_NONE: Mapping[int, tuple[Reaction, ...]] = {}


@dataclass(frozen=True, slots=True)
class Handling:
    """Unusable results that were handled well over all of them, and those that were not.

    ``undecided``: nothing shows whether the agent did what the case wants after a result.
    ``reactions`` say, by the index of a call with an unusable result, what came next.
    """

    share: Share
    findings: tuple[Finding, ...]
    parts: tuple[Part, ...] = ()
    undecided: bool = False
    reactions: Mapping[int, str] = field(default_factory=dict)


_NOTHING_UNUSABLE = Handling(Share(), ())

IGNORED = "result_ignored"
"""The code of an argument that a case binds to an earlier result, and that is something else."""

WENT_ON = "went_on"
"""The reaction that is a fault: on to a consequential call, as if there had been a result."""


def result_handling(
    trajectory: Trajectory,
    repaired: frozenset[int],
    stated: Mapping[int, tuple[Reaction, ...]] = _NONE,
) -> Handling:
    """How the agent went on after each unusable result.

    Args:
        trajectory: the calls in order.
        repaired: indexes of failed calls that a later attempt put right.
        stated: what the case wants after calls, by index.
    """
    concerned = [p for p in trajectory.calls if p.index in stated or _unusable(p)]
    futile = tuple(_futile_retries(trajectory))
    if not concerned and not futile:
        return _NOTHING_UNUSABLE
    retried = {p.retry_of: p for p in trajectory.calls if p.retry_of is not None}
    findings = []
    parts = []
    reactions = {}
    undecided = False
    values = cache(lambda index: frozenset(leaves(trajectory.calls[index].call.arguments)))
    for place in concerned:
        if place.index in stated:
            done = reaction(place, trajectory)
            handled, finding = _as_stated(place, done, stated[place.index])
            undecided = undecided or handled is None
        else:
            again = retried.get(place.index)
            done = reaction(place, trajectory) if again is None else _retry(place, again)
            handled, finding = _deterministic(place, trajectory, repaired, values)
        went_on = finding is not None and finding.category is Category.UNUSABLE_RESULT_USED
        reactions[place.index] = WENT_ON if went_on else _NAMES[frozenset(done)]
        if finding is not None:
            findings.append(finding)
        share = Share(unseen=1) if handled is None else Share(float(handled), 1)
        parts.append(Part("result_handling", share, place.call.tool, place.index))
    share = sum((part.share for part in parts), Share())
    return Handling(share, (*findings, *futile), tuple(parts), undecided, reactions)


def _as_stated(
    place: Placed, done: set[Reaction], wanted: tuple[Reaction, ...]
) -> tuple[bool | None, Finding | None]:
    """Whether the agent did what the case wants; None where nothing shows what it did."""
    kinds = {kind for one in wanted for kind in _KINDS.get(one, (one,))}
    if done & kinds:
        return (True if done <= kinds else None), None
    did = " or ".join(_WORDS[one] for one in sorted(done))
    message = (
        f"after {place.call.tool} ended as {place.call.outcome.value} the agent {did}; "
        f"wanted: {' or '.join(wanted)}"
    )
    return False, Finding.at_call(
        place,
        Category.RESULT_MISHANDLED,
        message,
        expected=list(wanted),
        actual=sorted(done),
    )


_KINDS: Mapping[Reaction, tuple[Reaction, ...]] = {"retry": ("retry_same", "retry_changed")}
_WORDS: Mapping[Reaction, str] = {
    "retry_same": "called it again with the same arguments",
    "retry_changed": "called it again with other arguments",
    "other_tool": "called another tool",
    "tell_user": "answered",
    "stop": "stopped",
}
_NAMES: Mapping[frozenset[Reaction], str] = {
    **{frozenset({one}): one for one in _WORDS},
    frozenset({"retry_same", "retry_changed"}): "retry",
    frozenset({"tell_user", "stop"}): "end",
}
"""What the column ``reaction`` of ``calls`` says; a set is what a trace does not tell apart."""


def reaction(place: Placed, trajectory: Trajectory) -> set[Reaction]:
    """What the agent did next; several where the trace does not tell them apart.

    The next call that began after this one had ended counts; with none, a model turn after it is an
    answer to the user, and without model turns nothing tells an answer from stopping.
    """
    ended = place.call.end_ns if place.call.end_ns is not None else place.call.start_ns
    later = (p for p in _after(place, trajectory) if p.call.start_ns >= ended)
    following = next(later, None)
    if following is None:
        if not trajectory.turns:
            return {"tell_user", "stop"}
        answered = trajectory.turns[-1].start_ns >= ended
        return {"tell_user"} if answered else {"stop"}
    if bare_name(following.call.tool) != bare_name(place.call.tool):
        return {"other_tool"}
    return _retry(place, following)


def _retry(place: Placed, again: Placed) -> set[Reaction]:
    same = _same_arguments(place, again)
    if same is None:
        return {"retry_same", "retry_changed"}
    return {"retry_same"} if same else {"retry_changed"}


def _same_arguments(one: Placed, other: Placed) -> bool | None:
    if _seen(one) and _seen(other):
        return as_text(one.call.arguments) == as_text(other.call.arguments)
    if one.call.args_hash and other.call.args_hash:
        return one.call.args_hash == other.call.args_hash
    return None


def _deterministic(
    place: Placed,
    trajectory: Trajectory,
    repaired: frozenset[int],
    values: Callable[[int], frozenset[Json]],
) -> tuple[bool | None, Finding | None]:
    if place.index in repaired:
        return True, None
    misuse = next(_built_on(place, trajectory, values), None)
    if misuse is not None:
        return False, _finding(place, *misuse)
    seen = _seen(place) and all(_seen(later) for later in _consequential(place, trajectory))
    return (True if seen else None), None


def _unusable(place: Placed) -> bool:
    outcome = place.call.outcome
    if outcome in _NOT_A_RESULT:
        return False
    return outcome.failed or outcome is Outcome.EMPTY


def _consequential(place: Placed, trajectory: Trajectory) -> Iterator[Placed]:
    """Later calls of other tools that change something, up to a good answer of the same tool."""
    own = bare_name(place.call.tool)
    for later in _after(place, trajectory):
        if bare_name(later.call.tool) == own:
            if later.call.outcome is Outcome.OK:
                return
        elif not DANGEROUS_LABELS.isdisjoint(later.call.labels):
            yield later


def _after(place: Placed, trajectory: Trajectory) -> Iterator[Placed]:
    """The calls that come next, within the horizon."""
    return islice(trajectory.calls, place.index + 1, place.index + 1 + _HORIZON)


def with_ignored_results(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings of a case; a value other than the earlier result's that it must be is named so."""
    for finding in findings:
        mismatch = finding.category is Category.ARGUMENT_MISMATCH and finding.code is None
        yield (
            replace(finding, code=IGNORED) if mismatch and finding.comparator == "ref" else finding
        )


def _futile_retries(trajectory: Trajectory) -> Iterator[Finding]:
    """Calls that met a permanent failure again, which nothing about them could have avoided."""
    for place in trajectory.calls:
        if place.retry_of is None or place.call.outcome not in PERMANENT:
            continue
        first = trajectory.calls[place.retry_of]
        if first.call.outcome is place.call.outcome and _same_arguments(first, place):
            yield Finding.at_call(
                place,
                Category.FUTILE_RETRY,
                f"{place.call.tool} was called again with the same arguments after it had ended as "
                f"{first.call.outcome.value} in span {first.call.span_id}, and ended so again",
                actual=place.call.outcome.value,
            )


def _built_on(
    place: Placed, trajectory: Trajectory, values: Callable[[int], frozenset[Json]]
) -> Iterator[tuple[Placed, Json]]:
    """Later calls that carry a value of this one, and one such value, the same in every run."""
    for later in _consequential(place, trajectory):
        if not _seen(place) or not _seen(later):
            continue
        shared = values(place.index) & values(later.index)
        if shared:
            yield later, min(shared, key=as_text)


def _seen(place: Placed) -> bool:
    return place.call.arguments_state is Captured.CAPTURED


def _finding(unusable: Placed, later: Placed, shared: Json) -> Finding:
    return Finding.at_call(
        later,
        Category.UNUSABLE_RESULT_USED,
        f"{later.call.tool} went on as if {unusable.call.tool} had succeeded, which ended as "
        f"{unusable.call.outcome.value}",
        expected="a usable result, or another course",
        actual=shared,
    )
