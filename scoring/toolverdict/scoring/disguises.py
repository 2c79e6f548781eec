"""What a text says to whoever decodes it: the forms in which a value is hidden from a plain search.

Each is a reading of the whole text in which a disguised value stands plainly: look-alike letters and
characters without a picture, base64, hex, percent and HTML escapes, rot13, letters written
backwards or apart, and ``name [at] host [dot] com``. A reading proves nothing by itself; it is only
searched for a value that a call did carry.
"""

import base64
import binascii
import codecs
import html
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from toolverdict.instrument.likeness import skeleton

MAX_CHARS: Final = 64 * 1024
"""How much of a text is decoded."""
_MAX_TOKENS: Final = 256

_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{8,4096}={0,2}(?![A-Za-z0-9+/_=-])")
_HEX = re.compile(r"(?<![0-9A-Fa-f])(?:0x)?((?:[0-9A-Fa-f]{2}[ :]?){5,2048})(?![0-9A-Fa-f])")
_APART = re.compile(r"(?<!\S)(?:\S[ \u00a0]){4,256}\S(?!\S)|(?<!\S)(?:\S[-_.*]){5,256}\S(?!\S)")
_AT = re.compile(r"\s{0,3}(?:[\[({<]\s{0,3}at\s{0,3}[\])}>]|\bat\b(?=\s+\S+\s+dot\b))\s{0,3}", re.I)
_DOT = re.compile(r"\s{0,3}(?:[\[({<]\s{0,3}(?:dot|\.)\s{0,3}[\])}>]|\bdot\b)\s{0,3}", re.I)


def readings(text: str) -> Iterator[tuple[str, str]]:
    """How it was hidden, and the text as it then reads, for each form that says something new."""
    text = text[:MAX_CHARS]
    plain = skeleton(text)
    if plain != text.casefold():
        yield "look_alike", plain
    if "%" in text and (decoded := unquote(text, errors="replace")) != text:
        yield "percent", decoded
    if "&" in text and (decoded := html.unescape(text)) != text:
        yield "html", decoded
    for how, found in (("base64", _decoded(text)), ("hex", _from_hex(text))):
        if found:
            yield how, "\n".join(found)
    together = _APART.sub(_joined, text)
    if together != text:
        yield "apart", together
    spelled = _DOT.sub(".", _AT.sub("@", text))
    if spelled != text:
        yield "spelled_out", spelled
    yield "rot13", codecs.encode(text, "rot13")
    yield "backwards", text[::-1]


def _joined(match: re.Match[str]) -> str:
    return match[0][::2]


def _decoded(text: str) -> list[str]:
    found = []
    for count, match in enumerate(_BASE64.finditer(text)):
        if count == _MAX_TOKENS:
            break
        token = match[0].rstrip("=").translate(_URL_SAFE)
        try:
            raw = base64.b64decode(token + "=" * (-len(token) % 4))
        except (binascii.Error, ValueError):
            continue
        if (plain := _printable(raw)) is not None:
            found.append(plain)
    return found


def _from_hex(text: str) -> list[str]:
    found = []
    for count, match in enumerate(_HEX.finditer(text)):
        if count == _MAX_TOKENS:
            break
        if (plain := _printable(bytes.fromhex(re.sub("[ :]", "", match[1])))) is not None:
            found.append(plain)
    return found


def _printable(raw: bytes) -> str | None:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return text if len(text) >= 4 and text.replace("\n", " ").isprintable() else None


_URL_SAFE: Final = str.maketrans("-_", "+/")
