"""Model Context Protocol (``mcp``): a client that calls tools, and a server that has them.

    session = instrument_client(session, server="shop", labels={"refund": ["payment"]})
    server = instrument_server(MCPServer("shop"), labels={"refund": ["payment"]})

The trace travels in ``params._meta`` (``traceparent`` and ``tracestate``, or what the configured
propagator writes), to the SDK's own spans in the server and ours inside of them; a malformed one
is passed over. ``toolverdict/call_id`` travels beside it, by which both ends know the call as one.
Headers are left to whoever instruments HTTP.

A denied call is a result with ``isError``, which a model is shown. The protocol has no way to pause
a call for an approval: a client raises ``ApprovalRequired``, and the call is made again once it is
given; a server answers with ``isError`` and the id of the approval.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Final, TypeVar

from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, TextContent
from opentelemetry import propagate
from pydantic import ValidationError

from toolverdict.instrument import call_ids, guard
from toolverdict.instrument.adapters.calls import ModelCall, refusal
from toolverdict.instrument.adapters.options import KeyOfCall, Options, refuse_decorated
from toolverdict.instrument.errors import ApprovalRequired
from toolverdict.instrument.outcomes import Outcome, OutcomeHook
from toolverdict.instrument.tools import ToolSpec

CALL_ID_META: Final = "toolverdict/call_id"
"""The key of ``params._meta`` that holds the id of the call in the model's request."""


C = TypeVar("C")


def instrument_client(
    client: C,
    *,
    server: str | None = None,
    labels: Mapping[str, Collection[str]] | None = None,
    idempotency_keys: Mapping[str, KeyOfCall] | None = None,
    exclude: Mapping[str, Collection[str]] | None = None,
    outcomes: Mapping[str, OutcomeHook] | None = None,
) -> C:
    """Witness and decide about the calls of one ``Client`` or ``ClientSession``, which is returned.

    The id of a call is that of ``tool_call(...)`` around it. A client knows its tools by the names
    that the server gives them, so a name that no tool has goes unnoticed here.

    Args:
        client: The client; its ``call_tool`` is replaced.
        server: Put before the names of tools in spans and policies, as in ``shop.refund``.
        labels: What a tool can do, by the server's name of it.
        idempotency_keys: The argument that holds the idempotency key, by the tool's name.
        exclude: Arguments that are never hashed, shown or recorded, by the tool's name.
        outcomes: Names the outcome of a result, by the tool's name.

    Raises:
        TypeError: It is instrumented already.
    """
    known = _Tools(Options(labels, idempotency_keys, exclude, outcomes), server)
    inner = _taken_over(client)

    @wraps(inner)
    async def call_tool(
        name: str, arguments: dict[str, Any] | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        call = ModelCall(known.spec(name), arguments or {}, call_ids.current_call_id())
        meta = {CALL_ID_META: call.call_id, **(kwargs.pop("meta", None) or {})}

        async def send() -> Any:
            _inject(meta)
            return await inner(name, arguments, *args, meta=meta, **kwargs)

        try:
            return await call.run_async(send)
        except Exception as error:
            if not call.stopped_by(error) or isinstance(error, ApprovalRequired):
                raise
            return CallToolResult(
                content=[TextContent(type="text", text=refusal(error))], is_error=True
            )

    vars(client)["call_tool"] = call_tool
    return client


def instrument_server(
    server: C,
    *,
    labels: Mapping[str, Collection[str]] | None = None,
    idempotency_keys: Mapping[str, KeyOfCall] | None = None,
    exclude: Mapping[str, Collection[str]] | None = None,
    outcomes: Mapping[str, OutcomeHook] | None = None,
) -> C:
    """Witness and decide about every tool call of one ``MCPServer``, which is returned.

    The server of an agent's own tools; tools may be added to it later. For a low-level ``Server``,
    decorate the functions that it calls with ``@tool``.

    Args:
        server: The server; its ``call_tool`` is replaced.
        labels: What a tool can do, by its name.
        idempotency_keys: The argument that holds the idempotency key, by the tool's name.
        exclude: Arguments that are never hashed, shown or recorded, by the tool's name.
        outcomes: Names the outcome of a result, by the tool's name.

    Raises:
        TypeError: It is instrumented already.
    """
    known = _Tools(Options(labels, idempotency_keys, exclude, outcomes), None)
    inner = _taken_over(server)

    @wraps(inner)
    async def call_tool(name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        tool = _tool_of(server, name)
        if tool is None:
            return await inner(name, arguments, context)
        refuse_decorated(name, tool.fn)
        spec = known.spec(name, tool.parameters)
        call = ModelCall(spec, arguments, _call_id_in(context), wraps=(ToolError,))
        try:
            tool.fn_metadata.validate_arguments(arguments)
        except ValidationError as error:
            told = ToolError(f"Error executing tool {name}: {error}")
            told.__cause__ = error  # by which the SDK tells it from a tool that failed
            call.reject(told)
        try:
            return await call.run_async(partial(inner, name, arguments, context))
        except Exception as error:
            if not call.stopped_by(error):
                raise
            raise ToolError(refusal(error)) from None

    vars(server)["call_tool"] = call_tool
    return server


class _Tools:
    """What is known about tools by name; worked out when they are called first.

    Args:
        options: What is said about tools.
        server: Put before their names.
    """

    def __init__(self, options: Options, server: str | None) -> None:
        self._options = options
        self._prefix = f"{server}." if server else ""
        self._specs: dict[str, tuple[object, ToolSpec]] = {}

    def spec(self, name: str, schema: Mapping[str, Any] | None = None) -> ToolSpec:
        found = self._specs.get(name)
        if found is None or found[0] is not schema:
            spec = self._options.spec(name, schema)
            hook = partial(_outcome, spec.outcome_hook)
            found = schema, replace(spec, name=self._prefix + name, outcome_hook=hook)
            self._specs[name] = found
        return found[1]


def _outcome(own: OutcomeHook | None, result: object) -> Outcome | None:
    """What the author says; else a failure that is told in the result is a failure."""
    judged = own(result) if own is not None else None
    if judged is not None:
        return judged
    if getattr(result, "is_error", None) is True:
        return Outcome.ERROR
    # The server asks for something first, and the call is made again with the answer.
    if getattr(result, "result_type", None) == "input_required":
        return Outcome.PENDING_APPROVAL
    return None


def _taken_over(holder: Any) -> Callable[..., Any]:
    if "call_tool" in vars(holder):
        raise TypeError(f"this {type(holder).__name__} is instrumented already")
    inner: Callable[..., Any] = holder.call_tool
    return inner


def _inject(meta: dict[str, Any]) -> None:
    """Send the trace along; the SDK does so itself, but not between two ends in one process."""
    try:
        propagate.inject(meta)
    except Exception as error:  # noqa: BLE001 - a propagator that fails must not stop the call
        guard.fault("trace context", error)


def _tool_of(server: Any, name: str) -> Any:
    # The SDK lists its tools as data for clients only; how it validates is known to the tool.
    return server._tool_manager.get_tool(name)


def _call_id_in(context: Any) -> str | None:
    """The id that the client sent, if a client of ours did."""
    try:
        meta: Any = context.request_context.meta
        found = meta.get(CALL_ID_META) if meta else None
    except (AttributeError, ValueError, LookupError):
        return None
    return found if isinstance(found, str) else None
