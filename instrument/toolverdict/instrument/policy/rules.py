"""One rule, compiled: what it means by name, and what it asks of a call that it means."""

from collections.abc import Callable, Sequence
from typing import Final

from toolverdict.instrument.decisions import Call
from toolverdict.instrument.names import exactly_tool, same_tool
from toolverdict.instrument.policy.conditions import (
    DOUBT,
    FAILS,
    HOLDS,
    UNKNOWN,
    State,
    compile_arguments,
)
from toolverdict.instrument.policy.document import Rule

_MAX_REMEMBERED: Final = 1024
_LONGEST_REMEMBERED: Final = 256

_NameMatches = Callable[[str, str], bool]


class CompiledRule:
    """One rule as functions of a call."""

    __slots__ = ("_counted", "_pending", "_state", "demands", "id", "rule", "soft")

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.id = rule.id
        self.soft = rule.effect == "deny" and rule.unless_after is not None
        """Whether it only denies as long as something else has not been done."""
        self.demands = rule.effect != "deny" and any(
            (rule.requires, rule.stages, rule.limits, rule.idempotency)
        )
        """Whether a call that it means must be more than what the rule names."""
        self._state = compile_arguments(rule.args) if rule.args is not None else None
        self._pending = _pending(rule)
        self._counted: dict[tuple[str, frozenset[str]], bool] = {}

    def restricts(self, tool: str, labels: frozenset[str], agent: str | None) -> bool:
        """Whether the rule might mean the tool; doubts count as yes."""
        return self._names(tool, labels, agent, same_tool, unknown_agent=True)

    def permits(self, tool: str, labels: frozenset[str], agent: str | None) -> bool:
        """Whether the rule allows, and certainly means the tool; doubts count as no."""
        return self.rule.effect == "allow" and self._names(
            tool, labels, agent, exactly_tool, unknown_agent=False
        )

    def state(self, call: Call) -> State:
        """How the arguments of a call stand to what the rule says about them."""
        return HOLDS if self._state is None else self._state(call)

    def applies(self, call: Call, state: State, *, at_best: bool) -> bool:
        """Whether the rule restricts this call, which it means by name; doubts count as yes."""
        if state & FAILS or (at_best and state & UNKNOWN):
            return False
        lifting = self.rule.unless_after
        return lifting is None or not all(_done(glob, call.succeeded) for glob in lifting)

    def lets_through(self, call: Call, state: State, *, at_best: bool) -> bool:
        """Whether the rule, which permits the tool by name, certainly permits this call."""
        if state & (DOUBT | FAILS) or (state & UNKNOWN and not at_best):
            return False
        ending = self.rule.unless_after
        return ending is None or not any(
            same_tool(glob, done) for glob in ending for done in call.succeeded
        )

    def unmet(self, call: Call) -> Sequence[str]:
        """What must have succeeded earlier and has not, as one reads it."""
        if self._pending is None:
            return ()
        return self._pending(call)

    def overtaken(self, call: Call) -> State:
        """Whether a call that this one must come before was let through already."""
        stages = self.rule.stages
        if stages is None or stages.before is None:
            return HOLDS
        earlier = call.succeeded if call.earlier is None else {e.tool for e in call.earlier}
        if any(same_tool(glob, name) for glob in stages.before for name in earlier):
            return FAILS
        return UNKNOWN if call.earlier is None else HOLDS

    def used_up(self, call: Call) -> State:
        """Whether there have been as many calls as the rule allows."""
        limits = self.rule.limits
        if limits is None:
            return HOLDS
        if call.earlier is None:
            return UNKNOWN
        window = limits.per_window
        if limits.per_trajectory == 0 or (window is not None and window.calls == 0):
            return FAILS
        count = recent = 0
        for earlier in reversed(call.earlier):
            if not self.counts(earlier.tool, earlier.labels):
                continue
            count += 1
            if count == limits.per_trajectory:
                return FAILS
            if window is not None and _within(earlier.at_s, call.at_s, window.seconds):
                recent += 1
                if recent == window.calls:
                    return FAILS
        return HOLDS

    def counts(self, tool: str, labels: frozenset[str]) -> bool:
        """Whether an earlier call, by whichever agent, counts against the limits of the rule."""
        known = self._counted.get((tool, labels))
        if known is None:
            known = self._names(tool, labels, None, same_tool, unknown_agent=True)
            if len(self._counted) < _MAX_REMEMBERED and len(tool) <= _LONGEST_REMEMBERED:
                self._counted[(tool, labels)] = known
        return known

    def watches(self, tool: str, labels: frozenset[str]) -> bool:
        """Whether it makes a difference to the rule that a tool was called earlier."""
        rule = self.rule
        if rule.limits is not None and self.counts(tool, labels):
            return True
        before = (rule.stages.before if rule.stages is not None else None) or ()
        return any(same_tool(glob, tool) for glob in before)

    def keyless(self, call: Call) -> State:
        """Whether the call has no idempotency key though the rule requires one."""
        if self.rule.idempotency is None or call.idempotency_key is True:
            return HOLDS
        return UNKNOWN if call.idempotency_key is None else FAILS

    def _names(
        self,
        tool: str,
        labels: frozenset[str],
        agent: str | None,
        matches: _NameMatches,
        *,
        unknown_agent: bool,
    ) -> bool:
        rule = self.rule
        if rule.tools is not None and not any(matches(glob, tool) for glob in rule.tools):
            return False
        if rule.labels is not None and labels.isdisjoint(rule.labels):
            return False
        if rule.agents is None:
            return True
        if agent is None:
            return unknown_agent
        return any(exactly_tool(glob, agent) for glob in rule.agents)


def _pending(rule: Rule) -> Callable[[Call], Sequence[str]] | None:
    after = (rule.stages.after if rule.stages is not None else None) or ()
    requires = rule.requires or ()
    if not requires and not after:
        return None

    def pending(call: Call) -> Sequence[str]:
        missing = [glob for glob in requires if not _done(glob, call.succeeded)]
        if after and not any(_done(glob, call.succeeded) for glob in after):
            missing.append(" or ".join(after))
        return missing

    return pending


def _within(earlier_s: float | None, now_s: float | None, seconds: float) -> bool:
    return earlier_s is None or now_s is None or now_s - earlier_s < seconds


def _done(glob: str, succeeded: frozenset[str]) -> bool:
    return glob in succeeded or any(exactly_tool(glob, done) for done in succeeded)
