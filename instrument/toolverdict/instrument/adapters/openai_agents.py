"""OpenAI Agents SDK (``openai-agents``): function tools, and its approvals by interruption.

    agent = Agent(name="refunds", tools=instrument_tools([refund], labels={"refund": ["payment"]}))

A policy that asks for approval interrupts the run (``result.interruptions``), and
``state.approve(...)`` or ``state.reject(...)`` answers it, one call at a time: ``always_approve`` is
no approval of a policy, since nobody has seen what it would be for. A denied call gives the model a
text that says so, and the run goes on.
"""

import copy
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

from agents import FunctionTool, RunContextWrapper, Tool, _debug
from agents.exceptions import ModelBehaviorError
from agents.function_schema import function_schema
from agents.tool import (
    set_function_tool_failure_error_function,
    with_function_tool_failure_error_handler,
)
from agents.tool_context import ToolContext
from agents.tracing import SpanError, get_current_span
from pydantic import BaseModel, ValidationError

from toolverdict.instrument import guard
from toolverdict.instrument.adapters.calls import ModelCall, asks_for_approval, granted, refusal
from toolverdict.instrument.adapters.options import (
    KeyOfCall,
    Options,
    refuse_decorated,
    refuse_plain,
    refuse_what_is_no_list,
)
from toolverdict.instrument.adapters.validated import names_by_alias, plain_fields
from toolverdict.instrument.approvals import Approval, ApprovalRequest
from toolverdict.instrument.arguments import Arguments
from toolverdict.instrument.errors import ApprovalRequired
from toolverdict.instrument.outcomes import OutcomeHook
from toolverdict.instrument.tools import ToolSpec

_MOST_WAITING: Final = 1024

NeedsApproval = bool | Callable[[RunContextWrapper[Any], dict[str, Any], str], Awaitable[bool]]


def instrument_tools(
    tools: Sequence[Tool],
    *,
    labels: Mapping[str, Collection[str]] | None = None,
    idempotency_keys: Mapping[str, KeyOfCall] | None = None,
    exclude: Mapping[str, Collection[str]] | None = None,
    outcomes: Mapping[str, OutcomeHook] | None = None,
) -> list[Tool]:
    """Copies of an agent's tools whose calls are witnessed and decided about.

    Tools that the model's provider runs (web search, hosted MCP, ...) are given back as they are:
    nothing of ours stands between them and the model.

    Args:
        tools: The tools of an agent.
        labels: What a tool can do, by its name.
        idempotency_keys: The argument that holds the idempotency key, by the tool's name.
        exclude: Arguments that are never hashed, shown or recorded, by the tool's name.
        outcomes: Names the outcome of a result, by the tool's name.

    Raises:
        TypeError: A setting does not fit a tool, its function is decorated with ``@tool``, or
            something is a plain function, or no list of tools.
        ValueError: A setting names no tool, or a label is not usable.
    """
    refuse_what_is_no_list(tools, FunctionTool)
    for tool in tools:
        refuse_plain(tool, FunctionTool, "@function_tool")
    options = Options(labels, idempotency_keys, exclude, outcomes)
    options.check(tool.name for tool in tools if isinstance(tool, FunctionTool))
    return [
        _instrumented(tool, options) if isinstance(tool, FunctionTool) else tool for tool in tools
    ]


class _WitnessedTool(FunctionTool):
    """A function tool that asks for approval when the policy does, or when it did already."""

    _witness: "_Witness | None" = None
    _own_needs: NeedsApproval = False

    # A property, since a callable alone makes the SDK pause on arguments that it cannot read,
    # which a tool that needs no approval must not do.
    @property
    def needs_approval(self) -> NeedsApproval:
        """Whether a call waits for the framework's approval."""
        if self._witness is None or not asks_for_approval(self._witness.spec):
            return self._own_needs
        return self._witness.must_wait

    @needs_approval.setter
    def needs_approval(self, needs: NeedsApproval) -> None:
        self._own_needs = needs


def _instrumented(tool: FunctionTool, options: Options) -> FunctionTool:
    refuse_decorated(tool.name, getattr(tool, "__wrapped__", None))
    if isinstance(tool, _WitnessedTool):
        raise TypeError(f"tool {tool.name!r} is instrumented already")
    inner = set_function_tool_failure_error_function(copy.copy(tool), None)
    parameters = _parameters_of(tool)
    names = names_by_alias(parameters.model_fields) if parameters is not None else None
    spec = options.spec(tool.name, tool.params_json_schema, names)
    witness = _Witness(spec, inner, parameters)
    made = _WitnessedTool.__new__(_WitnessedTool)
    state = dict(vars(tool))
    needs = state.pop("needs_approval")
    vars(made).update(state, _witness=witness, _own_needs=needs)
    handles_failures = hasattr(tool.on_invoke_tool, "__agents_bind_function_tool__")
    made.on_invoke_tool = (
        with_function_tool_failure_error_handler(witness.invoke, _note_handled)
        if handles_failures
        else witness.invoke
    )
    return copy.copy(made)  # binds the handler of failures to the tool


class _Witness:
    """Makes an attempt of every call of one tool.

    Args:
        spec: What is known about the tool.
        inner: The tool itself, raising what goes wrong in it.
        parameters: Validates arguments as the tool does; None when it is not made of a function.
    """

    def __init__(
        self, spec: ToolSpec, inner: FunctionTool, parameters: type[BaseModel] | None
    ) -> None:
        self.spec = spec
        self._inner = inner
        self._parameters = parameters
        self._considered: OrderedDict[str, ModelCall] = OrderedDict()

    async def must_wait(
        self, context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str
    ) -> bool:
        """Whether nobody has said yes yet; the SDK asks this before it runs the tool."""
        try:
            given = self._as_the_body_gets(arguments)
        except ModelBehaviorError:
            return False
        call = ModelCall(self.spec, given, call_id)
        try:
            await call.allow_async()
        except ApprovalRequired as error:
            call.finish(error)
            return True
        except Exception as error:
            if not call.stopped_by(error):
                call.finish(error)
                raise
        self._considered[call_id] = call
        if len(self._considered) > _MOST_WAITING:
            self._considered.popitem(last=False)[1].abandon()
        return False

    async def invoke(self, context: ToolContext[Any], given: str) -> Any:
        """Run the tool for a call of the model, if it may."""
        arguments, call_id = _parsed(given), context.tool_call_id
        try:
            fitted = self._as_the_body_gets(arguments)
        except ModelBehaviorError as problem:
            self._considered_before(call_id, None)
            ModelCall(self.spec, arguments, call_id).reject(problem)
        call = self._considered_before(call_id, fitted)
        if call is None:
            call = ModelCall(self.spec, fitted, call_id, _granted_in(context))
        try:
            return await call.run_async(partial(self._run, call, context, given))
        except Exception as error:
            if call.stopped_by(error):
                return refusal(error)
            raise

    async def _run(self, call: ModelCall, context: ToolContext[Any], given: str) -> Any:
        try:
            return await self._inner.on_invoke_tool(context, given)
        except ModelBehaviorError:
            call.body_turned_down()
            raise

    def _considered_before(self, call_id: str, arguments: Arguments | None) -> ModelCall | None:
        """The attempt that was let through already, if it is the one with these arguments."""
        call = self._considered.pop(call_id, None)
        if call is not None and call.arguments != arguments:
            call.abandon()
            return None
        return call

    def _as_the_body_gets(self, arguments: Arguments | None) -> Arguments:
        """What the model gave as the SDK validates it, by the names of the function's parameters.

        Raises:
            ModelBehaviorError: What the SDK says of arguments that do not fit.
        """
        message = f"Invalid JSON input for tool {self.spec.name}"
        if arguments is None:
            raise ModelBehaviorError(message)
        if self._parameters is None:
            return arguments
        try:
            return plain_fields(self._parameters(**copy.deepcopy(dict(arguments))))
        except ValidationError as error:
            # Its text holds arguments, which the SDK keeps to itself unless told otherwise.
            raise ModelBehaviorError(
                message if _debug.DONT_LOG_TOOL_DATA else f"{message}: {error}"
            ) from None


def _parameters_of(tool: FunctionTool) -> type[BaseModel] | None:
    function = getattr(tool, "__wrapped__", None)
    if function is None:
        return None
    try:
        return function_schema(function, strict_json_schema=False).params_pydantic_model
    except Exception:  # noqa: BLE001 - what was good for the tool need not be good for this
        return None


def _granted_in(context: ToolContext[Any]) -> Callable[[ApprovalRequest], Approval | None]:
    """What was said about the call in the run's state; a rejected call is never invoked."""

    def grant(request: ApprovalRequest) -> Approval | None:
        # The SDK has checked that the approval is for this very call before it came here.
        name = context.qualified_tool_name
        if context.is_tool_approved(name, context.tool_call_id) is not True:
            return None
        if context.is_tool_approved(name, f"any other than {request.call_id}") is True:
            # ``always_approve``: nobody has seen this call.
            guard.note(
                "adapter",
                "always_approve is no approval of a policy; approve each call of tool %r",
                request.tool,
            )
            return None
        return granted(request)

    return grant


def _parsed(given: str) -> Arguments | None:
    try:
        parsed = json.loads(given) if given else {}
    except (ValueError, RecursionError):
        return None
    return cast("Arguments", parsed) if isinstance(parsed, dict) else None


def _note_handled(tool: FunctionTool, error: Exception, given: str) -> None:
    """Mark the SDK's own span, as the SDK does for a failure that the model is told about."""
    span = get_current_span()
    if span is not None:
        data = {"tool_name": tool.name, "error": type(error).__name__}
        span.set_error(SpanError(message="Error running tool (non-fatal)", data=data))
