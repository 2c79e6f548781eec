"""Expected calls as our files spell them."""

import json
from typing import Any

from toolverdict.scoring.importers.nodes import Node


def expected_call(tool: str, arguments: Any = None) -> dict[str, Any]:
    """A call with exactly these arguments; None compares none."""
    call: dict[str, Any] = {"tool": tool}
    if arguments is not None:
        call["args"] = {key: as_it_is(value) for key, value in arguments.items()}
    return call


def as_it_is(value: Any) -> Any:
    """A value that is compared as JSON, though it may look like a comparator of ours."""
    return {"$equal": value} if _looks_like_a_comparator(value) else value


def arguments_of(node: Node | None) -> dict[str, Any]:
    """The arguments of a call, given as an object or as the text of one; None is no argument.

    Raises:
        InputError: they are neither.
    """
    if node is None:
        return {}
    if not isinstance(node.data, str):
        return node.object()
    try:
        read = json.loads(node.data or "{}")
    except (ValueError, RecursionError):
        raise node.error("expected the arguments as a JSON object in a text") from None
    return Node(node.place, read).object()


def _looks_like_a_comparator(value: Any) -> bool:
    if isinstance(value, dict):
        return any(
            str(key).startswith("$") or _looks_like_a_comparator(inner)
            for key, inner in value.items()
        )
    return isinstance(value, list) and any(_looks_like_a_comparator(item) for item in value)
