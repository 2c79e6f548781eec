"""Tool calls and trajectories in one line each, for tests of checks and of one's own.

>>> trajectory_of(call("search", {"q": "a"}), call("refund", outcome="timeout")).calls[1].index
1
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.attempts import place_attempts
from toolverdict.scoring.model import Captured, Placed, ToolCall, Trajectory

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
ROOT_SPAN_ID = "00000000000000ff"
_SECOND = 1_000_000_000


def call(
    tool: str,
    arguments: Any = None,
    *,
    at: float | None = None,
    lasts: float = 0.5,
    outcome: str = "ok",
    result: Any = None,
    **fields: Any,
) -> ToolCall:
    """A tool call.

    Args:
        tool: its name.
        arguments: captured arguments; None is "not captured".
        at: its start in seconds; None places it one second after the call before it.
        lasts: its length in seconds.
        outcome: the name of an outcome.
        result: captured result; None is "not captured".
        fields: further fields of :class:`~toolverdict.scoring.model.ToolCall`.
    """
    start = -1 if at is None else round(at * _SECOND)
    ended = Outcome(outcome)
    return ToolCall(
        **{
            "trace_id": TRACE_ID,
            "span_id": "",
            "parent_span_id": ROOT_SPAN_ID,
            "tool": tool,
            "start_ns": start,
            "end_ns": start + round(lasts * _SECOND),
            "outcome": ended,
            "dialect": "toolverdict",
            "arguments": arguments,
            "arguments_state": _state(arguments),
            "result": result,
            "result_state": _state(result),
            "executed": ended not in (Outcome.DENIED, Outcome.PENDING_APPROVAL),
            "policy_decision": "allow",
            **fields,
        }
    )


def placed(*calls: ToolCall) -> tuple[Placed, ...]:
    """The calls with their index, retries found; span ids are made from the index."""
    made = []
    for index, one in enumerate(calls):
        start, end = one.start_ns, one.end_ns
        if start < 0:
            start = (index + 1) * _SECOND
            end = None if one.end_ns is None else one.end_ns - one.start_ns + start
        span_id = one.span_id or f"{index:016x}"
        made.append(replace(one, span_id=span_id, start_ns=start, end_ns=end))
    in_time = sorted(made, key=lambda one: (one.start_ns, one.span_id))
    return place_attempts([Placed(one, index) for index, one in enumerate(in_time)])


def trajectory_of(
    *calls: ToolCall, user: Sequence[str] = (), case_id: str | None = None, **fields: Any
) -> Trajectory:
    """A complete trajectory of these calls; ``user`` is what the user said."""
    return Trajectory(
        **{
            "trajectory_id": TRACE_ID,
            "trace_id": TRACE_ID,
            "root_span_id": ROOT_SPAN_ID,
            "calls": placed(*calls),
            "case_id": case_id,
            "user_texts": tuple(user),
            **fields,
        }
    )


def _state(value: Any) -> Captured:
    return Captured.NOT_CAPTURED if value is None else Captured.CAPTURED
