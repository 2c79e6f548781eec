"""What a dialect is: a table of attribute names per canonical field, and a function where one fails.

A dialect *speaks* on a span that carries one of its marks. Several may speak on one span, since
instrumentations write beside each other; then each field is read from the first of them, by rank,
that has it. So no dialect is picked for a span, only for a field of a span.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TypeAlias

from toolverdict.scoring.dialects.values import unquoted
from toolverdict.scoring.model import Json
from toolverdict.scoring.spans import Span

Keys: TypeAlias = tuple[str, ...]
"""Attribute names, the first that is there counts."""

Attributes: TypeAlias = Mapping[str, Json]


class Role(Enum):
    """What a span is, as far as tool calls are concerned."""

    TOOL = auto()
    """Witnesses one call of one tool."""
    MODEL = auto()
    """One request to the model."""
    AGENT = auto()
    """A run of an agent, or of a workflow of agents."""
    INSIDE = auto()
    """Shows the inside of a call, and is none without the span around it."""
    OTHER = auto()
    """Known, and none of these: no other dialect is asked."""


@dataclass(frozen=True, slots=True)
class ToolEvent:
    """Events or log records that tell of a call; named by event name, ``event.name`` or body."""

    names: frozenset[str]
    tool: Keys = ()
    call_id: Keys = ()
    arguments: Keys = ()
    result: Keys = ()
    server: Keys = ()
    placeholders: frozenset[str] = frozenset()
    """What stands where the name was left out."""
    namespace: Keys = ()
    """What stands before the tool's name in what the model saw: ``mcp__shop``."""
    success: Keys = ()
    """True or False, or text that says so."""
    error_type: Keys = ()
    error_text: Keys = ()
    decision: Keys = ()
    is_decision: bool = False
    """Tells of the decision about a call, and of nothing that happened after it."""
    ends_call: bool = True
    """The record is written when the call has ended; ``duration_ms`` then gives its start."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One way of writing agents' telemetry. Every table may be empty.

    Attributes:
        name: what ``calls.dialect`` holds.
        rank: order among dialects; the lower is asked first.
        marks: attributes of which one says that the dialect is spoken on a span.
        names: beginnings of span names that say so, for spans that carry no attribute.
        roles: per attribute, the role that each of its values gives a span.
        role_of: the role of a span where no single attribute tells; None: this dialect cannot say.
        pseudo_tools: names that the framework uses for itself; calls of them are none.
        failure: attributes whose value says that the call failed, with these values.
        arguments_of, result_of: take the dialect's wrapping off a decoded value.
        server_of: a tool's name into server and bare name, where it is not the usual spelling.
        asked: attributes that hold the model's answer. One that ends in a dot is the beginning of
            flattened names (``llm.output_messages.``).
        given: attributes that hold what the model was given, likewise.
        approvals: finds decisions about calls in what a span says, whatever its role.
    """

    name: str
    rank: int
    marks: Keys
    names: Keys = ()
    roles: Mapping[str, Mapping[str, Role]] = field(default_factory=dict)
    role_of: Callable[[Span], Role | None] | None = None
    pseudo_tools: frozenset[str] = frozenset()
    tool: Keys = ()
    tool_from_name: Callable[[str], str] | None = None
    server: Keys = ()
    server_of: Callable[[str, Span], tuple[str | None, str]] | None = None
    call_id: Keys = ()
    arguments: Keys = ()
    arguments_of: Callable[[Json], Json] | None = None
    result: Keys = ()
    result_of: Callable[[Json], Json] | None = None
    tells_output: bool = False
    """A call that ended well has a result; one without may never have run."""
    result_is_success: bool = False
    """A result is written only for a call that ended well, whatever the span's status is."""
    failure: Mapping[str, frozenset[Json]] = field(default_factory=dict)
    error_type: Keys = ()
    error_text: Keys = ()
    invalid_arguments: Mapping[str, frozenset[Json]] = field(default_factory=dict)
    asked: Keys = ()
    given: Keys = ()
    conversation: Keys = ()
    user: Keys = ()
    agent: Keys = ()
    agent_of: Callable[[Span], str | None] | None = None
    model: Keys = ()
    model_of: Callable[[Span], str | None] | None = None
    version: Keys = ()
    resource_is_frameworks: bool = False
    """``service.version`` of the resource is the framework's, not the application's."""
    metadata: Keys = ()
    """JSON objects in which the application's own words for these may stand."""
    tool_events: tuple[ToolEvent, ...] = ()
    approvals: Callable[[Span], Iterator["Decision"]] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What somebody decided about a call, or that somebody was asked.

    ``status`` is a value of ``approval.status``. ``call_id`` and ``tool`` are None where the record
    does not say which call is meant; then it is about the calls of the model's answer before it.
    """

    status: str
    call_id: str | None = None
    tool: str | None = None
    arguments: Json = None
    by_policy: bool = False


REQUESTED = "requested"
APPROVED = "approved"
REJECTED = "rejected"


def first(attributes: Attributes, keys: Iterable[str]) -> Json:
    """The value of the first of these attributes that is there, else None."""
    for key in keys:
        value = attributes.get(key)
        if value is not None:
            return value
    return None


def first_text(attributes: Attributes, keys: Iterable[str]) -> str | None:
    """The first of these that is a non-empty text or a whole number; JSON quotes are taken off."""
    for key in keys:
        value = attributes.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if isinstance(value, str) and value:
            value = unquoted(value)
            if value:
                return value
    return None
