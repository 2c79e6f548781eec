"""Values as telemetry writes them: JSON text, JSON twice, Python's repr, wrapped results.

Everything here comes from a trace. Whatever cannot be read within bounds stays the text it is.
"""

import ast
import re
import warnings
from typing import Any

import orjson

from toolverdict.scoring.model import Captured, Json
from toolverdict.scoring.values import parse, plain

_MAX_REPR_CHARS = 65_536
_MAX_REPR_DEPTH = 32
_MAX_UNWRAPPED = 8
_HIDDEN = "__REDACTED__"  # what OpenInference writes where content is turned off
_REPR = re.compile(r"\s*[\[{(]")
_STRING = r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_TOOL_MESSAGE = re.compile(
    rf"content={_STRING} (?:name={_STRING} )?(?:id={_STRING} )?tool_call_id='"
)
_CONSTRUCTOR = re.compile(r"\s*[A-Za-z_]\w{0,63}\(")
_UNREADABLE = (ValueError, OverflowError, SyntaxError, TypeError, MemoryError, RecursionError)


def content(value: Json) -> tuple[Json, Captured]:
    """A captured value: JSON text decoded, and again where an exporter encoded it twice.

    A bare text such as ``42`` is a text, not a number: only containers and texts unfold.
    """
    if value is None or value == _HIDDEN:
        return None, Captured.NOT_CAPTURED
    return decoded(value), Captured.CAPTURED


def decoded(value: Json) -> Json:
    """A value with JSON text, or the repr of a Python container, decoded."""
    if not isinstance(value, str):
        return plain(value)
    for _ in range(2):
        read = parse(value)
        if isinstance(read, dict | list):
            return read
        if not isinstance(read, str):
            return value
        if read is value:
            break
        value = read
    return literal(value) if _REPR.match(value) and not _is_json(value) else value


def _is_json(text: str) -> bool:
    """Whether a text is JSON that :func:`parse` did not want: then nobody else may read it either."""
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True


def literal(text: str) -> Json:
    """The value that a Python literal denotes; the text itself where it is none, or too large.

    Only literals are read: nothing in the text is ever run.
    """
    if len(text) > _MAX_REPR_CHARS or _depth(text) > _MAX_REPR_DEPTH:
        return text
    try:
        tree = _parsed(text)
        return text if _repeats_a_key(tree) else _json_of(ast.literal_eval(tree))
    except _UNREADABLE:
        return text


def constructed(text: str) -> dict[str, Json] | None:
    """The keywords of a constructor call such as ``ToolCall(name='a', id='b')``; None if it is none.

    Some exporters write the repr of an object where they should write what it holds.
    """
    if len(text) > _MAX_REPR_CHARS or not _CONSTRUCTOR.match(text):
        return None
    if _depth(text) > _MAX_REPR_DEPTH:
        return None
    try:
        call = _parsed(text)
        if not isinstance(call, ast.Call) or call.args:
            return None
        return {
            word.arg: _json_of(ast.literal_eval(word.value))
            for word in call.keywords
            if word.arg is not None
        }
    except _UNREADABLE:
        return None


def _parsed(text: str) -> ast.expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about somebody else's backslashes
        return ast.parse(text.strip(), mode="eval").body


def unquoted(text: str) -> str:
    """The text inside JSON quotes, for attributes that hold every value as JSON."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        inner = parse(text)
        if isinstance(inner, str):
            return inner
    return text


def truth(value: Json) -> bool | None:
    """True or False from a boolean or a word for one; None for anything else."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.strip().lower())
    return None


def result(value: Json) -> Json:
    """A tool's result without what messages and protocols put around it.

    Known wrappings: LangChain's tool message (plain, under ``data``, as a constructor's
    ``kwargs``, under ``output``), content blocks (``[{"type": "text", "text": ...}]``), an object
    of blocks with the raw output beside them, function responses.
    """
    for _ in range(_MAX_UNWRAPPED):
        value = decoded(value)
        inner = _said(value) if isinstance(value, str) else _inside(value)
        if inner is None:
            return value
        value = inner[0]
    return value


def _said(text: str) -> tuple[Json] | None:
    """The content in the text that LangChain makes of a tool message."""
    found = _TOOL_MESSAGE.match(text)
    return (literal(found[1]),) if found is not None else None


def message_call_id(value: Json) -> str | None:
    """The call id of a tool message of LangChain or LlamaIndex; None where it is none."""
    for _ in range(_MAX_UNWRAPPED):
        if not isinstance(value, dict):
            return None
        call_id = value.get("tool_call_id") or (
            value.get("tool_id") if "tool_output" in value else None
        )
        if isinstance(call_id, str) and call_id:
            return call_id
        value = next((value[key] for key in ("data", "kwargs", "output") if key in value), None)
    return None


def _inside(value: Json) -> tuple[Json] | None:
    """What a known wrapping holds, as a tuple of one; None where there is no wrapping."""
    if isinstance(value, list):
        return _text_of_blocks(value)
    if not isinstance(value, dict):
        return None
    if "tool_call_id" in value and "content" in value:
        return (value["content"],)
    kwargs, data = value.get("kwargs"), value.get("data")
    if value.get("lc") is not None and isinstance(kwargs, dict) and "content" in kwargs:
        return (kwargs["content"],)
    if value.get("type") == "tool" and isinstance(data, dict) and "content" in data:
        return (data["content"],)
    if "raw_output" in value and "blocks" in value:
        return (value["raw_output"],)
    if set(value) == {"output"} and _is_message(value["output"]):
        return (value["output"],)
    if isinstance(value.get("content"), list) and set(value) <= _MCP_RESULT:
        return _text_of_blocks(value["content"])
    if value.get("type") == "text" and set(value) <= _TEXT_BLOCK and "text" in value:
        return (value["text"],)
    if set(value) == {"type", "value"} and value["type"] in _TYPED_OUTPUTS:
        return (value["value"],)
    if set(value) == {"id", "name", "response"}:
        inner = value["response"]
        if isinstance(inner, dict) and set(inner) == {"result"}:
            inner = inner["result"]  # a text was put into an object
        return (inner,)
    return None


_MCP_RESULT = {"content", "isError", "structuredContent", "_meta", "meta", "is_error"}
_TEXT_BLOCK = {"type", "text", "annotations", "meta", "_meta"}
_TYPED_OUTPUTS = ("json", "text", "error-text", "error-json", "content")


def _is_message(value: Json) -> bool:
    return isinstance(value, dict) and ("lc" in value or "tool_call_id" in value)


def _text_of_blocks(blocks: list[Json]) -> tuple[Json] | None:
    """The text of a list of text blocks; one block may hold JSON, several are one text."""
    if len(blocks) == 1 and isinstance(blocks[0], dict) and set(blocks[0]) == {"json"}:
        return (blocks[0]["json"],)
    texts = []
    for block in blocks:
        if not isinstance(block, dict) or not isinstance(block.get("text"), str):
            return None
        if block.get("type", "text") != "text" or not set(block) <= _TEXT_BLOCK:
            return None
        texts.append(block["text"])
    return ("\n".join(texts),) if texts else None


def _depth(text: str) -> int:
    """How deep brackets nest, counted without regard to quotes: never less than it is."""
    depth = deepest = 0
    for character in text:
        if character in "([{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in ")]}" and depth:
            depth -= 1
    return deepest


def _repeats_a_key(tree: ast.expr) -> bool:
    """Whether a dict of this literal has a key twice: two readers may see different values."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            if len(set(keys)) < len(keys):
                return True
    return False


def _json_of(value: Any) -> Json:
    """A Python literal as JSON holds it.

    Raises:
        ValueError, OverflowError: JSON cannot hold it.
    """
    if isinstance(value, dict):
        return {_whole(str(key)): _json_of(item) for key, item in value.items()}
    if isinstance(value, set | frozenset):
        return [_json_of(item) for item in sorted(value, key=repr)]  # in no order of its own
    if isinstance(value, list | tuple):
        return [_json_of(item) for item in value]
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, int) and not _LEAST_INT <= value <= _MOST_INT:
        return float(value)  # as it is read in JSON text
    if value is None or isinstance(value, int | float | bytes):
        return plain(value)
    raise ValueError(f"{type(value).__name__} is no JSON")


_LEAST_INT = -(1 << 63)
_MOST_INT = (1 << 64) - 1


def _whole(text: str) -> str:
    """The text, unless it holds half a surrogate pair, of which no UTF-8 can be made.

    Raises:
        ValueError: it does.
    """
    text.encode()
    return text
