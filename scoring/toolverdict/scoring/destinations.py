"""Which argument values decide where a call goes: whom it reaches, who is paid, what becomes his.

By form (an address of mail, a URL, an account number, a phone number), wherever it stands, and by the
name of the argument (``to``, ``recipients``, ``iban``, ``password``). An outsider who cannot choose one
of these cannot gain much by commanding a call.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from toolverdict.scoring.known_tools import name_words
from toolverdict.scoring.model import Json

_MAX_LEAVES: Final = 2_000
_MAX_CHARS: Final = 20_000
_SHORTEST: Final = 3
_LONGEST_NAME: Final = 200

_NAMES: Final = frozenset(
    [
        "to",
        "cc",
        "bcc",
        "recipient",
        "recipients",
        "receiver",
        "receivers",
        "payee",
        "beneficiary",
        "iban",
        "bic",
        "account",
        "accounts",
        "address",
        "addresses",
        "email",
        "emails",
        "mail",
        "mails",
        "url",
        "urls",
        "uri",
        "link",
        "links",
        "href",
        "website",
        "host",
        "hostname",
        "domain",
        "webhook",
        "endpoint",
        "callback",
        "phone",
        "mobile",
        "participants",
        "attendees",
        "invitees",
        "invitee",
        "guests",
        "member",
        "members",
        "user",
        "users",
        "username",
        "usernames",
        "channel",
        "channels",
        "destination",
        "target",
        "handle",
        "password",
        "passphrase",
        "secret",
        "token",
        "wallet",
        "remote",
        "repo",
        "repository",
        "bucket",
        "server",
    ]
)
_SCHEME = r"[a-z][a-z0-9+.-]{1,15}://"
_FORMS: Final = (
    re.compile(r"[\w.+%-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"),
    re.compile(_SCHEME + r"[^\s\"'<>()\[\]{}|]{2,512}", re.IGNORECASE),
    re.compile(
        r"(?<![\w@./-])(?:[a-z0-9-]{1,63}\.){1,6}[a-z]{2,18}(?:/[^\s\"'<>()]{0,256})?(?![\w@])",
        re.I,
    ),
    re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,8}(?: ?[A-Z0-9]{1,3})?(?!\w)"),
    re.compile(r"(?<![\w+])\+[1-9](?:[ ().-]{0,2}\d){7,14}(?!\d)"),
)
_HOST = 2  # of the forms; a bare host is one only with a known ending or a path
_HOSTS = re.compile(
    r"^(?:www\.)|\.(?:com|net|org|io|ai|dev|app|info|biz|co|example|test|[a-z]{2})(?:/|$)", re.I
)
_FILE = re.compile(
    r"\.(?:txt|md|pdf|docx?|xlsx?|pptx?|csv|json|ya?ml|html?|py|js|ts|png|jpe?g|zip|sh|go|rs|rb|pl)$",
    re.I,
)


class Destination(NamedTuple):
    """One value, and where it stands; ``by_form``: by how it is written, whatever it is called."""

    path: str
    value: str
    by_form: bool = True


class Leaf(NamedTuple):
    """A text or number in the arguments, and where it stands: ``to.0``, ``order.id``."""

    path: str
    value: str | int | float


def leaves_with_paths(arguments: Json) -> Iterator[Leaf]:
    """Texts and numbers of the arguments, in their order; so many."""
    waiting: list[tuple[str, Json]] = [("", arguments)]
    for _ in range(_MAX_LEAVES):
        if not waiting:
            return
        path, item = waiting.pop()
        if isinstance(item, dict):
            waiting += [(f"{path}.{k}" if path else str(k), v) for k, v in reversed(item.items())]
        elif isinstance(item, list):
            waiting += [
                (f"{path}.{i}" if path else str(i), v) for i, v in reversed(list(enumerate(item)))
            ]
        elif isinstance(item, str | int | float) and not isinstance(item, bool) and item != "":
            yield Leaf(path, item)


def destinations(arguments: Json) -> Iterator[Destination]:
    """The destinations in the arguments of a call, each once."""
    seen: set[str] = set()
    for path, value in leaves_with_paths(arguments):
        text = value if isinstance(value, str) else str(value)
        text = text[:_MAX_CHARS]
        found = list(_formed(text))
        if not found and _SHORTEST <= len(text) <= _LONGEST_NAME and is_named(path):
            found, by_form = [text.strip()], False
        else:
            by_form = True
        for one in found:
            if one not in seen:
                seen.add(one)
                yield Destination(path, one, by_form)


def _formed(text: str) -> Iterator[str]:
    taken = bytearray(len(text))  # one byte a character: 1 where an earlier form stands
    for index, form in enumerate(_FORMS):
        for match in form.finditer(text):
            start, end = match.span()
            if 1 in taken[start:end]:
                continue
            found = match[0].rstrip(".,;:!?")
            if index == _HOST and (_FILE.search(found) or not _HOSTS.search(found)):
                continue
            taken[start:end] = b"\1" * (end - start)
            yield found


def is_named(path: str) -> bool:
    """Whether an argument's name says that it is one; the numbers of list items are none."""
    names = [part for part in path.split(".") if not part.isdecimal()]
    if not names:
        return False
    words = name_words(names[-1])
    return not _NAMES.isdisjoint(words) and words[-1] not in ("id", "ids", "type", "count", "name")
