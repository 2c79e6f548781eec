"""What changed between two states of a catalogue, and what of it somebody has to look at.

The rules are those of ``schema_changes`` for arguments, and beside them:

- a description, title, default, annotation, result schema or label that changed is a change of
  behaviour, though every call stays valid;
- a changed hash needs another version, a breaking change another major version;
- a label that is gone, a tool that is gone or renamed, a name that two servers have, and a labelled
  tool that takes more than before are looked at by a person, whatever the version says.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from toolverdict.instrument.catalogue.definitions import Catalogue, Tool
from toolverdict.instrument.catalogue.schema_changes import (
    Change,
    Kind,
    is_breaking,
    schema_changes,
)
from toolverdict.instrument.decisions import DANGEROUS_LABELS
from toolverdict.instrument.names import bare_name

_MAJOR: Final = re.compile(r"v?(\d+)(?:\.\d+)*(?:[-+].*)?", re.ASCII)
_ALIKE: Final = 0.9


class Problem(NamedTuple):
    """What somebody has to look at; ``code`` is stable."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ToolDiff:
    """What became of one tool."""

    key: str
    status: str
    """added, removed, renamed or changed"""
    changes: tuple[Change, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def verdict(self) -> str:
        """The gravest kind of its changes: breaking, behaviour, widening or compatible."""
        kinds = {change.kind for change in self.changes}
        graver = (Kind.BREAKING, Kind.BEHAVIOUR, Kind.WIDENING)
        return next((kind.value for kind in graver if kind in kinds), Kind.COMPATIBLE.value)


def diff(old: Catalogue, new: Catalogue) -> list[ToolDiff]:
    """What became of every tool that is not as it was, by key."""
    before = {tool.key: tool for tool in old.tools}
    after = {tool.key: tool for tool in new.tools}
    gone = [tool for key, tool in before.items() if key not in after]
    come = [tool for key, tool in after.items() if key not in before]
    renamed = dict(_renamed(gone, come))
    taken_up = set(renamed.values())
    found = [
        *(_removed(tool, renamed.get(tool.key)) for tool in gone),
        *(_added(tool) for tool in come if tool.key not in taken_up),
        *(_changed(before[key], after[key]) for key in before.keys() & after.keys()),
        *_shadowed(new),
    ]
    return sorted((one for one in found if one is not None), key=lambda one: (one.key, one.status))


def _removed(tool: Tool, renamed_to: str | None) -> ToolDiff:
    if renamed_to is not None:
        change = Change(Kind.BREAKING, "name", f"is called {renamed_to} now, as it seems")
        problem = Problem("renamed", "rules and cases that name the old tool do not mean the new")
        return ToolDiff(tool.key, "renamed", (change,), (problem,))
    change = Change(Kind.BREAKING, "", "the tool is gone")
    return ToolDiff(tool.key, "removed", (change,), (Problem("removed", "calls of it fail now"),))


def _added(tool: Tool) -> ToolDiff:
    problems = []
    if not DANGEROUS_LABELS.isdisjoint(tool.labels):
        problems.append(Problem("needs_review", "a new tool that its labels call dangerous"))
    elif tool.server is not None:
        problems.append(Problem("needs_review", f"{tool.server} offers a tool that was not pinned"))
    change = Change(Kind.COMPATIBLE, "", "the tool is new")
    return ToolDiff(tool.key, "added", (change,), tuple(problems))


def _changed(old: Tool, new: Tool) -> ToolDiff | None:
    changes = [*schema_changes(old.schema, new.schema), *_behaviour(old, new)]
    rehashed = (old.schema_hash, old.definition_hash) != (new.schema_hash, new.definition_hash)
    if not rehashed and old.version == new.version:
        return None
    if rehashed and not changes:
        changes = [Change(Kind.COMPATIBLE, "", "is written in another way")]
    problems = list(_problems(old, new, changes, rehashed=rehashed))
    return ToolDiff(new.key, "changed", tuple(changes), tuple(problems))


def _behaviour(old: Tool, new: Tool) -> Iterator[Change]:
    pairs = {
        "description": (old.description, new.description),
        "title": (old.title, new.title),
        "annotations": (old.annotations, new.annotations),
        "outputSchema": (old.output_schema, new.output_schema),
        "labels": (sorted(old.labels), sorted(new.labels)),
    }
    for name, (before, after) in pairs.items():
        if before != after:
            yield Change(Kind.BEHAVIOUR, name, f"the {name} changed")


def _problems(old: Tool, new: Tool, changes: list[Change], *, rehashed: bool) -> Iterator[Problem]:
    if rehashed and old.version == new.version:
        said = f"still {new.version}" if new.version is not None else "none is declared"
        yield Problem("unversioned_change", f"it changed and its version did not ({said})")
    elif is_breaking(changes) and not _is_major_bump(old.version, new.version):
        yield Problem("breaking_without_major", "a breaking change needs another major version")
    lost = sorted(set(old.labels) - set(new.labels))
    if lost:
        yield Problem("label_lowered", f"it is no longer labelled {', '.join(lost)}")
    labelled = not DANGEROUS_LABELS.isdisjoint({*old.labels, *new.labels})
    kinds = {change.kind for change in changes}
    if labelled and kinds & {Kind.WIDENING, Kind.BEHAVIOUR}:
        yield Problem("needs_review", "a tool that can do harm can do more, or says other things")
    elif Kind.BEHAVIOUR in kinds and new.server is not None:
        yield Problem("needs_review", f"{new.server} describes the tool in another way")


def _is_major_bump(old: str | None, new: str | None) -> bool:
    before, after = _MAJOR.fullmatch(old or ""), _MAJOR.fullmatch(new or "")
    return before is not None and after is not None and int(after[1]) > int(before[1])


def _renamed(gone: list[Tool], come: list[Tool]) -> Iterator[tuple[str, str]]:
    """Pairs of a tool that is gone and one that came and looks like it; each at most once."""
    left = list(come)
    for tool in gone:
        found = next((other for other in left if _alike(tool, other)), None)
        if found is not None:
            left.remove(found)
            yield tool.key, found.key


def _alike(old: Tool, new: Tool) -> bool:
    if bare_name(old.name) == bare_name(new.name):
        return True  # it moved to another server
    texts = (old.description or "", new.description or "")
    said_alike = bool(texts[0]) and (
        texts[0] == texts[1]
        or SequenceMatcher(None, texts[0][:2000], texts[1][:2000]).ratio() >= _ALIKE
    )
    takes_arguments = bool(old.schema.get("properties"))
    return said_alike or (takes_arguments and old.schema_hash == new.schema_hash)


def _shadowed(new: Catalogue) -> Iterator[ToolDiff]:
    by_name: dict[str, list[Tool]] = {}
    for tool in new.tools:
        by_name.setdefault(bare_name(tool.name), []).append(tool)
    for name, tools in by_name.items():
        if len(tools) > 1:
            keys = " and ".join(tool.key for tool in tools)
            problem = Problem("shadowing", f"{keys} have one name: a model may call either")
            yield ToolDiff(name, "shadowed", (), (problem,))
