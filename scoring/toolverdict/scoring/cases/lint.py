"""Looks a suite of cases over before anything depends on it.

A case that nobody can fail or nobody can pass, or that names what does not exist, says nothing about
an agent. Two agents that need no intelligence are run against the suite, with the scorer itself: one
does nothing, one calls everything there is. Neither may pass where it should not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from referencing import Registry

from toolverdict.instrument.catalogue.definitions import Catalogue, Tool
from toolverdict.instrument.names import bare_name, same_tool
from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.cases.comparators.references import Ref, parse_ref
from toolverdict.scoring.cases.examples import arguments_for
from toolverdict.scoring.cases.load import CaseSet
from toolverdict.scoring.cases.model import Case, Expectation, Forbidden, Way
from toolverdict.scoring.cases.order import Precedence
from toolverdict.scoring.cases.plans import Constant, leaves_of
from toolverdict.scoring.model import Captured, Placed, Thresholds, ToolCall, Trajectory
from toolverdict.scoring.verdicts import judge_trajectory

_SECOND = 1_000_000_000
_NOBODYS = "a_tool_that_no_case_names"
_MOST_CALLS = 500  # of the agent that calls everything


@dataclass(frozen=True, slots=True)
class CaseFinding:
    """One suspicious thing; ``case`` is its id, None for the suite as a whole."""

    code: str
    message: str
    case: str | None = None


def lint(suite: CaseSet, catalogue: Catalogue | None = None) -> list[CaseFinding]:
    """Everything suspicious about a suite, case by case, then about the whole."""
    everything = _everything(suite, catalogue)
    found: list[CaseFinding] = []
    passed_by_nothing = 0
    for case in suite.cases.values():
        nothing_passes = _passes(case, ())
        everything_passes = _passes(case, everything)
        passed_by_nothing += nothing_passes
        found += [
            CaseFinding(code, message, case.id)
            for code, message in (
                *_vacuous(case, nothing_passes, everything_passes, case.id in suite.silent),
                *_contradictions(case),
                *(p for way in case.ways for p in _references(way)),
                *(_against(case, catalogue) if catalogue is not None else ()),
            )
        ]
    if passed_by_nothing == len(suite.cases):
        found.append(
            CaseFinding(
                "suite_passes_idle_agent",
                "an agent that does nothing passes every case; add one in which a call is needed",
            )
        )
    return found


def _vacuous(
    case: Case, nothing_passes: bool, everything_passes: bool, silent: bool
) -> Iterator[tuple[str, str]]:
    if nothing_passes and everything_passes:
        yield "vacuous", "whatever the agent does passes"
    elif everything_passes:
        yield "passes_any_call", "an agent that calls every tool passes"
    elif nothing_passes and case.needs_tools is None and case.need is None:
        yield (
            "passes_idle_agent",
            "an agent that does nothing passes; if that is meant, write need: either",
        )
    if silent:
        yield (
            "expects_nothing_unsaid",
            "forbids calls and does not say what is expected; if no call is, say so with an empty "
            "list of expected calls",
        )


def _contradictions(case: Case) -> Iterator[tuple[str, str]]:
    for way in case.ways:
        least = sum(expectation.least for expectation in way.expected)
        if case.need == "forbidden" and least:
            yield "need_contradicts", "needs no tool, yet expects a call"
        if case.limits.calls is not None and least > case.limits.calls:
            yield "limit_too_low", f"expects {least} calls and allows {case.limits.calls}"
        for expectation in way.expected:
            for rule in case.forbidden:
                if expectation.least and _forbids(rule, expectation):
                    yield (
                        "expected_and_forbidden",
                        f"a call of {expectation.tool} is expected and forbidden",
                    )
            for pattern, most in case.limits.per_tool.items():
                if same_tool(pattern, expectation.tool) and expectation.least > most:
                    yield (
                        "limit_too_low",
                        f"expects {expectation.least} calls of {expectation.tool} and allows {most}",
                    )


def _forbids(rule: Forbidden, expectation: Expectation) -> bool:
    if not same_tool(rule.tool, expectation.tool) or rule.unless_after:
        return False
    return rule.plan is None or (
        expectation.plan is not None and rule.plan.compare(arguments_for(expectation)).wholly_right
    )


def _references(way: Way) -> Iterator[tuple[str, str]]:
    """References to calls that are not there, or whose result cannot have been known."""
    ids = {e.id: index for index, e in enumerate(way.expected) if e.id is not None}
    precedes = Precedence(way.before, len(way.expected))
    for index, expectation in enumerate(way.expected):
        plans = expectation.plan.plans.values() if expectation.plan is not None else ()
        for leaf in (leaf for plan in plans for leaf in leaves_of(plan)):
            if not isinstance(leaf.comparator, Ref):
                continue
            name, _ = parse_ref(leaf.comparator.value)
            where = f"{expectation.tool}: $ref {leaf.comparator.value}"
            at = ids.get(name)
            if at is None:
                yield (
                    "unreachable_ref",
                    f"{where}: no expected call has the id {name!r}{_hint(name, list(ids))}",
                )
            elif not precedes(at, index):
                yield (
                    "unreachable_ref",
                    f"{where}: {name!r} does not come before it; say after: [{name}]",
                )
            elif way.expected[at].count.max != 1:
                yield "ambiguous_ref", f"{where}: {name!r} may be called more than once"
            elif not way.expected[at].least and expectation.least:
                yield "unreachable_ref", f"{where}: {name!r} may not be called at all"


def _against(case: Case, catalogue: Catalogue) -> Iterator[tuple[str, str]]:
    """What the case says of tools and arguments, against what there is."""
    names = sorted({tool.key for tool in catalogue.tools} | {tool.name for tool in catalogue.tools})
    for way in case.ways:
        for expectation in way.expected:
            tool = _tool(expectation.tool, catalogue)
            if tool is None:
                yield (
                    "unknown_tool",
                    f"the catalogue has no tool {expectation.tool!r}{_hint(expectation.tool, names)}",
                )
            else:
                yield from _arguments(expectation, tool)
    for rule in case.forbidden:
        if not any(same_tool(rule.tool, tool.key) for tool in catalogue.tools):
            yield (
                "unknown_tool",
                f"forbids {rule.tool!r}, which is no tool of the catalogue{_hint(rule.tool, names)}",
            )


def _arguments(expectation: Expectation, tool: Tool) -> Iterator[tuple[str, str]]:
    schema = tool.schema
    properties: dict[str, Any] = dict(schema.get("properties") or {})
    plans = expectation.plan.plans if expectation.plan is not None else {}
    closed = schema.get("additionalProperties") is False or bool(properties)
    for key, plan in plans.items():
        where = f"{expectation.tool}: argument {key}"
        if key not in properties:
            if closed:
                yield "unknown_key", f"{where} is none of its schema{_hint(key, list(properties))}"
        elif isinstance(plan, Constant) and not plan.reads_numbers:
            problem = _problem(plan.value, properties[key], schema)
            if problem is not None:
                yield "wrong_type", f"{where} can never be valid: {problem}"
    if expectation.arguments is not None and expectation.match == "exact":
        for key in schema.get("required") or ():
            if key not in plans:
                yield (
                    "missing_required",
                    f"{expectation.tool}: its schema requires {key}, which args does not allow",
                )


def _problem(value: Any, schema: Any, root: Any) -> str | None:
    whole = {
        "$defs": root.get("$defs", {}),
        "definitions": root.get("definitions", {}),
        "allOf": [schema],
    }
    validator = Draft202012Validator(whole, registry=Registry())
    try:
        problem = next(iter(validator.iter_errors(value)), None)
    except Exception:  # noqa: BLE001 - a schema that cannot be used says nothing of the value
        return None
    return None if problem is None else str(problem.message)[:200]


def _tool(name: str, catalogue: Catalogue) -> Tool | None:
    exact = (tool for tool in catalogue.tools if name in (tool.key, tool.name))
    bare = (tool for tool in catalogue.tools if bare_name(tool.name) == bare_name(name))
    return next(exact, None) or next(bare, None)


def _hint(name: str, names: Sequence[str]) -> str:
    near = get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _everything(suite: CaseSet, catalogue: Catalogue | None) -> tuple[ToolCall, ...]:
    """A call of every tool there is and of one more, and every call that any case expects."""
    calls = [
        _call(expectation.tool, arguments_for(expectation))
        for case in suite.cases.values()
        for way in case.ways
        for expectation in way.expected
    ]
    named = {rule.tool for case in suite.cases.values() for rule in case.forbidden}
    known = {tool.name for tool in catalogue.tools} if catalogue is not None else set()
    calls += [_call(tool, {}) for tool in sorted(named | known)]
    return (_call(_NOBODYS, {}), *calls[:_MOST_CALLS])


def _call(tool: str, arguments: dict[str, Any]) -> ToolCall:
    return ToolCall(
        trace_id="",
        span_id="",
        parent_span_id=None,
        tool=bare_name(tool),
        start_ns=0,
        end_ns=0,
        outcome=Outcome.OK,
        dialect="lint",
        arguments=arguments,
        arguments_state=Captured.CAPTURED,
        executed=True,
    )


def _passes(case: Case, calls: Sequence[ToolCall]) -> bool:
    """Whether a trajectory of these calls, one after the other and all successful, passes."""
    placed = tuple(
        Placed(replace(call, start_ns=index * _SECOND, end_ns=index * _SECOND + 1), index)
        for index, call in enumerate(calls)
    )
    trajectory = Trajectory("", "", "", placed)
    return judge_trajectory(trajectory, None, case, Thresholds()).verdict.passed is True
