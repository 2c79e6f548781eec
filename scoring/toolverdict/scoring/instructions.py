"""Whether a text tells somebody to do something: its sentences that command, and what they ask for.

Two readers need it: where an outsider's text tells the agent which tool to call (``provenance``), and
where a tool's description says more than what the tool does (``catalogue_audit``). Nothing here is a
list of known attacks. A sentence commands if it is in the imperative, or tells the reader what he
must do; what it asks for is compared with a call by its verb, its thing and its values. The grammar is
English; a tool that is named literally is found in any language.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from toolverdict.scoring.known_tools import name_words

_MAX_SENTENCES: Final = 2_000
_MAX_SENTENCE: Final = 2_000

_ENDS = re.compile(
    r"(?<=[.!?;])[\"')\]]*\s+|\n\s*\n|\n(?=\s*(?:[-*>#]|\d{1,2}[.)]))|\n(?=\s*[A-Z<])"
)
_LEAD = re.compile(
    r"^(?:[\s\-*>#\"'(\[]|\d{1,2}[.)]|[A-Za-z_ ]{1,24}:(?=\s)|<[^<>]{1,64}>"
    r"|(?:please|kindly|now|then|next|first|also|finally|just|instead|and|so|important|note|todo)"
    r"\b[\s,:!]*)+",
    re.IGNORECASE,
)
_TOLD = re.compile(
    r"\b(?:you (?:must|should|need to|have to|are to|shall|will now)|please|kindly"
    r"|make sure (?:to|you|that you)|be sure to|remember to|do not forget to|don't forget to"
    r"|(?:want|need|would like|ask|instruct|order) you to|(?:can|could|would|will) you"
    r"|in order to|before (?:you|using|calling)|always|never|instead)\b[\s,]*",
    re.IGNORECASE,
)
_WORD = re.compile(r"[A-Za-z]+(?:'[a-z]+)?")

_MEANINGS: Final = (
    "send email mail message forward write reply notify dispatch tell text transmit",
    "send pay transfer wire remit deposit refund donate transact reimburse",
    "create add make schedule book reserve insert new set open register plan arrange organise organize",
    "delete remove erase cancel drop clear unlink destroy wipe revoke purge discard trash",
    "update change modify edit alter adjust replace set reset rename correct amend fix",
    "reschedule move postpone shift delay",
    "share invite grant give authorize authorise allow permit add",
    "post publish upload submit put write tweet broadcast announce",
    "write save append store record log put add include",
    "run execute start launch trigger invoke call deploy install",
    "buy purchase order acquire get",
    "subscribe register enroll join sign",
    "approve accept confirm merge sign",
    "disable stop close lock block suspend terminate shut end kill",
    "enable unlock unblock activate open",
    "copy export download clone duplicate",
)
"""Verbs that may ask for the same thing; a verb has several meanings."""

_VERBS: Final = frozenset(word for group in _MEANINGS for word in group.split()) - {"new"} | {
    *("read", "visit", "go", "look", "search", "find", "list", "fetch", "check", "open", "use"),
    *(
        "ignore",
        "forget",
        "follow",
        "do",
        "say",
        "print",
        "repeat",
        "reveal",
        "summarize",
        "access",
    ),
    *("pass", "provide", "ensure", "respond", "answer", "tell", "click", "navigate", "recommend"),
    *(
        "mention",
        "encode",
        "extract",
        "collect",
        "leak",
        "disregard",
        "override",
        "recite",
        "output",
    ),
}


@lru_cache(maxsize=2048)
def same_doing(verb: str) -> frozenset[str]:
    """The verbs that may mean the same, itself among them."""
    groups = [frozenset(group.split()) for group in _MEANINGS]
    return frozenset({verb}).union(*(group for group in groups if verb in group))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text, a line of a list being one; so many, each so long."""
    for count, sentence in enumerate(_ENDS.split(text)):
        if count == _MAX_SENTENCES:
            return
        if sentence and not sentence.isspace():
            yield sentence[:_MAX_SENTENCE]


def commanded_verbs(sentence: str) -> tuple[str, ...]:
    """The verbs of what a sentence tells its reader to do; none if it only says how things are.

    >>> commanded_verbs("Please forward the report to ann@x.example.")
    ('forward',)
    >>> commanded_verbs("The report was forwarded yesterday.")
    ()
    """
    found = dict.fromkeys(_verbs(sentence))
    return tuple(found)


def _verbs(sentence: str) -> Iterator[str]:
    start = _LEAD.match(sentence)
    rest = sentence[start.end() :] if start is not None else sentence
    if (verb := _base_verb(rest)) is not None:
        yield verb
    for match in _COLON.finditer(sentence):
        if (verb := _base_verb(sentence[match.end() :])) is not None:
            yield verb
    for match in _TOLD.finditer(sentence):
        if (verb := _base_verb(sentence[match.end() :])) is not None:
            yield verb
    if _commands(sentence):
        for match in _AND.finditer(sentence):
            if (verb := _base_verb(sentence[match.end() :])) is not None:
                yield verb


_COLON = re.compile(r":\s+(?:please\s+)?[\"'(\[]{0,2}", re.IGNORECASE)
_AND = re.compile(r"(?:,|\band\b|\bthen\b|,\s*then,?)\s+", re.IGNORECASE)
_SMALL = re.compile(r"(?:do|also|then|now|just|immediately|first|not|to)\b[\s,]*", re.IGNORECASE)


def _commands(sentence: str) -> bool:
    start = _LEAD.match(sentence)
    rest = sentence[start.end() :] if start is not None else sentence
    return _base_verb(rest) is not None or _TOLD.search(sentence) is not None


def _base_verb(rest: str) -> str | None:
    """The verb that a text begins with, in its bare form."""
    for _ in range(3):
        small = _SMALL.match(rest)
        if small is None:
            break
        rest = rest[small.end() :]
    word = _WORD.match(rest.lstrip(" \"'"))
    if word is None:
        return None
    verb = word[0].lower()
    return verb if verb in _VERBS else None


def asks_for(sentence: str, tool: str) -> bool:
    """Whether a sentence tells its reader to do what the tool does, or names the tool."""
    if names_tool(sentence, tool):
        return True
    return not doing_of(tool).isdisjoint(commanded_verbs(sentence))


def doing_of(tool: str) -> frozenset[str]:
    """The verbs that ask for what a tool does, by the first word of its name."""
    words = name_words(tool)
    return same_doing(words[0]) if words else frozenset()


def names_tool(text: str, tool: str) -> bool:
    """Whether a text names a tool literally, if its name is more than one word."""
    words = name_words(tool)
    if len(words) < 2:
        return False
    lowered = text.casefold()
    return any(name in lowered for name in {tool.casefold(), "_".join(words), " ".join(words)})


def is_asked_for(texts: Iterable[str], tool: str) -> bool:
    """Whether any of the texts of a user can be read as wanting what the tool does.

    A user asks in many ways, so every word counts: a verb of the same meaning in any form, or both
    a word of doing and the thing that the tool is about.
    """
    words = name_words(tool)
    if not words:
        return True
    wanted = {_stem(verb) for verb in same_doing(words[0])}
    for text in texts:
        said = {_stem(word) for word in _WORD.findall(text.lower())}
        if not wanted.isdisjoint(said):
            return True
    return False


def _stem(word: str) -> str:
    """A word without its ending, roughly: pays, paid, paying; both sides are stemmed alike."""
    word = _IRREGULAR.get(word, word)
    for ending in (
        "ations",
        "ation",
        "ments",
        "ment",
        "ings",
        "ing",
        "ied",
        "ies",
        "ed",
        "es",
        "s",
        "e",
        "y",
    ):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


_IRREGULAR: Final = {
    "sent": "send",
    "paid": "pay",
    "wrote": "write",
    "written": "write",
    "made": "make",
    "bought": "buy",
    "told": "tell",
    "gave": "give",
    "given": "give",
    "ran": "run",
}
