"""Retry waste: calls made again, why, and what that cost.

A rate of its own counts retries that an ``invalid_arguments`` call caused, and nothing else is ever
mixed into it: retries after a time-out, a rate limit or a 5xx are no waste of the agent's making,
and repeats after a success, loops and polling are other things again.

- **duplicate**: the same tool with the same arguments had succeeded before, and nothing shows that
  this answer is another one.
- **loop**: a sequence of calls that was made again as it was, at once (``a b a b``), or one call
  that did not succeed made three times in a row. The first pass is work, every further one waste.
- **polling**: a repeat that learned something (a result in it changed), or of a tool that is meant
  to be asked again (label ``polling``, from span, policy or catalogue). It is no waste. A tool that
  changes something is not polled: two different answers of it are two payments.

What makes two calls the same is the tool and the arguments, or their hash; calls of which neither
was recorded are never the same, and counted as unseen. Nothing is found in a trajectory in which
every call ended well and no two are the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from toolverdict.instrument.names import bare_name
from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.known_tools import KnownTools
from toolverdict.scoring.model import Captured, Category, Finding, ModelTurn, Placed, Trajectory
from toolverdict.scoring.values import as_text

TRANSIENT: Final = frozenset({Outcome.TIMEOUT, Outcome.RATE_LIMITED, Outcome.UPSTREAM_ERROR})

REFUSED_ARGUMENTS: Final = frozenset({Outcome.INVALID_ARGUMENTS})

POLLING_LABEL: Final = "polling"

_NOTHING_KNOWN: Final = KnownTools()
_LONGEST_CYCLE: Final = 32  # calls; bounds the work on hostile traces
_SHORTEST_RUN: Final = 2  # of one call after the first

_Identity: TypeAlias = tuple[str, str]


class RepeatKind(StrEnum):
    """Why a call was made again. Values are stable: the column ``repeat`` of ``calls``."""

    RETRY_WASTE = "retry_waste"
    TRANSIENT_RETRY = "transient_retry"
    LOOP = "loop"
    POLLING = "polling"
    DUPLICATE = "duplicate"


@dataclass(frozen=True, slots=True)
class Repeat:
    """A call that was made again: of which call (its index), and what it cost.

    ``nanoseconds`` is None while it is unfinished, ``tokens`` where the model turn that asked for
    it tells of none; a turn that asked for several calls is shared out among them.
    ``side_effecting`` says that the tool changes something: a duplicate may then be a double payment.
    """

    kind: RepeatKind
    of: int
    nanoseconds: int | None = None
    tokens: int | None = None
    side_effecting: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """What repeats of one kind cost; ``timed`` and ``counted`` of the calls tell seconds, tokens."""

    calls: int = 0
    seconds: float = 0.0
    timed: int = 0
    tokens: int = 0
    counted: int = 0


@dataclass(frozen=True, slots=True)
class Waste:
    """The repeats of a trajectory by the index of their call.

    ``unseen`` calls had neither arguments nor hash: nothing shows whether they repeat another.
    """

    repeats: Mapping[int, Repeat] = field(default_factory=dict)
    unseen: int = 0

    def cost(self, kind: RepeatKind) -> Cost:
        """What the repeats of this kind cost, of what was recorded."""
        found = [repeat for repeat in self.repeats.values() if repeat.kind is kind]
        timed = [r.nanoseconds for r in found if r.nanoseconds is not None]
        counted = [r.tokens for r in found if r.tokens is not None]
        return Cost(len(found), sum(timed) / 1e9, len(timed), sum(counted), len(counted))


_NOTHING: Final = Waste()


def waste(
    trajectory: Trajectory,
    expected: frozenset[int] = frozenset(),
    tools: KnownTools = _NOTHING_KNOWN,
) -> Waste:
    """The repeats of a trajectory.

    A call is of one kind: the retry of a failure before anything else, then part of a loop or of
    polling, then a duplicate.

    Args:
        trajectory: the calls in order.
        expected: calls (by index) that answer a case and repeat nothing.
        tools: what is known of them: which change something, which are meant to be polled.
    """
    calls = trajectory.calls
    if len(calls) < 2:
        only = calls[0] if calls else None
        return _NOTHING if only is None or _identity(only) is not None else Waste(unseen=1)
    found: dict[int, tuple[RepeatKind, int]] = {}
    unseen = 0
    hashes = {place.call.args_hash for place in calls}
    if None in hashes or len(hashes) < len(calls):  # else no two calls can be the same
        found, unseen = _same_calls(calls, tools)
        found = {index: repeat for index, repeat in found.items() if index not in expected}
    found.update(_retries(calls))
    if not found:
        return Waste(unseen=unseen) if unseen else _NOTHING
    asked = _calls_by_turn(calls)
    return Waste(
        {
            index: _repeat(calls, index, kind, of, trajectory.turns, asked, tools)
            for index, (kind, of) in sorted(found.items())
        },
        unseen,
    )


def waste_findings(calls: Sequence[Placed], found: Waste) -> Iterator[Finding]:
    """A finding at each wasted retry, each futile one, each loop's begin and each double write."""
    for index, repeat in found.repeats.items():
        again, first = calls[index], calls[repeat.of].call
        tool = again.call.tool
        if repeat.kind is RepeatKind.RETRY_WASTE:
            yield Finding.at_call(
                again,
                Category.RETRY_WASTE,
                f"{tool} was called again (attempt {again.attempt}) because its arguments "
                f"had been refused in span {first.span_id}",
            )
        elif repeat.kind is RepeatKind.LOOP:
            before = found.repeats.get(index - 1)
            if before is None or before.kind is not RepeatKind.LOOP:
                yield Finding.at_call(
                    again,
                    Category.LOOP,
                    f"from here on calls are made again as they had been made from span "
                    f"{first.span_id} on, with the same arguments",
                )
        elif repeat.kind is RepeatKind.DUPLICATE and repeat.side_effecting:
            yield Finding.at_call(
                again,
                Category.DUPLICATE_CALL,
                f"{tool}, which changes something, was called again with the arguments with which "
                f"it had succeeded in span {first.span_id}",
            )


def _same_calls(
    calls: Sequence[Placed], tools: KnownTools
) -> tuple[dict[int, tuple[RepeatKind, int]], int]:
    """What repeats an equal call, by index; and how many calls nothing shows the arguments of."""
    identities = [_identity(place) for place in calls]
    known = [identity for identity in identities if identity is not None]
    unseen = len(identities) - len(known)
    if len(set(known)) == len(known):
        return {}, unseen
    found = dict(_duplicates(calls, identities, tools))
    for index, (kind, of) in _cycles(calls, identities, tools):
        if of < index - 1 or index not in found:  # one call made again and again is a duplicate
            found[index] = kind, of
    return found, unseen


def _retries(calls: Sequence[Placed]) -> Iterator[tuple[int, tuple[RepeatKind, int]]]:
    for place in calls:
        if place.retry_of is None:
            continue
        cause = calls[place.retry_of].call.outcome
        if cause in REFUSED_ARGUMENTS:
            yield place.index, (RepeatKind.RETRY_WASTE, place.retry_of)
        elif cause in TRANSIENT:
            yield place.index, (RepeatKind.TRANSIENT_RETRY, place.retry_of)


def _duplicates(
    calls: Sequence[Placed], identities: Sequence[_Identity | None], tools: KnownTools
) -> Iterator[tuple[int, tuple[RepeatKind, int]]]:
    """Calls that repeat a successful one; with another result, or by their label, polling."""
    succeeded: dict[_Identity, Placed] = {}
    for place, identity in zip(calls, identities, strict=True):
        if identity is None or place.call.outcome.failed:
            continue
        earlier = succeeded.get(identity)
        if earlier is not None:
            kind = RepeatKind.POLLING if _learned(earlier, place, tools) else RepeatKind.DUPLICATE
            yield place.index, (kind, earlier.index)
        succeeded[identity] = place


def _cycles(
    calls: Sequence[Placed], identities: Sequence[_Identity | None], tools: KnownTools
) -> Iterator[tuple[int, tuple[RepeatKind, int]]]:
    """The further passes of sequences that were made again at once; the shortest cycle counts.

    Work is bounded by the longest cycle looked for times the number of calls.
    """
    numbers: dict[_Identity, int] = {}
    keys = [
        -place.index - 1 if identity is None else numbers.setdefault(identity, len(numbers))
        for place, identity in zip(calls, identities, strict=True)
    ]
    taken: set[int] = set()
    for length in range(1, min(_LONGEST_CYCLE, len(keys) // 2) + 1):
        for start, end in _runs(keys, length):
            if any(index in taken for index in (start, end - 1)):
                continue
            taken.update(range(start, end))
            for first in range(start, end, length):
                one_pass = range(first, min(first + length, end))
                learned = any(_learned(calls[i - length], calls[i], tools) for i in one_pass)
                kind = RepeatKind.POLLING if learned else RepeatKind.LOOP
                yield from ((i, (kind, i - length)) for i in one_pass)


def _runs(keys: Sequence[int], length: int) -> Iterator[tuple[int, int]]:
    """Where each call is the one ``length`` before it, for at least one whole further pass."""
    least = max(length, _SHORTEST_RUN)
    start = length
    for index in range(length, len(keys) + 1):
        if index < len(keys) and keys[index] == keys[index - length]:
            continue
        if index - start >= least:
            yield start, index
        start = index + 1


def _learned(earlier: Placed, later: Placed, tools: KnownTools) -> bool:
    """Whether asking again was worth it: the result changed, or the tool is meant to be polled."""
    known = tools.of(later.call)
    if POLLING_LABEL in known.labels:
        return True
    if known.dangerous:
        return False
    a, b = earlier.call, later.call
    if a.outcome is not b.outcome:
        return True
    seen = a.result_state is Captured.CAPTURED and b.result_state is Captured.CAPTURED
    return seen and a.result != b.result


def _repeat(
    calls: Sequence[Placed],
    index: int,
    kind: RepeatKind,
    of: int,
    turns: Sequence[ModelTurn],
    asked: dict[int, int],
    tools: KnownTools,
) -> Repeat:
    call = calls[index].call
    turn = calls[index].turn
    tokens = turns[turn].tokens if turn is not None and turn < len(turns) else None
    return Repeat(
        kind=kind,
        of=of,
        nanoseconds=None if call.end_ns is None else max(0, call.end_ns - call.start_ns),
        tokens=None if tokens is None or turn is None else tokens // asked[turn],
        side_effecting=tools.of(call).dangerous,
    )


def _calls_by_turn(calls: Sequence[Placed]) -> dict[int, int]:
    """How many calls each model turn asked for."""
    asked: dict[int, int] = {}
    for place in calls:
        if place.turn is not None:
            asked[place.turn] = asked.get(place.turn, 0) + 1
    return asked


def _identity(place: Placed) -> _Identity | None:
    call = place.call
    if call.args_hash:
        return bare_name(call.tool), call.args_hash
    if call.arguments_state is Captured.CAPTURED:
        return bare_name(call.tool), as_text(call.arguments)
    return None
