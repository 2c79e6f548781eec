"""The rules of a policy together: who goes before whom, worked out once per tool.

For one tool, its labels and one agent, most rules are settled by name; what they say about that is
kept. What is left to ask of each call is small functions over its arguments and what happened
before it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from toolverdict.instrument.decisions import (
    DANGEROUS_LABELS,
    ApprovalTerms,
    Call,
    Decision,
    Effect,
    Mode,
    ReasonCode,
)
from toolverdict.instrument.names import same_tool
from toolverdict.instrument.policy.conditions import FAILS, UNKNOWN
from toolverdict.instrument.policy.document import Rule, ToolEntry
from toolverdict.instrument.policy.reading import PartlyKnown
from toolverdict.instrument.policy.rules import CompiledRule

_MAX_PLANS: Final = 4096
_MAX_SAID: Final = 256
_LONGEST_REMEMBERED: Final = 256
_TOO_MANY: Final = "there have been as many such calls as are allowed"
_NOT_COUNTED: Final = "how many such calls there were is not known"

_Lacks = Callable[[Call], bool]


class _Plan:
    """What the policy says about one tool, whatever its arguments are."""

    __slots__ = (
        *("_said", "by_name", "dangerous", "labels", "permitting", "restricting"),
        *("schema_versions", "settled"),
    )

    def __init__(
        self, rules: Sequence[CompiledRule], entries: Mapping[str, ToolEntry], call: Call
    ) -> None:
        tool, agent = call.tool, call.agent
        meant = [entry for name, entry in entries.items() if same_tool(name, tool)]
        exact = entries.get(tool)
        # Labels that are certain permit; labels that may be the tool's restrict.
        certain = call.labels.union((exact.labels or ()) if exact is not None else ())
        labels = call.labels.union(*(entry.labels or () for entry in meant))
        self.labels = labels
        self.dangerous = not DANGEROUS_LABELS.isdisjoint(labels)
        self.schema_versions = [e.schema_version for e in meant if e.schema_version is not None]
        self.restricting = [rule for rule in rules if rule.restricts(tool, labels, agent)]
        self.permitting = frozenset(
            rule.id for rule in self.restricting if rule.permits(tool, certain, agent)
        )
        self.by_name = not self.schema_versions and all(map(_is_by_name, self.restricting))
        """Whether every call of the tool gets the same decision, whatever else is known of it."""
        self.settled: Decision | None = None
        """That decision, once it was made."""
        self._said: dict[tuple[object, ...], Decision] = {}

    def say(
        self,
        mode: Mode,
        effect: Effect,
        code: ReasonCode,
        rules: Sequence[CompiledRule],
        reason: str = "",
        terms: ApprovalTerms | None = None,
    ) -> Decision:
        """A decision; most calls of a tool get one that was made before."""
        ids = tuple([rule.id for rule in rules])
        key = (effect, code, ids, reason)
        said = self._said.get(key)
        if said is None:
            why = [rule.rule.reason for rule in rules if rule.rule.reason]
            text = "; ".join([reason, *why] if reason else why)
            said = Decision(effect, ids, code, text, mode, self.labels, terms)
            if len(self._said) < _MAX_SAID:
                self._said[key] = said
        return said


class CompiledPolicy:
    """All the rules of a policy, ready to decide."""

    def __init__(
        self, rules: Sequence[Rule], tools: Mapping[str, ToolEntry] | None, mode: Mode
    ) -> None:
        self._rules = tuple(CompiledRule(rule) for rule in rules)
        self._tools = dict(tools or {})
        self._mode = mode
        self._looks_at = _looks_at(rules, self._tools)
        self._plans: dict[tuple[str, frozenset[str], str | None], _Plan] = {}

    def decide(self, call: Call) -> Decision:
        """Say what happens to a call; what is not known counts against it."""
        plan = self._plan(call)
        if plan.settled is not None:
            return plan.settled
        decision = self._decide(call, plan, at_best=False)
        if plan.by_name:
            plan.settled = decision
            return decision
        if decision.effect is Effect.ALLOW or not any(lacks(call) for lacks in self._looks_at):
            return decision
        best = self._decide(call, plan, at_best=True)
        if (best.effect, best.reason_code) == (decision.effect, decision.reason_code):
            return decision
        return replace(decision, at_best=best)

    def allows_by_name(self, call: Call) -> bool:
        """Whether the names in a call settle that it is allowed."""
        return self._plan(call).by_name and self.decide(call).effect is Effect.ALLOW

    def watches(self, tool: str, labels: frozenset[str]) -> bool:
        """Whether some rule looks back at calls of a tool, besides at which succeeded."""
        return any(rule.watches(tool, labels) for rule in self._rules)

    def labels_of(self, tool: str, labels: frozenset[str]) -> frozenset[str]:
        """The labels of a tool, with those that the policy adds."""
        return labels.union(
            *(entry.labels or () for n, entry in self._tools.items() if same_tool(n, tool))
        )

    def _plan(self, call: Call) -> _Plan:
        key = (call.tool, call.labels, call.agent)
        plan = self._plans.get(key)
        if plan is None:
            plan = _Plan(self._rules, self._tools, call)
            # Names come from models and servers: only usual ones are remembered, and so many.
            short = len(call.tool) + len(call.agent or "") <= _LONGEST_REMEMBERED
            if short and len(self._plans) < _MAX_PLANS:
                self._plans[key] = plan
        return plan

    def _decide(self, call: Call, plan: _Plan, *, at_best: bool) -> Decision:
        states = [(rule, rule.state(call)) for rule in plan.restricting]
        active = [rule for rule, state in states if rule.applies(call, state, at_best=at_best)]
        denying = [rule for rule in active if rule.rule.effect == "deny"]
        demanding = [rule for rule in active if rule.demands]
        if denying or demanding or plan.schema_versions:
            denial = self._denial(call, plan, denying, demanding, at_best=at_best)
            if denial is not None:
                return denial
        asking = [rule for rule in active if rule.rule.effect == "require_approval"]
        if asking:
            return self._ask(plan, asking)
        permitting = [
            rule
            for rule, state in states
            if rule.id in plan.permitting
            and rule.lets_through(call, state, at_best=at_best)
            and not (state & UNKNOWN and self._denial(call, plan, (), [rule], at_best=at_best))
        ]
        if permitting:
            return plan.say(self._mode, Effect.ALLOW, ReasonCode.RULE, permitting)
        if plan.dangerous:
            reason = "no rule allows this call, and the tool's labels say that it can do harm"
            return plan.say(self._mode, Effect.DENY, ReasonCode.NO_RULE, (), reason)
        return plan.say(self._mode, Effect.ALLOW, ReasonCode.NO_RULE, ())

    def _denial(
        self,
        call: Call,
        plan: _Plan,
        denying: Sequence[CompiledRule],
        demanding: Sequence[CompiledRule],
        *,
        at_best: bool,
    ) -> Decision | None:
        """What the call is denied for, if it is."""

        def deny(code: ReasonCode, by: Sequence[CompiledRule], reason: str = "") -> Decision:
            return plan.say(self._mode, Effect.DENY, code, by, reason)

        hard = [rule for rule in denying if not rule.soft]
        if hard:
            return deny(ReasonCode.RULE, hard)
        missing = {name for rule in demanding for name in rule.unmet(call)}
        missing.update(name for rule in denying for name in rule.rule.unless_after or ())
        if missing:
            by = [*denying, *(rule for rule in demanding if rule.unmet(call))]
            reason = f"call {', '.join(sorted(missing))} first, with success"
            return deny(ReasonCode.REQUIRES_UNMET, by, reason)
        wrong = FAILS if at_best else FAILS | UNKNOWN
        late = [rule for rule in demanding if rule.overtaken(call) & wrong]
        if late:
            return deny(ReasonCode.STAGE, late, "it must come earlier in the trajectory")
        version = call.schema_version
        if not (at_best and version is None) and any(v != version for v in plan.schema_versions):
            reason = "the policy was written for another schema version of this tool"
            return deny(ReasonCode.SCHEMA_VERSION, (), reason)
        over = [rule for rule in demanding if rule.used_up(call) & wrong]
        if over:
            known = call.earlier is not None
            return deny(ReasonCode.LIMIT, over, _TOO_MANY if known else _NOT_COUNTED)
        keyless = [rule for rule in demanding if rule.keyless(call) & wrong]
        if keyless:
            reason = "the call needs an idempotency key"
            return deny(ReasonCode.IDEMPOTENCY_MISSING, keyless, reason)
        return None

    def _ask(self, plan: _Plan, asking: Sequence[CompiledRule]) -> Decision:
        wanted = [rule.rule.approval for rule in asking if rule.rule.approval is not None]
        ttls = [float(terms.ttl_s) for terms in wanted if terms.ttl_s is not None]
        named = [frozenset(terms.approvers) for terms in wanted if terms.approvers is not None]
        approvers = frozenset.intersection(*named) if named else None
        if approvers is not None and not approvers:
            reason = "the rules that ask for approval leave nobody who may give it"
            return plan.say(self._mode, Effect.DENY, ReasonCode.POLICY_ERROR, asking, reason)
        terms = ApprovalTerms(min(ttls, default=None), approvers)
        return plan.say(self._mode, Effect.REQUIRE_APPROVAL, ReasonCode.RULE, asking, terms=terms)


def _is_by_name(rule: CompiledRule) -> bool:
    """Whether what a rule names says everything: it looks at nothing else of a call."""
    return not rule.demands and rule.rule.unless_after is None and rule.rule.args is None


def _looks_at(rules: Sequence[Rule], tools: Mapping[str, ToolEntry]) -> tuple[_Lacks, ...]:
    """Which of the things that a caller may not know some rule looks at."""
    conditions = [condition for rule in rules for condition in (rule.args or {}).values()]
    asked: list[tuple[bool, _Lacks]] = [
        (
            bool(conditions),
            lambda call: call.arguments is None or type(call.arguments) is PartlyKnown,
        ),
        (any(c.equals_session for c in conditions), lambda call: call.session is None),
        # Only the answer to a question says whether it can be answered.
        (any(c.trusted for c in conditions), lambda call: True),
        (any(r.limits or r.stages for r in rules), lambda call: call.earlier is None),
        (any(r.idempotency for r in rules), lambda call: call.idempotency_key is None),
        (
            any(entry.schema_version for entry in tools.values()),
            lambda call: call.schema_version is None,
        ),
    ]
    return tuple(lacks for wanted, lacks in asked if wanted)
