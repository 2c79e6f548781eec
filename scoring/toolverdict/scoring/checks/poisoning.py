"""Tool descriptions that give orders, in the definitions that a trajectory's model was given.

Looked at is only what a trace holds of them (``gen_ai.tool.definitions``); most hold nothing, and then
nothing is found. One definition is read once, however many trajectories repeat it. With a catalogue, a
description that is another than the pinned one is told, too.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import orjson

from toolverdict.instrument.catalogue.definitions import CatalogueError, Tool
from toolverdict.instrument.catalogue.sources import tools_of_json
from toolverdict.scoring.descriptions import Suspicion, audit_tool
from toolverdict.scoring.known_tools import KnownTools
from toolverdict.scoring.model import Category, Finding, Json, Severity, Trajectory
from toolverdict.scoring.values import as_text

SOURCE_KIND: Final = "tool_description"
_MAX_DEFINITIONS: Final = 1_000
_MAX_CHARS: Final = 200_000


def poisoned_findings(trajectory: Trajectory, tools: KnownTools) -> Iterator[Finding]:
    """A finding for each suspicious thing in the definitions of a trajectory, at its root."""
    if not trajectory.tool_definitions:
        return
    told: set[Suspicion] = set()
    for count, definition in enumerate(_each(trajectory.tool_definitions)):
        if count == _MAX_DEFINITIONS:
            return
        text = as_text(definition)
        if len(text) > _MAX_CHARS:
            continue
        tool, suspicions = _read(text)
        if tool is not None:
            suspicions = (*suspicions, *_against_pin(tool, tools))
        for one in suspicions:
            if one not in told:
                told.add(one)
                yield Finding(
                    Category.POISONED_TOOL,
                    trajectory.root_span_id,
                    f"{one.tool}, {one.where}: {one.message}",
                    severity=Severity.WARNING,
                    grade=one.grade,
                    key_path=one.where,
                    actual=one.quote or None,
                    code=one.code,
                    source_kind=SOURCE_KIND,
                )


def _each(definitions: tuple[Json, ...]) -> Iterator[Json]:
    for one in definitions:
        yield from one if isinstance(one, list) else (one,)


@lru_cache(maxsize=4096)
def _read(text: str) -> tuple[Tool | None, tuple[Suspicion, ...]]:
    """A definition as a tool, and what is suspicious in it."""
    definition = orjson.loads(text)
    if isinstance(definition, dict) and "name" in definition:
        definition = _completed(definition)
    try:
        tool = next(tools_of_json([definition]), None)
    except CatalogueError:
        return None, ()  # of a shape that no provider has
    return tool, tuple(audit_tool(tool)) if tool is not None else ()


def _completed(definition: dict[str, Json]) -> dict[str, Json]:
    """Some write a tool down without its parameters."""
    if definition.keys() & {"inputSchema", "input_schema", "parameters", "function"}:
        return definition
    return {**definition, "inputSchema": {"type": "object"}}


def _against_pin(tool: Tool, tools: KnownTools) -> Iterator[Suspicion]:
    pinned = tools.defined(tool.name)
    if pinned is not None and (pinned.description or "") != (tool.description or ""):
        message = "the model was given another description than the one that was pinned"
        quote = (tool.description or "")[:240]
        yield Suspicion(tool.key, "not_as_pinned", "suspect", "description", message, quote)
