"""agentevals: reference trajectories, which are lists of chat messages.

A document is one list of messages, an object that holds one (``messages``, ``reference_outputs``,
``outputs``), a row of a LangSmith data set, or a list of such objects. Messages may be OpenAI's,
LangChain's or Anthropic's; the calls of one message are in any order, as its strict match has it.
By default as its strict match with exact arguments; other modes are arguments of its evaluators. How the calls
of a run are spread over messages is not compared, as two calls at once and one by one do the same.

Source: https://github.com/langchain-ai/agentevals, ``agentevals/trajectory``.
"""

from collections.abc import Iterator
from typing import Any

from toolverdict.scoring.cases.files import Place
from toolverdict.scoring.importers.expecting import arguments_of, expected_call
from toolverdict.scoring.importers.imported import CaseDict, Losses
from toolverdict.scoring.importers.nodes import Node

_HOLDERS = ("reference_outputs", "reference_trajectory", "expected", "outputs", "messages")
_USER = frozenset({"user", "human"})
_AGENT = frozenset({"assistant", "ai", "AIMessage"})


def read_agentevals(document: Node, losses: Losses) -> Iterator[tuple[Place, CaseDict]]:
    """The cases of a document."""
    if isinstance(document.data, list) and not _is_messages(document.data):
        for item in document.items():
            yield item.place, _case(item, losses)
    else:
        yield document.place, _case(document, losses)


def _case(node: Node, losses: Losses) -> CaseDict:
    case: CaseDict = {}
    if isinstance(node.data, dict):
        named = node.get("id", "name")
        if named is not None:
            case["id"] = str(named.data)
    messages = list(_messages(node).items())
    if not messages:
        raise node.error("expected a list of messages, got an empty one")
    asked = _input(node) or next((t for m in messages if (t := _said(m, _USER))), None)
    if asked:
        case["input"] = asked
    case["expected_tool_calls"] = [
        calls[0] if len(calls) == 1 else calls for m in messages if (calls := _calls(m, losses))
    ]
    for message in messages:
        if _role(message) == "tool":
            losses.add(message.place, "what a tool returned is not compared")
        elif _said(message, _AGENT):
            losses.add(message.place, "what the agent said is not compared")
    return case


def _messages(node: Node) -> Node:
    """The list of messages, however deep it is wrapped."""
    while isinstance(node.data, dict):
        if node.has("steps") and node.has("results"):
            raise node.error("is a graph trajectory: it names nodes of a graph, not tool calls")
        if "role" in node.data or "type" in node.data:
            return Node(node.place, [node.data])
        node = node.need(*_HOLDERS)
    return node


def _is_messages(items: list[Any]) -> bool:
    first = items[0] if items else None
    return isinstance(first, dict) and ("role" in first or ("type" in first and "content" in first))


def _input(node: Node) -> str | None:
    """What the user said, where it stands beside the reference."""
    given = node.get("inputs", "input") if isinstance(node.data, dict) else None
    if given is None or isinstance(given.data, str):
        return given.data if given is not None else None
    if isinstance(given.data, dict) and (given.get("messages") is None):
        only = [value for value in given.data.values() if isinstance(value, str)]
        return only[0] if len(only) == 1 else None
    return next((t for m in _messages(given).items() if (t := _said(m, _USER))), None)


def _role(message: Node) -> str:
    named = message.get("role", "type")
    return str(named.data) if named is not None else ""


def _said(message: Node, roles: frozenset[str]) -> str | None:
    """The text of a message of one of these roles; None where it has none."""
    content = message.get("content")
    if _role(message) not in roles or content is None:
        return None
    if isinstance(content.data, str):
        return content.data or None
    parts = [part.data for part in content.items() if isinstance(part.data, dict)]
    return "\n".join(str(part["text"]) for part in parts if part.get("text")) or None


def _calls(message: Node, losses: Losses) -> list[dict[str, Any]]:
    """The calls that a message asks for."""
    calls: list[dict[str, Any]] = []
    listed = message.get("tool_calls")
    for call in listed.items() if listed is not None else ():
        spoken = call.get("function") or call
        calls.append(
            expected_call(
                spoken.need("name").text(), arguments_of(spoken.get("arguments", "args", "input"))
            )
        )
    content = message.get("content")
    if not calls and content is not None and isinstance(content.data, list):
        calls = [
            expected_call(part.need("name").text(), arguments_of(part.get("input")))
            for part in content.items()
            if isinstance(part.data, dict) and part.data.get("type") == "tool_use"
        ]
    if calls and _role(message) not in _AGENT:
        losses.add(message.place, f"calls in a message of {_role(message)!r} are the agent's here")
    return calls
