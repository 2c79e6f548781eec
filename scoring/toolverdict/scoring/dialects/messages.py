"""What stands in messages to and from a model: calls asked for, answers given back, approvals.

Vendors and frameworks write messages in a dozen shapes; the shapes are few enough to be told by
their keys. Only known containers are entered. Texts, arguments and results are never searched: what
a tool or a user wrote must not be able to pass for a call.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from toolverdict.scoring.dialects import values
from toolverdict.scoring.dialects.dialect import REQUESTED, Decision
from toolverdict.scoring.dialects.failures import Signs, signs_of_result, texts
from toolverdict.scoring.model import Captured, Json

_MAX_NODES = 50_000
_MAX_DEPTH = 32


@dataclass(frozen=True, slots=True)
class Asked:
    """A call that the model asked for, in which message of those that were read.

    ``signs`` are what the message itself says of its end: that the arguments were no JSON.
    """

    tool: str
    call_id: str | None
    arguments: Json
    arguments_state: Captured
    message: int = 0
    signs: Signs = field(default_factory=Signs)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was given back to the model for a call; ``state`` says whether its result was recorded."""

    call_id: str | None
    tool: str | None
    result: Json
    signs: Signs
    state: Captured = Captured.CAPTURED


@dataclass(frozen=True, slots=True)
class Said:
    """A text of a message, with the role that said it."""

    role: str
    text: str


Item: TypeAlias = Asked | Answer | Said | Decision

_IN_ORDER = (
    "messages",
    "message",
    "generations",
    "choices",
    "candidates",
    "replies",
    "contents",
    "parts",
    "update",
    "outputs",
    "output",
    "inputs",
    "input",
    "data",
    "kwargs",
    "content",
    "payload",
    "tool_calls",
    "toolCalls",
    "invalid_tool_calls",
)
"""Keys under which messages and their parts lie, in the order in which they are read."""

_CONTAINERS = {key: index for index, key in enumerate(_IN_ORDER)}
_NESTED = (dict, list)

_ANSWER_TYPES = frozenset(
    {
        "tool_call_response",
        "tool_response",
        "tool_result",
        "tool-result",
        "function_call_output",
        "mcp_call_output",
    }
)
_REFUSED_TYPE = "invalid_tool_call"
_ASKED_TYPES = frozenset(
    {"tool_call", "tool-call", "tool_use", "function_call", "toolCall", _REFUSED_TYPE}
)
_RESULT_KEYS = ("response", "result", "output", "content")
_TOOL_ROLES = frozenset({"tool", "function", "ipython"})
_LANGCHAIN_ROLES = {"human": "user", "ai": "assistant"}


def items(value: Json, *, generated: bool) -> Iterator[Item]:
    """What stands in messages, in their order.

    Args:
        value: decoded messages, in any known shape.
        generated: the model wrote them (its output), so that the repr of a call may stand for it.
    """
    # Each entry: value, role of the message it lies in, depth.
    waiting: list[tuple[Json, str, int]] = [(value, "", 0)]
    message = 0
    for _ in range(_MAX_NODES):
        if not waiting:
            return
        node, role, depth = waiting.pop()
        if isinstance(node, list):
            if depth < _MAX_DEPTH:
                waiting.extend((item, role, depth + 1) for item in reversed(node))
        elif isinstance(node, dict):
            own = _role(node)
            message += own is not None
            role = own or role
            found = _found(node, role, message)
            if found is not None:
                yield from found
                continue
            yield from _texts_of(node, role, generated)
            if depth < _MAX_DEPTH:
                inner = [
                    node[key]
                    for key in sorted(node.keys() & _CONTAINERS.keys(), key=_CONTAINERS.__getitem__)
                    if isinstance(node[key], _NESTED)
                ]
                if node.get("tool_calls") and isinstance(node.get("content"), list):
                    # The same calls in the vendor's own form: the framework's list is complete.
                    inner.remove(node["content"])
                waiting.extend((item, role, depth + 1) for item in reversed(inner))


def _role(node: Mapping[str, Json]) -> str | None:
    message = node.get("message")
    role = node.get("role") or (message.get("role") if isinstance(message, dict) else None)
    if isinstance(role, str):
        return role
    kind = node.get("type")
    return _LANGCHAIN_ROLES.get(kind) if isinstance(kind, str) else None


def _found(node: dict[str, Json], role: str, message: int) -> list[Item] | None:
    """What this object is, where it is a call, an answer or a decision; None where it is none."""
    kind = node.get("type")
    kind = kind if isinstance(kind, str) else ""
    if kind in ("tool-approval-request", "tool-approval-response"):
        status = REQUESTED if kind.endswith("request") else _approval(node)
        return [Decision(status, _text(node, "toolCallId", "tool_call_id"))]
    answer = _answer(node, kind, role)
    if answer is not None:
        return answer
    asked = _asked(node, kind)
    if asked is None:
        return None
    tool, call_id, arguments = asked
    read, state = values.content(arguments)
    read = {} if read == "" else _unparsed(read)
    if kind == _REFUSED_TYPE:
        signs = Signs(failed=True, invalid_arguments=True, texts=texts(node.get("error")))
        return [Asked(tool, call_id, read, state, message, signs)]
    return [Asked(tool, call_id, read, state, message)]


def _unparsed(arguments: Json) -> Json:
    """The text that was no JSON, which some put into an object of its own."""
    if isinstance(arguments, dict) and set(arguments) == {"raw"}:
        raw = arguments["raw"]
        if isinstance(raw, str) and raw.startswith("{") and values.decoded(raw) == raw:
            return raw
    return arguments


def _approval(node: Mapping[str, Json]) -> str:
    approved = node.get("approved")
    return "answered" if not isinstance(approved, bool) else "approved" if approved else "rejected"


def _answer(node: dict[str, Json], kind: str, role: str) -> list[Item] | None:
    if kind in _ANSWER_TYPES:
        if not any(key in node for key in _RESULT_KEYS):
            return [_unrecorded(node)]
        value = _first(node, *_RESULT_KEYS)
        return [_answered(_id(node), _text(node, "name", "toolName"), value, _flagged(node))]
    inner = node.get("toolResult")
    if isinstance(inner, dict):
        return [_answered(_id(inner), None, inner.get("content"), _flagged(inner))]
    inner = node.get("function_response") or node.get("functionResponse")
    if isinstance(inner, dict):
        return [_answered(_id(inner), _text(inner, "name"), _response(inner), _flagged(inner))]
    inner = node.get("tool_call_result")
    if isinstance(inner, dict):
        origin = inner.get("origin")
        origin = origin if isinstance(origin, dict) else {}
        name = _text(origin, "tool_name", "name")
        return [_answered(_id(origin), name, inner.get("result"), _flagged(inner))]
    if _text(node, "tool_call_id") and ("content" in node or "contents" in node):
        value = node["content"] if "content" in node else _last_content(node["contents"])
        return [_answered(_id(node), _text(node, "name"), value, _flagged(node))]
    if role == "tool" and _text(node, "id") and "content" in node and "parts" not in node:
        return [_answered(_id(node), _text(node, "name"), node["content"], _flagged(node))]
    if role in _TOOL_ROLES and isinstance(node.get("function"), list):
        results = [values.decoded(item) for item in node["function"]]
        return [
            _answered(_text(r, "call_id", "id"), _text(r, "name"), r.get("content"), _flagged(r))
            for r in results
            if isinstance(r, dict)
        ]
    return None


def _unrecorded(node: dict[str, Json]) -> Answer:
    """An answer whose content was left out: that there is one says that the call has ended."""
    signs = Signs(ended=True, failed=_flagged(node))
    name = _text(node, "name", "toolName")
    return Answer(_id(node), name, None, signs, Captured.NOT_CAPTURED)


def _answered(call_id: str | None, tool: str | None, value: Json, failed: bool) -> Answer:
    call_id = call_id.removeprefix(f"{tool}__") if call_id else None
    if isinstance(value, dict) and str(value.get("type", "")).startswith("error"):
        failed = True
    if isinstance(value, dict) and value.get("type") == "execution-denied":
        return Answer(call_id, tool, value, Signs(failed=True, refused=True))
    read = values.result(value)
    signs = signs_of_result(read, Captured.CAPTURED)
    if failed:
        signs += Signs(failed=True, texts=texts(read))
    return Answer(call_id, tool, read, signs + Signs(ended=True))


def _last_content(contents: Json) -> Json:
    """The last of several contents: of parallel answers folded into one only its id is there."""
    last = contents[-1] if isinstance(contents, list) and contents else None
    inner = last.get("message_content") if isinstance(last, dict) else None
    return inner.get("text") if isinstance(inner, dict) else last


def _response(inner: Mapping[str, Json]) -> Json:
    """A function's response: a text that was no object was put into one."""
    response = inner.get("response")
    if isinstance(response, dict) and set(response) == {"result"}:
        return response["result"]
    return response


def _flagged(node: Mapping[str, Json]) -> bool:
    flags = (node.get("is_error"), node.get("isError"), node.get("error"))
    return any(flag is True for flag in flags) or node.get("status") == "error"


_Call: TypeAlias = tuple[str, str | None, Json]
"""Tool, call id, and arguments as they stand there."""


def _asked(node: dict[str, Json], kind: str) -> _Call | None:
    inner = node.get("toolUse")
    if isinstance(inner, dict):
        return _call(_text(inner, "name"), _id(inner), inner.get("input"))
    inner = node.get("function_call") or node.get("functionCall")
    if isinstance(inner, dict) and ("args" in inner or "arguments" in inner):
        return _call(_text(inner, "name"), _id(inner), _first(inner, "args", "arguments"))
    inner = node.get("tool_call")
    if isinstance(inner, dict):
        return _asked(inner, "tool_call")
    function = node.get("function")
    if isinstance(function, dict) and "parameters" not in function:
        if "arguments" in function or kind in _ASKED_TYPES or _id(node):
            return _call(_text(function, "name"), _id(node), function.get("arguments"))
        return None
    name = _text(node, "name", "toolName", "tool_name")
    has_arguments = "arguments" in node or "args" in node
    if kind in _ASKED_TYPES or (has_arguments and "parameters" not in node):
        return _call(name, _id(node), _first(node, "arguments", "args", "input"))
    if _text(node, "toolCallId") and "input" in node:
        return _call(name, _id(node), node["input"])
    return None


def _call(name: str | None, call_id: str | None, arguments: Json) -> _Call | None:
    if name is None:
        return None
    # Some put the tool's name before the id that the model gave.
    return name, call_id.removeprefix(f"{name}__") if call_id else None, arguments


def _texts_of(node: dict[str, Json], role: str, generated: bool) -> Iterator[Item]:
    """The texts of a message or of one of its parts, and calls that stand as the repr of one."""
    for key in ("content", "text"):
        text = node.get(key)
        if not isinstance(text, str) or not text:
            continue
        made = values.constructed(text) if generated and role != "user" else None
        if made is not None and _text(made, "call_id", "id") and _text(made, "name"):
            call_id = _text(made, "call_id", "id")
            read, state = values.content(made.get("arguments"))
            yield Asked(_text(made, "name") or "", call_id, read, state)
        elif role:
            yield Said(role, text)


def _id(node: Mapping[str, Json]) -> str | None:
    return _text(
        node, "call_id", "tool_call_id", "toolCallId", "tool_use_id", "toolUseId", "id"
    ) or (_text(node, "callId"))


def _text(node: Mapping[str, Json], *keys: str) -> str | None:
    for key in keys:
        value = node.get(key)
        if isinstance(value, str) and value:
            return value
    return None


def _first(node: Mapping[str, Json], *keys: str) -> Json:
    return next((node[key] for key in keys if node.get(key) is not None), None)


def nested(attributes: Mapping[str, Json], beginning: str) -> Json:
    """Flattened attributes as the value they stand for.

    ``p.0.message.role`` and ``p.0.message.content`` are ``[{"message": {"role", "content"}}]``.
    """
    root: dict[str, Json] = {}
    start = len(beginning)
    for key, value in attributes.items():
        if not key.startswith(beginning):
            continue
        node = root
        *path, last = key[start:].split(".", _MAX_DEPTH)
        for step in path:
            deeper = node.get(step)
            if not isinstance(deeper, dict):
                deeper = node[step] = {}
            node = deeper
        if not isinstance(node.get(last), dict):
            node[last] = value
    return _lists(root, 0)


def _lists(node: Json, depth: int) -> Json:
    """Objects whose keys are all numbers, as lists in the order of the numbers."""
    if not isinstance(node, dict) or depth > _MAX_DEPTH + 1:
        return node
    read = {key: _lists(value, depth + 1) for key, value in node.items()}
    if read and all(key.isascii() and key.isdigit() and len(key) < 10 for key in read):
        return [read[key] for key in sorted(read, key=int)]
    return read
