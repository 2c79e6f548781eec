"""Pure: which traces stay, each with the threshold that says what it stands for.

For each rule that a trace matches there is a threshold: that of ``keep``, or a larger one where a
cap allows fewer. The smallest of them counts. None of them depends on the trace's own randomness
(see :func:`_capped`), so 1 / (1 - T / 2^56) is its weight in the sense of Horvitz and Thompson.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from toolverdict.collector.sampling.columns import ID_TYPE, LATEST, Bools, Ids, Ints
from toolverdict.collector.sampling.policy import Cap, SamplingPolicy
from toolverdict.collector.sampling.thresholds import NEVER, threshold_of
from toolverdict.collector.sampling.traces import NO_RANDOMNESS, Traces

LONGEST_TOOL_NAME: Final = 256
MOST_TOOLS: Final = 10_000
"""So many tools are remembered; later ones are not new. Only hostile names get there."""

_SECOND: Final = 1_000_000_000


@dataclass(frozen=True)
class Decisions:
    """One element for each decided trace; ids are sorted and there once."""

    ids: Ids
    kept: Bools
    threshold: Ints
    randomness: Ints
    """What ``rv`` has to say; -1 where the trace id says it."""
    unknown: Bools
    """It was sampled before, nobody knows how."""
    rule: npt.NDArray[np.int16]
    """The number of the rule whose threshold it is, in the order of ``SamplingPolicy.names``."""
    decided_at: Ints
    """Nanoseconds since 1970 UTC; what was received later came late."""

    def __len__(self) -> int:
        """How many traces are decided."""
        return len(self.ids)

    @classmethod
    def none(cls) -> Self:
        """Nothing decided yet."""
        return cls(
            np.zeros(0, ID_TYPE),
            np.zeros(0, np.bool_),
            np.zeros(0, np.int64),
            np.zeros(0, np.int64),
            np.zeros(0, np.bool_),
            np.zeros(0, np.int16),
            np.zeros(0, np.int64),
        )

    @classmethod
    def union(cls, parts: Iterable["Decisions"]) -> Self:
        """All decisions of several; of a trace that is decided twice, the first."""
        all_parts = list(parts)
        joined = cls(
            *(np.concatenate([getattr(p, f.name) for p in all_parts]) for f in fields(cls))
        )
        _, first = np.unique(joined.ids, return_index=True)
        return joined.take(first)

    def take(self, rows: "Ints | Bools") -> Self:
        """Some of the decisions."""
        return replace(self, **{f.name: getattr(self, f.name)[rows] for f in fields(self)})

    def find(self, ids: Ids) -> Ints:
        """For each id the number of its decision, -1 where there is none."""
        if not len(self):
            return np.full(len(ids), -1, np.int64)
        at = np.minimum(np.searchsorted(self.ids, ids), len(self) - 1)
        return np.where(self.ids[at] == ids, at, -1)


@dataclass(frozen=True)
class Decided:
    """What one round of deciding brought."""

    decisions: Decisions
    tools: Mapping[str, int]
    """When each tool was seen first: the start of its decision window, in ns since 1970 UTC."""
    waiting: int
    """Traces that are not quiet yet."""
    open_since: int
    """Nothing of them was received before, in ns since 1970 UTC."""


def decide(
    traces: Traces, policy: SamplingPolicy, tools: Mapping[str, int], until_unix_nano: int
) -> Decided:
    """Decide every trace whose decision window has ended.

    The same traces in any order, policy and state give the same decisions. Traces of one window
    have to come together where a rule has a cap, or each part of them has a cap of its own.

    Args:
        traces: what is known of them; none decided before.
        policy: the sampling policy.
        tools: the tools seen so far, with their first window.
        until_unix_nano: everything that was received before is known.
    """
    length = round(policy.window_s * _SECOND)
    patience = np.where(traces.root_ended, policy.root_grace_s, policy.quiet_s) * _SECOND
    window = (traces.last_received + patience.astype(np.int64)) // length
    due = (window + 1) * length <= until_unix_nano
    seen = _first_seen(traces, window * length, due, tools)
    matches = traces.matches.copy()
    for number, rule in enumerate(policy.rules):
        if rule.new_tool:
            matches[:, number] &= _has_new_tool(traces, window * length, seen)
    # What no rule matches is the last column's.
    matches = np.column_stack([matches, ~matches.any(axis=1)]) & due[:, None]
    thresholds = np.full(matches.shape, NEVER, np.int64)
    for number, share in enumerate(policy.shares):
        rows = np.flatnonzero(matches[:, number])
        thresholds[rows, number] = threshold_of(share.keep)
        if share.cap is not None and len(rows):
            capped = _capped(traces, rows, window, share.cap)
            thresholds[rows, number] = np.maximum(thresholds[rows, number], capped)
    rule_number = thresholds.argmin(axis=1)
    threshold = thresholds.min(axis=1)
    decisions = Decisions(
        traces.ids,
        traces.randomness >= threshold,
        threshold,
        np.where(traces.explicit, traces.randomness, NO_RANDOMNESS),
        traces.unknown,
        rule_number.astype(np.int16),
        np.full(len(traces.ids), until_unix_nano, np.int64),
    ).take(due)
    order = np.argsort(decisions.ids)
    waiting = traces.first_received[~due]
    return Decided(
        decisions.take(order),
        seen,
        len(waiting),
        int(waiting.min(initial=until_unix_nano)),
    )


def _capped(traces: Traces, rows: Ints, window: Ints, cap: Cap) -> Ints:
    """The thresholds by which at most ``cap.traces`` stay of each group and window.

    Bottom-k sampling: of k + 1 or more distinct randomnesses, the threshold is just above the
    (k+1)-th largest. Whatever the randomness of a kept trace had been above it, it would be the
    same, so it depends on the others alone. A trace in several groups has to pass in all of them.

    Source: Duffield, Lund, Thorup, "Priority sampling for estimation of arbitrary subset sums",
    J. ACM 54 (2007), with equal weights.
    """
    if cap.by == "all":
        members, groups = rows, np.zeros(len(rows), np.int64)
    else:
        mentions = traces.groups[cap.by]
        among = np.isin(mentions.traces, rows)
        members, groups = mentions.traces[among], mentions.codes[among]
        nameless = np.setdiff1d(rows, members)
        members = np.concatenate([members, nameless])
        groups = np.concatenate([groups, np.full(len(nameless), -1, np.int64)])
    order = np.lexsort((-traces.randomness[members], groups, window[members]))
    members, groups = members[order], groups[order]
    windows, randomness = window[members], traces.randomness[members]
    begins = np.ones(len(members), np.bool_)
    begins[1:] = (groups[1:] != groups[:-1]) | (windows[1:] != windows[:-1])
    distinct = begins.copy()
    distinct[1:] |= randomness[1:] != randomness[:-1]
    rank = np.cumsum(distinct)
    group = np.cumsum(begins) - 1
    rank = rank - rank[begins][group]  # from 0 in each group
    above = np.zeros(int(group[-1]) + 1, np.int64)
    first_out = distinct & (rank == cap.traces)
    above[group[first_out]] = randomness[first_out] + 1
    found = np.zeros(len(traces.ids), np.int64)
    np.maximum.at(found, members, above[group])
    return found[rows]


def _first_seen(
    traces: Traces, starts: Ints, due: Bools, known: Mapping[str, int]
) -> dict[str, int]:
    """When each tool was first seen, with the tools of the traces that are now decided."""
    mentions = traces.tools
    rows = due[mentions.traces]
    first = np.full(len(mentions.values), LATEST, np.int64)
    np.minimum.at(first, mentions.codes[rows], starts[mentions.traces[rows]])
    found = {
        name: int(first[code])
        for code, name in enumerate(mentions.values)
        if first[code] != LATEST and len(name) <= LONGEST_TOOL_NAME
    }
    seen = dict(known)
    # By time and name: which ones still fit must not depend on the order of the rows.
    for name, start in sorted(found.items(), key=lambda item: (item[1], item[0])):
        if name in seen or len(seen) < MOST_TOOLS:
            seen[name] = min(start, seen.get(name, start))
    return seen


def _has_new_tool(traces: Traces, starts: Ints, seen: Mapping[str, int]) -> Bools:
    """Which traces are of the first window of one of their tools."""
    mentions = traces.tools
    # What does not fit into memory any more is new to nobody.
    never = -LATEST
    first = np.array([seen.get(name, never) for name in mentions.values], np.int64)
    found = np.zeros(len(traces.ids), np.bool_)
    is_new = starts[mentions.traces] <= first[mentions.codes]
    found[mentions.traces[is_new]] = True
    return found
