"""The agent: a loop that asks a model what to do, does it, and tells the model what came back.

The loop is that of a real agent; only the model is scripted, so that every run is the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import trace

from toolverdict.instrument import semconv, tool_call, trajectory

AGENT = "refund-agent"
MODEL = "scripted-1"


@dataclass(frozen=True, slots=True)
class Request:
    """One call that the model asks for."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScriptedModel:
    """Says turn by turn what its script says: calls to make, then a closing answer."""

    turns: Sequence[Sequence[Request]]
    answer: str

    def replies(self) -> Iterator[Sequence[Request]]:
        """The calls of each turn; the last turn asks for none."""
        yield from self.turns
        yield ()


@dataclass
class RefundAgent:
    """Plays one conversation with the given tools; remembers what the tools told it."""

    model: ScriptedModel
    tools: Mapping[str, Callable[..., Any]]
    results: list[str] = field(default_factory=list)

    def handle(self, user_input: str, case_id: str) -> str:
        """Answers the user, calling tools on the way; every step leaves a span."""
        tracer = trace.get_tracer("toolverdict.scenarios.demo")
        with trajectory(AGENT, case_id=case_id, user_input=user_input):
            replies = self.model.replies()
            for turn in range(len(self.model.turns) + 1):
                with tracer.start_as_current_span(f"chat {MODEL}") as span:
                    span.set_attribute(semconv.GEN_AI_OPERATION_NAME, semconv.OPERATION_CHAT)
                    span.set_attribute(semconv.GEN_AI_REQUEST_MODEL, MODEL)
                    requests = next(replies)
                for number, request in enumerate(requests):
                    self._call(f"call_{case_id}_{turn}_{number}", request)
        return self.model.answer

    def _call(self, call_id: str, request: Request) -> None:
        """One tool call; its failure is something the model is told, not the agent's end."""
        with tool_call(call_id):
            try:
                self.results.append(str(self.tools[request.tool](**request.arguments)))
            except Exception as error:  # noqa: BLE001 - whatever a tool raises goes to the model
                self.results.append(f"{type(error).__name__}: {error}")
