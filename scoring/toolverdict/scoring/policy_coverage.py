"""What of a policy was never put to the test: rules that met no call, required tools nobody called.

Such a rule may be right and its case rare, or name a tool that is called something else now: then it
protects nobody, in silence. Asked of the distinct tools of a run, not of each call.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from toolverdict.instrument.names import same_tool
from toolverdict.instrument.policy import Policy
from toolverdict.instrument.policy.rules import CompiledRule

_MAX_SEEN: Final = 10_000


class SeenTool(NamedTuple):
    """A tool as some call named it, its labels on the span, and the agent that called it."""

    tool: str
    labels: frozenset[str] = frozenset()
    agent: str | None = None


class Coverage(NamedTuple):
    """Ids of the rules that met no call, and globs of required tools that were never called."""

    silent_rules: tuple[str, ...]
    missing_tools: tuple[str, ...]

    def warnings(self) -> list[str]:
        """The same, as lines of a summary."""
        lines = []
        if self.silent_rules:
            lines.append(f"rules of the policy that met no call: {_named(self.silent_rules)}")
        if self.missing_tools:
            lines.append(
                f"tools that the policy requires before others and nobody called: "
                f"{_named(self.missing_tools)}"
            )
        return lines


def seen_in(calls: pa.Table) -> set[SeenTool]:
    """The distinct tools of a table of :data:`toolverdict.scoring.tables.CALLS`; so many of them."""
    named = pa.table(
        {
            "tool": pc.coalesce(
                calls["exposed_as"].cast(pa.string()), calls["tool"].cast(pa.string())
            ),
            "labels": calls["labels"].cast(pa.string()),
            "agent": calls["agent"].cast(pa.string()),
        }
    )
    distinct = named.group_by(named.column_names).aggregate([]).slice(0, _MAX_SEEN).to_pylist()
    return {
        SeenTool(row["tool"], frozenset(orjson.loads(row["labels"] or "[]")), row["agent"])
        for row in distinct
    }


def coverage(policy: Policy, seen: Iterable[SeenTool]) -> Coverage:
    """Which rules met a call, by what they name, and which required tools were called."""
    tools = set(seen)
    silent = []
    for rule in policy.rules:
        compiled = CompiledRule(rule)
        if not any(
            compiled.restricts(one.tool, policy.labels_of(one.tool, one.labels), one.agent)
            for one in tools
        ):
            silent.append(rule.id)
    missing = [
        glob
        for glob in sorted(policy.prerequisites)
        if not any(same_tool(glob, one.tool) for one in tools)
    ]
    return Coverage(tuple(silent), tuple(missing))


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
