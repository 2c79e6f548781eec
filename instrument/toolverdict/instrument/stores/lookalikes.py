"""Text that reads as something else than it is, for people who decide by reading it.

What is approved is what was hashed, so nothing is normalised: it is shown, and its readers warned.
"""

import re
import unicodedata
from typing import Final

from toolverdict.instrument.likeness import is_hidden

_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_SCRIPTS: Final = ("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE")


def made_visible(text: str) -> str:
    """The text with its hidden characters written as escapes."""
    return "".join(_escape(character) if is_hidden(character) else character for character in text)


def warnings(text: str) -> tuple[str, ...]:
    """What a reader of the text should know; nothing for text that is what it looks like."""
    found: list[str] = []
    hidden = {character for character in text if is_hidden(character)}
    if turned := hidden & _BIDI:
        found.append(f"characters that change the direction of text: {_listed(turned)}")
    if unseen := hidden - _BIDI:
        found.append(f"characters that cannot be seen: {_listed(unseen)}")
    mixed = {word for word in re.findall(r"\w+", text) if not word.isascii() and _is_mixed(word)}
    if mixed:
        found.append(f"words of letters from several alphabets: {', '.join(sorted(mixed)[:5])}")
    return tuple(found)


def _listed(characters: set[str]) -> str:
    return ", ".join(
        f"U+{ord(character):04X} {unicodedata.name(character, '').lower()}".rstrip()
        for character in sorted(characters)[:10]
    )


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _is_mixed(word: str) -> bool:
    names = [unicodedata.name(character, "") for character in word if character.isalpha()]
    return sum(any(name.startswith(script) for name in names) for script in _SCRIPTS) > 1
