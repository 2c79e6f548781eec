"""What people and policies decided about calls, as the spans and records of a trace tell it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from toolverdict.scoring.dialects.dialect import Decision, Role
from toolverdict.scoring.spans import Event, Span
from toolverdict.scoring.spoken import told_by_event, tool_call
from toolverdict.scoring.spoken_trace import SpokenTrace

_DECISION_WORDS = {
    "accept": "approved",
    "accepted": "approved",
    "approved": "approved",
    "approved_for_session": "approved",
    "auto_accept": "approved",
    "modify": "approved",
    "reject": "rejected",
    "rejected": "rejected",
    "denied": "rejected",
    "abort": "rejected",
    "cancel": "rejected",
}


def decisions(trace: SpokenTrace, members: Sequence[Span]) -> Iterator[tuple[int, Decision]]:
    """Each decision with when it was made, in nanoseconds."""
    for span in members:
        at = span.end_ns or span.start_ns
        for dialect in trace.spoken[span.span_id]:
            for decision in dialect.approvals(span) if dialect.approvals is not None else ():
                if decision.tool == "":
                    call_id = _call_id_above(trace, span)
                    decision = replace(decision, tool=None, call_id=call_id)
                yield at, decision
        for event in span.events:
            told = told_by_event(event, span.trace_id, span.span_id)
            if told is not None and told[0].decision:
                status = _status(event, told[0].decision)
                if status is not None and told[1].call.call_id is not None:
                    yield event.at_ns, Decision(status, told[1].call.call_id)


def _call_id_above(trace: SpokenTrace, span: Span) -> str | None:
    parent = trace.tree.parent(span)
    if parent is None or trace.roles[parent.span_id] is not Role.TOOL:
        return None
    witness = tool_call(parent, trace.spoken[parent.span_id])
    return witness.call.call_id if witness is not None else None


def _status(event: Event, keys: Sequence[str]) -> str | None:
    """A decision about a call, in the words of command-line agents."""
    for key in keys:
        word = event.attributes.get(key)
        if isinstance(word, str):
            return _DECISION_WORDS.get(word.lower())
    return None
