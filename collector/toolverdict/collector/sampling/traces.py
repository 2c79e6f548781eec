"""What a decision needs to know about each trace, gathered from its spans.

Nothing here depends on the order of the rows. Arrays have one element for each trace, times are
nanoseconds since 1970 UTC.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.collector.sampling import matching
from toolverdict.collector.sampling.columns import (
    LATEST,
    Bools,
    Ids,
    Ints,
    Mentions,
    Words,
    ids_of,
    ints_of,
    largest,
    randomness_of_ids,
    words_of,
)
from toolverdict.collector.sampling.policy import Rule, SamplingPolicy
from toolverdict.collector.sampling.thresholds import NEVER, RANDOMNESS_BITS, read_sampled
from toolverdict.instrument import semconv

NO_RANDOMNESS: Final = -1
"""Stands for the randomness that a trace does not carry itself."""

_GROUPED_BY: Final = {"agent": semconv.GEN_AI_AGENT_NAME, "service": "service_name"}


@dataclass(frozen=True)
class Traces:
    """One element for each trace."""

    ids: Ids
    randomness: Ints
    explicit: Bools
    """Its randomness is not that of its id, and so has to stand on its spans."""
    unknown: Bools
    """Its spans disagree about its randomness: how it was sampled cannot be known."""
    first_received: Ints
    last_received: Ints
    root_ended: Bools
    matches: Bools
    """A row for each trace and a column for each rule; ``new_tool`` is still to be looked at."""
    groups: Mapping[str, Mentions]
    """By what caps are taken of: ``agent``, ``service`` or ``tool``."""
    tools: Mentions
    """The tools that it called; empty where no rule asks."""

    @classmethod
    def union(cls, parts: Sequence["Traces"]) -> "Traces":
        """The traces of several tables, of which there is at least one.

        Raises:
            ValueError: when a trace is in more than one of them.
        """
        ids = np.concatenate([part.ids for part in parts])
        if len(np.unique(ids)) != len(ids):
            raise ValueError("all spans of a trace have to be in one table")
        offsets = np.cumsum([0, *(len(part.ids) for part in parts[:-1])]).tolist()
        return cls(
            ids,
            np.concatenate([part.randomness for part in parts]),
            np.concatenate([part.explicit for part in parts]),
            np.concatenate([part.unknown for part in parts]),
            np.concatenate([part.first_received for part in parts]),
            np.concatenate([part.last_received for part in parts]),
            np.concatenate([part.root_ended for part in parts]),
            np.concatenate([part.matches for part in parts]),
            {
                by: Mentions.union([part.groups[by] for part in parts], offsets)
                for by in parts[0].groups
            },
            Mentions.union([part.tools for part in parts], offsets),
        )


def columns_needed(policy: SamplingPolicy) -> list[str]:
    """The columns of spans that decisions of this policy look at."""
    columns = ["trace_id", "parent_span_id", "trace_state", "received_time_unix_nano"]
    columns += ["start_time_unix_nano", "end_time_unix_nano", "service_name"]
    columns += [*matching.COLUMNS, semconv.GEN_AI_AGENT_NAME]
    if policy.randomness == "conversation":
        columns.append(semconv.GEN_AI_CONVERSATION_ID)
    if any(rule.labels for rule in policy.rules):
        columns.append("attributes")
    return columns


def gather(spans: pa.Table, policy: SamplingPolicy) -> Traces:
    """The facts of every trace in a table that holds traces as a whole.

    Raises:
        LakeError: when a trace id is not one.
    """
    trace = words_of(spans.column("trace_id"))
    ids = ids_of(trace.values)
    tools = matching.tools_of(spans)
    randomness, explicit, unknown = _randomness(spans, trace.codes, ids, policy)
    received = ints_of(spans.column("received_time_unix_nano"))
    has_ended = ints_of(spans.column("end_time_unix_nano")) > 0
    is_root = pc.is_null(spans.column("parent_span_id")).to_numpy()
    matches = [_matching(spans, trace.codes, len(ids), tools, rule) for rule in policy.rules]
    caps = {share.cap.by for share in policy.shares if share.cap is not None} - {"all"}
    asks_for_new = any(rule.new_tool for rule in policy.rules)
    return Traces(
        ids,
        randomness,
        explicit,
        unknown,
        -largest(trace.codes, -received, len(ids)),
        largest(trace.codes, received, len(ids)),
        _any(trace.codes, is_root & has_ended, len(ids)),
        np.column_stack(matches) if matches else np.zeros((len(ids), 0), np.bool_),
        {
            str(by): Mentions.of(
                trace.codes, tools if by == "tool" else words_of(spans.column(_GROUPED_BY[by]))
            )
            for by in sorted(caps)
        },
        Mentions.of(trace.codes, tools) if asks_for_new else Mentions.none(),
    )


def _matching(spans: pa.Table, codes: Ints, count: int, tools: Words, rule: Rule) -> Bools:
    """The traces that match a rule, whatever it says about new tools."""
    matches = np.ones(count, np.bool_)
    rows = matching.matching_spans(spans, tools, rule)
    if rows is not None:
        matches &= _any(codes, rows, count)
    if rule.agents is not None:
        names = words_of(spans.column(semconv.GEN_AI_AGENT_NAME))
        named = names.are(
            matching.any_glob(rule.agents, lambda glob, name: fnmatchcase(name, glob))
        )
        matches &= _any(codes, named, count)
    if rule.slower_than_s is not None:
        matches &= _seconds(spans, codes, count) > rule.slower_than_s
    return matches


def _any(codes: Ints, rows: Bools, count: int) -> Bools:
    """The traces that have one of these rows."""
    found = np.zeros(count, np.bool_)
    found[codes[rows]] = True
    return found


def _seconds(
    spans: pa.Table, codes: Ints, count: int
) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """From the first start to the last end; negative where there is not one of each."""
    starts = ints_of(spans.column("start_time_unix_nano"))
    first = -largest(codes, np.where(starts > 0, -starts, -LATEST), count)
    last = largest(codes, ints_of(spans.column("end_time_unix_nano")), count, 0)
    return (last - first) / 1e9


def _randomness(
    spans: pa.Table, codes: Ints, ids: Ids, policy: SamplingPolicy
) -> tuple[Ints, Bools, Bools]:
    """Of each trace its randomness, whether it is explicit, and whether its spans disagree."""
    state = words_of(spans.column("trace_state"))
    said = [read_sampled(value) for value in state.values]
    explicit = np.array(
        [NO_RANDOMNESS if one.randomness is None else one.randomness for one in said]
        + [NO_RANDOMNESS],
        np.int64,
    )[state.codes]
    rows = explicit != NO_RANDOMNESS
    highest = largest(codes[rows], explicit[rows], len(ids), NO_RANDOMNESS)
    lowest = -largest(codes[rows], -explicit[rows], len(ids), -NEVER)
    is_explicit = highest != NO_RANDOMNESS
    unknown = is_explicit & (highest != lowest)
    randomness = np.where(is_explicit, highest, randomness_of_ids(ids))
    if policy.randomness == "conversation":
        # Only before anybody has sampled: another randomness than that of an earlier threshold
        # would be a second throw of the dice, and the larger threshold not the probability of both.
        sampled = np.array([one.unknown or bool(one.threshold) for one in said] + [False], np.bool_)
        taken = is_explicit | _any(codes, sampled[state.codes], len(ids))
        mentioned = Mentions.of(codes, words_of(spans.column(semconv.GEN_AI_CONVERSATION_ID)))
        once = np.bincount(mentioned.traces, minlength=len(ids)) == 1
        free = (once & ~taken)[mentioned.traces]
        traces = mentioned.traces[free]
        hashed = np.array([_hashed(value) for value in mentioned.values], np.int64)
        randomness[traces] = hashed[mentioned.codes[free]]
        is_explicit[traces] = True
    return randomness, is_explicit, unknown


def _hashed(conversation: str) -> int:
    digest = blake2b(conversation.encode(), digest_size=RANDOMNESS_BITS // 8)
    return int.from_bytes(digest.digest())
