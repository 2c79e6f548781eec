"""Model Context Protocol (``mcp``): a client that calls tools, and a server that has them.

    session = instrument_client(session, server="shop", labels={"refund": ["payment"]})
    server = instrument_server(MCPServer("shop"), labels={"refund": ["payment"]})

The trace travels in ``params._meta`` (``traceparent`` and ``tracestate``, or what the configured
propagator writes), to the SDK's own spans in the server and ours inside of them; a malformed one
is passed over. ``toolverdict/call_id`` travels beside it, by which both ends know the call as one.
Headers are left to whoever instruments HTTP.

A denied call is a result with ``isError``, which a model is shown. For an approval, a client raises
``ApprovalRequired``, and the call is made again once it is given. A server answers with ``isError``
and the id of the approval, unless it may ask the client's user (``elicit``).
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any, Final, TypeVar, cast

from mcp.client import Client, ClientSession
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from mcp.types import CallToolResult, TextContent
from opentelemetry import propagate
from pydantic import ValidationError

from toolverdict.instrument import call_ids, guard
from toolverdict.instrument.adapters.calls import ModelCall, refusal
from toolverdict.instrument.adapters.elicitation import Elicitation, OpenQuestions
from toolverdict.instrument.adapters.known_tools import KnownTools
from toolverdict.instrument.adapters.options import KeyOfCall, Options, refuse_decorated
from toolverdict.instrument.adapters.unknown import note_unknown
from toolverdict.instrument.adapters.validated import names_by_alias, plain_fields
from toolverdict.instrument.errors import ApprovalRequired
from toolverdict.instrument.outcomes import Outcome, OutcomeHook

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

    The id of a call is that of ``tool_call(...)`` around it. A name that no tool has is logged and
    counted once the client has listed the server's tools. A tool that the first list did not have is
    said as well and, if there are labels, counts as one that writes, unless they name it.

    Decisions are about the arguments as they are sent: what a server makes of them (another name
    for a field, a default) only a server that is instrumented itself can know.

    Args:
        client: The client; its ``call_tool`` and ``list_tools`` are replaced, and those of its
            session, so that nothing goes past it.
        server: Put before the names of tools in spans and policies, as in ``shop.refund``.
        labels: What a tool can do, by the server's name of it.
        idempotency_keys: The argument that holds the idempotency key, by the tool's name.
        exclude: Arguments that are never hashed, shown or recorded, by the tool's name.
        outcomes: Names the outcome of a result, by the tool's name.

    Raises:
        TypeError: It is instrumented already.
    """
    options = Options(labels, idempotency_keys, exclude, outcomes)
    known = KnownTools(options, _outcome, f"{server}." if server else "")
    if isinstance(client, Client):
        _watch_session(client, known)
    _watch(client, known)
    return client


def instrument_server(
    server: C,
    *,
    labels: Mapping[str, Collection[str]] | None = None,
    idempotency_keys: Mapping[str, KeyOfCall] | None = None,
    exclude: Mapping[str, Collection[str]] | None = None,
    outcomes: Mapping[str, OutcomeHook] | None = None,
    elicit: bool = False,
) -> C:
    """Witness and decide about every tool call of one ``MCPServer``, which is returned.

    The server of an agent's own tools; tools may be added to it later, so a name that no tool has
    is logged and counted, at the first call. A tool that is added after that is said as well and, if
    there are labels, counts as one that writes, unless they name it. For a low-level ``Server``,
    decorate the functions that it calls with ``@tool``.

    Args:
        server: The server; its ``call_tool`` is replaced.
        labels: What a tool can do, by its name.
        idempotency_keys: The argument that holds the idempotency key, by the tool's name.
        exclude: Arguments that are never hashed, shown or recorded, by the tool's name.
        outcomes: Names the outcome of a result, by the tool's name.
        elicit: Whether the client's user is asked where the policy wants an approval and the
            approver that is configured has none. A client can answer in its user's place: say yes
            only where those who run the clients may approve what they call.

    Raises:
        TypeError: It is instrumented already.
    """
    known = KnownTools(Options(labels, idempotency_keys, exclude, outcomes), _outcome)
    questions = OpenQuestions()
    inner = _taken_over(server)

    @wraps(inner)
    async def call_tool(name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        tool = _tool_of(server, name)
        if tool is None:
            try:
                return await inner(name, arguments, context)
            except ToolError:
                note_unknown(name, arguments, _call_id_in(context))
                raise
        refuse_decorated(name, tool.fn)
        known.listed(_names_in(server))
        user = Elicitation(context, questions)
        fields = tool.fn_metadata.arg_model.model_fields
        own = {field.alias or name: field for name, field in fields.items()}
        spec = known.spec(name, tool.parameters, names_by_alias(own))
        call_id = _call_id_in(context) or user.call_id
        try:
            given = _as_the_body_gets(tool, arguments)
        except Exception as error:  # noqa: BLE001 - a validator is the tool author's
            ModelCall(spec, arguments, call_id).reject(_turned_down(name, error))
        call = ModelCall(spec, given, call_id, ask=user.ask if elicit else None, wraps=(ToolError,))
        try:
            return await call.run_async(partial(inner, name, arguments, context))
        except Exception as error:
            if not call.stopped_by(error):
                raise
            if user.question is not None:
                return user.question
            raise ToolError(refusal(error)) from None

    vars(server)["call_tool"] = call_tool
    return server


def _outcome(own: OutcomeHook | None, result: object) -> Outcome | None:
    """What the author says; else a call that is answered with a question is made once more."""
    judged = own(result) if own is not None else None
    if judged is None and getattr(result, "result_type", None) == "input_required":
        return Outcome.PENDING_APPROVAL
    return judged


_sent: ContextVar[tuple[str, object] | None] = ContextVar("toolverdict-mcp-sent", default=None)
"""The call that a client of ours hands over to its session, which has a span already."""


def _watch(holder: Any, known: KnownTools) -> None:
    """Witness and decide about what a client, or a session, calls."""
    inner, listing = _taken_over(holder), holder.list_tools

    @wraps(inner)
    async def call_tool(
        name: str, arguments: dict[str, Any] | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        sent = _sent.get()
        if sent is not None and sent[0] == name and sent[1] is arguments:
            return await inner(name, arguments, *args, **kwargs)
        call = ModelCall(known.spec(name), arguments or {}, call_ids.current_call_id())
        meta = {CALL_ID_META: call.call_id, **(kwargs.pop("meta", None) or {})}

        async def send() -> Any:
            _inject(meta)
            token = _sent.set((name, arguments))
            try:
                return await inner(name, arguments, *args, meta=meta, **kwargs)
            finally:
                _sent.reset(token)

        try:
            return await call.run_async(send)
        except Exception as error:
            if not call.stopped_by(error) or isinstance(error, ApprovalRequired):
                raise
            return CallToolResult(
                content=[TextContent(type="text", text=refusal(error))], is_error=True
            )

    @wraps(listing)
    async def list_tools(*args: Any, **kwargs: Any) -> Any:
        listed = await listing(*args, **kwargs)
        known.listed([tool.name for tool in listed.tools], complete=listed.next_cursor is None)
        return listed

    vars(holder).update(call_tool=call_tool, list_tools=list_tools)


def _watch_session(client: Client, known: KnownTools) -> None:
    """Watch the session of a client too, which it gets when it is entered."""
    kind = type(client)

    def session(self: Client) -> ClientSession:
        found = cast("ClientSession", cast("property", kind.session).__get__(self))
        if "call_tool" not in vars(found):
            _watch(found, known)
        return found

    try:
        connected = client.session
    except RuntimeError:
        connected = None
    if connected is not None and "call_tool" in vars(connected):
        raise TypeError("the session of this Client is instrumented already")
    members = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "session": property(session),
    }
    client.__class__ = type(kind.__name__, (kind,), members)


def _taken_over(holder: Any) -> Callable[..., Awaitable[Any]]:
    if "call_tool" in vars(holder):
        raise TypeError(f"this {type(holder).__name__} is instrumented already")
    inner: Callable[..., Awaitable[Any]] = holder.call_tool
    return inner


def _as_the_body_gets(tool: Any, arguments: dict[str, Any]) -> dict[str, object]:
    """What the model gave as the SDK validates it, by the names of the function's parameters."""
    metadata = tool.fn_metadata
    validated = metadata.arg_model.model_validate(metadata.pre_parse_json(arguments))
    fields = metadata.arg_model.model_fields
    return {fields[name].alias or name: value for name, value in plain_fields(validated).items()}


def _turned_down(name: str, error: Exception) -> ToolError:
    """What the SDK says of arguments that its validation turns down."""
    told: ToolError = UnexpectedToolError(f"Error executing tool {name}")
    if isinstance(error, ValidationError):
        told = ToolError(f"Error executing tool {name}: {error}")
    told.__cause__ = error  # by which the SDK tells it from a tool that failed
    return told


def _inject(meta: dict[str, Any]) -> None:
    """Send the trace along; the SDK does so itself, but not between two ends in one process."""
    try:
        propagate.inject(meta)
    except Exception as error:  # noqa: BLE001 - a propagator that fails must not stop the call
        guard.fault("trace context", error)


def _tool_of(server: Any, name: str) -> Any:
    # The SDK lists its tools as data for clients only; how it validates is known to the tool.
    return server._tool_manager.get_tool(name)


def _names_in(server: Any) -> Iterator[str]:
    return (tool.name for tool in server._tool_manager.list_tools())


def _call_id_in(context: Any) -> str | None:
    """The id that the client sent, if a client of ours did."""
    try:
        meta: Any = context.request_context.meta
        found = meta.get(CALL_ID_META) if meta else None
    except (AttributeError, ValueError, LookupError):
        return None
    return found if isinstance(found, str) else None
