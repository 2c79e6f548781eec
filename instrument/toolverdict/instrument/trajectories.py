"""One task of an agent: the span around its tool calls, and what has succeeded in it so far.

Trajectories need not be left in the order they were entered in: generators that are read in turns,
or tasks, leave them as they please. So each is left by itself. Leaving one makes the innermost
that is still open current, and one that has ended is never current again. What no ``with`` block
can do is to step aside at a ``yield``: while a generator waits inside of one, its trajectory is
current for its consumer, too. Open it around the generator, not in it.
"""

import functools
import inspect
import secrets
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar, cast

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from toolverdict.instrument import capture, guard, recording, redaction, semconv, settings, spans
from toolverdict.instrument.decisions import Earlier
from toolverdict.instrument.ids import as_text
from toolverdict.instrument.outcomes import outcome_of_exception
from toolverdict.instrument.trust import TrustedInput

_KEY: Final = context.create_key("toolverdict-trajectory")

P = ParamSpec("P")
R = TypeVar("R")


class History:
    """The tools that succeeded in a trajectory, and the calls that were let through.

    Decide and add under the lock, or calls at the same time overrun a limit together.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held while a call is decided."""
        self.succeeded: set[str] = set()
        self.let_through: list[Earlier] = []
        self.trusted: TrustedInput | None = None
        """What trusted text has said; None unless a policy asks for it."""
        self._given_back: deque[Earlier] = deque()

    def take_back(self, call: Earlier) -> None:
        """Forget a call that was let through and whose body never ran.

        Never waits: it may be called while an object is collected, by a thread that holds the lock.
        """
        self._given_back.append(call)
        if self.lock.acquire(blocking=False):
            try:
                self.settle()
            finally:
                self.lock.release()

    def settle(self) -> None:
        """Forget what was taken back; under the lock."""
        while self._given_back:
            with suppress(ValueError):
                self.let_through.remove(self._given_back.popleft())


class Trajectory:
    """A trajectory that is open: its ids, and what has been done in it."""

    def __init__(
        self,
        agent: str | None,
        conversation_id: str,
        history: History,
        session: Mapping[str, object],
    ) -> None:
        self.agent = agent
        """The agent whose trajectory it is."""
        self.conversation_id = conversation_id
        """The conversation that it belongs to."""
        self.history = history
        """What has been done in it; shared with those that continue the same conversation."""
        self.session = session
        """What is certain about the session, such as the user's own id, for policies."""
        self.trace_id: str | None = None
        """The trace that its spans are in, in hexadecimal; None when no span is made."""
        self.ended = False
        """Whether it has been left."""
        self._inside: Context | None = None
        self._outside: Context | None = None

    def enter(self, inside: Context) -> None:
        """Make it, and the rest of a context, current."""
        self._outside, self._inside = context.get_current(), context.set_value(_KEY, self, inside)
        context.attach(self._inside)

    def leave(self) -> None:
        """End it, and make what was current before current again, if it still is itself."""
        self.ended = True
        current = context.get_current()
        if context.get_value(_KEY, current) is not self:
            # Left in another task, or while one entered later is open: that one stays.
            return
        context.attach(self._open_around())

    @property
    def outer(self) -> "Trajectory | None":
        """The trajectory that it was entered in."""
        return _in(self._outside) if self._outside is not None else None

    def _open_around(self) -> Context:
        """What was current before it, past those that have ended since."""
        found = self
        while found._outside is not None:
            outer = found.outer
            if outer is None or not outer.ended or outer._inside is not found._outside:
                return found._outside
            found = outer
        return context.get_current()

    @property
    def succeeded(self) -> frozenset[str]:
        """Names of the tools that succeeded so far."""
        return frozenset(self.history.succeeded)

    def note_success(self, tool: str) -> None:
        """Remember that a tool succeeded."""
        self.history.succeeded.add(tool)


def current_trajectory() -> Trajectory | None:
    """The innermost open trajectory."""
    found = _in(context.get_current())
    while found is not None and found.ended:
        found = found.outer
    return found


def _in(within: Context) -> Trajectory | None:
    found = context.get_value(_KEY, within)
    return found if isinstance(found, Trajectory) else None


class TrajectoryScope:
    """Opens a trajectory: ``with``, ``async with``, or decorate the function that is one."""

    def __init__(
        self,
        agent: str | None,
        conversation_id: str | None,
        case_id: str | None,
        user_input: object,
        session: Mapping[str, object] | None,
    ) -> None:
        self._agent = agent
        self._conversation_id = conversation_id
        self._case_id = case_id
        self._user_input = user_input
        self._session = session
        self._span: Span | None = None
        self._opened: Trajectory | None = None

    def __enter__(self) -> Trajectory:
        """Start the span and make the trajectory current."""
        if self._span is not None:
            raise RuntimeError("a trajectory is entered once; call trajectory() again")
        opened = self._open()
        self._span = self._start_span(opened)
        found = self._span.get_span_context()
        opened.trace_id = trace.format_trace_id(found.trace_id) if found.is_valid else None
        opened.enter(trace.set_span_in_context(self._span))
        self._opened = opened
        return opened

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the span; an exception is noted by its class and goes on."""
        if self._opened is None or self._span is None:
            raise RuntimeError("a trajectory is left that was never entered")
        if self._opened.ended:
            return
        self._opened.leave()
        span = self._span
        if error is not None:
            outcome = outcome_of_exception(error, settings.current().interrupts)
            spans.note_exception(span, error, outcome)
        spans.end(span)

    async def __aenter__(self) -> Trajectory:
        """Start the span and make the trajectory current."""
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the span."""
        self.__exit__(kind, error, traceback)

    def __call__(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Decorate a function: each call of it is a trajectory of its own."""
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError("trajectory() does not decorate generators; use it inside of them")
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run_async(*args: P.args, **kwargs: P.kwargs) -> Any:
                with self._again():
                    return await function(*args, **kwargs)

            return cast("Callable[P, R]", run_async)

        @functools.wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            with self._again():
                return function(*args, **kwargs)

        return run

    def _again(self) -> Self:
        return type(self)(
            self._agent, self._conversation_id, self._case_id, self._user_input, self._session
        )

    def _open(self) -> Trajectory:
        outer = current_trajectory()
        if outer is not None and self._conversation_id in (None, outer.conversation_id):
            # An agent that hands over within one conversation hands over what was done in it.
            session = outer.session if self._session is None else self._session
            return Trajectory(
                self._agent or outer.agent, outer.conversation_id, outer.history, session
            )
        conversation_id = self._conversation_id or f"conv_{secrets.token_hex(12)}"
        history = History()
        if getattr(settings.current().policy, "asks_for_trust", False):
            # Of the outermost alone: what an agent tells another is not the user's word.
            history.trusted = TrustedInput()
            if self._user_input is not None:
                history.trusted.note_user(self._user_input)
        return Trajectory(self._agent, conversation_id, history, self._session or {})

    def _start_span(self, opened: Trajectory) -> Span:
        attributes: dict[str, str] = {
            semconv.GEN_AI_OPERATION_NAME: semconv.OPERATION_INVOKE_AGENT,
            semconv.GEN_AI_CONVERSATION_ID: opened.conversation_id,
        }
        if opened.agent is not None:
            attributes[semconv.GEN_AI_AGENT_NAME] = opened.agent
        if self._case_id is not None:
            attributes[semconv.TEST_CASE_NAME] = self._case_id
        name = (
            f"{semconv.OPERATION_INVOKE_AGENT} {opened.agent}" if opened.agent else "invoke_agent"
        )
        span = spans.start(name, attributes)
        in_force = settings.current()
        if self._user_input is not None and span.is_recording():
            user_atoms = recording.atoms(semconv.TAINT_USER_ATOMS, self._user_input, in_force)
            spans.put(span, user_atoms)
        if self._user_input is not None and in_force.capture != "off" and span.is_recording():
            limit = spans.length_limit(span)
            redact = redaction.redactor(in_force)
            messages = _messages(self._user_input, in_force.max_captured_bytes, limit, redact)
            if messages is not None:
                spans.put(span, {semconv.GEN_AI_INPUT_MESSAGES: messages})
        return span


def trajectory(
    agent: object = None,
    *,
    conversation_id: object = None,
    case_id: object = None,
    user_input: object = None,
    session: Mapping[str, object] | None = None,
) -> TrajectoryScope:
    """Open a trajectory: the tool calls inside belong to one task of one agent.

    A trajectory inside another one is a part of it, sharing its conversation and what has
    succeeded in it, unless it names a conversation of its own.

    Ids may be kept as what they are (UUIDs, numbers): their text is recorded.

    Args:
        agent: The name of the agent.
        conversation_id: The conversation that the task belongs to; a new one by default.
        case_id: The test case that is played, if one is.
        user_input: What the user asked, or the messages so far; recorded only if ``capture`` is not
            ``off``. A policy whose rules want values that are ``trusted`` finds them in it.
        session: What is certain about the session, such as the user's own id; a policy compares
            arguments with it (``equals_session``), and it is never recorded.
    """
    return TrajectoryScope(
        as_text("agent", agent),
        as_text("conversation id", conversation_id),
        as_text("case id", case_id),
        user_input,
        session,
    )


def _messages(
    user_input: object,
    max_bytes: int,
    max_length: int | None,
    redact: Callable[[Any], Any] | None,
) -> str | None:
    if isinstance(user_input, str):
        user_input = [{"role": "user", "parts": [{"type": "text", "content": user_input}]}]
    try:
        return capture.to_json(user_input, max_bytes, max_length, redact)
    except capture.TooLarge:
        return None
    except Exception as error:  # noqa: BLE001 - it may raise anything when it is looked at
        guard.note("user input", "the user input cannot be captured (%s)", type(error).__name__)
        return None
