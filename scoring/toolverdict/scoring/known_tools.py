"""What is known of a tool: what it can do, and whether outsiders write what it returns.

Said by the span's labels, the policy and the catalogue, in that order and all together. Traffic that
nobody has classified says none of it. Then a tool's name is all there is: ``send_invoice`` does
something, ``read_inbox`` returns mail. That is a guess, marked as one (``Known.guessed``), and only
made where nobody has said anything; agents of our own dialect always say.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from toolverdict.instrument.catalogue.definitions import Catalogue, Tool
from toolverdict.instrument.decisions import DANGEROUS_LABELS
from toolverdict.instrument.names import bare_name
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.provenance import UNTRUSTED
from toolverdict.scoring.dialects import ours
from toolverdict.scoring.model import ToolCall
from toolverdict.scoring.remembering import for_the_last

ACCEPTS_PERSONAL_DATA: Final = "accepts_personal_data"
"""The label of a tool that needs personal data."""
NO_PERSONAL_DATA: Final = "no_personal_data"
"""The label of a tool that must not get any."""

_MAX_REMEMBERED: Final = 4096
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_DOING: Final = frozenset(
    [
        "add",
        "append",
        "apply",
        "approve",
        "archive",
        "assign",
        "authorize",
        "block",
        "book",
        "buy",
        "cancel",
        "change",
        "charge",
        "clear",
        "close",
        "commit",
        "configure",
        "confirm",
        "copy",
        "create",
        "delete",
        "deny",
        "deploy",
        "disable",
        "dispatch",
        "drop",
        "edit",
        "email",
        "enable",
        "erase",
        "execute",
        "forward",
        "grant",
        "import",
        "insert",
        "install",
        "invite",
        "issue",
        "kick",
        "mail",
        "make",
        "merge",
        "message",
        "modify",
        "move",
        "notify",
        "open",
        "order",
        "overwrite",
        "patch",
        "pay",
        "place",
        "post",
        "publish",
        "purchase",
        "push",
        "put",
        "reboot",
        "refund",
        "register",
        "reject",
        "release",
        "remove",
        "rename",
        "replace",
        "reply",
        "reschedule",
        "reserve",
        "reset",
        "respond",
        "restart",
        "restore",
        "revoke",
        "run",
        "save",
        "schedule",
        "sell",
        "send",
        "set",
        "share",
        "shutdown",
        "sign",
        "start",
        "stop",
        "submit",
        "subscribe",
        "sync",
        "terminate",
        "transfer",
        "trigger",
        "tweet",
        "unlock",
        "unsubscribe",
        "update",
        "upload",
        "upsert",
        "wire",
        "withdraw",
        "write",
    ]
)
"""Verbs that change something or reach somebody; any other first verb only looks."""

SOURCE_KINDS: Final[Mapping[str, frozenset[str]]] = {
    "mail": frozenset({"mail", "mails", "email", "emails", "inbox", "gmail", "outlook"}),
    "ticket": frozenset(
        [
            "ticket",
            "tickets",
            "issue",
            "issues",
            "incident",
            "incidents",
            "case",
            "jira",
            "comment",
            "comments",
            "pr",
            "pull",
            "request",
            "review",
            "reviews",
        ]
    ),
    "chat": frozenset(
        [
            "chat",
            "chats",
            "message",
            "messages",
            "channel",
            "channels",
            "slack",
            "teams",
            "discord",
            "sms",
            "thread",
        ]
    ),
    "calendar": frozenset({"calendar", "event", "events", "appointment", "appointments"}),
    "web_page": frozenset(
        [
            "web",
            "webpage",
            "page",
            "pages",
            "url",
            "urls",
            "http",
            "site",
            "website",
            "browse",
            "browser",
            "crawl",
            "scrape",
            "fetch",
            "google",
            "bing",
            "wiki",
            "wikipedia",
            "news",
            "internet",
        ]
    ),
    "file": frozenset(
        [
            "file",
            "files",
            "document",
            "documents",
            "doc",
            "docs",
            "drive",
            "folder",
            "attachment",
            "pdf",
            "sheet",
            "spreadsheet",
            "note",
            "notes",
            "transcript",
        ]
    ),
}
"""Words of a tool's name, or its labels, that say where its results come from; first fit counts."""

OTHER_KIND: Final = "other"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one tool.

    Attributes:
        labels: what span, policy and catalogue call it.
        dangerous: it changes something, or reaches somebody.
        untrusted: outsiders may have written what it returns.
        source_kind: whose words those are: ``mail``, ``web_page``, ``file``, ``ticket``, ...
        guessed: nobody has said; its name was read.
        tool: its definition in the catalogue.
    """

    labels: frozenset[str]
    dangerous: bool
    untrusted: bool
    source_kind: str
    guessed: bool
    tool: Tool | None = None


class KnownTools:
    """What policy and catalogue say of tools, looked up once per tool and labels."""

    def __init__(self, policy: Policy | None = None, catalogue: Catalogue | None = None) -> None:
        self._policy = policy
        self._by_name: dict[str, Tool] = {}
        for tool in catalogue.tools if catalogue is not None else ():
            self._by_name.setdefault(tool.name, tool)
            self._by_name[tool.key] = tool
        self._known: dict[tuple[str, str | None, tuple[str, ...], str], Known] = {}

    def of(self, call: ToolCall) -> Known:
        """What is known of the tool of a call."""
        key = (call.known_as, call.tool_server, call.labels, call.dialect)
        known = self._known.get(key)
        if known is None:
            known = self._of(call)
            if len(self._known) < _MAX_REMEMBERED:
                self._known[key] = known
        return known

    def defined(self, name: str) -> Tool | None:
        """The tool of this name in the catalogue."""
        return self._by_name.get(name)

    def _of(self, call: ToolCall) -> Known:
        name = call.known_as
        tool = self._defined(call)
        labels = frozenset(call.labels)
        untrusted = False
        if self._policy is not None:
            untrusted = self._policy.is_untrusted_source(name, labels)
            labels = self._policy.labels_of(name, labels)
        if tool is not None:
            labels |= frozenset(tool.labels)
        hints = (tool.annotations or {}) if tool is not None else {}
        words = name_words(call.tool)
        if labels or untrusted or tool is not None or call.dialect == ours.NAME:
            return Known(
                labels,
                not DANGEROUS_LABELS.isdisjoint(labels) or hints.get("destructiveHint") is True,
                untrusted or UNTRUSTED in labels or hints.get("openWorldHint") is True,
                _source_kind(labels, words),
                guessed=False,
                tool=tool,
            )
        does = does_something(words)
        # Whose words a tool returns cannot be read from a verb: open, run and call fetch as well.
        return Known(labels, does, True, _source_kind(labels, words), guessed=True)

    def _defined(self, call: ToolCall) -> Tool | None:
        if not self._by_name:
            return None
        if call.tool_server is not None:
            return self._by_name.get(f"{call.tool_server}/{call.tool}")
        return self._by_name.get(call.known_as) or self._by_name.get(call.tool)


@for_the_last
def tools_under(policy: Policy | None, catalogue: Catalogue | None = None) -> KnownTools:
    """What policy and catalogue say of tools; the same object while they are the same."""
    return KnownTools(policy, catalogue)


def name_words(name: str) -> tuple[str, ...]:
    """The words of a tool's bare name in lower case.

    >>> name_words("mcp__crm__sendEmail_v2")
    ('send', 'email', 'v', '2')
    """
    return tuple(word.lower() for word in _WORDS.findall(bare_name(name)[:128]))


def does_something(words: tuple[str, ...]) -> bool:
    """Whether the first word that is a verb says that something changes or somebody is reached."""
    return bool(words) and (words[0] in _DOING or words[-1] in _DOING)


def _source_kind(labels: frozenset[str], words: tuple[str, ...]) -> str:
    for kind in SOURCE_KINDS:
        if kind in labels:
            return kind
    for kind, nouns in SOURCE_KINDS.items():
        if not nouns.isdisjoint(words):
            return kind
    return OTHER_KIND
