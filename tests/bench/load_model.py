"""What agents do in an hour, drawn at random as the load profile says: trajectories and their calls.

Only arrays, one value per trajectory or per call; :mod:`load` writes them as spans. The profile
says how many calls a trajectory has, how often a call fails and what comes next. It has no clocks
and no labels: durations, and who writes and pays, are assumptions, stated here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Words64 = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Random = np.random.Generator

PROFILE: Final[dict[str, Any]] = json.loads(
    Path(__file__).with_name("load_profile.json").read_text(encoding="utf-8")
)
SPANS_PER_TRAJECTORY: Final = 10_000_000 / 1_500_000
SECOND: Final = 1_000_000_000
MILLISECOND: Final = 1_000_000
DAY: Final = 86_400 * SECOND

_MEAN_CALLS: Final = (SPANS_PER_TRAJECTORY - 1) / 1.97
"""A call has two spans, but for the few whose body did not run."""

_WRITING: Final = 0.12
"""Trajectories that change something, mostly as their last call."""
_BROWSING: Final = 0.03
"""Trajectories that read what strangers wrote."""
_LONG: Final = 0.01
"""Trajectories that take minutes to hours: a person is asked, a job is waited for."""
_CUT: Final = 0.003
"""Trajectories whose agent died: the span of the root never came."""
_EMPTY: Final = 0.03
"""Calls that succeed and return nothing."""


class Tool(NamedTuple):
    """A tool as its spans show it."""

    name: str
    labels: tuple[str, ...]
    rules: tuple[str, ...] = ()
    """Those of ``load_policy.yaml`` that decide about it."""
    effect: str = "allow"


_NOUNS: Final = ("order", "customer", "invoice", "flight", "product", "ticket", "account", "event")
_VERBS: Final = ("get", "search", "list", "check", "find")
READING: Final = [Tool(f"{verb}_{noun}", ("read",)) for verb in _VERBS for noun in _NOUNS]
BROWSING: Final = [Tool("fetch_page", ("read", "untrusted")), Tool("read_mail", ("untrusted",))]
WRITING: Final = [
    *(Tool(f"update_{noun}", ("write",), ("writers",)) for noun in _NOUNS),
    Tool("send_mail", ("external_message",), ("writers",)),
    Tool("refund_payment", ("payment", "write"), ("a-person-agrees",), "require_approval"),
    Tool("charge_card", ("payment", "write"), ("a-person-agrees",), "require_approval"),
    Tool("delete_user", ("permission", "write"), ("never-delete",), "deny"),
]
TOOLS: Final = [*READING, *BROWSING, *WRITING]
_WRITING_SHARES: Final = [*[0.075] * 8, 0.15, 0.15, 0.09, 0.01]

OUTCOMES: Final = (
    "ok",
    "empty",
    "invalid_arguments",
    "upstream_error",
    "timeout",
    "permission_denied",
    "rate_limited",
    "denied",
    "pending_approval",
)
OK, EMPTY, INVALID, _, _, _, _, DENIED, PENDING = range(len(OUTCOMES))
_FAILURES: Final = (INVALID, 3, 4, 5, 6)
_FAILURE_SHARES: Final = (0.35, 0.35, 0.15, 0.1, 0.05)

APPROVALS: Final = ("approved", "requested", "rejected")
_APPROVAL_SHARES: Final = (0.9, 0.06, 0.04)


@dataclass(frozen=True, slots=True)
class Trajectories:
    """Trajectories that begin in one hour; ``calls`` in the order of trajectory and place."""

    start: Ints
    end: Ints
    writing: Bools
    cut: Bools
    calls: "Calls"


@dataclass(frozen=True, slots=True)
class Calls:
    """Tool calls, one value each."""

    trajectory: Ints
    tool: Ints
    arguments: Words64
    """A number for what the tool was called with; equal ones have equal hashes."""
    outcome: Ints
    start: Ints
    end: Ints
    approval: Ints
    """The place in :data:`APPROVALS`, -1 for none."""
    replayed: Bools
    """Whether an earlier call with the same idempotency key had done it."""

    @property
    def executed(self) -> Bools:
        """Whether the body ran: half of the invalid arguments do not get that far."""
        stopped = (self.outcome == DENIED) | (self.outcome == PENDING) | self.replayed
        refused = (self.outcome == INVALID) & (self.arguments % np.uint64(2) == 0)
        return np.asarray(~stopped & ~refused, np.bool_)


def draw(random: Random, count: int, hour_ns: int) -> Trajectories:
    """``count`` trajectories that begin within the hour that begins at ``hour_ns``."""
    planned = random.choice(np.arange(len(_CALLS)), count, p=_CALLS)
    kind = random.random(count)
    writing, browsing = kind < _WRITING, kind > 1 - _BROWSING
    pace = np.where(random.random(count) < _LONG, random.uniform(60, 1500, count), 1.0)
    start = hour_ns + random.integers(0, 3600 * SECOND, count)
    state = _State(np.full(count, -1), np.zeros(count, np.uint64), np.full(count, OK))
    begun, clock = start.copy(), start + random.integers(1, 900 * MILLISECOND, count)
    rows: list[Calls] = []
    going = planned > 0
    for place in range(len(_CALLS) - 1):
        who = np.flatnonzero(going & (planned > place))
        if not len(who):
            break
        last = planned[who] == place + 1
        tool, arguments, ends = _next_call(
            random, state, who, writing[who] & last, browsing[who] & (place == 0)
        )
        going[who[ends]] = False
        who, tool, arguments = who[~ends], tool[~ends], arguments[~ends]
        outcome, approval, replayed = _outcomes(random, tool)
        beside = (random.random(len(who)) < _BESIDE) & (place > 0) & (state.outcome[who] <= EMPTY)
        gap = (random.lognormal(7.3, 0.7, len(who)) * pace[who] * MILLISECOND).astype(np.int64)
        begin = np.where(beside, begun[who] + MILLISECOND, clock[who] + gap)
        lasted = (random.lognormal(5.3, 1.1, len(who)) * MILLISECOND).astype(np.int64)
        end = begin + np.maximum(lasted, MILLISECOND)
        rows.append(Calls(who, tool, arguments, outcome, begin, end, approval, replayed))
        begun[who], clock[who] = begin, np.maximum(clock[who], end)
        state.tool[who], state.arguments[who], state.outcome[who] = tool, arguments, outcome
    end = clock + random.integers(1, 900 * MILLISECOND, count)
    cut = random.random(count) < _CUT
    return Trajectories(start, end, writing, cut, _in_order(rows))


class _State(NamedTuple):
    """The last call of each trajectory."""

    tool: Ints
    arguments: Words64
    outcome: Ints


def _next_call(
    random: Random, state: _State, who: Ints, writes: Bools, browses: Bools
) -> tuple[Ints, Words64, Bools]:
    """Tool and arguments of the next call, and which trajectories end here instead."""
    tool = random.choice(len(READING), len(who), p=_READING_SHARES)
    tool = np.where(browses, len(READING) + random.integers(0, len(BROWSING), len(who)), tool)
    first = len(READING) + len(BROWSING)
    written = first + random.choice(len(WRITING), len(who), p=_WRITING_SHARES)
    tool = np.where(writes, written, tool)
    arguments = random.integers(0, 1 << 63, len(who), dtype=np.uint64)
    chance = random.random(len(who))
    failed = state.outcome[who] > EMPTY
    after = PROFILE["after_error"]
    ends = failed & (chance < after["end of trajectory"])
    other, same = 1 - after["other tool"], after["same tool, same args"]
    again = failed & (chance < other) & ~ends
    repeats = again & (chance > other - same)
    repeats |= ~failed & (state.tool[who] >= 0) & (chance < PROFILE["exact_repeat_share"])
    tool = np.where(again | repeats, state.tool[who], tool)
    arguments = np.where(repeats, state.arguments[who], arguments)
    return tool, arguments, ends


def _outcomes(random: Random, tool: Ints) -> tuple[Ints, Ints, Bools]:
    """How calls end, what came of their approval, and whether they were a replay."""
    count = len(tool)
    failed = random.random(count) < PROFILE["error_rate_per_call"]
    outcome = np.where(random.random(count) < _EMPTY, EMPTY, OK)
    outcome = np.where(failed, random.choice(_FAILURES, count, p=_FAILURE_SHARES), outcome)
    asked = _EFFECTS[tool] == "require_approval"
    approval = np.where(asked, random.choice(3, count, p=_APPROVAL_SHARES), -1)
    outcome = np.where(approval == 1, PENDING, np.where(approval == 2, DENIED, outcome))
    outcome = np.where(_EFFECTS[tool] == "deny", DENIED, outcome)
    return outcome, approval, (approval == 0) & (outcome == OK) & (random.random(count) < 0.02)


def _in_order(rows: list[Calls]) -> Calls:
    """By trajectory, then place: rows come place by place."""
    names = Calls.__slots__
    columns = {name: np.concatenate([getattr(row, name) for row in rows]) for name in names}
    order = np.argsort(columns["trajectory"], kind="stable")
    return Calls(**{name: column[order] for name, column in columns.items()})


def _tilted(histogram: Mapping[str, float], mean: float) -> npt.NDArray[np.float64]:
    """The histogram of the profile, tilted exponentially until its mean is this one.

    The share of trajectories that make no call stays as it is.
    """
    shares = np.zeros(max(map(int, histogram)) + 1)
    for value, share in histogram.items():
        shares[int(value)] = share
    shares /= shares.sum()
    places = np.arange(len(shares))
    calling = np.where(places > 0, shares, 0.0)
    low, high = -5.0, 5.0
    for _ in range(60):
        middle = (low + high) / 2
        weights = calling * np.exp(middle * places)
        weights *= calling.sum() / weights.sum()
        low, high = (low, middle) if weights @ places > mean else (middle, high)
    weights[0] = 1 - weights.sum()
    return np.asarray(weights, np.float64)


def _ranked(shares: list[float], count: int) -> npt.NDArray[np.float64]:
    """The shares of the first tools, and what is left among the others, each less than the last."""
    rest = count - len(shares)
    tail = np.exp(-np.arange(rest) / 10)
    whole = np.concatenate([shares, tail / tail.sum() * (1 - sum(shares))])
    return np.asarray(whole / whole.sum(), np.float64)


def _beside(sizes: Mapping[str, float]) -> float:
    """How often a call is asked for together with the one before it."""
    mean = sum(int(size) * share for size, share in sizes.items()) / sum(sizes.values())
    return 1 - 1 / mean


_ENDED_EARLY: Final = 1.007
"""Some trajectories end at a failure, before the calls they were to make."""
_CALLS: Final = _tilted(PROFILE["calls_per_trajectory"], _MEAN_CALLS * _ENDED_EARLY)
_READING_SHARES: Final = _ranked(PROFILE["tool_rank_share"], len(READING))
_BESIDE: Final = _beside(PROFILE["parallel_calls_per_turn"])
_EFFECTS: Final = np.array([tool.effect for tool in TOOLS])
