"""The requests to the model in a trace: what it asked for in each, and what it was given before.

A request may be seen twice, one span in the other; one span may hold a whole run, each request
written over the one before; or only the agent's own span repeats what was asked for.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from toolverdict.instrument import semconv
from toolverdict.scoring.dialects.dialect import Dialect, Role
from toolverdict.scoring.dialects.failures import Signs, texts
from toolverdict.scoring.dialects.messages import Asked, Item, Said, items, nested
from toolverdict.scoring.dialects.values import decoded
from toolverdict.scoring.event_messages import (
    CHOICE,
    MESSAGE_EVENTS,
    generated,
    message,
    received,
)
from toolverdict.scoring.given import Given, say
from toolverdict.scoring.model import Json, ModelTurn
from toolverdict.scoring.part import Part, Request
from toolverdict.scoring.sampling import adjusted_count
from toolverdict.scoring.spans import Span
from toolverdict.scoring.spoken import split_name
from toolverdict.scoring.spoken_trace import SpokenTrace
from toolverdict.scoring.usage import tokens_of

_ANSWER = semconv.GEN_AI_OUTPUT_MESSAGES
_DETAILS = "gen_ai.client.inference.operation.details"
_MAX_TURN_CHARS = 20_000


class Turns:
    """Reads the requests to the model of a trace."""

    def __init__(self, trace: SpokenTrace) -> None:
        self._trace = trace

    def read(self, part: Part, members: Sequence[Span]) -> None:
        """Add to a part the requests, answers, turns and texts that its spans tell of."""
        models = [span for span in members if self._trace.roles[span.span_id] is Role.MODEL]
        answered = {span.span_id: self._asked_in(span) for span in models}
        given = Given(part)
        first_given = True
        speaking = {span_id for span_id, found in answered.items() if found}
        for span in models:
            messages = self._given_to(span)
            if messages is not None and span.span_id in self._trace.hosts:
                run = self._whole_run(part, span, messages, answered[span.span_id])
                if run:
                    given.read(messages, keep_history=False)
                    del answered[span.span_id]
                    speaking.discard(span.span_id)
                    part.transcript = max(part.transcript, run, key=len)
                    continue
            if messages is not None:
                if next(items(messages, generated=False), None) is not None:
                    speaking.add(span.span_id)
                given.read(messages, keep_history=first_given)
                first_given = False
        counted = speaking or set(answered)
        asking = {
            span_id
            for span_id, found in answered.items()
            if any(isinstance(item, Asked) for item in found)
        }
        doubled = self._nested(counted, asking)
        for span in models:
            if span.span_id in doubled or span.span_id not in counted:
                continue
            part.turns.append(self._turn(span, answered[span.span_id]))
            part.requests.extend(self._requests(span, answered[span.span_id]))
            part.plugins = part.plugins or _uses_plugins(span)
        for span in members:
            role = self._trace.roles[span.span_id]
            if role is Role.AGENT:
                self._read_agent(part, span)
            elif role is not Role.MODEL and semconv.GEN_AI_INPUT_MESSAGES in span.attributes:
                given.read_texts(
                    items(decoded(span.attributes[semconv.GEN_AI_INPUT_MESSAGES]), generated=False)
                )

    def _turn(self, span: Span, answer: Sequence[Item]) -> ModelTurn:
        said = "\n".join(item.text for item in answer if isinstance(item, Said))
        return ModelTurn(
            span.span_id,
            span.start_ns,
            span.end_ns,
            tokens=tokens_of(span.attributes),
            text=said[:_MAX_TURN_CHARS] or None,
        )

    def _whole_run(
        self, part: Part, span: Span, messages: Json, found: Sequence[Item]
    ) -> list[Request]:
        """The requests of a run of which one span holds all, each written over the one before.

        It is one when it was given the answers to calls that ran inside it. Empty where it is none.
        """
        given = [one for one in items(messages, generated=False) if isinstance(one, Asked)]
        last = {item.call_id for item in found if isinstance(item, Asked)}
        before = {item.call_id for item in given} - last - {None}
        inside = (w.call for w in part.witnesses if w.call.call_id in before)
        if not any(
            span.start_ns <= call.start_ns and (span.end_ns is None or call.start_ns < span.end_ns)
            for call in inside
        ):
            return []
        # Numbers of messages tell which calls were asked for at once: those of the answer differ.
        known = {(item.call_id, item.tool) for item in given}
        answer = [
            replace(item, message=-1 - item.message)
            for item in found
            if isinstance(item, Asked) and (item.call_id, item.tool) not in known
        ]
        return self._requests(span, [*given, *answer])

    def _read_agent(self, part: Part, span: Span) -> None:
        """What an agent's own span repeats of its run: used where no request to a model is seen."""
        found = self._asked_in(span)
        for item in self._items_given(span):
            if isinstance(item, Said):
                say(part.said, item)
        requests = self._requests(span, found)
        if not part.requests and len(requests) > len(part.transcript):
            part.transcript = requests
            given = Given(part)
            given.read(found, keep_history=False)

    def _requests(self, span: Span, found: Sequence[Item]) -> list[Request]:
        step = self._step(span)
        seen: set[tuple[str, str, int]] = set()
        requests: list[Request] = []
        pseudo = {name for d in self._trace.spoken[span.span_id] for name in d.pseudo_tools}
        # Where an answer has the vendor's id of the item, the span may have that of the call.
        own = span.text(semconv.GEN_AI_TOOL_CALL_ID)
        alone = sum(isinstance(item, Asked) for item in found) == 1
        for item in found:
            if not isinstance(item, Asked) or item.tool in pseudo:
                continue
            if own is not None and alone:
                item = replace(item, call_id=own)
            if item.call_id is not None:
                key = item.call_id, item.tool, item.message
                if key in seen:
                    continue
                seen.add(key)
            server, tool = split_name(item.tool, span, self._trace.spoken[span.span_id])
            requests.append(
                Request(
                    asked=item,
                    tool=tool,
                    server=server,
                    trace_id=span.trace_id,
                    span_id=span.span_id,
                    at_ns=span.start_ns,
                    ended_ns=span.end_ns or span.start_ns,
                    position=len(requests),
                    dialect=self._trace.spoken[span.span_id][0].name,
                    agent=self._trace.agents.get(span.span_id),
                    weight=adjusted_count(span.trace_state),
                    step=step,
                )
            )
        return requests

    def _step(self, span: Span) -> Signs:
        """How the step around a turn ended, where it failed: some calls leave no other trace."""
        parent = self._trace.tree.parent(span)
        if parent is None or not parent.failed or self._trace.roles[parent.span_id] is Role.AGENT:
            return Signs()
        exceptions = [e for e in parent.events if e.name == semconv.EXCEPTION_EVENT][:8]
        kinds = [event.attributes.get(semconv.EXCEPTION_TYPE) for event in exceptions]
        said = [event.attributes.get("exception.message") for event in exceptions]
        return Signs(
            failed=True,
            ended=True,
            classes=tuple(kind for kind in kinds if isinstance(kind, str)),
            texts=texts(parent.status_message, *said),
        )

    def _asked_in(self, span: Span) -> list[Item]:
        """The model's answer: from the first attribute that holds one, else from events."""
        best = list(items(decoded(span.attributes.get(_ANSWER)), generated=True))
        if best:
            return best  # the convention's own; what others make of it may lack some, or have more
        for value in self._values(span, lambda dialect: dialect.asked):
            found = list(items(generated(value), generated=True))
            if any(isinstance(item, Asked) for item in found):
                return found
            best = best or found
        found = []
        for event in span.events:
            if event.name == CHOICE:
                found.extend(items(message(event), generated=True))
            elif event.name == _DETAILS:
                value = event.attributes.get(semconv.GEN_AI_OUTPUT_MESSAGES)
                found.extend(items(decoded(value), generated=True))
        return found if any(isinstance(item, Asked) for item in found) else best or found

    def _given_to(self, span: Span) -> Json:
        """The messages that the model was given, in any shape; None where none were recorded."""
        best: Json = None
        for value in self._values(span, lambda dialect: dialect.given):
            if isinstance(value, list | dict):
                return received(value)
            best = value if best is None else best
        messages: list[Json] = []
        for event in span.events:
            if event.name in MESSAGE_EVENTS and event.name != CHOICE:
                messages.append(message(event))
            elif event.name == _DETAILS:
                value = decoded(event.attributes.get(semconv.GEN_AI_INPUT_MESSAGES))
                messages.extend(value if isinstance(value, list) else ())
        return messages or best

    def _items_given(self, span: Span) -> Iterator[Item]:
        return items(self._given_to(span), generated=False)

    def _values(self, span: Span, keys_of: Callable[[Dialect], Sequence[str]]) -> Iterator[Json]:
        # What a processor made of GenAI's messages beside them may have lost some of it.
        *others, genai = self._trace.spoken[span.span_id]
        for dialect in (genai, *others):
            for key in keys_of(dialect):
                if key.endswith("."):
                    if any(name.startswith(key) for name in span.attributes):
                        yield nested(span.attributes, key)
                elif (value := span.attributes.get(key)) is not None:
                    yield decoded(value)

    def _nested(self, counted: set[str], asking: set[str]) -> set[str]:
        """Requests seen twice, one span in the other: the outer counts, unless only the inner asks.

        Args:
            counted: the spans that stand for a request to the model.
            asking: those whose answer asks for calls.
        """
        doubled: set[str] = set()
        nearest: dict[str, str | None] = {}
        for span in self._trace.tree.top_down:
            outer = nearest.get(span.parent_span_id or "")
            if span.span_id in counted:
                if outer is None or (outer not in asking and span.span_id in asking):
                    doubled |= {outer} if outer is not None else set()
                    outer = span.span_id
                else:
                    doubled.add(span.span_id)
            elif self._trace.roles[span.span_id] in (Role.AGENT, Role.TOOL):
                outer = None
            nearest[span.span_id] = outer
        return doubled


def _uses_plugins(span: Span) -> bool:
    """Whether the request is Semantic Kernel's: by its word for one, or by its form of events."""
    operation = span.text(semconv.GEN_AI_OPERATION_NAME) or ""
    if operation.startswith(("chat.", "text.")) and operation.endswith("completions"):
        return True
    return any(e.name in MESSAGE_EVENTS and isinstance(e.body, str) for e in span.events)
