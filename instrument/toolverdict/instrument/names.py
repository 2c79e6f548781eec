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

Letters match case-sensitively in both: ``Delete`` and ``delete`` are two tools.
"""

import re
from fnmatch import fnmatchcase
from functools import lru_cache

_SEPARATOR = re.compile(r"[./:]")
_ONLY_WILDCARDS = re.compile(r"[*?]*")


def bare_name(name: str) -> str:
    """The name of a tool without the server in front of it.

    >>> bare_name("mcp__my_srv__delete_file"), bare_name("fs/delete_file")
    ('delete_file', 'delete_file')
    """
    return _split(name)[1]


@lru_cache(maxsize=4096)
def same_tool(pattern: str, name: str) -> bool:
    """Whether ``name`` might be the tool that ``pattern`` means, whatever servers are named.

    A pattern that says nothing about the tool itself (``mcp__fs__*``) matches by its server alone;
    without its server it would mean every tool there is.
    """
    if fnmatchcase(name, pattern):
        return True
    pattern_server, pattern_tool = _split(pattern)
    server, bare = _split(name)
    if _ONLY_WILDCARDS.fullmatch(pattern_tool):
        return server is not None and fnmatchcase(server, pattern_server or "*")
    # A server's own name may hold "__", so the tool may begin after any of them.
    parts = bare.split("__")
    endings = ("__".join(parts[start:]) for start in range(len(parts)))
    return any(fnmatchcase(ending, pattern_tool) for ending in endings)


def exactly_tool(pattern: str, name: str) -> bool:
    """Whether ``name``, in full, is what ``pattern`` says."""
    return fnmatchcase(name, pattern)


def _split(name: str) -> tuple[str | None, str]:
    """Server and bare name; the server is the last one named, None when there is none."""
    server: str | None = None
    while True:
        if name.startswith("mcp__"):
            head, separator, tail = name[5:].partition("__")
            if not separator:
                return server, name
        else:
            *heads, tail = _SEPARATOR.split(name)
            if not heads:
                return server, name
            head = heads[-1]
        if not tail:
            return server, name
        server, name = head, tail
