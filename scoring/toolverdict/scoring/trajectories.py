"""From the spans of a trace to its trajectories: who called what, in which order and turn.

One trace is one trajectory, unless several conversations or cases share it: then it is split by
them, since two runs under one trace id are two tasks. Two traces are never merged here.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from toolverdict.instrument import semconv
from toolverdict.scoring.attempts import place_attempts
from toolverdict.scoring.dialects import genai, read_calls
from toolverdict.scoring.model import ModelTurn, Placed, ToolCall, Trajectory
from toolverdict.scoring.sampling import adjusted_count
from toolverdict.scoring.spans import Span, Tree

_CONVERSATION = (semconv.GEN_AI_CONVERSATION_ID, semconv.SESSION_ID)
_Key: TypeAlias = tuple[str | None, str | None]  # conversation and case

_MODEL = (semconv.GEN_AI_RESPONSE_MODEL, semconv.GEN_AI_REQUEST_MODEL)


def trajectories(spans: Sequence[Span]) -> list[Trajectory]:
    """The trajectories of one trace, in time order.

    Args:
        spans: all spans of one trace, deduplicated, in any order.
    """
    tree = Tree(spans)
    agents = tree.inherited(semconv.GEN_AI_AGENT_NAME)
    models = tree.inherited(*_MODEL)
    groups = _groups(tree)
    group_of = {span.span_id: key for key, members in groups.items() for span in members}
    calls: dict[_Key, list[ToolCall]] = {}
    for call in read_calls(tree):
        own = replace(call, agent=agents[call.span_id])
        calls.setdefault(group_of[call.span_id], []).append(own)
    # Spans that name no conversation while others name several (a server's own, a library's) are
    # nobody's trajectory, unless they made calls: then they are judged on their own.
    keys = [key for key in groups if len(groups) == 1 or key != (None, None) or key in calls]
    gaps = _gaps(tree, group_of, calls)
    result = []
    for number, key in enumerate(keys):
        members = groups[key]
        root = _root(tree, members)
        texts = _said(members)
        turns = tuple(
            ModelTurn(span.span_id, span.start_ns, span.end_ns)
            for span in members
            if genai.is_model_turn(span)
        )
        result.append(
            Trajectory(
                trajectory_id=root.trace_id if len(keys) == 1 else f"{root.trace_id}/{number}",
                trace_id=root.trace_id,
                root_span_id=root.span_id,
                calls=place_attempts(_place(calls.get(key, []), turns)),
                turns=turns,
                conversation_id=key[0],
                case_id=key[1],
                agent=_first(agents, root, members),
                model=_first(models, root, members),
                service_version=_resource_text(root, semconv.SERVICE_VERSION),
                root_failed=root.failed,
                user_texts=texts.get("user", ()),
                system_texts=texts.get("system", ()),
                gaps=tuple(gaps.get(key, ())),
                weight=adjusted_count(root.trace_state),
            )
        )
    return result


def _groups(tree: Tree) -> dict[_Key, list[Span]]:
    """The spans by conversation and case.

    A span that names neither belongs to the trace's only conversation and case, where there is
    only one: conventions put the id on the root or on some spans, not on each.
    """
    conversations = tree.inherited(*_CONVERSATION)
    cases = tree.inherited(semconv.TEST_CASE_NAME)
    only_conversation, only_case = _only(conversations.values()), _only(cases.values())
    groups: dict[_Key, list[Span]] = {}
    for span in tree.spans:
        conversation = conversations[span.span_id] or only_conversation
        case = cases[span.span_id] or only_case
        groups.setdefault((conversation, case), []).append(span)
    return groups


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


def _gaps(
    tree: Tree, group_of: Mapping[str, _Key], calls: Mapping[_Key, Sequence[ToolCall]]
) -> dict[_Key, list[str]]:
    """What is missing, in words: an incomplete trajectory is never judged as a whole one."""
    gaps: dict[_Key, list[str]] = {}

    def say(what: str, spans: Iterable[Span]) -> None:
        found: dict[_Key, list[Span]] = {}
        for span in spans:
            found.setdefault(group_of[span.span_id], []).append(span)
        for key, members in found.items():
            gaps.setdefault(key, []).append(f"{len(members)} {what}, first {members[0].span_id}")

    say("spans whose parent is missing", tree.orphans)
    say("spans whose parents run in a circle", tree.circular)
    for key, made in calls.items():
        unfinished = sum(call.end_ns is None for call in made)
        backwards = sum(call.end_ns is not None and call.end_ns < call.start_ns for call in made)
        if unfinished:
            gaps.setdefault(key, []).append(f"{unfinished} calls without an end")
        if backwards:
            gaps.setdefault(key, []).append(f"{backwards} calls that end before they start")
    return gaps


def _said(members: Sequence[Span]) -> dict[str, tuple[str, ...]]:
    """The texts of each role, each text once; later requests repeat the earlier ones' messages."""
    texts: dict[str, dict[str, None]] = {}
    for span in members:
        for role, text in genai.said(span):
            texts.setdefault(role, {})[text] = None
    return {role: tuple(found) for role, found in texts.items()}


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
