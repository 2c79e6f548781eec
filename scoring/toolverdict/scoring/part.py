"""What one trace tells of one conversation and case, before calls are made of it: a part.

It is what :mod:`reading` fills, and :mod:`conversations` and :mod:`joining` work on.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from toolverdict.scoring.dialects.dialect import Decision
from toolverdict.scoring.dialects.failures import Signs
from toolverdict.scoring.dialects.messages import Answer, Asked
from toolverdict.scoring.model import Atoms, Json, ModelTurn
from toolverdict.scoring.spoken import Witness
from toolverdict.scoring.values import as_text

HistoryKey: TypeAlias = tuple[str | None, str, str]
"""A call in a message: its id, its tool and its arguments as text."""


@dataclass(frozen=True, slots=True)
class Request:
    """A call that the model asked for, and where: the turn's span and the place in its answer.

    ``tool`` is the bare name of what was asked for, ``server`` where it is, if the name says so.
    ``step`` is how a step of the framework around the turn ended, where that failed.
    """

    asked: Asked
    tool: str
    server: str | None
    trace_id: str
    span_id: str
    at_ns: int
    ended_ns: int
    position: int
    dialect: str
    agent: str | None
    weight: float | None
    step: Signs = field(default_factory=Signs)


@dataclass(slots=True)
class Part:
    """What one trace tells of one conversation and case.

    ``answers`` are by call id (else by tool), the n-th one to the n-th call that has it.
    ``history`` are the calls that the first request to the model already knew of.
    """

    trace_id: str
    root_span_id: str
    start_ns: int
    name: str | None = None
    """The trajectory's id, where the trace's is none."""
    number: int = 0
    parts: int = 1
    conversation_id: str | None = None
    case_id: str | None = None
    user_id: str | None = None
    agent: str | None = None
    model: str | None = None
    version: str | None = None
    root_failed: bool = False
    user_atoms: Atoms | None = None
    tool_definitions: tuple[Json, ...] = ()
    weight: float | None = 1.0
    process: str | None = None
    has_agent: bool = False
    gaps: list[str] = field(default_factory=list)
    said: dict[str, dict[str, None]] = field(default_factory=dict)
    turns: list[ModelTurn] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    transcript: list[Request] = field(default_factory=list)
    history: list[HistoryKey] = field(default_factory=list)
    answers: dict[tuple[str, int], Answer] = field(default_factory=dict)
    witnesses: list[Witness] = field(default_factory=list)
    namesakes: list[Witness] = field(default_factory=list)
    decisions: list[tuple[int, Decision]] = field(default_factory=list)
    plugins: bool = False
    """Names of tools are ``Plugin-tool``."""


def history_key(asked: Asked) -> HistoryKey:
    """What a call in a message is known by, in whichever request it stands."""
    return asked.call_id, asked.tool, as_text(asked.arguments)[:4_096]


def answer_key(call_id: str | None, tool: str | None) -> str:
    """What an answer belongs to: a call id, else a tool."""
    return call_id or f"tool {tool}"


def answer_keys(call_id: str | None, tool: str) -> tuple[str, ...]:
    """Under which keys the answer to a call that was asked for may stand, in order.

    One with an id has its answer under it, or, where answers have none, under the tool. One without
    may have an answer that names the tool and an id that the request leaves out.
    """
    by_tool = answer_key(None, tool)
    return (call_id, by_tool) if call_id else (by_tool, f"named {tool}")
