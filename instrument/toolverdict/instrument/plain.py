"""The usual arguments, quickly: a snapshot and its canonical form of plain JSON values.

Most arguments are nothing but small dicts, lists, texts and numbers. For those one walk makes the
copy and makes sure of what is in it, and the C encoder of ``json`` writes the very bytes that
``canonical.canonicalise`` would; a test says so. Everything else is left to ``arguments.freeze`` and
``canonicalise``: tagged types, keys that need escaping or sorting by UTF-16, numbers that Python
and ECMAScript write differently, cycles, and what is deep or large.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

_MAX_DEPTH: Final = 32
_MAX_SIZE: Final = 40_000  # an escaped character takes six bytes: still below MAX_BYTES
_SIZE_OF_ENTRY: Final = 16  # times six, what a usual key and a number take at most
_MAX_KEY: Final = 64
_SAFE_INT: Final = 2**53 - 1

_encode: Final = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, sort_keys=True, separators=(",", ":")
).encode


_keys: Final[set[str]] = set()
"""Usual keys that were seen before: the same ones come with every call."""


def snapshot(arguments: dict[str, object]) -> tuple[dict[str, Any], bytes] | None:
    """A copy down to the last container, and its canonical form; None if they are not plain."""
    # Level by level, since a call per value would be most of the cost. A loop ends by its depth.
    top: dict[str, Any] = arguments.copy()
    size = 0
    depth = 0
    level: list[Any] = [top]
    while level:
        depth += 1
        if depth > _MAX_DEPTH:
            return None
        below: list[Any] = []
        for container in level:
            size += _SIZE_OF_ENTRY * len(container)
            if type(container) is dict:
                for key in container:
                    if type(key) is not str or (key not in _keys and not _is_usual(key)):
                        return None
                items: Iterable[tuple[Any, Any]] = container.items()
            else:
                items = enumerate(container)
            for place, item in items:
                kind = type(item)
                if kind is str:
                    size += len(item)
                elif kind is dict or kind is list:
                    if size + _SIZE_OF_ENTRY * len(item) > _MAX_SIZE:
                        return None
                    container[place] = copied = item.copy()
                    below.append(copied)
                elif kind is int:
                    if not -_SAFE_INT <= item <= _SAFE_INT:
                        return None
                elif kind is float:
                    # In this range repr() writes what ECMAScript does, but for whole numbers.
                    if not 1e-4 <= abs(item) < 1e16 or item.is_integer():
                        return None
                elif item is not None and kind is not bool:
                    return None
            if size > _MAX_SIZE:
                return None
        level = below
    try:
        return top, _encode(top).encode("utf-8")
    except UnicodeEncodeError:
        return None


def _is_usual(key: str) -> bool:
    """Whether a key is short, is written as it is, and sorts alike by code point and by UTF-16."""
    usual = len(key) <= _MAX_KEY and key.isascii() and key.isprintable()
    if not usual or key[:1] == "$" or '"' in key or "\\" in key:
        return False
    if len(_keys) < 4096:
        _keys.add(key)
    return True
