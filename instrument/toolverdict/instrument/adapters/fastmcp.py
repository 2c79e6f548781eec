"""FastMCP (``fastmcp``): every tool of a server, by a middleware.

    server = FastMCP("shop", middleware=[instrument_tools(labels={"refund": ["payment"]})])

The trace comes in ``params._meta``, which FastMCP and the MCP SDK under it read themselves, and the
call's id beside it, where a client of ours sent it (``adapters.mcp``). A denied call is a result
with ``isError``; so is one that needs an approval, unless the client's user may be asked
(``elicit``).
"""

import inspect
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, get_type_hints

from fastmcp.exceptions import NotFoundError, ToolError, ValidationError
from fastmcp.server.dependencies import without_injected_parameters
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools.base import InputRequiredToolResult
from fastmcp.tools.function_tool import FunctionTool
from pydantic.fields import FieldInfo

from toolverdict.instrument import guard
from toolverdict.instrument.adapters.calls import ModelCall, refusal
from toolverdict.instrument.adapters.elicitation import Elicitation, OpenQuestions
from toolverdict.instrument.adapters.known_tools import KnownTools
from toolverdict.instrument.adapters.options import KeyOfCall, Options, refuse_decorated
from toolverdict.instrument.adapters.unknown import note_unknown
from toolverdict.instrument.adapters.validated import names_by_alias, plain_arguments
from toolverdict.instrument.outcomes import Outcome, OutcomeHook

_CALL_ID_META = "toolverdict/call_id"


def instrument_tools(
    *,
    labels: Mapping[str, Collection[str]] | None = None,
    idempotency_keys: Mapping[str, KeyOfCall] | None = None,
    exclude: Mapping[str, Collection[str]] | None = None,
    outcomes: Mapping[str, OutcomeHook] | None = None,
    elicit: bool = False,
) -> Middleware:
    """A middleware that witnesses and decides about every tool call of a server.

    Put it last, so that no other middleware changes the arguments it has decided about. Tools may
    be added and mounted later, so a name that no tool has is logged and counted, when a client
    first lists or calls the tools. A tool that is there only later is said as well and, if there are
    labels, counts as one that writes, unless they name it.

    A function is decided about by the arguments that it gets. What a tool of another kind makes of
    its arguments is not known here: of one that renames them, or runs elsewhere, they are taken as
    the model gave them.

    Args:
        labels: What a tool can do, by its name.
        idempotency_keys: The argument that holds the idempotency key, by the tool's name.
        exclude: Arguments that are never hashed, shown or recorded, by the tool's name.
        outcomes: Names the outcome of a result, by the tool's name.
        elicit: Whether the client's user is asked where the policy wants an approval and the
            approver that is configured has none. A client can answer in its user's place: say yes
            only where those who run the clients may approve what they call.
    """
    return _Witness(Options(labels, idempotency_keys, exclude, outcomes), elicit)


class _Witness(Middleware):
    """Makes an attempt of every tool call.

    Args:
        options: What is said about tools.
        elicit: Whether the client's user may approve.
    """

    def __init__(self, options: Options, elicit: bool) -> None:
        self._known = KnownTools(options, _outcome)
        self._questions = OpenQuestions()
        self._elicit = elicit
        self._probes: dict[str, tuple[Callable[..., Any], FunctionTool]] = {}

    async def on_list_tools(
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
    ) -> Any:
        """Look whether each name that something is said of is there."""
        tools = await call_next(context)
        self._known.listed(tool.name for tool in tools)
        return tools

    async def on_call_tool(
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
    ) -> Any:
        """Run a tool, if it may."""
        asked = context.message
        tool = await self._tool(context, asked.name)
        arguments = asked.arguments or {}
        if tool is None:
            try:
                return await call_next(context)
            except NotFoundError:
                note_unknown(asked.name, arguments, _call_id_in(context))
                raise
        refuse_decorated(asked.name, getattr(tool, "fn", None))
        if not self._known.all_listed:
            await self._list(context)
        user = Elicitation(context.fastmcp_context, self._questions)
        probe = self._probe(tool)
        names = _names(probe) if probe is not None else None
        spec = self._known.spec(asked.name, tool.parameters, names)
        call_id = _call_id_in(context) or user.call_id
        try:
            given = await _as_the_body_gets(probe, arguments)
        except Exception as error:  # noqa: BLE001 - a validator is the tool author's
            ModelCall(spec, arguments, call_id).reject(error)
        call = ModelCall(
            spec, given, call_id, ask=user.ask if self._elicit else None, wraps=(ToolError,)
        )
        try:
            return await call.run_async(partial(self._run, call, context, call_next))
        except Exception as error:
            if not call.stopped_by(error):
                raise
            if user.question is not None:
                return InputRequiredToolResult(user.question)
            raise ToolError(refusal(error)) from None

    async def _run(
        self, call: ModelCall, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]
    ) -> Any:
        try:
            return await call_next(context)
        except ValidationError:
            call.body_turned_down()
            raise

    async def _list(self, context: MiddlewareContext[Any]) -> None:
        found = context.fastmcp_context
        try:
            if found is not None:
                listed = await found.fastmcp.list_tools(run_middleware=False)
                self._known.listed(tool.name for tool in listed)
        except Exception as error:  # noqa: BLE001 - some provider of other tools; this one is here
            guard.note("adapter", "tools cannot be listed (%s)", type(error).__name__)

    async def _tool(self, context: MiddlewareContext[Any], name: str) -> Any:
        found = context.fastmcp_context
        try:
            return await found.fastmcp.get_tool(name) if found is not None else None
        except NotFoundError:
            return None

    def _probe(self, tool: Any) -> FunctionTool | None:
        """What validates like a tool; None where the body is no function of this server."""
        if not isinstance(tool, FunctionTool) or type(tool).run is not FunctionTool.run:
            return None
        known = self._probes.get(tool.name)
        if known is None or known[0] is not tool.fn:
            known = self._probes[tool.name] = tool.fn, _probe(tool)
        return known[1]


async def _as_the_body_gets(
    probe: FunctionTool | None, arguments: Mapping[str, Any]
) -> Mapping[str, object]:
    """What the model gave as FastMCP validates it, by the names of the function's parameters.

    Raises:
        Exception: What FastMCP raises for arguments that do not fit.
    """
    if probe is None:
        return arguments
    try:
        await probe.run(dict(arguments))
    except _Taken as taken:
        parameters = taken.bound.signature.parameters
        return plain_arguments(
            {
                name: value
                for name, value in taken.bound.arguments.items()
                if name in arguments or value is not parameters[name].default
            }
        )
    return arguments


def _names(probe: FunctionTool) -> dict[str, str]:
    """What the function calls the arguments that a model may give by another name."""
    signature = inspect.signature(probe.fn)
    found: dict[str, FieldInfo] = {}
    for name, annotation in probe.fn.__annotations__.items():
        for said in (*getattr(annotation, "__metadata__", ()), signature.parameters[name].default):
            if isinstance(said, FieldInfo):
                found[name] = said
    return names_by_alias(found)


class _Taken(BaseException):
    """Carries out of a validation what it has made of the arguments.

    An exception, since results are made content of; no ``Exception``, since those are handled.
    """

    def __init__(self, bound: inspect.BoundArguments) -> None:
        super().__init__()
        self.bound = bound


def _probe(tool: FunctionTool) -> FunctionTool:
    """A tool that validates its arguments like another one, and does not run."""
    # Without what FastMCP injects: that would be made for nothing.
    shown = without_injected_parameters(tool.fn)
    signature = inspect.signature(shown)
    try:
        hints = get_type_hints(shown, include_extras=True)
    except Exception:  # noqa: BLE001 - a partial has none, and then FastMCP reads the signature
        hints = {}

    async def take(*args: Any, **kwargs: Any) -> None:
        raise _Taken(signature.bind(*args, **kwargs))

    annotations = {
        name: hints.get(name, parameter.annotation)
        for name, parameter in signature.parameters.items()
        if name in hints or parameter.annotation is not parameter.empty
    }
    take.__signature__ = signature  # type: ignore[attr-defined]
    take.__annotations__ = annotations
    take.__name__ = take.__qualname__ = tool.name
    return tool.model_copy(update={"fn": take, "timeout": None, "output_schema": None})


def _call_id_in(context: MiddlewareContext[Any]) -> str | None:
    """The id that the client sent, if a client of ours did."""
    try:
        meta: Any = context.fastmcp_context.request_context.meta  # type: ignore[union-attr]
        found = meta.get(_CALL_ID_META) if meta else None
    except (AttributeError, ValueError, LookupError, RuntimeError):
        return None
    return found if isinstance(found, str) else None


def _outcome(own: OutcomeHook | None, result: object) -> Outcome | None:
    """What the author says; else a call that is answered with a question is made once more."""
    judged = own(result) if own is not None else None
    if judged is None and isinstance(result, InputRequiredToolResult):
        return Outcome.PENDING_APPROVAL
    return judged
