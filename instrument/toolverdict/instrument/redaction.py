"""Captured content without the secrets and personal data that can be told for certain.

By key: what stands under ``password``, ``api_key``, ``authorization`` and their like is replaced
whole. By value, inside of any text, JSON in a text, URL or message: what has a checksum (cards by
Luhn, IBANs by mod 97) or a form of its own (e-mail, E.164 phone numbers, AWS, GitHub, Slack and
``sk-`` keys, JSON web tokens, private keys in PEM, ``Bearer``, user-info and token parameters in
URLs, ``password=``). A replacement ``[kind:hmac8]`` is keyed, so equal values stay equal and none
can be guessed. Names, addresses and what has neither key nor form are not found: leave them out by
``exclude``, or capture nothing.

Only so much of a text is looked at; what is not looked at is not recorded.
"""

import hmac
import json
import re
from collections.abc import Callable
from typing import Any, Final

from toolverdict.instrument import settings
from toolverdict.instrument.hashing import HashKey

_SCANNED: Final = 8192
"""How many characters of one text are looked at."""
_MARGIN: Final = 512
"""What may begin before the end of them and go on after it."""
_SCANNED_IN_ALL: Final = 128 * 1024
_MAX_DEPTH: Final = 32

_SECRET_PARTS: Final = (
    *("password", "passwd", "passphrase", "secret", "apikey", "authorization", "cookie"),
    *("credential", "privatekey", "accesskey", "signingkey", "connectionstring"),
)
_SECRET_NAMES: Final = frozenset(
    ("auth", "bearer", "pwd", "pin", "cvv", "cvc", "otp", "sig", "signature", "ssn", "iban")
)
_SECRET_WORD: Final = "passw(?:or)?d|passphrase|secret|token|api[_-]?key|authorization|cookie"

_PEM = re.compile(
    r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,32}-----|\Z)", re.DOTALL
)
_USERINFO = re.compile(r"(?<=://)[^\s/?#@\"'<>]{1,512}(?=@)")
_PARAMETER = re.compile(r"(?<=[?&;#])([A-Za-z0-9_.-]{1,64})=([^&#;\s\"'<>]+)")
_BEARER = re.compile(r"\b(bearer|basic)(\s{1,4})([A-Za-z0-9._~+/=-]+)", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"(?<![A-Za-z0-9])([\"']?[A-Za-z0-9_-]{0,32}?(?:" + _SECRET_WORD + r")[\"']?\s{0,4}[=:]\s{0,4})"
    r"(\"[^\"]*\"?|'[^']*'?|[^\s,;&\"'\[\]{}]+)",
    re.IGNORECASE,
)
_EMAIL = re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}")
_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?!\w)")
_CARD = re.compile(r"(?<![\w.])[2-6](?:[ -]?\d){12,18}(?!\w)")
_PHONE = re.compile(r"(?<![\w+])\+[1-9](?:[ ().-]{0,2}\d){7,14}(?!\d)")
_TOKENS: Final = tuple(
    re.compile(pattern)
    for pattern in (
        r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?",
        r"(?<![A-Za-z0-9])A(?:KI|SI)A[0-9A-Z]{16}(?![0-9A-Za-z])",
        r"(?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_|glpat-)[A-Za-z0-9_-]{16,}",
        r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{8,}",
        r"(?<![A-Za-z0-9])[srp]k[-_][A-Za-z0-9_-]{16,}",
    )
)


def redactor(in_force: settings.Settings) -> Callable[[Any], Any] | None:
    """What takes the secrets out of a value as JSON reads it; None if it shall stay whole."""
    if in_force.capture != "redacted":
        return None
    return _Redactor(settings.hash_key(in_force)).value


class _Redactor:
    """One walk over one value."""

    def __init__(self, key: HashKey) -> None:
        self._key = key
        self._left = _SCANNED_IN_ALL

    def value(self, value: Any, depth: int = 0) -> Any:
        if isinstance(value, str):
            return self.text(value, depth)
        if isinstance(value, dict):
            return {
                self.text(key, depth): self._under(key, item, depth) for key, item in value.items()
            }
        if isinstance(value, list):
            return [self.value(item, depth) for item in value]
        if type(value) is int and _is_card(str(value)):
            return self._mark("card", str(value))
        return value

    def _under(self, key: str, item: Any, depth: int) -> Any:
        if item is None or isinstance(item, bool) or item in ("", [], {}) or not is_secret(key):
            return self.value(item, depth)
        shown = item if isinstance(item, str) else json.dumps(item, sort_keys=True)
        return self._mark("secret", shown)

    def text(self, text: str, depth: int) -> str:
        if text[:64].lstrip()[:1] in ("{", "[") and depth < _MAX_DEPTH:
            inside = self._json_in(text, depth)
            if inside is not None:
                return inside
        looked_at = text[: min(_SCANNED, self._left)]
        self._left -= len(looked_at)
        cut = len(looked_at) < len(text)
        redacted = self._scan(looked_at, max(0, len(looked_at) - _MARGIN) if cut else None)
        return f"{redacted}[not scanned:{len(text)} characters]" if cut else redacted

    def _json_in(self, text: str, depth: int) -> str | None:
        try:
            inside = json.loads(text)
        except (ValueError, RecursionError):
            return None
        redacted = self.value(inside, depth + 1)
        return text if redacted == inside else json.dumps(redacted, ensure_ascii=False)

    def _scan(self, text: str, end: int | None) -> str:
        found: list[tuple[int, int, str]] = []

        def note(kind: str, start: int, stop: int, plain: str) -> None:
            found.append((start, stop, self._mark(kind, plain)))

        for match in _PEM.finditer(text):
            note("secret", *match.span(), match[0])
        for match in _USERINFO.finditer(text):
            note("userinfo", *match.span(), match[0])
        in_urls = [(start, stop) for start, stop, _ in found]
        for match in _PARAMETER.finditer(text):
            if is_secret(match[1]):
                note("secret", *match.span(2), match[2])
        for match in _BEARER.finditer(text):
            if match[1].lower() == "bearer" or len(match[3]) >= 8:
                note("secret", *match.span(3), match[3])
        for match in _ASSIGNED.finditer(text):
            note("secret", *match.span(2), match[2].strip("\"'"))
        for pattern in _TOKENS:
            for match in pattern.finditer(text):
                note("secret", *match.span(), match[0])
        for match in _EMAIL.finditer(text):
            if any(start <= match.start() < stop for start, stop in in_urls):
                continue  # of a password and the host behind it
            note("email", *match.span(), match[0].lower())
        for match in _IBAN.finditer(text):
            if _is_iban(iban := match[0].replace(" ", "")):
                note("iban", *match.span(), iban)
        for match in _CARD.finditer(text):
            if _is_card(digits := re.sub("[ -]", "", match[0])):
                note("card", *match.span(), digits)
        for match in _PHONE.finditer(text):
            note("phone", *match.span(), "+" + re.sub(r"\D", "", match[0]))
        return _replaced(text, sorted(found), end)

    def _mark(self, kind: str, plain: str) -> str:
        message = f"redacted/1\0{kind}\0{plain}".encode("utf-8", "surrogatepass")
        return f"[{kind}:{hmac.digest(self._key.secret, message, 'sha256').hex()[:8]}]"


def is_secret(key: str) -> bool:
    """Whether what stands under this key is secret by the key alone."""
    name = re.sub(r"[^a-z0-9]", "", key[:256].lower())
    return (
        name in _SECRET_NAMES
        or name.endswith("token")
        or any(part in name for part in _SECRET_PARTS)
    )


def _replaced(text: str, found: list[tuple[int, int, str]], end: int | None) -> str:
    """The text with its marks; where two overlap, the one that begins first covers both."""
    end = len(text) if end is None else end
    parts: list[str] = []
    at = 0
    for start, stop, mark in found:
        if start >= end:
            break
        if start >= at:
            parts += [text[at:start], mark]
        at = max(at, stop)
    return "".join([*parts, text[at:end]])


def _is_card(digits: str) -> bool:
    if not (13 <= len(digits) <= 19 and digits.isdecimal() and digits[0] in "23456"):
        return False
    doubled = [int(digit) * 2 for digit in digits[-2::-2]]
    return (sum(map(int, digits[-1::-2])) + sum(d - 9 * (d > 9) for d in doubled)) % 10 == 0


def _is_iban(text: str) -> bool:
    if not 15 <= len(text) <= 34:
        return False
    return int("".join(str(int(letter, 36)) for letter in text[4:] + text[:4])) % 97 == 1
