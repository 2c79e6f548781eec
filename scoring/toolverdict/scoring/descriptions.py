"""What tool descriptions say that descriptions have no business to say: instructions to the model.

A description is read by the model with the authority of the operator, and written by whoever runs the
server. Descriptions rightly tell how to use their own tool, so a command alone is none of what is
looked for. Told, with the exact quote:

- ``hidden``: characters that a reader does not see, and what they spell;
- ``conceals``: the model shall keep something from the user;
- ``overrides``: other instructions shall not count;
- ``secrets``: it shall read, or pass on, credentials, keys, prompts or files of the user;
- ``other_tool``: it says what to do when a tool of another server is used;
- ``sends``: it shall send something to an address that the description brings along;
- ``encoded``: a text that is a command once it is decoded;
- ``shadowing``, ``look_alike``: its name is, or looks like, that of another server's tool;
- and, against a lock file, what :mod:`toolverdict.instrument.catalogue.diff` wants looked at.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from toolverdict.instrument.catalogue.definitions import Catalogue, Tool
from toolverdict.instrument.catalogue.diff import diff
from toolverdict.instrument.likeness import is_hidden, skeleton
from toolverdict.instrument.names import bare_name
from toolverdict.scoring.destinations import destinations
from toolverdict.scoring.disguises import readings
from toolverdict.scoring.instructions import commanded_verbs, sentences
from toolverdict.scoring.known_tools import name_words

_MAX_TEXTS: Final = 2_000
_MAX_CHARS: Final = 100_000
_MAX_QUOTE: Final = 240
_MAX_DEPTH: Final = 32

_CONCEALS = re.compile(
    r"\b(?:do not|don't|never|must not|should not|without)\s+(?:ever\s+)?(?:\w+\s+){0,2}?"
    r"(?:tell|mention|inform|notify|alert|reveal|disclose|show|telling|mentioning|informing|"
    r"notifying|alerting|revealing|disclosing|showing)\b[^.;\n]{0,60}?"
    r"\b(?:user|users|human|customer|anyone|anybody|operator|him|her|them)\b"
    r"|\b(?:secretly|covertly|silently (?:send|forward|read|copy|call|include|pass))\b"
    r"|\bhid(?:e|ing) (?:this|it|the \w+) from\b",
    re.IGNORECASE,
)
_OVERRIDES = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass|supersede)s?\b[^.;\n]{0,40}?"
    r"\b(?:instruction|instructions|rule|rules|guideline|guidelines|prompt|prompts|polic(?:y|ies)|"
    r"restriction|restrictions|safeguards?)\b"
    r"|\b(?:previous|prior|above|earlier|other|all) (?:instructions|rules) (?:are|do) "
    r"(?:void|obsolete|not)",
    re.IGNORECASE,
)
_SECRET = re.compile(
    r"(?:~|\$HOME|/home/\w+|/root|%USERPROFILE%)/[.\w/-]+|\.ssh\b|\bid_(?:rsa|ed25519|dsa|ecdsa)\b"
    r"|(?<!\w)\.env\b|\.aws/|\.netrc\b|/etc/(?:passwd|shadow)\b|\bmcp\.json\b|\.kube/config\b"
    r"|\b(?:private|ssh|secret|encryption) keys?\b|\bcredentials?\b|\bpasswords?\b|\bapi[ _-]?keys?\b"
    r"|\b(?:access|auth|session|bearer) tokens?\b|\bsystem prompt\b|\benvironment variables\b"
    r"|\b(?:conversation|chat|message) (?:history|log|transcript)\b|\bcookies\b",
    re.IGNORECASE,
)
_PATH = re.compile(
    r"(?:~|\$HOME|/home/\w+|/root|%USERPROFILE%)/\.\w[.\w/-]*|/etc/(?:passwd|shadow)\b"
    r"|\bid_(?:rsa|ed25519)\b|\.ssh/|\bmcp\.json\b|\.aws/credentials"
)
_HANDS_OVER: Final = frozenset(
    [
        "read",
        "access",
        "send",
        "pass",
        "provide",
        "include",
        "put",
        "copy",
        "append",
        "add",
        "extract",
        "collect",
        "output",
        "forward",
        "upload",
        "share",
        "print",
        "repeat",
        "reveal",
        "write",
        "post",
        "email",
        "fetch",
        "get",
        "open",
        "transmit",
        "leak",
        "encode",
        "save",
        "store",
        "submit",
    ]
)
_SENDS: Final = frozenset(
    ["send", "forward", "email", "mail", "post", "upload", "transmit", "share", "bcc", "cc", "copy"]
)


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One thing that somebody should read; ``where`` is the part of the definition."""

    tool: str
    code: str
    grade: str
    where: str
    message: str
    quote: str = ""


def audit(catalogue: Catalogue, pinned: Catalogue | None = None) -> list[Suspicion]:
    """Everything suspicious in a catalogue, by tool; with ``pinned``, also what changed since."""
    found = [one for tool in catalogue.tools for one in audit_tool(tool, catalogue.tools)]
    found.extend(_names(catalogue.tools))
    if pinned is not None:
        found.extend(_changed(pinned, catalogue, {(one.tool) for one in found}))
    return sorted(found, key=lambda one: (one.tool, one.where, one.code, one.quote))


def audit_tool(tool: Tool, others: Iterable[Tool] = ()) -> Iterator[Suspicion]:
    """What is suspicious in the texts of one tool.

    Args:
        tool: its definition.
        others: the tools beside it; those of its own server are its own business.
    """
    foreign = [
        other.name
        for other in others
        if other.server != tool.server and len(name_words(other.name)) > 1
    ]
    for where, text in _texts(tool):
        text = text[:_MAX_CHARS]
        for code, grade, message, quote in _of_text(text, foreign):
            yield Suspicion(tool.key, code, grade, where, message, _quoted(quote))


def _texts(tool: Tool) -> Iterator[tuple[str, str]]:
    """Everything that a model reads of a tool, and where it stands."""
    for name, text in (("description", tool.description), ("title", tool.title)):
        if text:
            yield name, text
    waiting: list[tuple[str, Any, int]] = [
        ("outputSchema", tool.output_schema, 0),
        ("annotations", tool.annotations, 0),
        ("inputSchema", tool.schema, 0),
    ]
    count = 0
    while waiting and count < _MAX_TEXTS:
        path, item, depth = waiting.pop()
        count += 1
        if isinstance(item, str):
            yield path, item
        elif depth < _MAX_DEPTH and isinstance(item, dict):
            waiting += [(f"{path}.{k}", v, depth + 1) for k, v in item.items()]
            waiting += [(f"{path} (a name)", k, depth + 1) for k in item if " " in k]
        elif depth < _MAX_DEPTH and isinstance(item, list | tuple):
            waiting += [(f"{path}.{i}", v, depth + 1) for i, v in enumerate(item)]


def _of_text(text: str, foreign: list[str]) -> Iterator[tuple[str, str, str, str]]:
    if not text.isascii() or not text.isprintable():
        yield from _hidden(text)
    yield from _said(text, foreign)
    for how, plain in readings(text) if len(text) < 20_000 else ():
        if how in ("base64", "hex", "percent", "html") and len(plain) > 8:
            new = [one for one in sentences(plain) if commanded_verbs(one) and one not in text]
            for sentence in new[:1]:
                yield "encoded", "strong", f"a command that is hidden by {how}", sentence


def _said(text: str, foreign: list[str]) -> Iterator[tuple[str, str, str, str]]:
    parts = list(sentences(text))
    for sentence in parts:
        if _CONCEALS.search(sentence):
            yield "conceals", "strong", "something shall be kept from the user", sentence
        if _OVERRIDES.search(sentence):
            yield "overrides", "strong", "other instructions shall not count", sentence
        verbs = frozenset(commanded_verbs(sentence))
        if _PATH.search(sentence):
            grade = "strong" if verbs & _HANDS_OVER else "suspect"
            yield "secrets", grade, "a file of the user's secrets is named", sentence
        elif verbs & _HANDS_OVER and _SECRET.search(sentence) and _is_told(sentence):
            yield "secrets", "suspect", "the model shall hand over secrets", sentence
        lowered = sentence.casefold()
        named = next((name for name in foreign if _holds(lowered, name)), None)
        if named is not None and (verbs or _CONDITION.search(sentence)):
            message = f"it says what to do about {named}, a tool of another server"
            yield "other_tool", "strong", message, sentence
        if verbs & _SENDS and _is_told(sentence):
            aim = next(iter(destinations([sentence])), None)
            if aim is not None and _TO.search(sentence[: sentence.find(aim.value)]):
                yield "sends", "strong", "something shall be sent to an address in it", sentence


_TO = re.compile(r"\b(?:to|at|bcc|cc|recipient)\b\W*(?:\w+\W+){0,4}$", re.IGNORECASE)
_CONDITION = re.compile(r"\b(?:before|after|when(?:ever)?|instead of|if|while)\b", re.IGNORECASE)
_SUBJECT = re.compile(
    r"\b(?:you (?:must|should|need|have)|always|first|before (?:using|calling|you)|make sure|"
    r"be sure|important|the (?:model|assistant|agent|llm|ai) (?:must|should|shall)|required to)\b",
    re.IGNORECASE,
)


def _is_told(sentence: str) -> bool:
    """Whether a sentence speaks to the model, not about what the tool does."""
    return _SUBJECT.search(sentence) is not None


def _holds(lowered: str, name: str) -> bool:
    start = lowered.find(name.casefold())
    if start < 0:
        return False
    end = start + len(name)
    return not (lowered[start - 1 : start].isalnum() or lowered[end : end + 1].isalnum())


def _hidden(text: str) -> Iterator[tuple[str, str, str, str]]:
    unseen = [i for i, c in enumerate(text) if is_hidden(c) and not _is_usual(text, i)]
    if not unseen:
        return
    spelled = "".join(
        chr(ord(text[i]) - 0xE0000) for i in unseen if 0xE0020 <= ord(text[i]) < 0xE007F
    )
    first = unseen[0]
    around = text[max(0, first - 40) : first + 40]
    message = f"{len(unseen)} characters that a reader does not see"
    message += f", which spell {spelled[:_MAX_QUOTE]!r}" if spelled else ""
    yield "hidden", "strong" if spelled or len(unseen) > 2 else "suspect", message, around


def _is_usual(text: str, index: int) -> bool:
    """Blanks of typography, line ends of other systems, and what joins the parts of an emoji."""
    character = text[index]
    if character in "\r\u00a0\u202f\u2009\u200a\u3000\ufeff" and (
        character != "\ufeff" or index == 0
    ):
        return True
    before = text[index - 1] if index else ""
    if character in "\ufe0f\ufe0e\u200d" or 0xE0100 <= ord(character) < 0xE01F0:
        return bool(before) and (
            unicodedata.category(before) in ("So", "Sk", "Sm", "Po", "Nd", "Lo", "Mn", "Mc")
            or before == "\ufe0f"
        )
    if character in "\u200c\u200d":  # rightly between letters of scripts that need them
        return bool(before) and ord(before) > 0x590
    return False


def _names(tools: Iterable[Tool]) -> Iterator[Suspicion]:
    by_name: dict[str, Tool] = {}
    by_look: dict[str, Tool] = {}
    for tool in tools:
        bare = bare_name(tool.name)
        other = by_name.setdefault(bare, tool)
        if other is not tool:
            message = f"{other.key} has the same name: a model may call either"
            yield Suspicion(tool.key, "shadowing", "suspect", "name", message, bare)
            continue
        alike = by_look.setdefault(skeleton(bare).replace("-", "_"), tool)
        if alike is not tool and (not bare.isascii() or not bare_name(alike.name).isascii()):
            message = f"its name looks like that of {alike.key} and is another"
            yield Suspicion(tool.key, "look_alike", "strong", "name", message, _quoted(bare))


def _changed(pinned: Catalogue, now: Catalogue, suspicious: set[str]) -> Iterator[Suspicion]:
    for tool in diff(pinned, now):
        for problem in tool.problems:
            if problem.code == "shadowing":
                continue
            told = any(change.path == "description" for change in tool.changes)
            grave = tool.key in suspicious or (told and problem.code == "unversioned_change")
            yield Suspicion(
                tool.key,
                problem.code,
                "strong" if grave else "suspect",
                tool.status,
                problem.message,
            )


def _quoted(text: str) -> str:
    """A quote that shows what is hidden in it, and cannot hide anything where it is printed."""
    cut = text.strip()[:_MAX_QUOTE]
    shown = (
        c if not is_hidden(c) or c in " \u00a0" else c.encode("unicode_escape").decode()
        for c in " ".join(cut.split())
    )
    return "".join(shown) + ("..." if len(text.strip()) > _MAX_QUOTE else "")
