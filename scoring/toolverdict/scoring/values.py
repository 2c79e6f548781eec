"""JSON values that came out of a trace: read within bounds, taken apart, written back as text."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from math import isfinite

import orjson

from toolverdict.scoring.model import Json

MAX_DEPTH = 64
_NESTED = (dict, list)
_KEY_END = re.compile(r'"\s*:')

_MAX_LEAVES = 10_000  # values come from traces: a hostile one must not buy unbounded work


def leaves(value: Json) -> Iterator[str | int | float]:
    """Texts and numbers anywhere in a JSON value; booleans, nulls and empty texts say nothing."""
    waiting = [value]
    for _ in range(_MAX_LEAVES):
        if not waiting:
            return
        item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
        elif isinstance(item, bool) or item is None or item == "":
            continue
        else:
            yield item


def plain(value: Json) -> Json:
    """An attribute's value as plain JSON: bytes and non-finite numbers become texts.

    With :func:`parse` this is the border: past it no value can fail to be written or run out of
    stack, whatever a trace holds.
    """
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return value


def parse(text: str) -> Json:
    """The JSON value of a text; the text itself where it is none that can be judged.

    That is: no JSON, nested deeper than :data:`MAX_DEPTH`, or an object with a key that stands
    twice, of which two readers may see different values.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    if not isinstance(value, _NESTED):
        return value
    keys = 0
    level = [value]
    for _ in range(MAX_DEPTH):
        keys += sum(len(item) for item in level if isinstance(item, dict))
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, _NESTED)
        ]
        if not level:
            return text if _repeats_a_key(text, keys) else value
    return text


def _repeats_a_key(text: str, keys: int) -> bool:
    """Whether an object of this JSON text has a key twice; ``keys`` is how many were read."""
    if len(_KEY_END.findall(text)) == keys:
        return False  # the usual case: every quote with a colon behind it ended a key
    twice = False

    def look(pairs: list[tuple[str, Json]]) -> None:
        nonlocal twice
        twice = twice or len({key for key, _ in pairs}) < len(pairs)

    json.loads(text, object_pairs_hook=look)
    return twice


def as_text(value: Json) -> str:
    """A value as JSON text with sorted keys: equal values give equal texts."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()
