"""Two texts that count as one name, and two that only look like one text.

For whoever may do something, a name is the same in capitals or in full width, and nothing else is:
``folded``. For whoever must not, everything counts that a reader takes for the name: ``skeleton``,
after the idea of Unicode's TR39, with a table of the letters of other alphabets that look like Latin
ones, and of the punctuation that looks like ASCII's. It is no complete table of look-alikes.
"""

# ruff: noqa: RUF001 - what looks like something else is what this is about
import unicodedata
from typing import Final

_UNSEEN: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Characters without a picture that are letters or symbols to Unicode."""
_VARIATIONS: Final = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))

_LOOKS_LIKE: Final = {
    # Cyrillic
    **dict(zip("АВЕЗКМНОРСТУХЅІЈԌԚԜҮҺ", "ABE3KMHOPCTYXSIJGQWYH", strict=True)),
    **dict(zip("авекмнорстухѕіјԁԛԝһӏгпүьё", "abekmhopctyxsijdqwhlrnybe", strict=True)),
    # Greek
    **dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΥΧ", "ABEZHIKMNOPTYX", strict=True)),
    **dict(zip("αβγεζηικμνορςτυχϲϳ", "abyezniKuvopctuxcj", strict=True)),
    # Armenian, and letters of Latin's own that are not ASCII's
    **dict(zip("օոսհցզգ", "onuhgqq", strict=True)),
    **dict(zip("ıɑɡɩℓʟᴀʙᴄᴅᴇɪᴊᴋᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢǀ", "iagillabcdeijkmnoprstuvwyzl", strict=True)),
    # Punctuation
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u02d7\u2043\ufe58\ufe63", "-"),
    **dict.fromkeys("\u3002\uff61\ua4f8\u06d4\u0701\u0702", "."),
    **dict.fromkeys("\u2044\u2215\u29f8\u2571", "/"),
    **dict.fromkeys("\ua789\u2236\u02d0\u0589\u05c3", ":"),
    **dict.fromkeys("\u2018\u2019\u02bc\u02b9\u2032", "'"),
}
_TABLE: Final = str.maketrans(_LOOKS_LIKE)


def is_hidden(character: str) -> bool:
    """Whether a reader does not see the character, or sees others elsewhere because of it."""
    if character in "\n\t":
        return False
    if character in _UNSEEN or any(ord(character) in block for block in _VARIATIONS):
        return True
    category = unicodedata.category(character)
    return category in ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp") or (
        category == "Zs" and character != " "
    )


def folded(name: str) -> str:
    """What two spellings of one name have in common: neither case nor width makes another."""
    return unicodedata.normalize("NFKC", name).casefold().strip()


def skeleton(text: str) -> str:
    """What texts have in common that are taken for each other where nobody looks closely.

    Case, width, digits of other scripts, letters and punctuation that look like ASCII's, combining
    marks and what cannot be seen make no difference; blanks do, where they can be seen.
    """
    if text.isascii():
        plain = text.casefold()
        return plain if plain.isprintable() else "".join(filter(str.isprintable, plain))
    translated = unicodedata.normalize("NFKC", text).translate(_TABLE).casefold()
    return "".join(
        _digit(character)
        for character in translated.translate(_TABLE).casefold()
        if not is_hidden(character) and unicodedata.category(character) not in ("Mn", "Me")
        if character not in "\n\t"
    )


def _digit(character: str) -> str:
    return character if character.isascii() else str(unicodedata.decimal(character, character))
