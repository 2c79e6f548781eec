"""Tool names with and without the server they come from, and how patterns match them.

Clients spell the same tool ``mcp__fs__delete_file``, ``fs.delete_file``, ``fs/delete_file``,
``fs:delete_file`` or plain ``delete_file``. A pattern is a shell glob over a name. Two questions
are asked of it, and each must err to its own side:

- ``same_tool``: *might* this be the tool that is meant? For rules that forbid. Missing one opens a
  hole, so the names match if they match in full or without their servers.
- ``exactly_tool``: is this *certainly* the tool that is meant? For rules that permit. A tool of the
  same name on another server is another tool, and whoever runs that server chose its name, so only
  the full name counts: ``get_order`` permits the tool called just that, ``shop.get_order`` or
  ``*get_order`` permit what they say.

A name also matches the pattern that is spelled just like it: ``refund[1]`` means the tool of that
name, besides what it says as a glob. Letters match case-sensitively: ``Delete`` and ``delete`` are
two tools. Names come from models and servers, so the work grows no faster than their length.
"""

import re
from fnmatch import fnmatchcase
from functools import lru_cache

_SEPARATORS = "./:"
_ONLY_WILDCARDS = re.compile(r"[*?]*")
_LONGEST_REMEMBERED = 256


def bare_name(name: str) -> str:
    """The name of a tool without the server in front of it.

    >>> bare_name("mcp__my_srv__delete_file"), bare_name("fs/delete_file")
    ('delete_file', 'delete_file')
    """
    # Names are other people's, and may be as long as they like: only usual ones are remembered.
    return (_bare_name if len(name) <= _LONGEST_REMEMBERED else _bare_name.__wrapped__)(name)


@lru_cache(maxsize=4096)
def _bare_name(name: str) -> str:
    return _split(name)[1]


def same_tool(pattern: str, name: str) -> bool:
    """Whether ``name`` might be the tool that ``pattern`` means, whatever servers are named.

    A pattern that says nothing about the tool itself (``mcp__fs__*``) matches by its server alone;
    without its server it would mean every tool there is.
    """
    matches = _same_tool if len(name) <= _LONGEST_REMEMBERED else _same_tool.__wrapped__
    return matches(pattern, name)


@lru_cache(maxsize=4096)
def _same_tool(pattern: str, name: str) -> bool:
    if exactly_tool(pattern, name):
        return True
    pattern_server, pattern_tool = _split(pattern)
    server, bare = _split(name)
    if bare == pattern_tool or bare.endswith("__" + pattern_tool):
        return True
    if _ONLY_WILDCARDS.fullmatch(pattern_tool):
        return server is not None and fnmatchcase(server, pattern_server or "*")
    # A server's own name may hold "__", so the tool may begin after any of them.
    return fnmatchcase(bare, pattern_tool) or fnmatchcase(bare, "*__" + pattern_tool)


def exactly_tool(pattern: str, name: str) -> bool:
    """Whether ``name``, in full, is what ``pattern`` says."""
    return pattern == name or fnmatchcase(name, pattern)


def _split(name: str) -> tuple[str | None, str]:
    """Server and bare name; the server is the last one named, None when there is none."""
    server: str | None = None
    start = 0
    while True:
        if name.startswith("mcp__", start):
            head, end = start + 5, name.find("__", start + 5)
            tail = end + 2
        else:
            end = _last_separator(name, start, len(name))
            head, tail = _last_separator(name, start, end) + 1 or start, end + 1
        if end < 0 or tail == len(name):
            return server, name[start:]
        server, start = name[head:end], tail


def _last_separator(name: str, start: int, end: int) -> int:
    return max(name.rfind(separator, start, end) for separator in _SEPARATORS)
