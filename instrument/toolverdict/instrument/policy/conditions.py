"""Argument conditions, compiled: each becomes a function from a call to what is certain about it.

A condition holds, certainly does not, or is in doubt: the argument is missing, of another type,
not a number, looks like a listed text without being it, or would be read as something else by
whoever is behind the tool. A rule that permits needs certainty, one that restricts is escaped only
by certainty. Whether an argument was captured at all is another question (``UNKNOWN``): it is
asked by a scorer, never while a call waits.

A value is looked at as JSON reads it (``reading``). What a member of an enum is, its class says:
whoever calls cannot make one up.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sized
from decimal import Decimal
from typing import Final
from urllib.parse import unquote

from toolverdict.instrument.decisions import Call
from toolverdict.instrument.likeness import skeleton
from toolverdict.instrument.policy.document import Condition, Range
from toolverdict.instrument.policy.patterns import (
    MAX_TEXT_CHARS,
    compile_likeness,
    compile_pattern,
)
from toolverdict.instrument.policy.reading import OneOf, as_read, elements_of, fields_of

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
_UPWARDS: Final = re.compile(r"\.\.|%2e", re.IGNORECASE)
_MAX_DECODINGS: Final = 5
_ENDS: Final = " ."
"""What may stand at the end of a text and makes no difference to many: a host is one with a dot."""
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
                found |= DOUBT if value is _MISSING else _tested(value, test, call)
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
            if isinstance(item, OneOf):
                return UNKNOWN
            named, elements = fields_of(item), elements_of(item)
            if named is not None:
                if depth + 1 < len(path) and any(
                    ".".join(path[depth:end]) in named for end in range(depth + 2, len(path) + 1)
                ):
                    return DOUBT  # a key with a dot in it: which of the two is meant?
                if part == "*" and "*" not in named:
                    following.extend(named.values())
                elif part in named:
                    following.append(named[part])
                else:
                    return DOUBT
            elif part == "*" and elements is not None:
                following.extend(elements)
            else:
                return DOUBT
        if not following or len(following) > _MAX_ELEMENTS:
            return DOUBT
        level = following
    states = [_tested(item, test, call) for item in level]
    found = HOLDS
    for state in states:
        found |= state
    if found & FAILS and not all(state & FAILS for state in states):
        # One element that fits and one that does not: no permission, and no way out either.
        return (found & ~FAILS) | DOUBT
    return found


def _tested(value: object, test: Test, call: Call) -> State:
    """What a test says of a value; unknown if it depends on what is not known of that."""
    if not isinstance(value, OneOf):
        return test(as_read(value), call)
    states = {test(one, call) for one in value.values}
    return states.pop() if len(states) == 1 else UNKNOWN


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
        return DOUBT if isinstance(value, str) and _is_like(value, loose) else FAILS

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
        if isinstance(own[1], str) and isinstance(value, str):
            long = len(own[1]) > MAX_TEXT_CHARS
            return DOUBT if long or _is_like(value, {_loosely(own[1])}) else FAILS
        return FAILS

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
    has: Callable[[str, tuple[str, ...]], bool] = str.startswith if at_start else str.endswith

    def trimmed(text: str) -> str:
        """Without what makes no difference at the end that counts, if that is not all there is."""
        plain = skeleton(text)
        return (plain.lstrip() if at_start else plain.rstrip(_ENDS)) or plain

    loose = tuple(map(trimmed, affixes))

    def test(value: object, call: Call) -> State:
        if type(value) is not str or len(value) > MAX_TEXT_CHARS or _HIDDEN.search(value):
            return DOUBT
        if has(value, affixes):
            # /srv/data/../etc begins as it should, and is elsewhere.
            return DOUBT if at_start and _goes_up(value) else HOLDS
        return DOUBT if has(trimmed(value), loose) else FAILS

    return test


def _goes_up(path: str) -> bool:
    """Whether somebody may read two dots in a path, however often it was encoded."""
    for _ in range(_MAX_DECODINGS):
        plain = skeleton(path)
        if _UPWARDS.search(plain):
            return True
        path = unquote(plain, errors="replace")
        if path == plain:
            return False
        if "\ufffd" in path:
            return True  # bytes that are no text: some read dots in them
    return True


def _pattern(patterns: tuple[str, ...]) -> Test:
    matches = tuple(compile_pattern(pattern) for pattern in patterns)
    resembles = tuple(compile_likeness(pattern) for pattern in patterns)

    def test(value: object, call: Call) -> State:
        if type(value) is not str or len(value) > MAX_TEXT_CHARS:
            return DOUBT
        if any(match(value) for match in matches):
            return HOLDS
        plain = skeleton(value)
        spellings = {plain, plain.strip(), _loosely(value)}
        alike = any(like(spelling) for like in resembles for spelling in spellings)
        return DOUBT if alike else FAILS

    return test


def _max_length(most: int) -> Test:
    def test(value: object, call: Call) -> State:
        if type(value) in (str, list, tuple, set, frozenset):
            assert isinstance(value, Sized)
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
    """What a text is taken for where nobody looks closely at it or at its ends."""
    return skeleton(text).strip().rstrip(_ENDS)


def _is_like(text: str, loose: set[str]) -> bool:
    """Whether a text may be taken for one of these; one that is too long to be read may be any."""
    return len(text) > MAX_TEXT_CHARS or _loosely(text) in loose
