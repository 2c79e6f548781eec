"""Which call is a retry of which, and what the retry was for.

A call is a retry when the same trajectory made an earlier failed call with the same intent: the
same tool, and the same idempotency key or arguments that are equal but for what was corrected.
What may have been corrected depends on the failure: after refused arguments they may change,
after a time-out or a 5xx they must be the same, or it is another call. An error whose kind nobody
recorded may have been about the arguments.

Method: similarity of the two argument objects is the mean over the union of their keys of the
similarity of the values (1 when equal, else the share of characters that their texts have in
common); a correction needs at least one half. With hashes only, equal hashes are the same intent,
and after refused arguments the next call of the tool is its correction: the hash cannot show how
much was changed.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from toolverdict.instrument.names import bare_name
from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.model import Captured, Json, Placed, ToolCall

_MIN_SIMILARITY = 0.5
_CORRECTED = frozenset({Outcome.INVALID_ARGUMENTS, Outcome.ERROR})
"""Failures that may have been about the arguments: refused before the body ran, or by it."""

# Bounds of the work on hostile traces.
_OPEN_FAILURES = 8  # how far back a retry may reach, per tool
_MAX_COMPARED_KEYS = 64  # of values that differ; further ones count as unlike
_MAX_COMPARED_CHARS = 100


def place_attempts(calls: Sequence[Placed]) -> tuple[Placed, ...]:
    """The calls in order, each with its attempt number and the index of the call it retries."""
    placed: list[Placed] = []
    # Per tool: failed calls that no later call has repeated, the newest few.
    failed: dict[str, deque[Placed]] = {}
    for place in calls:
        call = place.call
        tool = bare_name(call.tool) if failed or call.outcome.failed else ""
        open_failures = failed.get(tool, ())
        earlier = next((f for f in reversed(open_failures) if _same_intent(f.call, call)), None)
        if earlier is not None:
            failed[tool].remove(earlier)
            place = replace(place, attempt=earlier.attempt + 1, retry_of=earlier.index)
        if call.outcome.failed:
            failed.setdefault(tool, deque(maxlen=_OPEN_FAILURES)).append(place)
        placed.append(place)
    return tuple(placed)


def chains(calls: Sequence[Placed]) -> list[list[Placed]]:
    """Attempts of one intent together, in order; a call that was never retried is alone."""
    by_last: dict[int, list[Placed]] = {}
    for place in calls:
        chain = by_last.pop(place.retry_of, []) if place.retry_of is not None else []
        chain.append(place)
        by_last[place.index] = chain
    return sorted(by_last.values(), key=lambda chain: chain[0].index)


def repaired(calls: Sequence[Placed]) -> frozenset[int]:
    """Indexes of failed calls that a later attempt of the same intent put right."""
    return frozenset(
        place.index
        for chain in chains(calls)
        if not chain[-1].call.outcome.failed
        for place in chain[:-1]
    )


def _same_intent(earlier: ToolCall, later: ToolCall) -> bool:
    if earlier.end_ns is not None and later.start_ns < earlier.end_ns:
        return False  # it began before the failure was known
    if earlier.idempotency_key_hash and later.idempotency_key_hash:
        return earlier.idempotency_key_hash == later.idempotency_key_hash
    corrects = earlier.outcome in _CORRECTED
    both = Captured.CAPTURED
    if earlier.arguments_state is both and later.arguments_state is both:
        if earlier.arguments == later.arguments:
            return True
        return corrects and similarity(earlier.arguments, later.arguments) >= _MIN_SIMILARITY
    if earlier.args_hash and later.args_hash:
        return earlier.args_hash == later.args_hash or corrects
    return corrects


def similarity(a: Json, b: Json) -> float:
    """How alike two argument values are, from 0 to 1; objects key by key, others as text."""
    if not isinstance(a, dict) or not isinstance(b, dict):
        return _alike(a, b)
    keys = len(a.keys() | b.keys())
    shared = sorted(a.keys() & b.keys())
    differing = [key for key in shared if not _equal(a[key], b[key])]
    alike = sum(_alike(a[key], b[key]) for key in differing[:_MAX_COMPARED_KEYS])
    return (len(shared) - len(differing) + alike) / keys if keys else 1.0


def _equal(a: Json, b: Json) -> bool:
    return a == b and type(a) is type(b)


def _alike(a: Json, b: Json) -> float:
    if _equal(a, b):
        return 1.0
    texts = str(a)[:_MAX_COMPARED_CHARS], str(b)[:_MAX_COMPARED_CHARS]
    return SequenceMatcher(None, *texts, autojunk=False).quick_ratio()
