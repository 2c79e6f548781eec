"""Whether a value can have come from trusted text: the user, the operator, a trusted tool.

The positive question (that of CaMeL, Debenedetti et al. 2025): not whether a value was seen in
untrusted text, which any encoding escapes, but whether trusted text holds it. It is asked while a
call is decided, of what this process has seen, and by the scorer, of what was recorded; both ask
here, so that both get the same answer. What is remembered for it never leaves the process.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from toolverdict.instrument import capture

MAX_CHARS: Final = 1 << 20
"""What is remembered of one trajectory; what came later may have held anything."""

_MAX_BYTES: Final = 1 << 20
_MAX_LEAVES: Final = 1000


class TrustedTexts:
    """The texts that may be trusted, in the order they were said.

    Args:
        max_chars: How many characters are remembered.
    """

    def __init__(self, max_chars: int = MAX_CHARS) -> None:
        self.whole = True
        """Whether everything that was said is known: only then is a value known to be missing."""
        self._texts: list[str] = []
        self._chars = 0
        self._max_chars = max_chars

    @property
    def chars(self) -> int:
        """How many characters are searched at most."""
        return self._chars

    def __len__(self) -> int:
        """How many texts there are."""
        return len(self._texts)

    def add(self, text: str) -> None:
        """Remember a text."""
        if self._chars + len(text) > self._max_chars:
            self.whole = False
            return
        self._chars += len(text)
        self._texts.append(text.casefold())

    def miss(self) -> None:
        """Take note that something was said and is not known."""
        self.whole = False

    def hold(self, sought: str, *, first: int | None = None) -> bool:
        """Whether one of the texts, or of the first so many, holds a word or phrase as a whole.

        Case is not looked at. ``o-1`` is not held by ``o-12``, nor ``ann`` by ``annual``.
        """
        folded = sought.casefold()
        if not folded:
            return False
        candidates = [text for text in self._texts[:first] if folded in text]
        if not candidates:
            return False
        before = r"(?<!\w)" if _is_word(folded[0]) else ""
        after = r"(?!\w)" if _is_word(folded[-1]) else ""
        whole = re.compile(before + re.escape(folded) + after)
        return any(whole.search(text) for text in candidates)

    def said(
        self, leaf: str | float, text: str, *, whole: bool, first: int | None = None
    ) -> bool | None:
        """Whether a text or number, written as ``text``, was said; None where nobody can know.

        With ``whole``, all that was said is known. A number may even then have been said in other
        words: twelve fifty, 12,50.
        """
        if self.hold(text, first=first):
            return True
        return False if whole and isinstance(leaf, str) else None


def all_said(answers: Iterable[bool | None]) -> bool | None:
    """Whether all parts of a value were said; None where nobody can know, or there are none."""
    known = list(answers)
    if False in known:
        return False
    return None if None in known or not known else True


class TrustedInput:
    """What the user and trusted tools have said so far in a trajectory of this process."""

    def __init__(self) -> None:
        self._texts = TrustedTexts()
        self._heard_user = False

    def note_user(self, said: object) -> None:
        """Remember what the user or the operator said; a text, or messages."""
        self._heard_user = True
        self._note(said)

    def note_result(self, result: object) -> None:
        """Remember what a trusted tool returned."""
        self._note(result)

    def is_trusted(self, value: object) -> bool | None:
        """Whether all of a value was said; None where nobody can know."""
        try:
            leaves = list(_leaves(capture.render(value, _MAX_BYTES)))
        except Exception:  # noqa: BLE001 - a value may raise anything when it is looked at
            return None
        if len(leaves) > _MAX_LEAVES:
            return None
        whole = self._texts.whole and self._heard_user
        return all_said(self._texts.said(leaf, str(leaf), whole=whole) for leaf in leaves)

    def _note(self, value: object) -> None:
        try:
            tree = capture.render(value, _MAX_BYTES)
        except Exception:  # noqa: BLE001 - a value may raise anything when it is looked at
            self._texts.miss()
            return
        for leaf in _leaves(tree, keys=True):
            self._texts.add(str(leaf))


def _leaves(tree: Any, *, keys: bool = False) -> Iterator[str | float]:
    """Texts and numbers in a rendered value; booleans, nulls and empty texts say nothing."""
    if isinstance(tree, dict):
        for key, item in tree.items():
            if keys:
                yield key
            yield from _leaves(item, keys=keys)
    elif isinstance(tree, list):
        for item in tree:
            yield from _leaves(item, keys=keys)
    elif tree is not None and not isinstance(tree, bool) and tree != "":
        yield tree


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"
