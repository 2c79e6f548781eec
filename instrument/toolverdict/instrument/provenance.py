"""Where the values of a call come from, as keyed hashes: decidable without any content.

An atom is what an injected instruction has to bring along to do harm: an e-mail address, a URL and
its host, an IBAN, a long number, an id. The user's input, the results of tools labelled
``untrusted`` and the arguments of calls that can do harm each record the hashes of theirs, so that
a scorer can say that a destination came out of a web page and not from the user. Atoms are compared
in lower case and without spaces in IBANs; no hash is made of anything shorter than six characters.
"""

import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, Final

from toolverdict.instrument import capture, spans
from toolverdict.instrument.hashing import HashKey

UNTRUSTED: Final = "untrusted"
"""The label of a tool whose results somebody else may have written."""

MAX_ATOMS: Final = 128
_MAX_BYTES: Final = 64 * 1024
_MAX_SCANNED: Final = 32 * 1024
_MAX_ITEMS: Final = 4096
_SHORTEST: Final = 6
_SAFE_INT: Final = 2**53 - 1

_URL = re.compile(r"https?://([^\s/?#\"'<>()]{1,253})[^\s\"'<>()]{0,512}", re.IGNORECASE)
_EMAIL = re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}")
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)")
_ID = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9][A-Za-z0-9_-]{5,63}(?![A-Za-z0-9_-])")

_DIGIT = re.compile("[0-9]")


class Atoms:
    """The atoms of one value, or of the items of a stream; so many, from so much text."""

    def __init__(self) -> None:
        self.whole = True
        """Whether these are all."""
        self._found: set[str] = set()
        self._left = _MAX_SCANNED
        self._texts: list[str] = []

    def add(self, value: object) -> None:
        """Look for atoms in a value.

        Raises:
            Exception: Whatever the value raises when it is looked at.
        """
        if self._left < 0:
            return  # a stream without an end costs no more
        texts = _plain_texts(value)
        if texts is None:
            try:
                texts = list(_texts(capture.render(value, _MAX_BYTES)))
            except capture.TooLarge:
                self.whole, self._left = False, -1
                return
        for place, text in enumerate(texts):
            self._left -= len(text)
            if self._left < 0:
                self.whole = False
                del texts[place:]
                break
        self._scan(texts)

    def add_item(self, item: object) -> None:
        """Look for atoms in an item of a stream; those of texts may go on in the next one.

        Raises:
            Exception: Whatever the item raises when it is looked at.
        """
        self.add(item)
        if isinstance(item, str) and item and self._left >= 0:
            self._texts.append(str.__str__(item))

    def hashes(self, key: HashKey) -> tuple[str, ...]:
        """The hashes of the atoms, sorted."""
        if len(self._texts) > 1:
            self._scan(["".join(self._texts)])
        self._texts.clear()
        return tuple(sorted(key.digest(b"atom/1\0" + atom.encode())[:16] for atom in self._found))

    def _scan(self, texts: list[str]) -> None:
        for atom in _atoms(texts):
            if atom not in self._found and len(self._found) == MAX_ATOMS:
                self.whole = False
                return
            self._found.add(atom)


def atom_hashes(key: HashKey, value: object) -> tuple[tuple[str, ...], bool]:
    """The hashes of the atoms in a value, sorted, and whether these are all.

    Raises:
        Exception: Whatever the value raises when it is looked at.
    """
    atoms = Atoms()
    atoms.add(value)
    return atoms.hashes(key), atoms.whole


def _plain_texts(value: object) -> list[str] | None:
    """The texts in what is nothing but plain values, quickly; None if anything else is in it."""
    texts: list[str] = []
    items: list[Any] = [dict(value) if type(value) is MappingProxyType else value]
    for item in items:  # which grows meanwhile, and not without end
        kind = type(item)
        if kind is str:
            texts.append(spans.clean(item))
        elif kind is dict:
            if any(type(key) is not str for key in item):
                return None
            items.extend(item)
            items.extend(item.values())
        elif kind is list:
            items.extend(item)
        elif kind is int:
            if not -_SAFE_INT <= item <= _SAFE_INT:
                return None
            texts.append(str(item))
        elif item is not None and kind is not bool and kind is not float:
            return None
        if len(items) > _MAX_ITEMS:
            return None
    return texts


def _texts(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    elif isinstance(tree, dict):
        for key, item in tree.items():
            yield key
            yield from _texts(item)
    elif isinstance(tree, list):
        for item in tree:
            yield from _texts(item)
    elif isinstance(tree, int) and not isinstance(tree, bool):
        yield str(tree)


def _atoms(texts: list[str]) -> Iterator[str]:
    # Most texts have none of it: looking for a mark is cheaper than looking for a pattern.
    for text in texts:
        for match in _URL.finditer(text) if "://" in text else ():
            yield match[0].rstrip(".,;:!?").lower()
            yield match[1].rpartition("@")[2].partition(":")[0].lower()
        for match in _EMAIL.finditer(text) if "@" in text else ():
            yield match[0].lower()
            yield match[0].rpartition("@")[2].lower()
    # These are looked for in all texts at once, which is quicker; none goes on in the next line.
    together = "\n".join([text for text in texts if len(text) >= _SHORTEST])
    for iban in _IBAN.findall(together):
        yield iban.replace(" ", "").lower()
    for word in _ID.findall(together):
        if not word.isalpha() and _DIGIT.search(word):
            yield word.lower()
