"""The id that a model gave to a tool call, carried from where it is parsed to where the tool runs.

It travels in OpenTelemetry's context, so it follows tasks, and threads that copy the context.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from opentelemetry import context
from opentelemetry.context import Context

from toolverdict.instrument import ids

_KEY: Final = context.create_key("toolverdict-call-id")


@contextmanager
def tool_call(call_id: object) -> Iterator[None]:
    """Say which call of the model's request the tool inside is run for.

    Args:
        call_id: The id in the model's request, such as ``call_123``.
    """
    token = context.attach(context.set_value(_KEY, ids.as_text("call id", call_id)))
    try:
        yield
    finally:
        context.detach(token)


def current_call_id() -> str:
    """The id of the call that is about to run; a new one when nobody gave it."""
    given = context.get_value(_KEY)
    return given if isinstance(given, str) else f"call_{os.urandom(12).hex()}"


def without_call_id(within: Context) -> Context:
    """The context for a tool's body: a tool called in there is another call."""
    if context.get_value(_KEY, within) is None:
        return within
    return context.set_value(_KEY, None, within)
