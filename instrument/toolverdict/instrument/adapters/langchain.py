"""LangChain tools (``langchain-core``), alone, in LangGraph's ``ToolNode`` or in an agent.

    agent = create_agent(model, tools=instrument_tools([refund], labels={"refund": ["payment"]}))

A denied call gives the model a ``ToolMessage`` of status ``error``. A policy that asks for approval
interrupts the graph with what ``HumanInTheLoopMiddleware`` interrupts with, and is answered the
same way: ``Command(resume={"decisions": [{"type": "approve"}]})``, or ``reject``. The answer is for
the call that was shown, and for one run of it.

LangGraph is not imported here: where a graph runs, it is there already.
"""

import copy
import functools
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, cast

from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from opentelemetry import trace
from pydantic import BaseModel

from toolverdict.instrument import guard
from toolverdict.instrument.adapters.calls import ModelCall, refusal
from toolverdict.instrument.adapters.graph_approvals import GraphApproval
from toolverdict.instrument.adapters.options import (
    KeyOfCall,
    Options,
    refuse_decorated,
    refuse_plain,
    refuse_what_is_no_list,
)
from toolverdict.instrument.adapters.validated import names_by_alias, plain_arguments
from toolverdict.instrument.arguments import Arguments
from toolverdict.instrument.outcomes import OutcomeHook
from toolverdict.instrument.spans import Attached
from toolverdict.instrument.tools import ToolSpec

_CALL: Final = "toolverdict_call"
"""The keyword by which a call reaches the tool's body from where its arguments were validated."""


def instrument_tools(
    tools: Sequence[BaseTool],
    *,
    labels: Mapping[str, Collection[str]] | None = None,
    idempotency_keys: Mapping[str, KeyOfCall] | None = None,
    exclude: Mapping[str, Collection[str]] | None = None,
    outcomes: Mapping[str, OutcomeHook] | None = None,
) -> list[BaseTool]:
    """Copies of tools whose calls are witnessed and decided about.

    Each is of a subclass of its tool's own class. Arguments that the framework injects (state,
    runtime, the id of the call) are not the model's and are left out.

    Args:
        tools: The tools, as ``create_agent``, ``ToolNode`` or ``bind_tools`` take them.
        labels: What a tool can do, by its name.
        idempotency_keys: The argument that holds the idempotency key, by the tool's name.
        exclude: Arguments that are never hashed, shown or recorded, by the tool's name.
        outcomes: Names the outcome of a result, by the tool's name.

    Raises:
        TypeError: A setting does not fit a tool, its function is decorated with ``@tool``, or
            something is a plain function, or no list of tools.
        ValueError: A setting names no tool, or a label is not usable.
    """
    refuse_what_is_no_list(tools, BaseTool)
    for tool in tools:
        refuse_plain(tool, BaseTool, "LangChain's @tool")
    options = Options(labels, idempotency_keys, exclude, outcomes)
    options.check(tool.name for tool in tools)
    return [_instrumented(tool, options) for tool in tools]


def _instrumented(tool: BaseTool, options: Options) -> BaseTool:
    functions = (getattr(tool, "func", None), getattr(tool, "coroutine", None))
    refuse_decorated(tool.name, *functions)
    kind = type(tool)
    if hasattr(kind, "toolverdict_witness"):
        raise TypeError(f"tool {tool.name!r} is instrumented already")
    fields = getattr(tool.args_schema, "model_fields", {})
    spec = options.spec(tool.name, _schema(tool), names_by_alias(fields))
    made = copy.copy(tool)
    object.__setattr__(made, "__class__", _witnessing(kind, _Witness(spec, tool)))
    return made


def _schema(tool: BaseTool) -> dict[str, Any] | None:
    try:
        shown = tool.tool_call_schema
        if isinstance(shown, dict):
            return shown
        return shown.model_json_schema() if issubclass(shown, BaseModel) else None
    except Exception:  # noqa: BLE001 - a schema that cannot be shown is not known
        return None


def _witnessing(kind: type[BaseTool], witness: "_Witness") -> type[BaseTool]:
    """A subclass that makes an attempt of every call between validation and body."""
    # The class, not the function, since only here the id of the call is known, and since a tool
    # may have no function.
    run: Callable[..., Any] = kind._run
    arun: Callable[..., Awaitable[Any]] = kind._arun
    prepare: Callable[..., Any] = kind._to_args_and_kwargs

    def prepared(self: BaseTool, tool_input: Any, tool_call_id: str | None) -> Any:
        given = witness.given(self, tool_input)
        try:
            args, kwargs = prepare(self, tool_input, tool_call_id)
        except Exception as error:  # noqa: BLE001 - it is raised again, once it has a span
            witness.call(given, tool_call_id).reject(error)
        shown = witness.shown(self, tool_input, args, kwargs)
        return args, {**kwargs, _CALL: (shown, tool_call_id)}

    # The framework looks at the signatures to know what to inject.
    @functools.wraps(run)
    def witnessed(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
        shown, call_id = kwargs.pop(_CALL, (None, None))
        if shown is None:
            return run(self, *args, **kwargs)
        approval = GraphApproval(call_id, functools.partial(_told, self, call_id))
        call = witness.call(shown, call_id, approval)
        body = functools.partial(run, self, *args, **kwargs)
        try:
            with approval:
                return call.run(functools.partial(approval.run, body))
        except Exception as error:
            if call_id is None or not call.stopped_by(error):
                raise
            return _told(self, call_id, refusal(error))

    @functools.wraps(arun)
    async def witnessed_async(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
        shown, call_id = kwargs.pop(_CALL, (None, None))
        if shown is None:
            return await arun(self, *args, **kwargs)
        approval = GraphApproval(call_id, functools.partial(_told, self, call_id))
        call = witness.call(shown, call_id, approval)
        body = functools.partial(arun, self, *args, **kwargs)
        try:
            with approval:
                return await call.run_async(functools.partial(approval.run_async, body))
        except Exception as error:
            if call_id is None or not call.stopped_by(error):
                raise
            return _told(self, call_id, refusal(error))

    members = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "_to_args_and_kwargs": prepared,
        "_run": witnessed,
        "_arun": witnessed_async,
        "toolverdict_witness": property(lambda self: witness),
    }
    metaclass: Any = type(kind)
    return cast("type[BaseTool]", metaclass(kind.__name__, (kind,), members))


class _Witness:
    """Makes an attempt of every call of one tool.

    Args:
        spec: What is known about the tool.
        tool: The tool.
    """

    def __init__(self, spec: ToolSpec, tool: BaseTool) -> None:
        self._spec = spec
        self._first = next(iter(tool.args), "input")

    def given(self, tool: BaseTool, given: Any) -> Arguments:
        """The arguments that are the model's, before the framework puts its own among them."""
        named = dict(given) if isinstance(given, dict) else {self._first: given}
        return tool._filter_injected_args(named)

    def shown(
        self, tool: BaseTool, given: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Arguments:
        """The same as the body gets them."""
        if args:  # a tool of one argument gets it without a name
            return plain_arguments({self._first: args[0]})
        names = _names_given(tool, given)
        own = tool._filter_injected_args(kwargs)
        return plain_arguments(
            {name: value for name, value in own.items() if names is None or name in names}
        )

    def call(
        self, arguments: Arguments, call_id: str | None, approval: GraphApproval | None = None
    ) -> ModelCall:
        """The attempt; it ends with the body, or where the arguments are turned down."""
        with _inside_of_openinference():
            if approval is None:
                return ModelCall(self._spec, arguments, call_id)
            call = ModelCall(self._spec, arguments, call_id, pause=approval.ask, ask=approval.wait)
        approval.call = call
        return call


def _names_given(tool: BaseTool, given: Any) -> set[str] | None:
    """The fields that the model has given, by whatever name; None if nothing tells."""
    schema = tool.args_schema
    if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
        return None
    try:
        return schema.model_validate(given).model_fields_set
    except Exception:  # noqa: BLE001 - the tool has ways of its own to read its arguments
        return None


def _inside_of_openinference() -> AbstractContextManager[None]:
    """Make OpenInference's span of the tool current, if it makes one.

    It keeps its spans of LangChain to itself, and the same call would seem to be two, in two
    traces.
    """
    found = sys.modules.get("openinference.instrumentation.langchain")
    try:
        span = found.get_current_span() if found is not None else None
    except Exception as error:  # noqa: BLE001 - another instrumentation must not stop the tool
        guard.fault("openinference", error)
        span = None
    return nullcontext() if span is None else Attached(trace.set_span_in_context(span))


def _told(tool: BaseTool, call_id: str | None, text: str) -> Any:
    """What the model is told in the place of a result; just the text where there is no model."""
    if call_id is None:
        return (text, None) if tool.response_format == "content_and_artifact" else text
    told = ToolMessage(text, tool_call_id=call_id, name=tool.name, status="error")
    return (told, None) if tool.response_format == "content_and_artifact" else told
