"""From the spans of a trace to its trajectories: who called what, in which order and turn.

One trace is one trajectory, unless several conversations or cases share it: then it is split by
them, since two runs under one trace id are two tasks. Two traces are never merged here.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence

from toolverdict.instrument import semconv
from toolverdict.scoring.attempts import place_attempts
from toolverdict.scoring.dialects import genai, read_calls
from toolverdict.scoring.model import ModelTurn, Placed, ToolCall, Trajectory
from toolverdict.scoring.sampling import adjusted_count
from toolverdict.scoring.spans import Span, Tree

_CONVERSATION = (semconv.GEN_AI_CONVERSATION_ID, semconv.SESSION_ID)
_MODEL = (semconv.GEN_AI_RESPONSE_MODEL, semconv.GEN_AI_REQUEST_MODEL)


def trajectories(spans: Sequence[Span]) -> list[Trajectory]:
    """The trajectories of one trace, in time order.

    Args:
        spans: all spans of one trace, deduplicated, in any order.
    """
    tree = Tree(spans)
    conversations = tree.inherited(*_CONVERSATION)
    cases = tree.inherited(semconv.TEST_CASE_NAME)
    agents = tree.inherited(semconv.GEN_AI_AGENT_NAME)
    models = tree.inherited(*_MODEL)
    calls = read_calls(tree)

    # A span that names neither belongs to the trace's only conversation and case, where there is
    # only one: conventions put the id on the root or on some spans, not on each.
    only_conversation = _only(conversations.values())
    only_case = _only(cases.values())
    groups: dict[tuple[str | None, str | None], list[Span]] = {}
    for span in tree.spans:
        conversation = conversations[span.span_id] or only_conversation
        case = cases[span.span_id] or only_case
        groups.setdefault((conversation, case), []).append(span)
    # Spans that name no conversation while others name several (a server's own, a library's) are
    # nobody's trajectory, unless they made calls: then they are judged on their own.
    called = {call.span_id for call in calls}
    named = [key for key in groups if key != (None, None)]
    keys = [
        key
        for key in groups
        if key in named or not named or any(s.span_id in called for s in groups[key])
    ]

    result = []
    for number, key in enumerate(keys):
        members = groups[key]
        ids = {span.span_id for span in members}
        own = [call for call in calls if call.span_id in ids] if len(keys) > 1 else calls
        root = _root(tree, members)
        turns = tuple(
            ModelTurn(span.span_id, span.start_ns, span.end_ns)
            for span in members
            if genai.is_model_turn(span)
        )
        trace_id = root.trace_id
        result.append(
            Trajectory(
                trajectory_id=trace_id if len(keys) == 1 else f"{trace_id}/{number}",
                trace_id=trace_id,
                root_span_id=root.span_id,
                calls=place_attempts(_place(own, turns)),
                turns=turns,
                conversation_id=key[0],
                case_id=key[1],
                agent=_first(agents, root, members),
                model=_first(models, root, members),
                service_version=_resource_text(root, semconv.SERVICE_VERSION),
                root_failed=root.failed,
                user_texts=_said(members, "user"),
                system_texts=_said(members, "system"),
                gaps=_gaps(tree, members, own),
                weight=adjusted_count(root.trace_state),
            )
        )
    return result


def _place(calls: Sequence[ToolCall], turns: Sequence[ModelTurn]) -> list[Placed]:
    """Index and turn of each call; a turn that asked for several calls makes them a group."""
    starts = [turn.start_ns for turn in turns]
    # A call before the first model turn belongs to none.
    asked_in = [bisect_right(starts, call.start_ns) - 1 for call in calls]
    sizes = Counter(asked_in)
    return [
        Placed(
            call,
            index,
            turn=turn if turn >= 0 else None,
            parallel_group=turn if turn >= 0 and sizes[turn] > 1 else None,
        )
        for index, (call, turn) in enumerate(zip(calls, asked_in, strict=True))
    ]


def _root(tree: Tree, members: Sequence[Span]) -> Span:
    """The first span without a parent here; the agent's run is preferred, it stands for the task."""
    roots = [span for span in members if tree.parent(span) is None] or list(members[:1])
    return next((span for span in roots if genai.is_agent_run(span)), roots[0])


def _gaps(tree: Tree, members: Sequence[Span], calls: Sequence[ToolCall]) -> tuple[str, ...]:
    """What is missing, in words: an incomplete trajectory is never judged as a whole one."""
    ids = {span.span_id for span in members}
    gaps = []
    orphans = [span for span in tree.orphans if span.span_id in ids]
    if orphans:
        gaps.append(f"{len(orphans)} spans whose parent is missing, first {orphans[0].span_id}")
    circular = [span for span in tree.circular if span.span_id in ids]
    if circular:
        gaps.append(f"{len(circular)} spans whose parents run in a circle")
    unfinished = [call for call in calls if call.end_ns is None]
    if unfinished:
        gaps.append(f"{len(unfinished)} calls without an end, first {unfinished[0].span_id}")
    return tuple(gaps)


def _said(members: Sequence[Span], role: str) -> tuple[str, ...]:
    texts = (text for span in members for text in genai.said(span, role))
    return tuple(dict.fromkeys(texts))


def _first(values: dict[str, str | None], root: Span, members: Sequence[Span]) -> str | None:
    return values[root.span_id] or next(
        (value for span in members if (value := values[span.span_id])), None
    )


def _only(values: Iterable[str | None]) -> str | None:
    distinct = {value for value in values if value}
    return distinct.pop() if len(distinct) == 1 else None


def _resource_text(span: Span, key: str) -> str | None:
    value = span.resource.get(key)
    return value if isinstance(value, str) and value else None
