"""JSON inside of text, as arguments and results of tools are sent: read, and written again.

Numbers keep the digits they were written with, objects the order of their keys and keys that come
twice, so what no rule names stays what it was.
"""

import json
from typing import Any, Final

MAX_CHARS: Final = 1024 * 1024
"""Longer texts are not looked into as JSON: their tree would be many times their size."""


class Number(str):
    """The digits of a number."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """An object."""

    __slots__ = ()


def read(text: str) -> Any | None:
    """A tree of Pairs, list, str, Number, bool and None; None for what is no object or array."""
    if len(text) > MAX_CHARS or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(
            text,
            object_pairs_hook=Pairs,
            parse_int=Number,
            parse_float=Number,
            parse_constant=Number,
            strict=False,
        )
    except (ValueError, RecursionError):
        return None


def write(tree: Any) -> str:
    """The tree as JSON without white space."""
    match tree:
        case Pairs():
            inner = ",".join(f"{write(key)}:{write(value)}" for key, value in tree)
            return f"{{{inner}}}"
        case list():
            return f"[{','.join(map(write, tree))}]"
        case Number():
            return str(tree)
        case _:
            return json.dumps(tree, ensure_ascii=False)
