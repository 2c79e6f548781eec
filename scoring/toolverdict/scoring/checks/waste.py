"""Retry waste: calls repeated because the arguments were wrong the first time.

Retry waste counts only retries that an ``invalid_arguments`` call caused.
Retries after a time-out, a rate limit or a 5xx are no waste of the agent's making, and exact
repeats after a success are another fault: both are counted apart and never mixed in.
"""

from collections.abc import Iterator, Sequence

from toolverdict.instrument.names import bare_name
from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.model import Captured, Category, Finding, Placed
from toolverdict.scoring.values import as_text

TRANSIENT = frozenset({Outcome.TIMEOUT, Outcome.RATE_LIMITED, Outcome.UPSTREAM_ERROR})


REFUSED_ARGUMENTS = frozenset({Outcome.INVALID_ARGUMENTS})


def retries(calls: Sequence[Placed], causes: frozenset[Outcome]) -> list[tuple[Placed, Placed]]:
    """Each failed call with one of these outcomes, and the call that retried it."""
    return [
        (calls[place.retry_of], place)
        for place in calls
        if place.retry_of is not None and calls[place.retry_of].call.outcome in causes
    ]


def duplicates(calls: Sequence[Placed]) -> list[Placed]:
    """Calls that repeat a successful one: same tool, same arguments, and no new result.

    A result that changed is polling, not a duplicate.
    """
    succeeded: dict[tuple[str, str], Placed] = {}
    repeats = []
    for place in calls:
        key = _identity(place)
        if key is None or place.call.outcome.failed:
            continue
        earlier = succeeded.get(key)
        if earlier is not None and earlier.call.result == place.call.result:
            repeats.append(place)
        succeeded[key] = place
    return repeats


def waste_findings(calls: Sequence[Placed]) -> Iterator[Finding]:
    """A finding at each wasted retry, naming the span whose arguments were refused."""
    for first, again in retries(calls, REFUSED_ARGUMENTS):
        yield Finding.at_call(
            again,
            Category.RETRY_WASTE,
            f"{again.call.tool} was called again (attempt {again.attempt}) because its arguments "
            f"had been refused in span {first.call.span_id}",
        )


def _identity(place: Placed) -> tuple[str, str] | None:
    call = place.call
    if call.args_hash:
        return bare_name(call.tool), call.args_hash
    if call.arguments_state is Captured.CAPTURED:
        return bare_name(call.tool), as_text(call.arguments)
    return None
