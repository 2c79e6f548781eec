"""What is suspicious about a policy that can be read: rules that do not do what they seem to.

With a catalogue of the tools that there are, names and labels are checked against it; without one,
only what the policy says of itself.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from toolverdict.instrument.decisions import DANGEROUS_LABELS
from toolverdict.instrument.names import exactly_tool, same_tool
from toolverdict.instrument.policy.document import Condition, Rule
from toolverdict.instrument.policy.policy import Policy

KNOWN_LABELS: Final = DANGEROUS_LABELS | {"read", "untrusted"}


class KnownTool(NamedTuple):
    """What a catalogue says about a tool, as far as a policy cares."""

    labels: frozenset[str] = frozenset()
    parameters: frozenset[str] | None = None
    """The names of its parameters; None when it takes any."""


@dataclass(frozen=True, slots=True)
class PolicyFinding:
    """One suspicious thing. ``rule`` is its id, ``path`` the keys that lead to it in the file."""

    code: str
    message: str
    rule: str | None = None
    path: tuple[int | str, ...] = ()


def check_policy(
    policy: Policy, tools: Mapping[str, KnownTool] | None = None
) -> list[PolicyFinding]:
    """Everything suspicious, in the order of the file."""
    checker = _Checker(policy, tools)
    findings = [*checker.unknown_entries()]
    for index, rule in enumerate(policy.rules):
        findings.extend(checker.of_rule(rule, ("rules", index)))
    return findings


class _Checker:
    def __init__(self, policy: Policy, tools: Mapping[str, KnownTool] | None) -> None:
        self._policy = policy
        entries = policy.tools or {}
        added = {name: frozenset(entry.labels or ()) for name, entry in entries.items()}
        self._known = tools
        self._tools: dict[str, KnownTool] = {
            name: tool._replace(
                labels=tool.labels.union(*(own for n, own in added.items() if same_tool(n, name)))
            )
            for name, tool in (tools or {}).items()
        }
        for name, own in added.items():
            self._tools.setdefault(name, KnownTool(own))
        self._labels = KNOWN_LABELS.union(*(tool.labels for tool in self._tools.values()))

    def unknown_entries(self) -> Iterator[PolicyFinding]:
        for name in self._policy.tools or ():
            yield from self._unknown_tool(name, None, ("tools", name))
        for name in self._policy.untrusted_sources or ():
            yield from self._unknown_tool(name, None, ("untrusted_sources",))

    def of_rule(self, rule: Rule, path: tuple[int | str, ...]) -> Iterator[PolicyFinding]:
        stages = rule.stages
        asked = {
            "tools": rule.tools,
            "requires": rule.requires,
            "unless_after": rule.unless_after,
            "stages": ((stages.after or ()) + (stages.before or ())) if stages else None,
        }
        for key, globs in asked.items():
            for glob in globs or ():
                yield from self._unknown_tool(glob, rule.id, (*path, key))
        for label in rule.labels or ():
            yield from self._unknown_label(label, rule.id, (*path, "labels"))
        if self._known is not None:
            yield from self._meets_no_tool(rule, path)
        for name, condition in (rule.args or {}).items():
            why = _contradiction(condition)
            if why is not None:
                message = f"no value of {name} can be all of this: {why}"
                yield PolicyFinding("never_matches", message, rule.id, (*path, "args", name))
        yield from _impossible_order(rule, path)
        if rule.effect == "deny" and (rule.requires or rule.stages or rule.limits):
            message = "a deny rule denies; requires, stages and limits add nothing to it"
            yield PolicyFinding("no_effect", message, rule.id, path)
        yield from self._unreachable(rule, path)
        yield from self._unconfirmed(rule, path)

    def _unknown_tool(
        self, glob: str, rule: str | None, path: tuple[int | str, ...]
    ) -> Iterator[PolicyFinding]:
        if self._known is None or any(same_tool(glob, name) for name in self._known):
            return
        near = difflib.get_close_matches(glob, list(self._known), n=1, cutoff=0.7)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        yield PolicyFinding("unknown_tool", f"no tool is called {glob!r}{hint}", rule, path)

    def _unknown_label(
        self, label: str, rule: str, path: tuple[int | str, ...]
    ) -> Iterator[PolicyFinding]:
        if label in self._labels:
            return
        near = difflib.get_close_matches(label, self._labels, n=1, cutoff=0.8)
        if near:
            message = f"no tool is labelled {label!r}; did you mean {near[0]!r}?"
        elif self._known is not None:
            message = f"no tool is labelled {label!r}"
        else:
            return
        yield PolicyFinding("unknown_label", message, rule, path)

    def _meant(self, rule: Rule) -> list[str]:
        """The tools that a rule may mean, of all that are known."""
        return [
            name
            for name, tool in self._tools.items()
            if (rule.tools is None or any(same_tool(glob, name) for glob in rule.tools))
            and (rule.labels is None or not tool.labels.isdisjoint(rule.labels))
        ]

    def _meets_no_tool(self, rule: Rule, path: tuple[int | str, ...]) -> Iterator[PolicyFinding]:
        meant = self._meant(rule)
        named = rule.tools is None or any(
            same_tool(glob, name) for glob in rule.tools for name in self._tools
        )
        if not meant and named:
            yield PolicyFinding("never_matches", "it matches no tool that there is", rule.id, path)
        for argument in rule.args or ():
            name = argument.split(".")[0]
            parameters = [self._tools[tool].parameters for tool in meant]
            if parameters and all(known is not None and name not in known for known in parameters):
                everything = sorted({p for known in parameters for p in known or ()})
                near = difflib.get_close_matches(name, everything, n=1, cutoff=0.6)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                message = f"no tool that it matches has a parameter {name!r}{hint}"
                yield PolicyFinding("unknown_argument", message, rule.id, (*path, "args", argument))

    def _unreachable(self, rule: Rule, path: tuple[int | str, ...]) -> Iterator[PolicyFinding]:
        if rule.effect == "deny":
            return
        for other in self._policy.rules:
            if other is rule or other.args or other.unless_after:
                continue
            stricter = other.effect == "deny" or (
                other.effect == "require_approval"
                and rule.effect == "allow"
                and not (rule.requires or rule.stages or rule.limits or rule.idempotency)
            )
            if stricter and self._covers(other, rule):
                message = f"it decides nothing: rule {other.id} ({other.effect}) always goes before"
                yield PolicyFinding("unreachable", message, rule.id, path)
                return

    def _covers(self, other: Rule, rule: Rule) -> bool:
        """Whether whatever one rule matches is certainly matched by the other."""
        if other.agents is not None and not set(rule.agents or "*") <= {*other.agents}:
            return False
        meant = self._meant(rule)
        if self._known is not None and meant:
            return set(meant) <= set(self._meant(other))
        tools = other.tools is None or (
            rule.tools is not None
            and all(any(_covers_glob(o, glob) for o in other.tools) for glob in rule.tools)
        )
        tools = tools or "*" in (other.tools or ())
        labels = other.labels is None or (
            rule.labels is not None and set(rule.labels) <= set(other.labels)
        )
        return tools and labels

    def _unconfirmed(self, rule: Rule, path: tuple[int | str, ...]) -> Iterator[PolicyFinding]:
        if not self.is_high_risk(rule) or rule.is_confirmed:
            return
        if rule.confirmed is None:
            message = "nobody has confirmed this rule for high-risk calls"
        else:
            message = f"the rule is not the one that {rule.confirmed.by} confirmed"
        message += f"; confirm it with confirmed: {{by: ..., at: ..., digest: {rule.digest!r}}}"
        yield PolicyFinding("unconfirmed", message, rule.id, path)

    def is_high_risk(self, rule: Rule) -> bool:
        """Whether a rule lets calls through, at once or after approval, that can do harm."""
        if rule.effect == "deny":
            return False
        if rule.labels is not None and not DANGEROUS_LABELS.isdisjoint(rule.labels):
            return True
        return any(
            not DANGEROUS_LABELS.isdisjoint(self._tools[name].labels) for name in self._meant(rule)
        )


def unconfirmed_rules(
    policy: Policy, tools: Mapping[str, KnownTool] | None = None
) -> tuple[str, ...]:
    """Ids of the high-risk rules that nobody answers for as they are worded now."""
    checker = _Checker(policy, tools)
    return tuple(
        rule.id for rule in policy.rules if checker.is_high_risk(rule) and not rule.is_confirmed
    )


def _covers_glob(pattern: str, glob: str) -> bool:
    if pattern == glob or pattern == "*":
        return True
    return not set(glob) & set("*?[") and exactly_tool(pattern, glob)


def _contradiction(condition: Condition) -> str | None:
    """Why no value can fulfil a condition; None if one may."""
    listed: list[Any] | None = list(condition.in_) if condition.in_ is not None else None
    if condition.equals is not None:
        same = [v for v in listed or [] if type(v) is type(condition.equals)]
        if listed is not None and condition.equals not in same:
            return "equals is not among in"
        listed = [condition.equals]
    textual = [
        key for key in ("prefix", "suffix", "pattern") if getattr(condition, key) is not None
    ]
    if condition.range is not None and (textual or condition.max_length is not None):
        return f"range is for numbers and {', '.join(textual) or 'max_length'} is not"
    if listed is None:
        return None
    fitting = [value for value in listed if _fits(value, condition, textual=bool(textual))]
    return None if fitting else "no listed value fulfils the rest"


def _fits(value: Any, condition: Condition, *, textual: bool) -> bool:
    if condition.range is not None:
        if type(value) not in (int, float):
            return False
        least, most = condition.range.min, condition.range.max
        return (least is None or value >= least) and (most is None or value <= most)
    if textual or condition.max_length is not None:
        if not isinstance(value, str):
            return False
        if condition.max_length is not None and len(value) > condition.max_length:
            return False
        return not (
            (condition.prefix and not value.startswith(condition.prefix))
            or (condition.suffix and not value.endswith(condition.suffix))
        )
    return True


def _impossible_order(rule: Rule, path: tuple[int | str, ...]) -> Iterator[PolicyFinding]:
    before = (rule.stages.before if rule.stages else None) or ()
    after = (rule.stages.after if rule.stages else None) or ()
    needed = [*(rule.requires or ()), *(after if len(after) == 1 else ())]
    for name in needed:
        if any(_covers_glob(glob, name) for glob in before):
            message = f"it needs {name} to be done and not to be called before"
            yield PolicyFinding("never_matches", message, rule.id, (*path, "stages"))
