"""From what was asked for and what was witnessed to calls: the model's requests are the list.

Spans and records are evidence for a request; a request without evidence is a call all the same (its
arguments were refused, the tool is unknown, a person said no), and evidence without a request is a
call of its own. They are joined by id, then by tool and arguments, then by tool and order; never by
id alone, since ids repeat inside one trajectory.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from toolverdict.instrument.names import bare_name
from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.dialects.dialect import APPROVED, REJECTED, REQUESTED, Decision
from toolverdict.scoring.dialects.failures import (
    Ending,
    Signs,
    ending,
    is_refusal,
    refuses_text,
)
from toolverdict.scoring.dialects.messages import Answer
from toolverdict.scoring.folding import merged
from toolverdict.scoring.model import Captured, ModelTurn, Placed, ToolCall
from toolverdict.scoring.parallel import Step, overlapping
from toolverdict.scoring.part import Part, Request, answer_keys
from toolverdict.scoring.spoken import Witness
from toolverdict.scoring.values import as_text

_REPLAYED = "replayed"  # answered from the record of an earlier call, without running again
_MAX_CANDIDATES = 16
_MAX_CALLS_DECIDED = 64  # by one decision that names none
_MAX_KEY = 65_536


@dataclass(frozen=True, slots=True)
class Joined:
    """The calls of a trajectory in order, and what is missing about them, in words."""

    calls: tuple[Placed, ...]
    gaps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """A call on its way into the order: ``position`` is its place in the model's answer.

    ``message`` is the one that asked for it, in what an agent repeats of its run.
    """

    call: ToolCall
    turn: int | None
    position: int | None
    message: tuple[str, int] | None = None


def join(parts: Sequence[Part], turns: Sequence[ModelTurn]) -> Joined:
    """The calls of one trajectory.

    Args:
        parts: its parts, in time order; several where a conversation went on in another trace.
        turns: the requests to the model of all parts, in time order.
    """
    requests = [request for part in parts for request in part.requests]
    from_turns = bool(requests)
    if not from_turns:
        requests = [request for part in parts for request in part.transcript]
    requests.sort(key=lambda request: (request.at_ns, request.span_id, request.position))
    witnesses = [witness for part in parts for witness in part.witnesses]
    found, alone = _matched(requests, witnesses)
    namesakes = [witness for part in parts for witness in part.namesakes]
    found = _with_namesakes(requests, found, namesakes)
    if not from_turns and any(found):
        # What an agent repeats of its run may begin with what it remembers of earlier ones.
        begin = next(index for index, witness in enumerate(found) if witness is not None)
        requests, found = requests[begin:], found[begin:]
    evidenced = any(witness is not None for witness in found) or bool(alone)
    answers = _answers(parts, requests)
    decisions, others = _decisions(parts, requests, found)
    number = {turn.span_id: index for index, turn in enumerate(turns)}
    last_ns = turns[-1].start_ns if turns else 0

    entries: list[_Entry] = []
    unknown = 0
    for index, request in enumerate(requests):
        went_on = answers[index] is not None or last_ns > request.at_ns
        call = _requested_call(
            request, found[index], answers[index], decisions[index], evidenced, went_on
        )
        unknown += found[index] is None and call.outcome is Outcome.UNKNOWN
        turn = number.get(request.span_id) if from_turns else None
        message = None if from_turns else (request.span_id, request.asked.message)
        entries.append(_Entry(call, turn, request.position, message))
    starts = [turn.start_ns for turn in turns]
    for witness in alone:
        call = _decided(
            witness.call,
            _ending(witness.signs, witness.call),
            _approval(others.get(witness.call.call_id or "", ()), True, True),
        )
        # A call before the first model turn belongs to none.
        turn = bisect_right(starts, call.start_ns) - 1
        entries.append(_Entry(call, turn if turn >= 0 else None, None))
    if any(part.plugins for part in parts):
        entries = [replace(entry, call=_without_plugin(entry.call)) for entry in entries]
    gaps = (f"{unknown} calls of which only the model's request is known",) if unknown else ()
    return Joined(_placed(entries), gaps)


# --- requests and witnesses -----------------------------------------------------------------------


def _matched(
    requests: Sequence[Request], witnesses: Sequence[Witness]
) -> tuple[list[Witness | None], list[Witness]]:
    """The witness of each request, and the witnesses that have none."""
    found: list[Witness | None] = [None] * len(requests)
    waiting = list(witnesses)
    if not requests:
        return found, waiting
    known = {w.call.call_id for w in witnesses} & {r.asked.call_id for r in requests}

    def by_id(request: Request) -> Hashable:
        return request.asked.call_id

    def by_arguments(request: Request) -> Hashable:
        asked = request.asked
        if asked.arguments_state is not Captured.CAPTURED:
            return None
        return _bare(request.tool), _key(asked.arguments)

    def by_tool(request: Request) -> Hashable:
        return _bare(request.tool)

    def id_of(call: ToolCall) -> Hashable:
        return call.call_id

    def arguments_of(call: ToolCall) -> Hashable:
        if call.arguments_state is not Captured.CAPTURED:
            return None
        return _bare(call.tool), _key(call.arguments)

    def tool_of(call: ToolCall) -> Hashable:
        return _bare(call.tool)

    passes: tuple[tuple[Callable[[Request], Hashable], Callable[[ToolCall], Hashable]], ...] = (
        (by_id, id_of),
        (by_arguments, arguments_of),
        (by_tool, tool_of),
    )
    for key_of_request, key_of_call in passes:
        open_requests: dict[Hashable, list[int]] = defaultdict(list)
        for index, request in enumerate(requests):
            key = key_of_request(request)
            if found[index] is None and key is not None:
                open_requests[key].append(index)
        left: list[Witness] = []
        for witness in waiting:
            candidates = open_requests.get(key_of_call(witness.call))
            best = _best(requests, candidates, witness.call, known) if candidates else None
            if best is None or candidates is None:
                left.append(witness)
            else:
                found[best] = witness
                candidates.remove(best)
        waiting = left
    return _doubled(found, waiting)


def _best(
    requests: Sequence[Request],
    candidates: Sequence[int],
    call: ToolCall,
    known: set[str | None],
) -> int | None:
    """Of requests that share a key with the call, the one that it answers; None: none of them.

    A request comes before its call. Of several, those with equal arguments are taken, and of them
    the first of the last turn before the call.
    """
    fitting: list[int] = []
    before = bisect_right(candidates, call.start_ns, key=lambda index: requests[index].at_ns)
    for index in candidates[max(0, before - _MAX_CANDIDATES) : before]:
        request = requests[index]
        asked = request.asked
        ids = {asked.call_id, call.call_id}
        if None not in ids and len(ids) == 2 and ids & known:
            continue  # each is another call's
        if _compatible(request.tool, call.tool):
            fitting.append(index)
    if not fitting:
        return None
    both = Captured.CAPTURED
    if len(fitting) > 1 and call.arguments_state is both:
        equal = [
            index
            for index in fitting
            if requests[index].asked.arguments_state is both
            and requests[index].asked.arguments == call.arguments
        ]
        fitting = equal or fitting
    latest = max(requests[index].at_ns for index in fitting)
    return next(index for index in fitting if requests[index].at_ns == latest)


def _doubled(
    found: list[Witness | None], left: Iterable[Witness]
) -> tuple[list[Witness | None], list[Witness]]:
    """Witnesses of a call that has one, from an instrumentation that runs beside the first."""
    by_tool: dict[str, list[int]] = defaultdict(list)
    for index, witness in enumerate(found):
        if witness is not None:
            by_tool[_bare(witness.call.tool)].append(index)
    alone: list[Witness] = []
    for witness in left:
        call = witness.call
        for index in by_tool.get(_bare(call.tool), ())[-_MAX_CANDIDATES:]:
            other = found[index]
            if other is not None and _seen_twice(other.call, call):
                found[index] = merged(other, witness)
                break
        else:
            alone.append(witness)
    return found, alone


def _seen_twice(a: ToolCall, b: ToolCall) -> bool:
    both = Captured.CAPTURED
    if a.dialect == b.dialect or (a.call_id and b.call_id and a.call_id != b.call_id):
        return False
    if a.arguments_state is both and b.arguments_state is both and a.arguments != b.arguments:
        return False
    return (a.end_ns is None or b.start_ns < a.end_ns) and (
        b.end_ns is None or a.start_ns < b.end_ns
    )


def _with_namesakes(
    requests: Sequence[Request], found: Sequence[Witness | None], namesakes: Iterable[Witness]
) -> list[Witness | None]:
    """Requests without a witness, with the spans that are named like their tool, in order."""
    filled = list(found)
    open_requests: dict[str, list[int]] = defaultdict(list)
    for index, request in enumerate(requests):
        if found[index] is None:
            open_requests[request.tool].append(index)
    for witness in namesakes:
        candidates = open_requests.get(witness.call.tool, [])
        best = _best(requests, candidates, witness.call, set())
        if best is not None:
            filled[best] = witness
            candidates.remove(best)
    return filled


def _answers(parts: Sequence[Part], requests: Sequence[Request]) -> list[Answer | None]:
    """What was given back to the model for each request."""
    given: dict[tuple[str, int], Answer] = {}
    for part in parts:
        for place, answer in part.answers.items():
            given.setdefault(place, answer)
    counts: Counter[str] = Counter()
    answers: list[Answer | None] = []
    for request in requests:
        asked = request.asked
        found: Answer | None = None
        for key in answer_keys(asked.call_id, asked.tool):
            found = found or given.get((key, counts[key]))
            counts[key] += 1
        answers.append(found)
    return answers


def _decisions(
    parts: Sequence[Part], requests: Sequence[Request], found: Sequence[Witness | None]
) -> tuple[list[list[Decision]], dict[str, list[Decision]]]:
    """The decisions about each request, in time order, and those about calls nobody asked for.

    One that names no call is about the calls of the last answer before it that nothing had run.
    """
    about: list[list[Decision]] = [[] for _ in requests]
    others: dict[str, list[Decision]] = defaultdict(list)
    by_id: dict[str, list[int]] = defaultdict(list)
    for index, request in enumerate(requests):
        if request.asked.call_id is not None:
            by_id[request.asked.call_id].append(index)
    starts = [request.at_ns for request in requests]
    for at, decision in sorted(
        (entry for part in parts for entry in part.decisions), key=lambda entry: entry[0]
    ):
        if decision.call_id is not None:
            for index in by_id.get(decision.call_id, ())[-1:]:
                about[index].append(decision)
            if decision.call_id not in by_id:
                others[decision.call_id].append(decision)
        else:
            end = bisect_right(starts, at)
            span_id = requests[end - 1].span_id if end else None
            for index in range(end - 1, max(-1, end - 1 - _MAX_CALLS_DECIDED), -1):
                if requests[index].span_id != span_id:
                    break
                witness = found[index]
                if witness is None or witness.call.start_ns >= at:
                    about[index].append(decision)
    return about, others


# --- one call -------------------------------------------------------------------------------------


def _requested_call(
    request: Request,
    witness: Witness | None,
    answer: Answer | None,
    decisions: Sequence[Decision],
    evidenced: bool,
    went_on: bool,
) -> ToolCall:
    """The call of a request, from all that is known of it; the worst that was seen wins.

    Args:
        request: what the model asked for.
        witness: the span that ran it.
        answer: what the model was told.
        decisions: what was decided about it.
        evidenced: other calls of the trajectory have witnesses, so that a missing one means
            something.
        went_on: the model was asked again, or told, after this request.
    """
    asked = request.asked
    signs = (witness.signs if witness is not None else request.step) + asked.signs
    if answer is not None and answer.signs.failed:
        signs += answer.signs
    elif answer is not None and not signs.ended:
        signs += answer.signs
        if isinstance(answer.result, str) and is_refusal(answer.result):
            signs += Signs(failed=True, refused=True)
    if isinstance(asked.arguments, str) and refuses_text(signs):
        signs += Signs(failed=True, invalid_arguments=True)
    call = witness.call if witness is not None else _unwitnessed(request)
    result, result_state = call.result, call.result_state
    if result_state is not Captured.CAPTURED and answer is not None:
        result, result_state = answer.result, answer.state
    told = ending(signs, result, result_state, call.tool)
    if witness is None:
        told = _without_witness(told, signs, answer, evidenced)
    known: dict[str, Any] = {
        "call_id": asked.call_id or call.call_id or (answer.call_id if answer else None),
        "tool_server": call.tool_server or request.server,
        "exposed_as": call.exposed_as or (asked.tool if asked.tool != call.tool else None),
        "agent": call.agent or request.agent,
        "result": result,
        "result_state": result_state,
    }
    if asked.arguments_state is Captured.CAPTURED:
        if call.arguments_state is not Captured.CAPTURED:
            known |= {"arguments": asked.arguments, "arguments_state": asked.arguments_state}
        if any(decision.arguments is not None for decision in decisions):
            known["requested_arguments"] = asked.arguments
    return _decided(call, told, _approval(decisions, witness is not None, went_on), known)


def _decided(
    call: ToolCall, told: Ending, status: str | None, known: Mapping[str, Any] | None = None
) -> ToolCall:
    """The call with how it ended; a refusal outweighs whatever a span says.

    Args:
        call: as witnessed.
        told: how it ended, by all signs.
        status: of its approval, where there was one.
        known: fields that are known from elsewhere.
    """
    if status == REJECTED and call.approval_status is None:
        told = Ending(Outcome.DENIED, False, told.error_type)
    elif status == REQUESTED:
        told = Ending(Outcome.PENDING_APPROVAL, False)
    elif told.outcome is Outcome.DENIED and call.policy_decision is None:
        status = status or REJECTED
    executed = told.executed
    if executed is False and told.outcome.succeeded and call.idempotency_status != _REPLAYED:
        executed = None  # a success of a body that did not run: one of the two is wrong
    return replace(
        call,
        **(known or {}),
        outcome=told.outcome,
        executed=executed,
        error_type=told.error_type,
        approval_status=call.approval_status or status,
    )


def _ending(signs: Signs, call: ToolCall) -> Ending:
    return ending(signs, call.result, call.result_state, call.tool)


def _unwitnessed(request: Request) -> ToolCall:
    """A call that no span shows: it stands at the turn that asked for it."""
    return ToolCall(
        trace_id=request.trace_id,
        span_id=request.span_id,
        parent_span_id=None,
        tool=request.tool,
        start_ns=request.ended_ns,
        end_ns=request.ended_ns,
        outcome=Outcome.UNKNOWN,
        dialect=request.dialect,
        tool_server=request.server,
        agent=request.agent,
        weight=request.weight,
    )


def _without_witness(told: Ending, signs: Signs, answer: Answer | None, evidenced: bool) -> Ending:
    """How a call ended of which no span tells, although others of the trajectory have one."""
    if answer is None and not signs.failed:
        return Ending(Outcome.UNKNOWN, None)
    if not evidenced:
        return told
    if signs.failed:
        return Ending(told.outcome, False if told.executed is False else None, told.error_type)
    # What the model was told is no proof that the tool ran: a person's words may stand there.
    return Ending(Outcome.UNKNOWN, None)


def _approval(decisions: Sequence[Decision], ran: bool, went_on: bool) -> str | None:
    """The state of an approval: as it was decided, else as what followed shows."""
    decided = [d.status for d in decisions if d.status in (APPROVED, REJECTED)]
    if decided:
        return decided[-1]
    if not any(decision.status == REQUESTED for decision in decisions):
        return None
    if ran:
        return APPROVED
    return REJECTED if went_on else REQUESTED


def _without_plugin(call: ToolCall) -> ToolCall:
    """A name ``Plugin-tool`` without the plugin, which is kept as the server."""
    plugin, found, tool = call.tool.partition("-")
    if not found or not tool:
        return call
    return replace(
        call,
        tool=tool,
        tool_server=call.tool_server or plugin,
        exposed_as=call.exposed_as or call.tool,
    )


# --- order ----------------------------------------------------------------------------------------


def _placed(entries: Sequence[_Entry]) -> tuple[Placed, ...]:
    """Index, turn and group of each call; a turn that asked for several calls makes them a group."""
    ordered = sorted(_timed(entries), key=lambda item: item[0])
    asked = Counter(e.turn for e in entries if e.position is not None and e.turn is not None)
    sizes = Counter(e.turn for e in entries if e.turn is not None)
    together = (
        {}
        if any(e.turn is not None for e in entries)
        else overlapping(
            Step(one.call.start_ns, one.call.end_ns, one.call.parent_span_id, one.message)
            for _, one in ordered
        )
    )
    placed = []
    for index, (_, entry) in enumerate(ordered):
        turn = entry.turn
        group = together.get(index)
        if turn is not None:
            counted = asked if asked[turn] else sizes
            is_member = entry.position is not None or not asked[turn]
            group = turn if counted[turn] > 1 and is_member else None
        placed.append(Placed(entry.call, index, turn=turn, parallel_group=group))
    return tuple(placed)


def _timed(entries: Sequence[_Entry]) -> Iterator[tuple[tuple[int, int, int, str], _Entry]]:
    """Each call with its place: by turn and place in the model's answer, else by start time.

    One that the answer of its turn leaves out comes after those of it that had begun before.
    """
    begun: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for entry in entries:
        if entry.turn is not None and entry.position is not None:
            begun[entry.turn].append((entry.position, entry.call.start_ns))
    reached = 0
    for entry in entries:
        call = entry.call
        if entry.turn is None and entry.position is not None:
            # Of a transcript: its order holds, and the spans give it times.
            reached = max(reached, call.start_ns)
            yield (-1, reached, entry.position, call.span_id), entry
        elif entry.position is not None and entry.turn is not None:
            yield (entry.turn, 2 * entry.position, 0, call.span_id), entry
        elif entry.turn is not None:
            before = [p for p, start_ns in begun[entry.turn] if start_ns <= call.start_ns]
            yield (entry.turn, 2 * max(before, default=-1) + 1, call.start_ns, call.span_id), entry
        else:
            yield (-1, call.start_ns, 0, call.span_id), entry


def _bare(name: str) -> str:
    return bare_name(name)


def _compatible(a: str, b: str) -> bool:
    """Whether two names may be one tool's: some put a server before it without a separator."""
    return a.endswith(b) or b.endswith(a)


def _key(arguments: object) -> str:
    return as_text(arguments)[:_MAX_KEY]
