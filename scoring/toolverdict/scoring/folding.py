"""Several spans, one call: a tool span inside a tool span of the same tool is the same call.

An agent framework's span, an MCP client's and an MCP server's nest around one call. The outermost
is the call; the inner ones are evidence, and the worst outcome wins: an inner error counts when
the outer span says OK.
"""

from collections.abc import Mapping
from dataclasses import replace

from toolverdict.instrument.names import bare_name
from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.model import Captured, ToolCall
from toolverdict.scoring.spans import Tree

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
    """One call per outermost tool span.

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
    return list(calls.values())


def _same_call(outer: ToolCall, inner: ToolCall) -> bool:
    """The same tool and nothing that tells them apart: a recursive tool has other arguments."""
    if bare_name(outer.tool) != bare_name(inner.tool):
        return False
    if outer.call_id and inner.call_id and outer.call_id != inner.call_id:
        return False
    both = Captured.CAPTURED
    if outer.arguments_state is both and inner.arguments_state is both:
        return bool(outer.arguments == inner.arguments)
    return True


def _merge(outer: ToolCall, inner: ToolCall) -> ToolCall:
    """Field by field: what the outer span does not say, the inner one may."""
    merged = outer
    if outer.arguments_state is not Captured.CAPTURED and inner.arguments_state is not (
        Captured.NOT_CAPTURED
    ):
        merged = replace(merged, arguments=inner.arguments, arguments_state=inner.arguments_state)
    if outer.result_state is Captured.NOT_CAPTURED:
        merged = replace(merged, result=inner.result, result_state=inner.result_state)
    worst = min(outer.outcome, inner.outcome, key=_WORST_FIRST.index)
    return replace(
        merged,
        outcome=worst,
        call_id=outer.call_id or inner.call_id,
        args_hash=outer.args_hash or inner.args_hash,
        error_type=outer.error_type or inner.error_type,
        policy_decision=outer.policy_decision or inner.policy_decision,
        approval_id=outer.approval_id or inner.approval_id,
        approval_status=outer.approval_status or inner.approval_status,
        idempotency_key_hash=outer.idempotency_key_hash or inner.idempotency_key_hash,
        schema_version=outer.schema_version or inner.schema_version,
        labels=outer.labels or inner.labels,
    )
