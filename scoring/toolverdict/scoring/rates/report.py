"""Aggregates as the JSON that people and dashboards read: rates with intervals, errors, latency."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from toolverdict.scoring.intervals import Moments, total
from toolverdict.scoring.rates.aggregate import Aggregates
from toolverdict.scoring.rates.definitions import (
    CALL_RATE_DEFINITIONS,
    CALL_RATES,
    EVERY,
    TRAJECTORY_RATES,
)
from toolverdict.scoring.rates.dimensions import (
    AGENT,
    LABEL,
    MODEL,
    OTHER,
    SCHEMA_VERSION,
    SERVICE_VERSION,
    TIME,
    TOOL,
    WHOLE,
)

GROUPS: Final = {
    f"by_{d}": d for d in (TOOL, AGENT, LABEL, SCHEMA_VERSION, MODEL, SERVICE_VERSION, TIME)
}
"""The groups that a summary gives rates of, beside the whole, and their dimensions."""

_MOST_GROUPS: Final = 1000  # of a document that people read
_VOLUME: Final = next(n for n, rate in CALL_RATE_DEFINITIONS.items() if rate.base == EVERY)


def whole(aggregates: Aggregates) -> dict[str, Any]:
    """Every rate of the whole, also those of which there is nothing."""
    found = aggregates.rates(WHOLE).get("", {})
    names = {*CALL_RATES, *TRAJECTORY_RATES, *found}
    return {name: found.get(name, Moments()).rate().as_json() for name in sorted(names)}


def grouped(aggregates: Aggregates, dimension: str) -> dict[str, Any]:
    """The rates of the largest groups by name, and of all others together."""
    groups = aggregates.rates(dimension)
    by_size = sorted(groups, key=lambda name: (name == OTHER, -volume(groups[name]), name))
    kept = {name: groups[name] for name in sorted(by_size[:_MOST_GROUPS])}
    rest = [groups[name] for name in by_size[_MOST_GROUPS:]]
    if rest:
        rest.append(kept.pop(OTHER, {}))
        rates = sorted({rate for one in rest for rate in one})
        kept[OTHER] = {rate: total(one[rate] for one in rest if rate in one) for rate in rates}
    return {
        name: {rate: moments.rate().as_json() for rate, moments in sorted(rates.items())}
        for name, rates in kept.items()
    }


def volume(rates: Mapping[str, Moments]) -> float:
    """For how many calls a group stands."""
    moments = rates.get(_VOLUME, Moments())
    return moments.of + moments.unseen


def errors(aggregates: Aggregates) -> list[dict[str, Any]]:
    """How often each tool failed, by kind of failure and code of the error; the most frequent."""
    found: list[dict[str, Any]] = [
        {"tool": tool, "kind": kind, "code": code, **moments.rate().as_json()}
        for tool, codes in aggregates.errors(TOOL).items()
        for (kind, code), moments in codes.items()
    ]
    found.sort(key=lambda one: (-one["numerator"], one["tool"], one["kind"], one["code"]))
    return found[:_MOST_GROUPS]


def latencies(aggregates: Aggregates) -> dict[str, Any]:
    """Seconds that calls took: of the whole, and of the largest groups."""
    (of_whole,) = aggregates.latency(WHOLE).values() or (None,)
    found: dict[str, Any] = {"all": of_whole and asdict(of_whole)}
    for dimension in (TOOL, AGENT, MODEL):
        groups = aggregates.latency(dimension)
        largest = sorted(groups, key=lambda name: (-groups[name].calls, name))[:_MOST_GROUPS]
        found[f"by_{dimension}"] = {name: asdict(groups[name]) for name in sorted(largest)}
    return found
