"""One task of an agent: the span around its tool calls, and what has succeeded in it so far."""

import functools
import inspect
import secrets
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar, cast

from opentelemetry import context, trace
from opentelemetry.trace import Span

from toolverdict.instrument import capture, guard, semconv, settings, spans
from toolverdict.instrument.outcomes import outcome_of_exception

_KEY: Final = context.create_key("toolverdict-trajectory")

P = ParamSpec("P")
R = TypeVar("R")


class Trajectory:
    """A trajectory that is open: its ids, and the tools that succeeded in it."""

    def __init__(self, agent: str | None, conversation_id: str, succeeded: set[str]) -> None:
        self.agent = agent
        """The agent whose trajectory it is."""
        self.conversation_id = conversation_id
        """The conversation that it belongs to."""
        self.trace_id: str | None = None
        """The trace that its spans are in, in hexadecimal; None when no span is made."""
        self._succeeded = succeeded

    @property
    def succeeded(self) -> frozenset[str]:
        """Names of the tools that succeeded so far."""
        return frozenset(self._succeeded)

    def note_success(self, tool: str) -> None:
        """Remember that a tool succeeded."""
        self._succeeded.add(tool)


def current_trajectory() -> Trajectory | None:
    """The innermost open trajectory."""
    found = context.get_value(_KEY)
    return found if isinstance(found, Trajectory) else None


class TrajectoryScope:
    """Opens a trajectory: ``with``, ``async with``, or decorate the function that is one."""

    def __init__(
        self,
        agent: str | None,
        conversation_id: str | None,
        case_id: str | None,
        user_input: object,
    ) -> None:
        self._agent = agent
        self._conversation_id = conversation_id
        self._case_id = case_id
        self._user_input = user_input
        self._span: Span | None = None
        self._attached: spans.Attached | None = None

    def __enter__(self) -> Trajectory:
        """Start the span and make the trajectory current."""
        if self._span is not None:
            raise RuntimeError("a trajectory is entered once; call trajectory() again")
        opened = self._open()
        self._span = self._start_span(opened)
        found = self._span.get_span_context()
        opened.trace_id = trace.format_trace_id(found.trace_id) if found.is_valid else None
        within = trace.set_span_in_context(self._span)
        self._attached = spans.Attached(context.set_value(_KEY, opened, within))
        self._attached.__enter__()
        return opened

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the span; an exception is noted by its class and goes on."""
        if self._attached is None or self._span is None:
            raise RuntimeError("a trajectory is left that was never entered")
        self._attached.__exit__(kind)
        span = self._span
        if error is not None:
            spans.note_exception(span, error, outcome_of_exception(error))
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
        return type(self)(self._agent, self._conversation_id, self._case_id, self._user_input)

    def _open(self) -> Trajectory:
        outer = current_trajectory()
        if outer is not None and self._conversation_id in (None, outer.conversation_id):
            # An agent that hands over within one conversation hands over what was done in it.
            return Trajectory(self._agent or outer.agent, outer.conversation_id, outer._succeeded)
        return Trajectory(
            self._agent, self._conversation_id or f"conv_{secrets.token_hex(12)}", set()
        )

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
        if self._user_input is not None and in_force.capture == "full" and span.is_recording():
            messages = _messages(self._user_input, in_force.max_captured_bytes)
            if messages is not None:
                spans.put(span, {semconv.GEN_AI_INPUT_MESSAGES: messages})
        return span


def trajectory(
    agent: str | None = None,
    *,
    conversation_id: str | None = None,
    case_id: str | None = None,
    user_input: object = None,
) -> TrajectoryScope:
    """Open a trajectory: the tool calls inside belong to one task of one agent.

    A trajectory inside another one is a part of it, sharing its conversation and what has
    succeeded in it, unless it names a conversation of its own.

    Args:
        agent: The name of the agent.
        conversation_id: The conversation that the task belongs to; a new one by default.
        case_id: The test case that is played, if one is.
        user_input: What the user asked; recorded only with ``capture="full"``.
    """
    return TrajectoryScope(agent, conversation_id, case_id, user_input)


def _messages(user_input: object, max_bytes: int) -> str | None:
    if isinstance(user_input, str):
        user_input = [{"role": "user", "parts": [{"type": "text", "content": user_input}]}]
    try:
        return capture.to_json(user_input, max_bytes)
    except capture.TooLarge:
        return None
    except Exception as error:  # noqa: BLE001 - it may raise anything when it is looked at
        guard.note("user input", "the user input cannot be captured (%s)", type(error).__name__)
        return None
