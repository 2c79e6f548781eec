"""BFCL, the Berkeley Function Calling Leaderboard: possible answers.

An answer names functions and, for each argument, the values that are right; ``""`` among them says
that the argument may be left out. An answer of several turns, written as calls in Python, becomes a
case per turn, ``id#0`` and on; a question of a category of irrelevance is a case in which nothing
is called. Calls of one answer are in any order, those of a turn in the order of the turn.

Source: https://github.com/ShishirPatil/gorilla, ``berkeley-function-call-leaderboard/bfcl_eval``:
``data/possible_answer`` and ``eval_checker/ast_eval/ast_checker.py``.
"""

import ast
import warnings
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from toolverdict.scoring.cases.files import Place
from toolverdict.scoring.importers.expecting import as_it_is
from toolverdict.scoring.importers.imported import CaseDict, Losses
from toolverdict.scoring.importers.nodes import Node

_LEFT_OUT = ""
_MAX_VALUES = 64
_TEXTS = "texts are compared exactly; BFCL ignores letter case, spaces and , . / - _ * ^"
_EMPTY = "an argument that may be left out must not be an empty text, which BFCL takes, too"
_DOT = "a name with a dot is kept; models whose tools cannot have one write _ in its place"
_ANSWER = "the answer is a text, not calls: no case was made"


class _Call(NamedTuple):
    """An expected call; ``exact``: no other argument may be there."""

    tool: str
    arguments: dict[str, Any]
    exact: bool = True


def read_bfcl(document: Node, losses: Losses) -> Iterator[tuple[Place, CaseDict]]:
    """The cases of a document: one line of a file of answers, or a list of them."""
    for line in document.each():
        yield from _answer(line, losses)


def _answer(line: Node, losses: Losses) -> Iterator[tuple[Place, CaseDict]]:
    name = line.need("id").text()
    asked = _asked(line)
    truth = line.get("ground_truth")
    if truth is None:
        if "irrelevance" in name:
            yield line.place, {"id": name, **asked, "expected_tool_calls": []}
        else:
            losses.add(line.place, "names no possible answer: no case was made")
        return
    if isinstance(truth.data, str):
        losses.add(truth.place, _ANSWER)
        return
    parts = list(truth.items())
    if parts and all(isinstance(part.data, str) and not _is_call(part.data) for part in parts):
        losses.add(truth.place, _ANSWER)
        return
    if not asked:
        losses.add(line.place, "what the user asks stands in another file of BFCL")
    if parts and all(isinstance(part.data, list) for part in parts):
        for number, turn in enumerate(parts):
            calls = [_spoken(call, losses) for call in turn.items()]
            ordered = {"id": f"{name}#{number}", **asked}
            yield turn.place, {**ordered, "expected_tool_calls": [_written(c) for c in calls]}
    else:
        wanted = [_written(_possible(part, losses)) for part in parts]
        expected = {"expected_tool_calls": wanted, "order": "any"}
        yield line.place, {"id": name, **asked, **expected}


def _asked(line: Node) -> dict[str, str]:
    """What the user says first, where the line holds the question, too."""
    turns = line.get("question")
    for turn in turns.items() if turns is not None else ():
        for message in turn.items() if isinstance(turn.data, list) else [turn]:
            content = message.get("content")
            if message.need("role").data == "user" and content is not None:
                return {"input": content.text()}
    return {}


def _possible(part: Node, losses: Losses) -> _Call:
    """One function with the possible values of its arguments, or a call in Python."""
    if isinstance(part.data, str):
        return _spoken(part, losses)
    functions = part.object()
    if len(functions) != 1:
        raise part.error(f"expected one function, got {len(functions)}")
    ((tool, _),) = functions.items()
    if "." in tool:
        losses.add(part.place, _DOT)
    arguments: dict[str, Any] = {}
    for key, values in part.need(tool).object().items() if functions[tool] else ():
        place = part.place.at(tool, key)
        if not isinstance(values, list):
            raise place.error("expected a list of possible values")
        may_be_left_out = _LEFT_OUT in values or not values
        said = [value for value in values if value != _LEFT_OUT]
        if _LEFT_OUT in values:
            losses.add(place, _EMPTY)
        if said or not may_be_left_out:
            value = _value(Node(place, said), losses)
            arguments[key] = {"$optional": value} if may_be_left_out else value
    return _Call(tool, arguments)


def _value(node: Node, losses: Losses) -> Any:
    """What an argument must be, of the possible values of it."""
    found: list[Any] = []
    for value in node.data:
        for concrete in _concrete(value):
            if len(found) == _MAX_VALUES:
                what = f"an argument has more than {_MAX_VALUES} possible values: any is taken"
                losses.add(node.place, what)
                return {"$any": True}
            found.append(concrete)
    if not found:
        raise node.error("expected at least one possible value")
    if any(_holds_text(value) for value in found):
        losses.add(node.place, _TEXTS)
    return as_it_is(found[0]) if len(found) == 1 else {"$enum": found}


def _concrete(value: Any) -> Iterator[Any]:
    """The values that one possible value stands for: in an object, each key has a list of its own."""
    if isinstance(value, dict):
        choices = [_choices(key, values) for key, values in value.items()]
        for chosen in product(*choices):
            yield {key: inner for pair in chosen for key, inner in pair}
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for items in product(*(list(_some(_concrete(item))) for item in value)):
            yield list(items)
    else:
        yield value


def _choices(key: str, values: Any) -> list[tuple[tuple[str, Any], ...]]:
    """What an object may hold under a key: nothing, or one of these values."""
    if not isinstance(values, list):
        return [((key, values),)]
    made = [
        ((key, one),) for value in values if value != _LEFT_OUT for one in _some(_concrete(value))
    ]
    return [*made, ()] if _LEFT_OUT in values else list(made)


def _some(values: Iterator[Any]) -> Iterator[Any]:
    """The first of many values: one more than are kept shows that there were too many."""
    return (value for value, _ in zip(values, range(_MAX_VALUES + 1), strict=False))


def _holds_text(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_holds_text(inner) for inner in value.values())
    if isinstance(value, list):
        return any(_holds_text(inner) for inner in value)
    return isinstance(value, str)


def _written(call: _Call) -> dict[str, Any]:
    return {"tool": call.tool, "args" if call.exact else "args_subset": call.arguments}


def _is_call(text: str) -> bool:
    return _parsed(text) is not None


def _parsed(text: str) -> ast.Call | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            # Texts in these calls hold line ends as they are, which Python does not take.
            node = ast.parse(text.strip().replace("\n", "\\n"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return node if isinstance(node, ast.Call) else None


def _spoken(node: Node, losses: Losses) -> _Call:
    """A call that is written in Python; what is no literal in it is not compared."""
    call = _parsed(node.text())
    if call is None:
        raise node.error(f"expected a call in Python, got {node.text()[:60]!r}")
    exact, arguments = True, {}
    if call.args or any(keyword.arg is None for keyword in call.keywords):
        losses.add(node.place, "an argument without a name is not compared")
        exact = False
    for keyword in call.keywords:
        if keyword.arg is None:
            continue
        try:
            arguments[keyword.arg] = as_it_is(_plain(ast.literal_eval(keyword.value)))
        except (ValueError, TypeError, RecursionError, MemoryError):
            losses.add(node.place, "an argument that is computed is not compared")
            exact = False
    return _Call(ast.unparse(call.func), arguments, exact)


def _plain(value: Any) -> Any:
    """The value as JSON has it."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    raise ValueError("no JSON value")
