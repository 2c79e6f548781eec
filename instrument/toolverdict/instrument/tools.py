"""What is known about a tool once it is decorated, and never changes after."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from toolverdict.instrument import semconv, spans
from toolverdict.instrument.arguments import Arguments, Binder
from toolverdict.instrument.decisions import DANGEROUS_LABELS
from toolverdict.instrument.outcomes import OutcomeHook
from toolverdict.instrument.provenance import UNTRUSTED
from toolverdict.instrument.spans import Attributes

if TYPE_CHECKING:
    from toolverdict.instrument.stores.idempotency import Reconcile

IdempotencyKey = Callable[[Arguments], object]
"""Makes the idempotency key of a call from its arguments; None is no key."""

Given = tuple[tuple[Any, ...], Mapping[str, Any]]
"""The positional and keyword arguments of a call."""

Coerce = Callable[[tuple[Any, ...], Mapping[str, Any]], Given]
"""Makes arguments what the tool wants, or raises ``InvalidArguments``."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """One decorated tool.

    Args:
        name: The name that its spans carry.
        labels: Its labels, sorted.
        schema_version: The version of its parameters.
        binder: Binds its arguments.
        idempotency_key: Makes its idempotency keys, if it has them.
        outcome_hook: Its author's own judgement of results, if there is one.
        returns_none: Whether it is declared to return nothing.
        coerce: Makes its arguments what its annotations say, if it shall.
        idempotent: Whether it may run again when nobody knows whether it has run.
        reconcile: Asked what became of a call whose end is unknown.
    """

    name: str
    labels: tuple[str, ...]
    schema_version: str
    binder: Binder
    idempotency_key: IdempotencyKey | None
    outcome_hook: OutcomeHook | None
    returns_none: bool
    coerce: Coerce | None = None
    idempotent: bool = False
    reconcile: "Reconcile | None" = None
    span_name: str = field(init=False)
    attributes: Attributes = field(init=False)
    body_span_name: str = field(init=False)
    label_set: frozenset[str] = field(init=False)
    dangerous: bool = field(init=False)
    untrusted: bool = field(init=False)

    def __post_init__(self) -> None:
        """Make what every span of the tool has in common."""
        attributes: dict[str, str | tuple[str, ...]] = {
            semconv.TOOL_NAME: self.name,
            semconv.GEN_AI_TOOL_NAME: self.name,
            semconv.GEN_AI_OPERATION_NAME: semconv.OPERATION_EXECUTE_TOOL,
            semconv.TOOL_SCHEMA_VERSION: self.schema_version,
            semconv.TOOL_LABELS: self.labels,
        }
        name = spans.clean(self.name)
        object.__setattr__(self, "span_name", f"{semconv.SPAN_TOOL_CALL} {name}")
        object.__setattr__(self, "body_span_name", f"{semconv.SPAN_EXECUTE_TOOL} {name}")
        object.__setattr__(self, "attributes", spans.cleaned(attributes))
        object.__setattr__(self, "label_set", frozenset(self.labels))
        object.__setattr__(self, "untrusted", UNTRUSTED in self.labels)
        object.__setattr__(self, "dangerous", not DANGEROUS_LABELS.isdisjoint(self.labels))
