"""The most that a case lets a trajectory use: calls, calls of a tool, retries, seconds."""

from collections.abc import Iterator, Sequence

from toolverdict.instrument.names import same_tool
from toolverdict.scoring.cases.model import Limits
from toolverdict.scoring.model import Category, Finding, Placed, Trajectory

_SECOND = 1_000_000_000


def limit_findings(trajectory: Trajectory, limits: Limits) -> Iterator[Finding]:
    """A finding at the first call past each limit."""
    calls = trajectory.calls
    yield from _at_most(calls, limits.calls, "calls")
    retries = [place for place in calls if place.retry_of is not None]
    yield from _at_most(retries, limits.retries, "retries")
    for pattern, most in limits.per_tool.items():
        of_tool = [place for place in calls if same_tool(pattern, place.call.known_as)]
        yield from _at_most(of_tool, most, f"calls of {pattern}")
    if limits.seconds is not None and calls:
        began = calls[0].call.start_ns
        ends = [place.call.end_ns or place.call.start_ns for place in calls]
        for place, end in zip(calls, ends, strict=True):
            took = (end - began) / _SECOND
            if took > limits.seconds:
                message = f"{place.call.tool} ended {took:.3g} s after the first call began"
                yield _finding(place, message, limits.seconds, took)
                break


def _at_most(calls: Sequence[Placed], most: int | None, what: str) -> Iterator[Finding]:
    if most is not None and len(calls) > most:
        message = f"{calls[most].call.tool} is one past the limit of {most} {what}"
        yield _finding(calls[most], message, most, len(calls))


def _finding(place: Placed, message: str, limit: float, actual: float) -> Finding:
    return Finding.at_call(place, Category.LIMIT_EXCEEDED, message, expected=limit, actual=actual)
