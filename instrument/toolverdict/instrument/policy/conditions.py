"""Argument conditions, compiled: each becomes a function from a call to what is certain about it.

A condition holds, certainly does not, or is in doubt: the argument is missing, of another type,
not a number, looks like a listed text without being it, or would be read as something else by
whoever is behind the tool. A rule that permits needs certainty, one that restricts is escaped only
by certainty. Whether an argument was captured at all is another question (``UNKNOWN``): it is
asked by a scorer, never while a call waits.

A member of an enum counts as the value that its class gives it: whoever calls cannot make one up.
"""

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from enum import Enum
from typing import Final

from toolverdict.instrument.decisions import Call
from toolverdict.instrument.policy.document import Condition, Range
from toolverdict.instrument.policy.patterns import MAX_TEXT_CHARS, compile_pattern

HOLDS: Final = 0
DOUBT: Final = 1
UNKNOWN: Final = 2
FAILS: Final = 4

State = int
"""The bits above, or-ed over several conditions."""

Test = Callable[[object, Call], State]
Compiled = Callable[[Call], State]

_MISSING: Final = object()
_HIDDEN: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_UPWARDS: Final = re.compile(r"\.\.|%2e|%252e", re.IGNORECASE)
_MAX_ELEMENTS: Final = 10_000


def compile_arguments(args: Mapping[str, Condition]) -> Compiled:
    """A function that says how the arguments of a call stand to all the conditions together."""
    parts = tuple(
        (tuple(path.split(".")), _all_of(_tests(condition))) for path, condition in args.items()
    )

    def state(call: Call) -> State:
        arguments = call.arguments
        if arguments is None:
            return UNKNOWN
        found = HOLDS
        for path, test in parts:
            if len(path) == 1:
                value = arguments.get(path[0], _MISSING)
                if isinstance(value, Enum):
                    value = value.value
                found |= DOUBT if value is _MISSING else test(value, call)
            else:
                found |= _nested(arguments, path, test, call)
        return found

    return state


def _nested(value: object, path: tuple[str, ...], test: Test, call: Call) -> State:
    """The state of every value that a path leads to; ``*`` is each element."""
    level: list[object] = [value]
    for depth, part in enumerate(path):
        following: list[object] = []
        for item in level:
            if isinstance(item, Mapping):
                if depth + 1 < len(path) and any(
                    ".".join(path[depth:end]) in item for end in range(depth + 2, len(path) + 1)
                ):
                    return DOUBT  # a key with a dot in it: which of the two is meant?
                if part == "*" and "*" not in item:
                    following.extend(item.values())
                elif part in item:
                    following.append(item[part])
                else:
                    return DOUBT
            elif part == "*" and isinstance(item, list | tuple):
                following.extend(item)
            else:
                return DOUBT
        if not following or len(following) > _MAX_ELEMENTS:
            return DOUBT
        level = following
    states = [test(item.value if isinstance(item, Enum) else item, call) for item in level]
    found = HOLDS
    for state in states:
        found |= state
    if found & FAILS and not all(state & FAILS for state in states):
        # One element that fits and one that does not: no permission, and no way out either.
        return (found & ~FAILS) | DOUBT
    return found


def _all_of(tests: Iterable[Test]) -> Test:
    """One test of several; the common case of one costs nothing more."""
    several = tuple(tests)
    if len(several) == 1:
        return several[0]

    def test(value: object, call: Call) -> State:
        found = HOLDS
        for one in several:
            found |= one(value, call)
        return found

    return test


def _tests(condition: Condition) -> Iterable[Test]:
    if condition.in_ is not None:
        yield _one_of(condition.in_)
    if condition.equals is not None:
        yield _one_of((condition.equals,))
    if condition.equals_session is not None:
        yield _session(condition.equals_session)
    if condition.range is not None:
        yield _range(condition.range)
    if condition.prefix is not None:
        yield _affix(condition.prefix, at_start=True)
    if condition.suffix is not None:
        yield _affix(condition.suffix, at_start=False)
    if condition.pattern is not None:
        yield _pattern(condition.pattern)
    if condition.max_length is not None:
        yield _max_length(condition.max_length)
    if condition.trusted is not None:
        yield _trusted


def _one_of(listed: tuple[object, ...]) -> Test:
    # True is 1 and hashes alike, so the type goes along; 1 and 1.0 are one number.
    wanted = {_key(value) for value in listed}
    kinds = {kind for kind, _ in wanted}
    loose = {_loosely(value) for value in listed if isinstance(value, str)}

    def test(value: object, call: Call) -> State:
        kind, key = _key(value)
        if kind is None or kind not in kinds:
            return DOUBT
        if (kind, key) in wanted:
            return HOLDS
        return DOUBT if isinstance(value, str) and _loosely(value) in loose else FAILS

    return test


def _key(value: object) -> tuple[str | None, object]:
    """What a scalar is compared by; None for what is no scalar, or not a finite number."""
    kind = type(value)
    if kind is str:
        return "text", value
    if kind is bool:
        return "bool", value
    if kind is int or (isinstance(value, float) and kind is float and math.isfinite(value)):
        return "number", value
    if kind is Decimal and isinstance(value, Decimal) and value.is_finite():
        return "number", value
    return None, None


def _session(key: str) -> Test:
    def test(value: object, call: Call) -> State:
        if call.session is None:
            return UNKNOWN
        own = _key(call.session.get(key))
        given = _key(value)
        if own[0] is None or given[0] is None or own[0] != given[0] or own[1] == "":
            return DOUBT
        if own == given:
            return HOLDS
        alike = (
            isinstance(own[1], str)
            and isinstance(value, str)
            and _loosely(own[1]) == _loosely(value)
        )
        return DOUBT if alike else FAILS

    return test


def _range(range: Range) -> Test:
    least = -math.inf if range.min is None else range.min
    most = math.inf if range.max is None else range.max

    def test(value: object, call: Call) -> State:
        kind, number = _key(value)
        if kind != "number":
            return DOUBT
        return HOLDS if least <= number <= most else FAILS  # type: ignore[operator]

    return test


def _affix(affixes: tuple[str, ...], *, at_start: bool) -> Test:
    loose = tuple(_loosely(affix) for affix in affixes)
    has: Callable[[str, tuple[str, ...]], bool] = str.startswith if at_start else str.endswith

    def test(value: object, call: Call) -> State:
        if type(value) is not str or len(value) > MAX_TEXT_CHARS or _HIDDEN.search(value):
            return DOUBT
        if has(value, affixes):
            # /srv/data/../etc begins as it should, and is elsewhere.
            return DOUBT if at_start and _UPWARDS.search(value) else HOLDS
        return DOUBT if has(_loosely(value), loose) else FAILS

    return test


def _pattern(patterns: tuple[str, ...]) -> Test:
    matches = tuple(compile_pattern(pattern) for pattern in patterns)

    def test(value: object, call: Call) -> State:
        if type(value) is not str or len(value) > MAX_TEXT_CHARS:
            return DOUBT
        if any(match(value) for match in matches):
            return HOLDS
        loose = _loosely(value)
        alike = any(match(loose) or match(loose.upper()) for match in matches)
        return DOUBT if alike else FAILS

    return test


def _max_length(most: int) -> Test:
    def test(value: object, call: Call) -> State:
        if type(value) is str or type(value) is list or type(value) is tuple:
            return HOLDS if len(value) <= most else FAILS
        return DOUBT

    return test


def _trusted(value: object, call: Call) -> State:
    if call.is_trusted is None:
        return UNKNOWN
    found = call.is_trusted(value)
    # Exactly a bool: whatever else a hook returns is not the word of anyone.
    if found is True:
        return HOLDS
    if found is False:
        return FAILS
    return UNKNOWN if found is None else DOUBT


def _loosely(text: str) -> str:
    """What a text is taken for where nobody looks closely: case, width, digits, blanks, invisibles."""
    if len(text) > MAX_TEXT_CHARS:
        return text
    folded = unicodedata.normalize("NFKC", text).casefold()
    if not folded.isascii():
        folded = "".join(
            str(unicodedata.decimal(c, c))
            for c in folded
            if unicodedata.category(c) not in ("Cf", "Mn")
        )
    return _HIDDEN.sub("", folded).strip()
