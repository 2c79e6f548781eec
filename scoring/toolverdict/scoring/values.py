"""JSON values that came out of a trace: read within bounds, taken apart, written back as text."""

from collections.abc import Iterator

import orjson

from toolverdict.scoring.model import Json

MAX_DEPTH = 64

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


def parse(text: str) -> Json:
    """The JSON value of a text; the text itself where it is none, or is nested too deep.

    Depth is bounded here once, so that no later step can run out of stack on a hostile value.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return value
    return text


def as_text(value: Json) -> str:
    """A value as JSON text with sorted keys: equal values give equal texts."""
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS).decode()
