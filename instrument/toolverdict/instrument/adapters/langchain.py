"""LangChain tools (``langchain-core``), alone, in LangGraph's ``ToolNode`` or in an agent.

    agent = create_agent(model, tools=instrument_tools([refund], labels={"refund": ["payment"]}))

A denied call gives the model a ``ToolMessage`` of status ``error``. A policy that asks for approval
interrupts the graph with what ``HumanInTheLoopMiddleware`` interrupts with, and is answered the
same way: ``Command(resume={"decisions": [{"type": "approve"}]})``, or ``reject``.

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
from toolverdict.instrument.adapters.calls import ModelCall, approval_id, granted, refusal, rejected
from toolverdict.instrument.adapters.options import KeyOfCall, Options, refuse_decorated
from toolverdict.instrument.approvals import Approval, ApprovalRequest
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
        TypeError: A setting does not fit a tool, or its function is decorated with ``@tool``.
        ValueError: A setting names no tool, or a label is not usable.
    """
    options = Options(labels, idempotency_keys, exclude, outcomes)
    options.check(tool.name for tool in tools)
    return [_instrumented(tool, options) for tool in tools]


def _instrumented(tool: BaseTool, options: Options) -> BaseTool:
    functions = (getattr(tool, "func", None), getattr(tool, "coroutine", None))
    refuse_decorated(tool.name, *functions)
    kind = type(tool)
    if hasattr(kind, "toolverdict_witness"):
        raise TypeError(f"tool {tool.name!r} is instrumented already")
    spec = options.spec(tool.name, _schema(tool))
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
        shown = witness.shown(self, tool_input)
        try:
            args, kwargs = prepare(self, tool_input, tool_call_id)
        except Exception as error:  # noqa: BLE001 - it is raised again, once it has a span
            witness.call(shown, tool_call_id).reject(error)
        return args, {**kwargs, _CALL: (shown, tool_call_id)}

    # The framework looks at the signatures to know what to inject.
    @functools.wraps(run)
    def witnessed(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
        shown, call_id = kwargs.pop(_CALL, (None, None))
        if shown is None:
            return run(self, *args, **kwargs)
        call = witness.call(shown, call_id)
        try:
            return call.run(functools.partial(run, self, *args, **kwargs))
        except Exception as error:
            if call_id is None or not call.stopped_by(error):
                raise
            return _refused(self, call_id, error)

    @functools.wraps(arun)
    async def witnessed_async(self: BaseTool, *args: Any, **kwargs: Any) -> Any:
        shown, call_id = kwargs.pop(_CALL, (None, None))
        if shown is None:
            return await arun(self, *args, **kwargs)
        call = witness.call(shown, call_id)
        try:
            return await call.run_async(functools.partial(arun, self, *args, **kwargs))
        except Exception as error:
            if call_id is None or not call.stopped_by(error):
                raise
            return _refused(self, call_id, error)

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

    def shown(self, tool: BaseTool, given: Any) -> Arguments:
        """The arguments that are the model's, before the framework puts its own among them."""
        named = dict(given) if isinstance(given, dict) else {self._first: given}
        return tool._filter_injected_args(named)

    def call(self, arguments: Arguments, call_id: str | None) -> ModelCall:
        """The attempt; it ends with the body, or where the arguments are turned down."""
        with _inside_of_openinference():
            return ModelCall(self._spec, arguments, call_id, pause=_interrupt)


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


def _refused(tool: BaseTool, call_id: str, error: Exception) -> Any:
    """What the model is told; whoever calls a tool without a model gets the exception."""
    told = ToolMessage(refusal(error), tool_call_id=call_id, name=tool.name, status="error")
    return (told, None) if tool.response_format == "content_and_artifact" else told


def _interrupt(request: ApprovalRequest) -> Approval | None:
    """Pause the graph that runs, or read what it was resumed with; None where no graph runs."""
    types, config = sys.modules.get("langgraph.types"), sys.modules.get("langgraph.config")
    if types is None or config is None:
        return None
    try:
        if "__pregel_scratchpad" not in config.get_config()["configurable"]:
            return None
    except (KeyError, RuntimeError):
        return None
    answer = types.interrupt(
        {
            "action_requests": [
                {
                    "name": request.tool,
                    "args": dict(request.arguments),
                    "description": request.reason,
                }
            ],
            "review_configs": [
                {"action_name": request.tool, "allowed_decisions": ["approve", "reject"]}
            ],
            "approval_id": approval_id(request.call_id),
            "args_hash": request.args_hash,
        }
    )
    return granted(request) if _approves(answer) else rejected(request)


def _approves(answer: object) -> bool:
    """Whether a graph was resumed with a yes, in the words of ``HumanInTheLoopMiddleware``."""
    decisions = answer.get("decisions") if isinstance(answer, dict) else None
    if not isinstance(decisions, list) or len(decisions) != 1:
        return False
    return isinstance(decisions[0], dict) and decisions[0].get("type") == "approve"
