"""The traces of a unit as trajectories: conversations that went on in another trace put together.

Some frameworks start a trace for every request to the model or every batch of tools, and an
approval ends one trace and begins the next. Two traces are one trajectory only where the later one
goes on with a call that the earlier one had left open, and nothing speaks against it: another
conversation id, or another history of calls. Traces are never joined because an id is equal: a
session may hold many tasks. Spans of a server in the agent's own process, which start traces of
their own, are evidence for the call that they lie in.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects import ours
from toolverdict.scoring.dialects.dialect import first_text
from toolverdict.scoring.folding import SERVER_DIALECT, encloses, merged, with_records
from toolverdict.scoring.model import Trajectory
from toolverdict.scoring.part import HistoryKey, Part, answer_key, answer_keys, history_key
from toolverdict.scoring.reading import read_trace
from toolverdict.scoring.spans import LogRecord, Span
from toolverdict.scoring.spoken import Witness, told_by_event
from toolverdict.scoring.trajectories import trajectory_of

_CONVERSATION = (semconv.GEN_AI_CONVERSATION_ID, "conversation.id", semconv.SESSION_ID)
_MAX_CANDIDATES = 64


class Conversations:
    """Takes traces in any order and gives their trajectories, each once.

    What no other trace can concern is given at once; the rest is held until :meth:`rest`.
    """

    def __init__(self, logs: Iterable[LogRecord] = ()) -> None:
        """Begin with the log records of the traces to come, and those that name no trace."""
        self._logs: dict[str, list[LogRecord]] = defaultdict(list)
        self._traceless: dict[str, list[Witness]] = defaultdict(list)
        self.expect(logs)
        self._held: list[Part] = []
        self.traces = 0
        """How many traces were read."""
        self.traces_without_calls = 0
        """Those of them in which no call was asked for or seen."""

    @property
    def awaited(self) -> frozenset[str]:
        """Conversations that records without a trace belong to: their parts are held."""
        return frozenset(conversation for conversation in self._traceless if conversation)

    @property
    def held(self) -> int:
        """How many parts are held."""
        return len(self._held)

    def expect(self, logs: Iterable[LogRecord]) -> None:
        """More log records: of traces that come later, or of none."""
        for log in logs:
            if log.trace_id is not None:
                self._logs[log.trace_id].append(log)
            else:
                self._keep_traceless(log)

    def add(self, trace: Sequence[Span]) -> Iterator[Trajectory]:
        """Read one trace; gives the trajectories of it that are whole."""
        parts = read_trace(trace, self._logs.pop(trace[0].trace_id, ()))
        self.traces += 1
        self.traces_without_calls += not any(
            part.witnesses or part.requests or part.transcript for part in parts
        )
        for part in parts:
            if self._may_concern_others(part):
                self._held.append(part)
            else:
                yield trajectory_of([part])

    def rest(self) -> Iterator[Trajectory]:
        """The trajectories that were held, in time order; nothing can be added after."""
        for trace_id, logs in self._logs.items():  # of traces without a span in this unit
            for log in logs:
                self._keep_traceless(log, trace_id)
        held = [*self._held, *self._records_alone(self._held)]
        held.sort(key=lambda part: (part.start_ns, part.trace_id, part.number))
        held = _absorbed(held)
        for group in _linked(held):
            yield trajectory_of(group)

    def _keep_traceless(self, log: LogRecord, trace_id: str = "") -> None:
        told = told_by_event(log.event, trace_id, log.span_id or "")
        if told is None or told[0].is_decision:
            return
        conversation = first_text(log.event.attributes, _CONVERSATION)
        self._traceless[conversation or ""].append(told[1])

    def _may_concern_others(self, part: Part) -> bool:
        """Whether a part left a call open, or may go on with one, or may hold a server's spans."""
        if part.conversation_id is not None and part.conversation_id in self._traceless:
            return True
        if part.history or _pending(part) or any(w.call.tool_server for w in part.witnesses):
            return True
        others = [w.call for w in part.witnesses if w.call.dialect != ours.NAME]
        if not others:
            return False  # ours say themselves what was decided about a call, and when it goes on
        if not part.turns and not part.has_agent:
            return True
        first = others[0]
        asked = {request.asked.call_id for request in part.requests}
        goes_on = first.call_id is not None and first.call_id not in asked
        before_all = not part.turns or first.start_ns < part.turns[0].start_ns
        return part.conversation_id is not None and goes_on and before_all

    def _records_alone(self, held: Sequence[Part]) -> list[Part]:
        """Records that name no span: with the conversation that they name, else on their own."""
        homes = {part.conversation_id: part for part in held}
        alone = []
        for conversation, records in sorted(self._traceless.items()):
            home = homes.get(conversation) if conversation else None
            if home is not None:
                home.witnesses = with_records(home.witnesses, records)
            else:
                alone.append(_part_of_records(conversation, records))
        return alone


def _part_of_records(conversation: str, records: Sequence[Witness]) -> Part:
    witnesses = with_records([], records)
    first = witnesses[0].call
    return Part(
        trace_id=first.trace_id,
        root_span_id=first.span_id,
        start_ns=first.start_ns,
        conversation_id=conversation or None,
        has_agent=True,
        witnesses=witnesses,
        name=f"logs/{conversation}",
    )


def _pending(part: Part) -> dict[str, HistoryKey]:
    """The calls that a part asked for and left open, by id, else by tool."""
    run = {witness.call.call_id for witness in part.witnesses}
    run |= {answer_key(None, witness.call.tool) for witness in part.witnesses}
    named = Counter(witness.call.tool for witness in part.namesakes)
    answered = {key for key, _ in part.answers}
    pending = {}
    for request in part.requests:
        asked = request.asked
        key = answer_key(asked.call_id, asked.tool)
        if key in run or not answered.isdisjoint(answer_keys(asked.call_id, asked.tool)):
            continue
        if named[request.tool]:
            named[request.tool] -= 1
            continue
        pending[key] = history_key(asked)
    return pending


def _linked(parts: Sequence[Part]) -> list[list[Part]]:
    """Parts in time order, those of one conversation that went on in one list."""
    pending: dict[str, list[int]] = defaultdict(list)
    group_of: dict[int, int] = {}
    groups: dict[int, list[Part]] = {}
    known: list[_Known] = []
    for index, part in enumerate(parts):
        asked = [*part.history, *(history_key(request.asked) for request in part.requests)]
        known.append(_Known(part, _pending(part), [key[1:] for key in asked]))
        earlier = _continued(known, pending)
        group = group_of[earlier] if earlier is not None else index
        group_of[index] = group
        groups.setdefault(group, []).append(part)
        for key in known[index].pending:
            pending[key].append(index)
    return list(groups.values())


class _Known(NamedTuple):
    """A part with what it left open, and all that was called until its end: tool and arguments."""

    part: Part
    pending: dict[str, HistoryKey]
    called: list[tuple[str, str]]


def _continued(known: Sequence[_Known], pending: dict[str, list[int]]) -> int | None:
    """The part that the last one goes on with: the last before it that left open what is here."""
    part = known[-1].part
    named = [key for key, _ in part.answers]
    named += [key for call_id, tool, _ in part.history for key in answer_keys(call_id, tool)]
    for witness in part.witnesses:
        if witness.call.call_id is not None or not part.turns:
            named.append(answer_key(witness.call.call_id, witness.call.tool))
    candidates = {
        earlier
        for key in dict.fromkeys(named)
        for earlier in pending.get(key, ())[-_MAX_CANDIDATES:]
    }
    return next((i for i in sorted(candidates, reverse=True) if _goes_on(known[i], part)), None)


def _goes_on(before: _Known, later: Part) -> bool:
    earlier = before.part
    if earlier.case_id != later.case_id and earlier.case_id and later.case_id:
        return False
    if earlier.conversation_id and later.conversation_id:
        if earlier.conversation_id != later.conversation_id:
            return False
        if later.history:
            return True
    if not later.history:
        # It goes on where the other stopped: with that call, before anything else.
        same = earlier.conversation_id if later.conversation_id else not later.turns
        if not later.witnesses or not (same and _near(earlier, later)):
            return False
        first = later.witnesses[0].call
        return answer_key(first.call_id, first.tool) in before.pending
    # Ids are spelt in more than one way; what was called with what is not.
    return [key[1:] for key in later.history[: len(before.called)]] == before.called


def _near(earlier: Part, later: Part) -> bool:
    """Whether nothing says that the two ran in different programs."""
    return bool(later.conversation_id) or earlier.process == later.process


def _absorbed(parts: Sequence[Part]) -> list[Part]:
    """The parts without those that only show the inside of another part's call."""
    hosts: dict[tuple[str | None, str], list[tuple[int, Part, int]]] = defaultdict(list)
    agents: dict[str | None, list[Part]] = defaultdict(list)
    for part in parts:
        if part.requests or part.transcript:
            agents[part.process].append(part)
        if not _is_inside(part):
            for index, witness in enumerate(part.witnesses):
                call = witness.call
                hosts[part.process, call.tool].append((call.start_ns, part, index))
    kept = []
    for part in parts:
        inside = _is_inside(part)
        if inside:
            part.witnesses = [
                witness
                for witness in part.witnesses
                if not _absorb(witness, part.process, hosts)
                and not _fills_a_request(witness, agents.get(part.process, ()))
            ]
        if not inside or part.witnesses:
            kept.append(part)
    return kept


def _is_inside(part: Part) -> bool:
    """Whether a part may be the inside of another's call: spans of a server, and nothing else."""
    if part.turns or part.has_agent or part.conversation_id or part.case_id:
        return False
    return bool(part.witnesses) and all(
        witness.call.dialect == SERVER_DIALECT for witness in part.witnesses
    )


def _absorb(
    witness: Witness,
    process: str | None,
    hosts: dict[tuple[str | None, str], list[tuple[int, Part, int]]],
) -> bool:
    """Whether a call of the same process and tool was under way for as long as this span was."""
    call = witness.call
    if call.parent_span_id is not None or call.end_ns is None or process is None:
        return False
    around = [
        (start, part, index)
        for start, part, index in hosts.get((process, call.tool), ())
        if encloses(part.witnesses[index].call, call)
    ]
    if not around:
        return False
    _, part, index = max(around, key=lambda host: host[0])
    part.witnesses[index] = merged(part.witnesses[index], witness)
    return True


def _fills_a_request(witness: Witness, agents: Sequence[Part]) -> bool:
    """Whether the only agent of the process asked for a call of this tool that nothing has shown."""
    call = witness.call
    if call.parent_span_id is not None or len(agents) != 1:
        return False
    (agent,) = agents
    if agent.process is None or agent.start_ns > call.start_ns:
        return False
    asked = sum(request.tool == call.tool for request in agent.requests or agent.transcript)
    seen = sum(other.call.tool == call.tool for other in agent.witnesses)
    if asked <= seen:
        return False
    agent.witnesses.append(witness)
    return True


def trajectories_of(
    traces: Iterable[Sequence[Span]], logs: Iterable[LogRecord] = ()
) -> Iterator[Trajectory]:
    """The trajectories of whole traces: see :class:`Conversations`."""
    conversations = Conversations(logs)
    for trace in traces:
        yield from conversations.add(trace)
    yield from conversations.rest()
