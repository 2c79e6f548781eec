r"""Patterns for arguments: a small, linear-time part of what regular expressions are.

A pattern always means the whole text. It is a row of items, each one character or one class of
characters, each with or without a repetition::

    cust_[0-9]{4,12}    [a-z0-9._-]+@shop\.example    [A-Z]{2}\d{2}[A-Z0-9]{11,30}

Characters are ASCII; ``\d`` is ``[0-9]`` and ``\w`` is ``[A-Za-z0-9_]``; repetitions are ``?``,
``*``, ``+``, ``{n}``, ``{n,}`` and ``{n,m}``. ``^`` and ``$`` may stand at the ends and say nothing
new. There are no groups, no alternatives (write a list of patterns), no ``.`` and no ``[^...]``: a
white list says what is allowed. What follows a repetition must begin with characters that the
repetition cannot take; there is then only one way to read a text, and the time that takes grows
with its length and no faster, whoever wrote the text.
"""

import re
import string
from collections.abc import Callable
from typing import Final, NamedTuple

MAX_PATTERN_CHARS: Final = 500
MAX_TEXT_CHARS: Final = 10_000
"""Longer texts match no pattern."""

_MAX_REPEAT: Final = 1_000
_CLASSES: Final = {
    "d": frozenset(string.digits),
    "w": frozenset(string.ascii_letters + string.digits + "_"),
}
_PUNCTUATION: Final = frozenset(string.punctuation)
_PRINTABLE: Final = frozenset(chr(code) for code in range(0x20, 0x7F))
_REPEAT: Final = re.compile(r"\{(\d{1,4})(?:(,)(\d{1,4})?)?\}", re.ASCII)


class _Item(NamedTuple):
    letters: frozenset[str]
    least: int
    most: int | None

    @property
    def varies(self) -> bool:
        return self.least != self.most


def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """A function that says whether a whole text matches.

    Raises:
        ValueError: The pattern is not of this kind; the message says what is not.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"a pattern has at most {MAX_PATTERN_CHARS} characters")
    items = _Reader(pattern).items()
    _check_only_one_reading(items)
    # Possessive: where there is only one reading, there is nothing to go back for.
    fullmatch = re.compile("".join(map(_as_regex, items))).fullmatch
    return lambda text: len(text) <= MAX_TEXT_CHARS and fullmatch(text) is not None


def compile_likeness(pattern: str) -> Callable[[str], bool]:
    """A function that says whether a text may be taken for one that matches.

    It is asked about texts as ``likeness.skeleton`` makes them. Where a pattern has no longer one
    reading when case makes no difference, every text of its characters may be.
    """
    items = [
        item._replace(letters=frozenset(letter.casefold() for letter in item.letters))
        for item in _Reader(pattern).items()
    ]
    try:
        _check_only_one_reading(items)
    except ValueError:
        letters = frozenset[str]().union(*(item.letters for item in items))
        return letters.issuperset
    fullmatch = re.compile("".join(map(_as_regex, items))).fullmatch
    return lambda text: fullmatch(text) is not None


def _as_regex(item: _Item) -> str:
    letters = "".join(re.escape(letter) for letter in sorted(item.letters))
    most = "" if item.most is None else item.most
    repeat = f"{{{item.least},{most}}}+" if item.varies else f"{{{item.least}}}"
    return f"[{letters}]{repeat}"


def _check_only_one_reading(items: list[_Item]) -> None:
    for index, item in enumerate(items):
        if not item.varies:
            continue
        for following in items[index + 1 :]:
            both = item.letters & following.letters
            if both:
                raise ValueError(
                    f"what follows a repetition can be read as part of it (both take "
                    f"{min(both)!r}); make the classes differ, or use prefix and suffix"
                )
            if following.least:
                break


class _Reader:
    def __init__(self, pattern: str) -> None:
        self._rest = pattern.removeprefix("^")
        if self._rest.endswith("$") and not self._rest.endswith("\\$"):
            self._rest = self._rest[:-1]

    def items(self) -> list[_Item]:
        items = []
        while self._rest:
            letters = self._class() if self._rest[0] == "[" else self._letter(inside=False)
            items.append(_Item(letters, *self._repeat()))
        if not items:
            raise ValueError("a pattern that is empty matches no argument worth the name")
        return items

    def _take(self) -> str:
        if not self._rest:
            raise ValueError("the pattern ends in the middle")
        letter, self._rest = self._rest[0], self._rest[1:]
        if letter not in _PRINTABLE:
            raise ValueError("a pattern holds printable ASCII characters only")
        return letter

    def _letter(self, *, inside: bool) -> frozenset[str]:
        letter = self._take()
        if letter == "\\":
            escaped = self._take()
            if escaped in _CLASSES:
                return _CLASSES[escaped]
            if escaped not in _PUNCTUATION:
                raise ValueError(f"\\{escaped} is not read in patterns")
            return frozenset(escaped)
        if not inside and letter in ".|()[]{}*+?^$":
            hint = " (write a list of patterns)" if letter == "|" else ""
            raise ValueError(f"{letter!r} is not read here{hint}; write \\{letter} for itself")
        return frozenset(letter)

    def _class(self) -> frozenset[str]:
        self._take()
        letters: frozenset[str] = frozenset()
        if self._rest.startswith("^"):
            raise ValueError("[^...] is not read: say what is allowed, not what is not")
        while not self._rest.startswith("]"):
            first = self._letter(inside=True)
            if self._rest.startswith("-") and not self._rest.startswith("-]"):
                self._take()
                last = self._letter(inside=True)
                if len(first) != 1 or len(last) != 1 or min(first) > min(last):
                    raise ValueError("a range in [...] goes from one character up to another")
                first = frozenset(map(chr, range(ord(min(first)), ord(min(last)) + 1)))
            letters |= first
        self._take()
        if not letters:
            raise ValueError("[] matches nothing")
        return letters

    def _repeat(self) -> tuple[int, int | None]:
        sign = self._rest[:1]
        least, most = {"?": (0, 1), "*": (0, None), "+": (1, None)}.get(sign, (1, 1))
        if sign in ("?", "*", "+"):
            self._take()
        elif sign == "{":
            found = _REPEAT.match(self._rest)
            if found is None:
                raise ValueError("a repetition is {n}, {n,} or {n,m}; write \\{ for the character")
            self._rest = self._rest[found.end() :]
            least = int(found[1])
            most = least if found[2] is None else int(found[3]) if found[3] else None
            if max(least, most or 0) > _MAX_REPEAT or (most is not None and most < least):
                raise ValueError(f"a repetition goes up to at most {_MAX_REPEAT}")
        return least, most
