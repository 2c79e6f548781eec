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
    # Every call of every tool comes through here. So it goes level by level, as a call per value
    # would be most of the cost, and looks at keys and values in one loop. What is copied is counted
    # before, so nothing large is copied, and a value that holds itself ends by its depth.
    known = _keys
    top: dict[str, Any] = arguments.copy()
    size = _SIZE_OF_ENTRY * len(top)
    level: list[Any] = [top]
    for _ in range(_MAX_DEPTH):
        below: list[Any] = []
        for container in level:
            named = type(container) is dict
            entries: Iterable[tuple[Any, Any]] = (
                container.items() if named else enumerate(container)
            )
            for place, item in entries:
                if named and (
                    type(place) is not str or (place not in known and not _is_usual(place))
                ):
                    return None
                kind = type(item)
                if kind is str:
                    size += len(item)
                elif kind is dict or kind is list:
                    size += _SIZE_OF_ENTRY * len(item)
                    if size > _MAX_SIZE:
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
        if not below:
            break
        level = below
    else:
        return None
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
