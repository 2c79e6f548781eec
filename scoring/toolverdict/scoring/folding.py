"""Several spans, one call: a tool span inside a tool span of the same tool is the same call.

An agent framework's span, an MCP client's and an MCP server's nest around one call. The outermost
is the call; the inner ones are evidence, and the worst outcome wins: an inner error counts when
the outer span says OK. Records without a span of their own join the span with their call id.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from toolverdict.instrument.names import bare_name
from toolverdict.scoring.model import Captured, ToolCall
from toolverdict.scoring.spans import Tree
from toolverdict.scoring.spoken import Witness

_CLOCKS_NS = 1_000_000_000
"""How far the clock of a log record may be before that of its span."""
_MAX_LOOKED_AT = 64
_NAMELESS = "unknown"

SERVER_DIALECT = "mcp"
"""Whose spans show a call from the other side, where a trace may have been cut in between."""


def fold(
    tree: Tree,
    witnessed: Mapping[str, Witness],
    borders: frozenset[str],
    records: Iterable[Witness] = (),
) -> list[Witness]:
    """One witness per outermost tool span, in time order.

    Args:
        tree: the trace.
        witnessed: the call that each tool span, by its id, reads as.
        borders: ids of spans that nothing folds across: below an agent's run or a model's turn
            the same tool is called anew.
        records: calls that events and log records tell of.
    """
    calls: dict[str, Witness] = {}
    enclosing: dict[str, str | None] = {}
    for span in tree.top_down:
        outer = enclosing.get(span.parent_span_id or "")
        witness = witnessed.get(span.span_id)
        if witness is None:
            enclosing[span.span_id] = None if span.span_id in borders else outer
        elif outer is not None and _same_call(calls[outer].call, witness.call):
            calls[outer] = merged(calls[outer], witness)
            enclosing[span.span_id] = outer
        else:
            calls[span.span_id] = witness
            enclosing[span.span_id] = span.span_id
    found = _with_orphans(tree, [witness for witness in calls.values() if witness.requested])
    return with_records(_joined_by_id(found), records)


def _with_orphans(tree: Tree, witnesses: list[Witness]) -> list[Witness]:
    """Spans of a server whose client's span was lost, with the call that they lie in."""
    lost = {span.span_id for span in tree.orphans}
    if not any(witness.call.span_id in lost for witness in witnesses):
        return witnesses
    hosts: dict[str, list[int]] = {}
    for index, witness in enumerate(witnesses):
        hosts.setdefault(witness.call.tool, []).append(index)
    found: list[Witness | None] = list(witnesses)
    taken: set[int] = set()
    for index, witness in enumerate(witnesses):
        call = witness.call
        if call.span_id not in lost or call.dialect != SERVER_DIALECT:
            continue
        for host in reversed(hosts[call.tool][-_MAX_LOOKED_AT:]):
            other = found[host]
            if other is not None and host not in {index, *taken} and encloses(other.call, call):
                found[host], found[index] = merged(other, witness), None
                taken.add(host)
                break
    return [witness for witness in found if witness is not None]


def encloses(outer: ToolCall, inner: ToolCall) -> bool:
    """Whether one call was under way for as long as the other."""
    if outer.end_ns is None or inner.end_ns is None:
        return False
    return outer.start_ns <= inner.start_ns and inner.end_ns <= outer.end_ns


def merged(outer: Witness, inner: Witness) -> Witness:
    """Two witnesses of one call, field by field: what the outer does not say, the inner one may."""
    return Witness(
        _merge(outer.call, inner.call),
        outer.signs + inner.signs,
        outer.requested or inner.requested,
    )


def _joined_by_id(witnesses: Iterable[Witness]) -> list[Witness]:
    """Calls side by side with one call id are one when they also overlap in time.

    By the id alone would be wrong: ids repeat inside one trajectory.
    """
    joined: list[Witness] = []
    by_id: dict[str, list[int]] = {}
    for witness in sorted(witnesses, key=_by_time):
        call = witness.call
        if call.call_id is not None:
            places = by_id.setdefault(call.call_id, [])
            under_way = (
                place
                for place in reversed(places[-_MAX_LOOKED_AT:])
                if _compatible(joined[place].call.tool, call.tool)
                and _overlap(joined[place].call, call)
            )
            place = next(under_way, None)
            if place is not None:
                joined[place] = merged(joined[place], witness)
                continue
            places.append(len(joined))
        joined.append(witness)
    return joined


def with_records(witnesses: Sequence[Witness], records: Iterable[Witness]) -> list[Witness]:
    """Each record beside the span that has its call id and began before it, else on its own."""
    by_id: dict[str, list[int]] = {}
    for index, witness in enumerate(witnesses):
        if witness.call.call_id is not None:
            by_id.setdefault(witness.call.call_id, []).append(index)
    found = list(witnesses)
    for record in sorted(records, key=_by_time):
        call_id = record.call.call_id
        at = record.call.end_ns or record.call.start_ns
        began = (
            index
            for index in reversed(by_id.get(call_id or "", [])[-_MAX_LOOKED_AT:])
            if found[index].call.start_ns <= at + _CLOCKS_NS
            and _compatible(found[index].call.tool, record.call.tool)
        )
        place = _by_what_it_did(found, record.call) if call_id is None else next(began, None)
        if place is not None:
            found[place] = merged(found[place], record)
        else:
            if call_id is not None:
                by_id.setdefault(call_id, []).append(len(found))
            tool = record.call.tool or record.call.exposed_as or _NAMELESS
            found.append(replace(record, call=replace(record.call, tool=tool)))
    return sorted(found, key=_by_time)


def _by_what_it_did(found: Sequence[Witness], record: ToolCall) -> int | None:
    """The call of the same tool and arguments that ended when a record without an id was written."""
    at = record.end_ns or record.start_ns
    for index in range(len(found) - 1, max(-1, len(found) - _MAX_LOOKED_AT), -1):
        call = found[index].call
        if (
            call.start_ns <= at + _CLOCKS_NS
            and (call.end_ns is None or at <= call.end_ns + _CLOCKS_NS)
            and _compatible(call.tool, record.tool)
            and Captured.NOT_CAPTURED not in (call.arguments_state, record.arguments_state)
            and call.arguments == record.arguments
        ):
            return index
    return None


def _by_time(witness: Witness) -> tuple[int, str]:
    return witness.call.start_ns, witness.call.span_id


def _overlap(earlier: ToolCall, later: ToolCall) -> bool:
    return earlier.end_ns is None or later.start_ns < earlier.end_ns


def _same_call(outer: ToolCall, inner: ToolCall) -> bool:
    """The same tool and nothing that tells them apart: a recursive tool has other arguments.

    An equal call id decides before names and arguments do: an inner span may have filled in
    defaults, or be named after what it does.
    """
    if outer.call_id and inner.call_id:
        return outer.call_id == inner.call_id
    if bare_name(outer.tool) != bare_name(inner.tool):
        return False
    both = Captured.CAPTURED
    if outer.arguments_state is both and inner.arguments_state is both:
        return bool(outer.arguments == inner.arguments)
    return True


def _compatible(a: str, b: str) -> bool:
    """Whether two names may be one tool's: some put a server before it without a separator."""
    return not a or not b or a.endswith(b) or b.endswith(a)


def _merge(outer: ToolCall, inner: ToolCall) -> ToolCall:
    seen = outer if outer.arguments_state is Captured.CAPTURED else inner
    if seen.arguments_state is Captured.NOT_CAPTURED:
        seen = outer
    told = outer if outer.result_state is Captured.CAPTURED else inner
    # A decision, its reason and its approval belong together: all from the span that decided.
    decided = inner if outer.policy_decision is None else outer
    named = inner if inner.tool and outer.tool.endswith(inner.tool) else outer
    exposed = outer.exposed_as or (inner.exposed_as if inner.tool else None)
    return replace(
        outer,
        tool=named.tool,
        exposed_as=exposed,
        tool_server=outer.tool_server or inner.tool_server,
        end_ns=inner.end_ns if outer.end_ns is None else outer.end_ns,
        call_id=outer.call_id or inner.call_id,
        arguments=seen.arguments,
        arguments_state=seen.arguments_state,
        args_hash=outer.args_hash or inner.args_hash,
        result=told.result,
        result_state=told.result_state,
        policy_decision=decided.policy_decision,
        policy_reason_code=decided.policy_reason_code,
        approval_id=decided.approval_id or outer.approval_id or inner.approval_id,
        approval_status=decided.approval_status or outer.approval_status or inner.approval_status,
        idempotency_key_hash=outer.idempotency_key_hash or inner.idempotency_key_hash,
        idempotency_status=outer.idempotency_status or inner.idempotency_status,
        schema_version=outer.schema_version or inner.schema_version,
        labels=tuple(dict.fromkeys((*outer.labels, *inner.labels))),
    )
