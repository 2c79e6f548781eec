"""Several spans, one call: a tool span inside a tool span of the same tool is the same call.

An agent framework's span, an MCP client's and an MCP server's nest around one call. The outermost
is the call; the inner ones are evidence, and the worst outcome wins: an inner error counts when
the outer span says OK.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from toolverdict.instrument.names import bare_name
from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.model import Captured, ToolCall
from toolverdict.scoring.spans import Tree

_REPLAYED = "replayed"  # answered from the record of an earlier call, without running again

_WORST_FIRST = (
    Outcome.DENIED,
    Outcome.PENDING_APPROVAL,
    Outcome.PERMISSION_DENIED,
    Outcome.INVALID_ARGUMENTS,
    Outcome.RATE_LIMITED,
    Outcome.TIMEOUT,
    Outcome.UPSTREAM_ERROR,
    Outcome.REFUSED,
    Outcome.ERROR,
    Outcome.CANCELLED,
    Outcome.EMPTY,
    Outcome.OK,
    Outcome.UNKNOWN,
)


def fold(tree: Tree, witnessed: Mapping[str, ToolCall], borders: frozenset[str]) -> list[ToolCall]:
    """One call per outermost tool span, in time order.

    Args:
        tree: the trace.
        witnessed: the call that each tool span, by its id, reads as.
        borders: ids of spans that nothing folds across: below an agent's run or a model's turn
            the same tool is called anew.
    """
    calls: dict[str, ToolCall] = {}
    enclosing: dict[str, str | None] = {}
    for span in tree.top_down:
        outer = enclosing.get(span.parent_span_id or "")
        call = witnessed.get(span.span_id)
        if call is None:
            enclosing[span.span_id] = None if span.span_id in borders else outer
        elif outer is not None and _same_call(calls[outer], call):
            calls[outer] = _merge(calls[outer], call)
            enclosing[span.span_id] = outer
        else:
            calls[span.span_id] = call
            enclosing[span.span_id] = span.span_id
    return [_settled(call) for call in _joined_by_id(calls.values())]


def _joined_by_id(calls: Iterable[ToolCall]) -> list[ToolCall]:
    """Calls side by side with one call id are one when they also overlap in time.

    By the id alone would be wrong: ids repeat inside one trajectory.
    """
    joined: list[ToolCall] = []
    by_id: dict[tuple[str, str], int] = {}
    for call in sorted(calls, key=lambda call: (call.start_ns, call.span_id)):
        if call.call_id is not None:
            key = bare_name(call.tool), call.call_id
            earlier = by_id.get(key)
            if earlier is not None and _overlap(joined[earlier], call):
                joined[earlier] = _merge(joined[earlier], call)
                continue
            by_id[key] = len(joined)
        joined.append(call)
    return joined


def _overlap(earlier: ToolCall, later: ToolCall) -> bool:
    return earlier.end_ns is None or later.start_ns < earlier.end_ns


def _same_call(outer: ToolCall, inner: ToolCall) -> bool:
    """The same tool and nothing that tells them apart: a recursive tool has other arguments.

    An equal call id decides before arguments do: an inner span may have filled in defaults.
    """
    if bare_name(outer.tool) != bare_name(inner.tool):
        return False
    if outer.call_id and inner.call_id:
        return outer.call_id == inner.call_id
    both = Captured.CAPTURED
    if outer.arguments_state is both and inner.arguments_state is both:
        return bool(outer.arguments == inner.arguments)
    return True


def _merge(outer: ToolCall, inner: ToolCall) -> ToolCall:
    """Field by field: what the outer span does not say, the inner one may."""
    seen = outer if outer.arguments_state is Captured.CAPTURED else inner
    if seen.arguments_state is Captured.NOT_CAPTURED:
        seen = outer
    told = outer if outer.result_state is Captured.CAPTURED else inner
    # A decision, its reason and its approval belong together: all from the span that decided.
    decided = inner if outer.policy_decision is None else outer
    stated = (outer.executed, inner.executed)
    return replace(
        outer,
        outcome=min(outer.outcome, inner.outcome, key=_WORST_FIRST.index),
        end_ns=inner.end_ns if outer.end_ns is None else outer.end_ns,
        call_id=outer.call_id or inner.call_id,
        arguments=seen.arguments,
        arguments_state=seen.arguments_state,
        args_hash=outer.args_hash or inner.args_hash,
        result=told.result,
        result_state=told.result_state,
        error_type=outer.error_type or inner.error_type,
        executed=True if True in stated else False if False in stated else None,
        policy_decision=decided.policy_decision,
        policy_reason_code=decided.policy_reason_code,
        approval_id=decided.approval_id or outer.approval_id or inner.approval_id,
        approval_status=decided.approval_status or outer.approval_status or inner.approval_status,
        idempotency_key_hash=outer.idempotency_key_hash or inner.idempotency_key_hash,
        idempotency_status=outer.idempotency_status or inner.idempotency_status,
        schema_version=outer.schema_version or inner.schema_version,
        labels=tuple(dict.fromkeys((*outer.labels, *inner.labels))),
    )


def _settled(call: ToolCall) -> ToolCall:
    """Whether the body ran: as a span states it, else as the outcome tells, else not known."""
    executed = call.executed
    if executed is None:
        if call.outcome in (Outcome.DENIED, Outcome.PENDING_APPROVAL):
            executed = False
        # Arguments may have been refused before the body or by it: the span does not say which.
        elif call.outcome not in (Outcome.INVALID_ARGUMENTS, Outcome.UNKNOWN):
            executed = True
    elif executed is False and call.outcome.succeeded and call.idempotency_status != _REPLAYED:
        executed = None  # a success of a body that did not run: one of the two is wrong
    return replace(call, executed=executed)
