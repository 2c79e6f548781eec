"""FastMCP (``fastmcp``): every tool of a server, by a middleware.

    server = FastMCP("shop", middleware=[instrument_tools(labels={"refund": ["payment"]})])

The trace comes in ``params._meta``, which FastMCP and the MCP SDK under it read themselves, and the
call's id beside it, where a client of ours sent it (``adapters.mcp``). A denied call is a result
with ``isError``; so is one that needs an approval, since the protocol has no way to pause it.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from fastmcp.exceptions import NotFoundError, ToolError, ValidationError
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext

from toolverdict.instrument.adapters.calls import ModelCall, refusal
from toolverdict.instrument.adapters.options import KeyOfCall, Options, refuse_decorated
from toolverdict.instrument.outcomes import Outcome, OutcomeHook
from toolverdict.instrument.tools import ToolSpec

_CALL_ID_META = "toolverdict/call_id"


def instrument_tools(
    *,
    labels: Mapping[str, Collection[str]] | None = None,
    idempotency_keys: Mapping[str, KeyOfCall] | None = None,
    exclude: Mapping[str, Collection[str]] | None = None,
    outcomes: Mapping[str, OutcomeHook] | None = None,
) -> Middleware:
    """A middleware that witnesses and decides about every tool call of a server.

    Put it last, so that no other middleware changes the arguments it has decided about. Tools may
    be added and mounted later, so a name that no tool has goes unnoticed.

    Args:
        labels: What a tool can do, by its name.
        idempotency_keys: The argument that holds the idempotency key, by the tool's name.
        exclude: Arguments that are never hashed, shown or recorded, by the tool's name.
        outcomes: Names the outcome of a result, by the tool's name.
    """
    return _Witness(Options(labels, idempotency_keys, exclude, outcomes))


class _Witness(Middleware):
    """Makes an attempt of every tool call.

    Args:
        options: What is said about tools.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._specs: dict[str, tuple[object, ToolSpec]] = {}

    async def on_call_tool(
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
    ) -> Any:
        """Run a tool, if it may."""
        asked = context.message
        tool = await self._tool(context, asked.name)
        if tool is None:
            return await call_next(context)
        refuse_decorated(asked.name, getattr(tool, "fn", None))
        spec = self._spec(asked.name, tool.parameters)
        call = ModelCall(spec, asked.arguments or {}, _call_id_in(context), wraps=(ToolError,))
        try:
            return await call.run_async(partial(self._run, call, context, call_next))
        except Exception as error:
            if not call.stopped_by(error):
                raise
            raise ToolError(refusal(error)) from None

    async def _run(
        self, call: ModelCall, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
    ) -> Any:
        try:
            return await call_next(context)
        except ValidationError:
            call.rejected_by_body()
            raise

    async def _tool(self, context: MiddlewareContext[Any], name: str) -> Any:
        found = context.fastmcp_context
        try:
            return await found.fastmcp.get_tool(name) if found is not None else None
        except NotFoundError:
            return None

    def _spec(self, name: str, schema: Mapping[str, Any]) -> ToolSpec:
        found = self._specs.get(name)
        if found is None or found[0] != schema:
            spec = self._options.spec(name, schema)
            spec = replace(spec, outcome_hook=partial(_in_band, spec.outcome_hook))
            found = self._specs[name] = schema, spec
        return found[1]


def _call_id_in(context: MiddlewareContext[Any]) -> str | None:
    """The id that the client sent, if a client of ours did."""
    try:
        meta: Any = context.fastmcp_context.request_context.meta  # type: ignore[union-attr]
        found = meta.get(_CALL_ID_META) if meta else None
    except (AttributeError, ValueError, LookupError, RuntimeError):
        return None
    return found if isinstance(found, str) else None


def _in_band(own: OutcomeHook | None, result: object) -> Outcome | None:
    """What the author says; else a failure that is told in the result is a failure."""
    judged = own(result) if own is not None else None
    if judged is None and getattr(result, "is_error", None) is True:
        return Outcome.ERROR
    return judged
