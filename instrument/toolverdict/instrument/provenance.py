"""Where the values of a call come from, as keyed hashes: decidable without any content.

An atom is what an injected instruction has to bring along to do harm: an e-mail address, a URL and
its host, an IBAN, a long number, an id. The user's input, the results of tools labelled
``untrusted`` and the arguments of calls that can do harm each record the hashes of theirs, so that
a scorer can say that a destination came out of a web page and not from the user. Atoms are compared
in lower case and without spaces in IBANs; no hash is made of anything shorter than six characters.
"""

import hmac
import re
from collections.abc import Iterator
from typing import Any, Final

from toolverdict.instrument import capture
from toolverdict.instrument.hashing import HashKey

UNTRUSTED: Final = "untrusted"
"""The label of a tool whose results somebody else may have written."""

MAX_ATOMS: Final = 128
_MAX_BYTES: Final = 64 * 1024
_MAX_SCANNED: Final = 32 * 1024

_URL = re.compile(r"https?://([^\s/?#\"'<>()]{1,253})[^\s\"'<>()]{0,512}", re.IGNORECASE)
_EMAIL = re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}")
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)")
_ID = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9][A-Za-z0-9_-]{5,63}(?![A-Za-z0-9_-])")

_DIGIT = re.compile("[0-9]")


def atom_hashes(key: HashKey, value: object) -> tuple[tuple[str, ...], bool]:
    """The hashes of the atoms in a value, sorted, and whether these are all.

    Raises:
        Exception: Whatever the value raises when it is looked at.
    """
    try:
        tree = capture.render(value, _MAX_BYTES)
    except capture.TooLarge:
        return (), False
    found: set[str] = set()
    left = _MAX_SCANNED
    for text in _texts(tree):
        left -= len(text)
        if left < 0:
            return _hashed(key, found), False
        for atom in _atoms(text):
            if atom not in found and len(found) == MAX_ATOMS:
                return _hashed(key, found), False
            found.add(atom)
    return _hashed(key, found), True


def _hashed(key: HashKey, atoms: set[str]) -> tuple[str, ...]:
    digests = (hmac.digest(key.secret, b"atom/1\0" + atom.encode(), "sha256") for atom in atoms)
    return tuple(sorted(digest.hex()[:16] for digest in digests))


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


def _atoms(text: str) -> Iterator[str]:
    # Most texts have none of it: looking for a mark is cheaper than looking for a pattern.
    for match in _URL.finditer(text) if "://" in text else ():
        yield match[0].rstrip(".,;:!?").lower()
        yield match[1].rpartition("@")[2].partition(":")[0].lower()
    for match in _EMAIL.finditer(text) if "@" in text else ():
        yield match[0].lower()
        yield match[0].rpartition("@")[2].lower()
    if len(text) < 6 or not _DIGIT.search(text):
        return
    for match in _IBAN.finditer(text):
        yield match[0].replace(" ", "").lower()
    for match in _ID.finditer(text):
        if _DIGIT.search(match[0]):
            yield match[0].lower()
