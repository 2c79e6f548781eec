"""Pydantic AI (``pydantic-ai-slim``): every tool of an agent, by a capability.

    agent = Agent(model, tools=[refund], capabilities=[instrument_tools(labels={"refund": ["payment"]})])

A denied call is a failed tool result (``ToolFailed``), which the model sees and the run survives. A
policy that asks for approval defers the call: the run ends with ``DeferredToolRequests`` and goes
on with ``DeferredToolResults``. The agent's ``output_type`` has to name ``DeferredToolRequests``,
as for every tool of Pydantic AI that needs approval.
"""

import functools
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pydantic import ValidationError
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ApprovalRequired as Deferred
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool, WrapperToolset

from toolverdict.instrument.adapters.calls import Grant, ModelCall, granted, refusal
from toolverdict.instrument.adapters.options import KeyOfCall, Options, refuse_decorated
from toolverdict.instrument.adapters.validated import plain_arguments
from toolverdict.instrument.approvals import Approval, ApprovalRequest
from toolverdict.instrument.arguments import Arguments
from toolverdict.instrument.errors import ApprovalRequired
from toolverdict.instrument.outcomes import OutcomeHook
from toolverdict.instrument.tools import ToolSpec


def instrument_tools(
    *,
    labels: Mapping[str, Collection[str]] | None = None,
    idempotency_keys: Mapping[str, KeyOfCall] | None = None,
    exclude: Mapping[str, Collection[str]] | None = None,
    outcomes: Mapping[str, OutcomeHook] | None = None,
) -> AbstractCapability[Any]:
    """A capability that witnesses and decides about every tool call of an agent.

    It covers functions, toolsets and MCP servers alike; output tools are no tool calls. Put it last
    among the capabilities, so that none behind it changes the arguments it has decided about.

    Args:
        labels: What a tool can do, by its name.
        idempotency_keys: The argument that holds the idempotency key, by the tool's name.
        exclude: Arguments that are never hashed, shown or recorded, by the tool's name.
        outcomes: Names the outcome of a result, by the tool's name.

    Raises:
        TypeError: When the agent runs: a setting does not fit a tool, or its function is decorated
            with ``@tool``.
        ValueError: When the agent runs: a label is not usable. A name that no tool has is logged
            and counted, since an agent may be given that tool later.
    """
    return _Witness(Options(labels, idempotency_keys, exclude, outcomes))


class _Witness(AbstractCapability[Any]):
    """Makes an attempt of every tool call.

    Args:
        options: What is said about tools.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._specs: dict[tuple[str, str], ToolSpec] = {}

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Stand between the agent and the bodies of its tools."""
        return _WitnessedToolset(toolset, self)

    async def wrap_tool_validate(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: str | dict[str, Any],
        handler: Callable[..., Any],
    ) -> dict[str, Any]:
        """Leave a span for arguments that are turned down; no toolset sees those."""
        try:
            return cast("dict[str, Any]", await handler(args))
        except (ValidationError, ModelRetry) as error:
            spec = self.spec(tool_def)
            ModelCall(spec, _given(args), call.tool_call_id).reject(error)

    def check(self, tools: Mapping[str, ToolsetTool[Any]]) -> None:
        """Look at the tools of a run before the model does."""
        self._options.remark(tools)
        for name, tool in tools.items():
            refuse_decorated(name, _function_of(tool))
            self.spec(tool.tool_def)

    def spec(self, tool: ToolDefinition) -> ToolSpec:
        """What is known about a tool, worked out when it or its schema is new."""
        schema = tool.parameters_json_schema
        key = (tool.name, json.dumps(schema, sort_keys=True, default=str))
        if key not in self._specs:
            self._specs[key] = self._options.spec(tool.name, schema)
        return self._specs[key]


@dataclass
class _WitnessedToolset(WrapperToolset[Any]):
    """The tools of an agent, each call of them an attempt."""

    witness: _Witness

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        tools = await super().get_tools(ctx)
        self.witness.check(tools)
        return tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        call = ModelCall(
            self.witness.spec(tool.tool_def),
            plain_arguments(tool_args),
            ctx.tool_call_id,
            _granted_in(ctx),
        )
        body = functools.partial(super().call_tool, name, tool_args, ctx, tool)
        try:
            return await call.run_async(body)
        except Exception as error:
            if not call.stopped_by(error):
                raise
            if isinstance(error, ApprovalRequired):
                said = {"approval_id": error.approval_id, "reason": error.reason}
                raise Deferred(said) from None
            raise ToolFailed(refusal(error)) from None


def _function_of(tool: Any) -> object:
    """The function of a tool that has one, from under the toolsets that combine others."""
    while hasattr(tool, "source_tool"):
        tool = tool.source_tool
    schema = getattr(getattr(tool, "call_func", None), "__self__", None)
    return getattr(schema, "function", None)


def _granted_in(ctx: RunContext[Any]) -> Grant:
    """What the run was resumed with; a call that was denied there is never made."""

    def grant(request: ApprovalRequest) -> Approval | None:
        return granted(request) if ctx.tool_call_approved is True else None

    return grant


def _given(args: str | dict[str, Any]) -> Arguments | None:
    if isinstance(args, dict):
        return args
    try:
        parsed = json.loads(args or "{}")
    except (ValueError, RecursionError):
        return None
    return cast("Arguments", parsed) if isinstance(parsed, dict) else None
