"""The recorded calls of a lake, decided again: what a policy would have done, and what would change.

Pure but for reading the lake. A decision that depends on what the trace does not hold is
``undecided``, and counted apart: it is neither a change nor none.
"""

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from toolverdict.collector import Lake
from toolverdict.instrument.decisions import Decision, Effect, ReasonCode
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.approvals import GRANTED, NO_APPROVALS, Approvals
from toolverdict.scoring.conversations import Conversations
from toolverdict.scoring.model import ToolCall, Trajectory
from toolverdict.scoring.policy import asked_again
from toolverdict.scoring.policy_coverage import Coverage, SeenTool, coverage
from toolverdict.scoring.spans import COLUMNS, LOG_COLUMNS, log_records, traces

VERSION: Final = 1
"""Version of the document's form."""

UNDECIDED: Final = "undecided"
UNRECORDED: Final = "none"
_EXAMPLES: Final = 5
_MAX_GROUPS: Final = 10_000
_OTHER: Final = "(other)"
_EFFECTS: Final = frozenset(effect.value for effect in Effect)

DECISIONS: Final = pa.schema(
    [
        ("trajectory_id", pa.string()),
        ("trace_id", pa.string()),
        ("span_id", pa.string()),
        ("tool", pa.dictionary(pa.int32(), pa.string())),
        ("recorded", pa.dictionary(pa.int32(), pa.string())),
        ("recorded_in_shadow", pa.bool_()),
        ("against", pa.dictionary(pa.int32(), pa.string())),
        ("decision", pa.dictionary(pa.int32(), pa.string())),
        ("rule_ids", pa.string()),
        ("reason_code", pa.dictionary(pa.int32(), pa.string())),
        ("what_happened", pa.dictionary(pa.int32(), pa.string())),
        ("approval", pa.dictionary(pa.int32(), pa.string())),
    ]
)
"""One row per call, as ``--out`` writes it."""


class Redecided(NamedTuple):
    """One call: what was decided at the time, by the old policy, and by the new one."""

    trajectory: Trajectory
    call: ToolCall
    recorded: str
    against: str | None
    decision: str
    by: Decision
    approval: str | None

    @property
    def what_happened(self) -> str:
        """Whether the call ran: executed, blocked or unknown."""
        ran = self.call.executed
        return "unknown" if ran is None else "executed" if ran else "blocked"

    def row(self) -> dict[str, Any]:
        """The row of :data:`DECISIONS`."""
        return {
            "trajectory_id": self.trajectory.trajectory_id,
            "trace_id": self.call.trace_id,
            "span_id": self.call.span_id,
            "tool": self.call.known_as,
            "recorded": self.recorded,
            "recorded_in_shadow": self.call.policy_enforced is False,
            "against": self.against,
            "decision": self.decision,
            "rule_ids": ",".join(self.by.rule_ids),
            "reason_code": self.by.reason_code.value,
            "what_happened": self.what_happened,
            "approval": self.approval,
        }


@dataclass
class _Sample:
    """So many span ids, the same whatever the order: those with the least hashes."""

    kept: list[tuple[int, str]] = field(default_factory=list)

    def add(self, span_id: str) -> None:
        rank = -int.from_bytes(hashlib.blake2b(span_id.encode(), digest_size=8).digest())
        if len(self.kept) < _EXAMPLES:
            heapq.heappush(self.kept, (rank, span_id))
        else:
            heapq.heappushpop(self.kept, (rank, span_id))

    @property
    def ids(self) -> list[str]:
        return [span_id for _, span_id in sorted(self.kept, reverse=True)]


@dataclass
class Replay:
    """What a policy says of the recorded calls, counted."""

    policy: Policy
    against: Policy | None = None
    calls: int = 0
    trajectories: int = 0
    incomplete: int = 0
    shadowed: int = 0
    """Calls whose recorded decision was not enforced: it only tried a policy out."""
    effects: Counter[str] = field(default_factory=Counter)
    approvals: Counter[str] = field(default_factory=Counter)
    groups: dict[tuple[str, str, str, str], Counter[str]] = field(default_factory=dict)
    recorded: dict[tuple[str, str, str], int] = field(default_factory=dict)
    compared: dict[tuple[str, str, str], int] = field(default_factory=dict)
    seen: set[SeenTool] = field(default_factory=set)
    _samples: dict[tuple[str, ...], _Sample] = field(default_factory=dict)

    def add(self, one: Redecided) -> None:
        """Count one call."""
        call, tool = one.call, one.call.known_as
        self.calls += 1
        self.effects[one.decision] += 1
        if len(self.seen) < _MAX_GROUPS:
            agent = call.agent or one.trajectory.agent
            self.seen.add(SeenTool(tool, frozenset(call.labels), agent))
        if one.approval is not None:
            self.approvals[one.approval] += 1
        for rule in one.by.rule_ids or ("",):
            key = (tool, rule, one.decision, one.by.reason_code.value)
            if key not in self.groups and len(self.groups) >= _MAX_GROUPS:
                key = (_OTHER, _OTHER, one.decision, "")
            counts = self.groups.setdefault(key, Counter())
            counts["attempted"] += 1
            counts[one.what_happened] += 1
        shadow = call.policy_enforced is False
        self.shadowed += shadow
        before = f"{one.recorded} (shadow)" if shadow else one.recorded
        self._move("recorded", self.recorded, before, one.decision, one)
        if one.against is not None:
            self._move("against", self.compared, one.against, one.decision, one)

    def _move(
        self, kind: str, moves: dict[tuple[str, str, str], int], old: str, new: str, one: Redecided
    ) -> None:
        tool = one.call.known_as
        if (old, new, tool) not in moves and len(moves) >= _MAX_GROUPS:
            tool = _OTHER
        moves[old, new, tool] = moves.get((old, new, tool), 0) + 1
        self._samples.setdefault((kind, old, new, tool), _Sample()).add(one.call.span_id)

    @property
    def coverage(self) -> Coverage:
        """What of the policy met no call."""
        return coverage(self.policy, self.seen)

    @property
    def changes(self) -> int:
        """Calls that would be decided otherwise: than by the old policy, else than at the time."""
        moves = self.recorded if self.against is None else self.compared
        return sum(count for (old, new, _), count in moves.items() if is_change(old, new))

    def document(self) -> dict[str, Any]:
        """All of it as JSON, in an order that does not depend on the lake's."""
        return {
            "version": VERSION,
            "policy": _named(self.policy),
            "against": None if self.against is None else _named(self.against),
            "calls": self.calls,
            "trajectories": self.trajectories,
            "incomplete_trajectories": self.incomplete,
            "recorded_in_shadow": self.shadowed,
            "changes": self.changes,
            "decisions": dict(sorted(self.effects.items())),
            "approvals": dict(sorted(self.approvals.items())),
            "rules": [
                {
                    "tool": tool,
                    "rule": rule or None,
                    "decision": decision,
                    "reason_code": code,
                    **{name: counts[name] for name in ("attempted", *_STATES)},
                }
                for (tool, rule, decision, code), counts in sorted(self.groups.items())
            ],
            "since_recorded": self._transitions("recorded", self.recorded),
            "since_against": self._transitions("against", self.compared),
            "silent_rules": list(self.coverage.silent_rules),
            "missing_tools": list(self.coverage.missing_tools),
        }

    def _transitions(
        self, kind: str, moves: dict[tuple[str, str, str], int]
    ) -> list[dict[str, Any]]:
        return [
            {
                "from": old,
                "to": new,
                "tool": tool,
                "calls": count,
                "changed": is_change(old, new),
                "example_span_ids": self._samples[kind, old, new, tool].ids,
            }
            for (old, new, tool), count in sorted(moves.items())
        ]


_STATES: Final = ("executed", "blocked", "unknown")


def is_change(old: str, new: str) -> bool:
    """Whether a decision is certainly another one; what is not known is no change."""
    old = old.removesuffix(" (shadow)")
    return old != new and old in _EFFECTS and new in _EFFECTS


def replay(
    lake: Path | str,
    policy: Policy,
    against: Policy | None = None,
    approvals: Approvals = NO_APPROVALS,
    each: Callable[[Redecided], None] | None = None,
) -> Replay:
    """Decide the calls of a lake again.

    Args:
        lake: what was recorded.
        policy: decides now.
        against: another policy, to compare with.
        approvals: what is on record of approvals beside the spans.
        each: told of every call.

    Raises:
        LakeError: the folder is missing, is no lake, or is of a newer version.
    """
    counted = Replay(policy, against)
    for trajectory in recorded(lake):
        counted.trajectories += bool(trajectory.calls)
        counted.incomplete += bool(trajectory.calls) and not trajectory.complete
        for one in redecided(trajectory, policy, against, approvals):
            counted.add(one)
            if each is not None:
                each(one)
    return counted


def redecided(
    trajectory: Trajectory, policy: Policy, against: Policy | None, approvals: Approvals
) -> Iterator[Redecided]:
    """The calls of one trajectory, decided again."""
    old: Iterable[Decision | None] = [None] * len(trajectory.calls)
    if against is not None:
        old = asked_again(trajectory, against)
    faults = None
    for place, by, before in zip(
        trajectory.calls, asked_again(trajectory, policy), old, strict=True
    ):
        approval = None
        if by.effect is Effect.REQUIRE_APPROVAL and by.at_best is None:
            faults = approvals.faults(trajectory) if faults is None else faults
            fault = faults.get(place.index)
            granted = place.call.approval_status in GRANTED
            approval = fault.value if fault is not None else "good" if granted else "not_run"
        yield Redecided(
            trajectory,
            place.call,
            _recorded(place.call),
            None if before is None else _word(before),
            _word(by),
            by,
            approval,
        )


def recorded(lake: Path | str) -> Iterator[Trajectory]:
    """The trajectories of a lake, bucket by bucket."""
    opened = Lake.open(lake)
    conversations = Conversations()
    for bucket in range(opened.buckets):
        conversations.expect(log_records(opened.read_logs(bucket, LOG_COLUMNS)))
        for trace in traces(opened.read_spans(bucket, COLUMNS)):
            yield from conversations.add(trace)
    yield from conversations.rest()


def _word(decision: Decision) -> str:
    """The effect; undecided where it would be another if more were known."""
    best = decision.at_best
    if best is not None and best.effect is not decision.effect:
        return UNDECIDED
    return decision.effect.value


def _recorded(call: ToolCall) -> str:
    decided = call.policy_decision
    if decided not in _EFFECTS or call.policy_reason_code == ReasonCode.NO_POLICY:
        return UNRECORDED
    return decided or UNRECORDED


def _named(policy: Policy) -> dict[str, str]:
    return {"id": policy.id, "digest": policy.digest, "mode": policy.mode}
