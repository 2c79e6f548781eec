"""Google ADK (``google-adk``): functions, tools and toolsets, and its tool confirmations.

    agent = Agent(name="shop", tools=instrument_tools([refund], labels={"refund": ["payment"]}))

A policy that asks for approval makes ADK ask its user to confirm the call
(``adk_request_confirmation``), and the answer, a ``FunctionResponse`` with ``confirmed``, is the
approval. A denied call gives the model a response with ``error``, and the run goes on.
"""

import copy
import functools
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.function_tool import FunctionTool
from google.adk.tools.tool_context import ToolContext

from toolverdict.instrument import guard
from toolverdict.instrument.adapters.calls import (
    Grant,
    ModelCall,
    approval_id,
    granted,
    refusal,
    rejected,
)
from toolverdict.instrument.adapters.options import (
    KeyOfCall,
    Options,
    refuse_decorated,
    refuse_what_is_no_list,
)
from toolverdict.instrument.adapters.validated import plain_arguments
from toolverdict.instrument.approvals import Approval, ApprovalRequest
from toolverdict.instrument.errors import ApprovalRequired, InvalidArguments
from toolverdict.instrument.outcomes import Outcome, OutcomeHook
from toolverdict.instrument.tools import ToolSpec

AnyTool = Callable[..., Any] | BaseTool | BaseToolset
"""What an agent takes as one of its tools."""

_WITNESS: Final = "toolverdict_witness"
_SPEC: Final = "toolverdict_spec"


def instrument_tools(
    tools: Sequence[AnyTool],
    *,
    labels: Mapping[str, Collection[str]] | None = None,
    idempotency_keys: Mapping[str, KeyOfCall] | None = None,
    exclude: Mapping[str, Collection[str]] | None = None,
    outcomes: Mapping[str, OutcomeHook] | None = None,
) -> list[AnyTool]:
    """Copies of an agent's tools whose calls are witnessed and decided about.

    A function becomes a ``FunctionTool``, as it does in an agent. Tools that the model's provider
    runs (Google search, ...) are given back as they are: nothing of ours stands between them and
    the model. The context that ADK injects is not the model's and is left out.

    Args:
        tools: The tools of an agent.
        labels: What a tool can do, by its name; in a toolset with a prefix, by the prefixed one.
        idempotency_keys: The argument that holds the idempotency key, by the tool's name.
        exclude: Arguments that are never hashed, shown or recorded, by the tool's name.
        outcomes: Names the outcome of a result, by the tool's name.

    Raises:
        TypeError: A setting does not fit a tool, its function is decorated with ``@tool``, or
            something is no function, tool or toolset.
        ValueError: A setting names no tool, or a label is not usable. Where there are toolsets, it
            is logged and counted once they have listed their tools.
    """
    refuse_what_is_no_list(tools, (BaseTool, BaseToolset))
    made = [_as_tool(tool) for tool in tools]
    witness = _Witness(Options(labels, idempotency_keys, exclude, outcomes), made)
    return [
        witness.toolset(tool) if isinstance(tool, BaseToolset) else witness.tool(tool)
        for tool in made
    ]


def _as_tool(tool: AnyTool) -> BaseTool | BaseToolset:
    if isinstance(tool, BaseTool | BaseToolset):
        return tool
    if not callable(tool):
        raise TypeError(f"a {type(tool).__name__} is no function, tool or toolset")
    return FunctionTool(tool)


def _runs_here(tool: BaseTool) -> bool:
    """Whether a tool has a body of its own; the model's provider runs those that have none."""
    return type(tool).run_async is not BaseTool.run_async


class _Witness:
    """Makes an attempt of every call of the tools of one agent.

    Args:
        options: What is said about the tools.
        tools: The tools.
    """

    def __init__(self, options: Options, tools: Sequence[BaseTool | BaseToolset]) -> None:
        self._options = options
        self._names = {t.name for t in tools if isinstance(t, BaseTool) and _runs_here(t)}
        self._unlisted = sum(isinstance(tool, BaseToolset) for tool in tools)
        if not self._unlisted:
            options.check(self._names)

    def tool(self, tool: BaseTool) -> BaseTool:
        """A copy of a tool, of a subclass of its own class."""
        refuse_decorated(tool.name, getattr(tool, "func", None))
        if hasattr(tool, _WITNESS):
            raise TypeError(f"tool {tool.name!r} is instrumented already")
        if not _runs_here(tool):
            return tool
        made = copy.copy(tool)
        made.__class__ = _witnessing(type(tool))
        setattr(made, _WITNESS, self)
        self._spec(made)
        return made

    def toolset(self, toolset: BaseToolset) -> BaseToolset:
        """A copy of a toolset that lists such copies."""
        if hasattr(toolset, _WITNESS):
            raise TypeError(f"this {type(toolset).__name__} is instrumented already")
        made = copy.copy(toolset)
        made.__class__ = _listing(type(toolset))
        # What it has listed before is not witnessed.
        vars(made).update({_WITNESS: self, "_cached_prefixed_tools": None, "_first_listing": True})
        return made

    def listed(self, toolset: BaseToolset, tools: Sequence[BaseTool]) -> list[BaseTool]:
        """The tools of a toolset, which are known only now."""
        if vars(toolset).pop("_first_listing", False):
            prefix = f"{toolset.tool_name_prefix}_" if toolset.tool_name_prefix else ""
            self._names.update(prefix + tool.name for tool in tools if _runs_here(tool))
            self._unlisted -= 1
            if not self._unlisted:
                self._options.remark(self._names)
        return [self.tool(tool) for tool in tools]

    async def run(
        self,
        tool: BaseTool,
        args: dict[str, Any],
        context: ToolContext,
        body: "functools.partial[Coroutine[Any, Any, Any]]",
    ) -> Any:
        """Run a tool for a call of the model, if it may."""
        spec = self._spec(tool)
        # Tools of other classes have ways of their own to look at arguments.
        plain = isinstance(tool, FunctionTool) and body.func is FunctionTool.run_async
        function = cast("FunctionTool", tool) if plain else None
        given, problem = (args, None) if function is None else _fitted(function, args, context)
        call = ModelCall(
            replace(spec, outcome_hook=functools.partial(_outcome, spec.outcome_hook, context)),
            given,
            context.function_call_id,
            _confirmed_in(context),
            _confirmation_asked_in(context),
        )
        if problem is not None:
            with suppress(InvalidArguments):
                call.reject(InvalidArguments(problem))
            return {"error": problem}
        try:
            return await call.run_async(body)
        except Exception as error:
            if not call.stopped_by(error):
                raise
            return {"error": refusal(error)}

    def _spec(self, tool: BaseTool) -> ToolSpec:
        """What is known about a tool by the name it goes by now: toolsets put a prefix to it."""
        found = vars(tool).get(_SPEC)
        if found is None or found.name != tool.name:
            found = vars(tool)[_SPEC] = self._options.spec(tool.name, _schema(tool))
        return cast("ToolSpec", found)


@functools.cache
def _witnessing(kind: type[BaseTool]) -> type[BaseTool]:
    """A subclass that makes an attempt of every call."""

    @functools.wraps(kind.run_async)
    async def run_async(self: BaseTool, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        body = functools.partial(kind.run_async, self, args=args, tool_context=tool_context)
        witness: _Witness = getattr(self, _WITNESS)
        return await witness.run(self, args, tool_context, body)

    return _subclass(kind, run_async=run_async)


@functools.cache
def _listing(kind: type[BaseToolset]) -> type[BaseToolset]:
    """A subclass whose tools are witnessed."""

    @functools.wraps(kind.get_tools)
    async def get_tools(
        self: BaseToolset, readonly_context: ReadonlyContext | None = None
    ) -> list[BaseTool]:
        witness: _Witness = getattr(self, _WITNESS)
        return witness.listed(self, await kind.get_tools(self, readonly_context))

    return _subclass(kind, get_tools=get_tools)


def _subclass(kind: type[Any], **members: Any) -> type[Any]:
    """A subclass of the same name: ADK tells what a tool is by its class, and shows the name."""
    shown = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    metaclass: Any = type(kind)
    return cast("type[Any]", metaclass(kind.__name__, (kind,), {**shown, **members}))


def _schema(tool: BaseTool) -> dict[str, Any] | None:
    try:
        shown = tool._get_declaration()
        if shown is None:
            return None
        if shown.parameters_json_schema is not None:
            return cast("dict[str, Any]", shown.parameters_json_schema)
        if shown.parameters is not None:
            return shown.parameters.model_dump(mode="json", exclude_none=True)
        return {"type": "object", "properties": {}}  # a tool without parameters declares none
    except Exception:  # noqa: BLE001 - a schema that cannot be shown is not known
        return None


def _fitted(
    tool: FunctionTool, args: dict[str, Any], context: ToolContext
) -> tuple[dict[str, Any], str | None]:
    """The arguments as a function gets them, and what a model is told of those that do not fit.

    They are without what ADK puts its context in the place of, whoever named one so.
    """
    own = args
    if tool._spec.has_signature:
        own = {name: value for name, value in args.items() if name != tool._context_param_name}
    try:
        fitted, errors = tool._preprocess_args_with_validation(args)
        if errors:
            return own, tool._build_validation_error_response(errors)["error"]
        given = tool._prepare_invocation_args(fitted, context)
        missing = [name for name in tool._get_mandatory_args() if name not in given]
        gets = plain_arguments({name: value for name, value in given.items() if name in own})
    except Exception as error:  # noqa: BLE001 - ADK looks at the arguments again, and says it itself
        guard.fault("argument check", error)
        return own, None
    if not missing:
        return gets, None
    return own, f"{tool.name}() needs these arguments as well: {', '.join(missing)}"


def _confirmed_in(context: ToolContext) -> Grant:
    """What the user said about the call, if ADK has asked already."""

    def grant(request: ApprovalRequest) -> Approval | None:
        said = context.tool_confirmation
        if said is None:
            return None
        return granted(request) if said.confirmed is True else rejected(request)

    return grant


def _confirmation_asked_in(context: ToolContext) -> Grant:
    """Ask the user by way of ADK; nobody is asked about a call that no model made."""

    def pause(request: ApprovalRequest) -> Approval | None:
        if context.function_call_id:
            known_as = approval_id(request.call_id)
            waits = ApprovalRequired(request.tool, known_as, request.rule_ids, request.reason)
            context.request_confirmation(hint=str(waits))
            # Else the model is asked to go on, and makes the call again.
            context.actions.skip_summarization = True
        return None

    return pause


def _outcome(own: OutcomeHook | None, context: ToolContext, result: object) -> Outcome | None:
    """What the author says; else a tool that asked its user for something waits for that."""
    judged = own(result) if own is not None else None
    if judged is not None:
        return judged
    asked = context.actions
    waits = {*asked.requested_tool_confirmations, *asked.requested_auth_configs}
    return Outcome.PENDING_APPROVAL if context.function_call_id in waits else None
