"""Spans as this package makes them: a fault in making one costs the span and nothing else.

Exceptions are put on a span by their class alone, since a message may hold anything.
"""

import os
from collections.abc import Mapping, Sequence
from contextvars import Token

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from toolverdict.instrument import guard, semconv, settings
from toolverdict.instrument.outcomes import Outcome, error_type

Attributes = Mapping[str, "str | bool | int | float | Sequence[str]"]


class Attached:
    """Makes a context current while a block runs; such a block never holds a yield."""

    __slots__ = ("_context", "_token")

    def __init__(self, within: Context) -> None:
        self._context = within
        self._token: Token[Context] | None = None

    def __enter__(self) -> None:
        """Attach the context."""
        self._token = context.attach(self._context)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Put back what was current before."""
        if kind is GeneratorExit and context.get_current() is not self._context:
            # A coroutine that is thrown away is closed by whoever does it, outside of the context
            # that it was started in; there is nothing to put back there.
            return
        if self._token is not None:
            context.detach(self._token)


def start(name: str, attributes: Attributes, within: Context | None = None) -> Span:
    """Start a span under the current one, or the one of a context.

    If that fails it is ``trace.INVALID_SPAN``, which records nothing.
    """
    try:
        return settings.tracer().start_span(
            clean(name), within, SpanKind.INTERNAL, cleaned(attributes)
        )
    except Exception as error:  # noqa: BLE001 - a tracer that fails must not stop the tool
        guard.fault("span start", error)
        return trace.INVALID_SPAN


def start_clean(name: str, attributes: Attributes, within: Context | None = None) -> Span:
    """The same, for a name and attributes that went through ``clean`` and ``cleaned`` before."""
    try:
        return settings.tracer().start_span(name, within, SpanKind.INTERNAL, attributes)
    except Exception as error:  # noqa: BLE001 - a tracer that fails must not stop the tool
        guard.fault("span start", error)
        return trace.INVALID_SPAN


def put(span: Span, attributes: Attributes) -> None:
    """Set attributes on a span; one that cannot be set is left out, and no other with it."""
    try:
        span.set_attributes(cleaned(attributes))
    except Exception as error:  # noqa: BLE001 - an attribute that fails must not stop the tool
        guard.fault("span attributes", error)


def note_exception(span: Span, error: BaseException, outcome: Outcome) -> None:
    """Put an exception that ended something on its span.

    Waiting for an approval is none, nor is one that a framework hands a result over with.
    """
    if outcome is Outcome.PENDING_APPROVAL or outcome.succeeded:
        return
    kind = error_type(error)
    note_failure(span, kind, outcome)
    try:
        span.add_event(semconv.EXCEPTION_EVENT, {semconv.EXCEPTION_TYPE: clean(kind)})
    except Exception as fault:  # noqa: BLE001 - an event that fails must not stop the tool
        guard.fault("span event", fault)


def note_failure(span: Span, kind: str, outcome: Outcome) -> None:
    """Say on a span that it failed, and what with."""
    put(span, {semconv.ERROR_TYPE: kind})
    try:
        span.set_status(Status(StatusCode.ERROR, str(outcome)))
    except Exception as fault:  # noqa: BLE001 - a status that fails must not stop the tool
        guard.fault("span status", fault)


def end(span: Span) -> None:
    """End a span."""
    try:
        span.end()
    except Exception as error:  # noqa: BLE001 - a processor that fails must not stop the tool
        guard.fault("span end", error)


def length_limit(span: Span) -> int | None:
    """How many characters of an attribute the SDK keeps; it cuts the rest off, in silence."""
    limits = getattr(span, "_limits", None)
    if limits is not None:
        found = getattr(limits, "max_span_attribute_length", None)
        return found if isinstance(found, int) else None
    # Somebody else's span: it is to heed the variables that the specification names.
    for name in ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"):
        text = os.environ.get(name, "").strip()
        if text:
            return int(text) if text.isdecimal() else None
    return None


def cleaned(attributes: Attributes) -> dict[str, str | bool | int | float | Sequence[str]]:
    """Attributes that can be exported; one that cannot is left out, and no other with it."""
    clean = dict(attributes)
    for key, value in attributes.items():
        if value is True or value is False or (type(value) is str and value.isascii()):
            continue
        try:
            clean[key] = _clean_value(value)
        except Exception as error:  # noqa: BLE001 - a value may be anything, whatever its type says
            del clean[key]
            guard.fault("span attribute", error)
    return clean


def _clean_value(
    value: str | bool | int | float | Sequence[str],
) -> str | bool | int | float | Sequence[str]:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, bool | int | float):
        return value
    return tuple([clean(item) for item in value])  # a generator would cost more than its items


def clean(text: str) -> str:
    """A text that can be exported."""
    # One lone surrogate, in an id that a model made up, would fail the export of the whole batch.
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
