"""The checks of a gate: each passes, fails, or says that the evidence does not decide.

A rate passes when its whole interval is on the right side of its limit and fails when its whole
interval is on the wrong one. Some checks fail by one fact, whatever else there is (``hard``).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import pyarrow.compute as pc

from toolverdict.instrument.policy import Policy
from toolverdict.instrument.policy.check import unconfirmed_rules
from toolverdict.scoring.compare.comparison import Comparison, compare, is_worse
from toolverdict.scoring.compare.differences import Difference
from toolverdict.scoring.gate.evidence import TRACE_FIELDS, Culprit, Results
from toolverdict.scoring.gate.gate_file import Gate, WastePathLimits
from toolverdict.scoring.gate.gated import GATED, GatedRate
from toolverdict.scoring.gate.repeats import pass_hat
from toolverdict.scoring.intervals import Moments, units_for
from toolverdict.scoring.rates import Rate

_MOST_NAMED = 5
_MOST_LONGEST = 50


class State(StrEnum):
    """What a check says; the gate says the worst of its checks."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Check:
    """One check. ``key`` is the key of the gate file that asks for it; ``id`` is stable."""

    id: str
    key: str
    state: State
    message: str
    hard: bool = False
    limit: float | None = None
    rate: Rate | None = None
    culprits: tuple[Culprit, ...] = ()


def all_checks(
    gate: Gate, results: Results, policy: Policy | None, baseline: Results | None, seed: int = 0
) -> Iterator[Check]:
    """Every check that the gate asks for, hard ones first."""
    yield _evaluated(results)
    yield from _cases(results)
    if gate.require_trace_fields:
        yield _trace_fields(gate, results)
    if policy is not None:
        yield _confirmed(policy)
    limited = [one for one in GATED if getattr(gate, one.key) is not None]
    for one in limited:
        yield _rate(one, gate, results)
    if gate.min_pass_hat is not None:
        yield _repeated(gate, results, seed)
    if baseline is not None:
        yield from _baseline(gate, results, baseline, limited, seed)


def _evaluated(results: Results) -> Check:
    """Something was evaluated at all."""
    judged = sum(one.passed is not None for one in results.trajectories)
    count = len(results.trajectories)
    return Check(
        "evaluated",
        "",
        State.PASS if judged else State.FAIL,
        f"{judged} of {count} trajectories could be judged"
        if judged
        else f"nothing was evaluated: none of {count} trajectories could be judged",
        hard=True,
        culprits=results.culprits(
            {
                "trajectory_id": one.trajectory_id,
                "trace_id": one.trace_id,
                "span_id": None,
                "message": f"not judged: {one.reason}",
            }
            for one in results.trajectories
            if not judged
        ),
    )


def _cases(results: Results) -> Iterator[Check]:
    """Every given case was played."""
    if results.summary["cases"] is None:
        return
    lost = list(results.summary["cases_not_run"])
    given = results.summary["cases"]["count"]
    yield Check(
        "cases_played",
        "",
        State.INCONCLUSIVE if lost else State.PASS,
        f"{len(lost)} of {given} cases were not played: {_named(lost)}"
        if lost
        else f"all {given} cases were played",
    )


def _trace_fields(gate: Gate, results: Results) -> Check:
    """Every call carries the required attributes."""
    calls = results.calls
    lacking: list[str] = []
    rows = []
    for name in gate.require_trace_fields:
        column = TRACE_FIELDS[name]
        here = column in calls.column_names
        missing = calls.filter(pc.is_null(calls[column])) if here else calls
        if missing.num_rows:
            lacking.append(f"{name} ({missing.num_rows} of {calls.num_rows} calls)")
        columns = ["trajectory_id", "trace_id", "span_id", "tool"]
        rows += [
            {**row, "message": f"{row['tool']}: the span has no {name}"}
            for row in missing.select(columns).to_pylist()
        ]
    if not calls.num_rows:
        state, message = State.INCONCLUSIVE, "no tool call was seen"
    elif lacking:
        state, message = State.FAIL, f"missing on spans: {', '.join(lacking)}"
    else:
        fields = ", ".join(gate.require_trace_fields)
        state, message = State.PASS, f"all {calls.num_rows} calls carry {fields}"
    key = "require_trace_fields"
    return Check(key, key, state, message, hard=True, culprits=results.culprits(rows))


def _confirmed(policy: Policy) -> Check:
    """A person answers for every rule about high-risk calls."""
    unconfirmed = unconfirmed_rules(policy)
    return Check(
        "confirmed_rules",
        "require_confirmed_rules",
        State.FAIL if unconfirmed else State.PASS,
        f"rules for high-risk calls that nobody has confirmed: {_named(unconfirmed)}; "
        "`toolverdict policy check` says how"
        if unconfirmed
        else f"policy {policy.id}: every rule for high-risk calls is confirmed",
        hard=True,
    )


def _rate(gated: GatedRate, gate: Gate, results: Results) -> Check:
    """A rate against its limit."""
    limit: float = getattr(gate, gated.key)
    moments = results.moments(gated.rate)
    rate = moments.rate(gate.confidence)
    seen = any(
        one.shares[gated.rate].hits for one in results.trajectories if gated.rate in one.shares
    )
    state, why = decide(gated, limit, moments, gate, seen=seen)
    message = f"{gated.words}: {rate}, {'at least' if gated.higher_is_better else 'at most'} "
    message += f"{limit:g} wanted" + (f"; {why}" if why else "")
    return Check(
        gated.rate,
        gated.key,
        state,
        message,
        hard=gated.rate == "forbidden_call_rate",
        limit=limit,
        rate=rate,
        culprits=gated.culprits(results) if state is not State.PASS else (),
    )


def decide(
    gated: GatedRate, limit: float, moments: Moments, gate: Gate, *, seen: bool = False
) -> tuple[State, str | None]:
    """What the evidence says about a rate, and why it does not decide.

    A limit of 0 is a veto: one event breaks it, even one whose weight nobody knows (``seen``). That
    none was seen passes it, and the interval says what that is worth. Forbidden calls above their
    limit fail without regard to chance.
    """
    veto = limit == 0 and not gated.higher_is_better
    if veto and (seen or moments.hits):
        return State.FAIL, None
    rate = moments.rate(gate.confidence)
    if rate.value is None or rate.low is None or rate.high is None:
        return State.INCONCLUSIVE, "nothing could be evaluated"
    if gated.higher_is_better:
        failed, passed = rate.high < limit, rate.low >= limit
    else:
        failed, passed = rate.low > limit, veto or rate.high <= limit
    if failed or (gated.rate == "forbidden_call_rate" and rate.value > limit):
        return State.FAIL, None
    least = 1.0 if gated.forbids else gate.min_coverage
    if rate.coverage is None or rate.coverage < least:
        return State.INCONCLUSIVE, f"only {rate.coverage or 0:.1%} could be evaluated"
    if passed:
        return State.PASS, None
    if not gated.higher_is_better and not moments.hits:
        wanted = units_for(limit, gate.confidence)
        return State.INCONCLUSIVE, f"it takes {wanted} independent units without any to show that"
    return State.INCONCLUSIVE, "the interval holds the limit: more trajectories would decide"


def _repeated(gate: Gate, results: Results, seed: int) -> Check:
    """pass^k against its limit."""
    assert gate.min_pass_hat is not None
    k, limit = gate.min_pass_hat.k, gate.min_pass_hat.min
    found = pass_hat(results.trajectories, k, gate.confidence, seed)
    message = f"pass^{k}: {found}, at least {limit:g} wanted"
    if found.too_few:
        message += f"; fewer than {k} trials of {len(found.too_few)} cases: {_named(found.too_few)}"
    if found.value is None or found.low is None or found.high is None:
        state = State.INCONCLUSIVE
    elif found.high < limit:
        state = State.FAIL
    else:
        passed = found.low >= limit and not found.too_few
        state = State.PASS if passed else State.INCONCLUSIVE
    culprits = results.failures() if state is not State.PASS else ()
    return Check("pass_hat", "min_pass_hat", state, message, limit=limit, culprits=culprits)


def _baseline(
    gate: Gate, results: Results, baseline: Results, limited: list[GatedRate], seed: int
) -> Iterator[Check]:
    """Nothing got worse, and no case was lost, since the baseline."""
    rates = limited or [GATED[0]]
    waste = gate.waste_path or WastePathLimits()
    found = compare(
        baseline,
        results,
        rates=rates,
        max_call_growth=waste.max_call_growth,
        min_success_gain=waste.min_success_gain,
        confidence=gate.confidence,
        seed=seed,
    )
    yield _case_set(found, results, baseline)
    for gated, one in zip(rates, found.differences, strict=True):
        yield _drop(gated, one, gate, found, results, baseline)
    if gate.waste_path is not None:
        yield _waste(found, results)


def _case_set(found: Comparison, results: Results, baseline: Results) -> Check:
    before, after = baseline.summary["cases"], results.summary["cases"]
    fewer = before is not None and (after is None or after["count"] < before["count"])
    shrank = bool(found.cases_lost) or fewer
    message = f"all {len(baseline.cases_played)} cases of the baseline were played"
    if found.cases_lost:
        count = len(found.cases_lost)
        message = f"{count} cases of the baseline were not played: {_named(found.cases_lost)}"
    elif fewer:
        message = f"{after['count'] if after else 0} cases were given, {before['count']} before"
    return Check("case_set", "", State.FAIL if shrank else State.PASS, message, hard=True)


def _drop(
    gated: GatedRate,
    one: Difference,
    gate: Gate,
    found: Comparison,
    results: Results,
    baseline: Results,
) -> Check:
    """How much worse a rate may be than the baseline's; of cases, those that got worse are named."""
    margin = gate.max_drop_from_baseline
    state = State.INCONCLUSIVE
    if one.difference is not None and one.low is not None and one.high is not None:
        worst = -one.low if gated.higher_is_better else one.high
        best = -one.high if gated.higher_is_better else one.low
        if best > margin or (is_worse(one, gate.confidence) and worst > margin):
            state = State.FAIL
        elif worst <= margin:
            state = State.PASS
    return Check(
        f"baseline.{gated.rate}",
        "max_drop_from_baseline",
        state,
        f"{gated.words} since the baseline: {one}, at most {margin:g} worse wanted "
        f"({found.mode}, {one.method}, {one.units} {'cases' if found.mode == 'paired' else 'clusters'})",
        limit=margin,
        culprits=_dropped(gated, found, results, baseline) if state is State.FAIL else (),
    )


def _dropped(
    gated: GatedRate, found: Comparison, results: Results, baseline: Results
) -> tuple[Culprit, ...]:
    culprits = gated.culprits(results)
    if found.mode == "live":
        return culprits
    worse = gated.worse_cases(baseline, results)
    return tuple(culprit for culprit in culprits if culprit.case_id in worse)


def _waste(found: Comparison, results: Results) -> Check:
    """More calls than the baseline, and no more success."""
    state = State.INCONCLUSIVE
    if found.waste.shown:
        state = State.FAIL
    elif found.waste.excluded:
        state = State.PASS
    culprits = _longest(results) if state is State.FAIL else ()
    return Check("waste_path", "waste_path", state, found.waste.sentence, culprits=culprits)


def _longest(results: Results) -> tuple[Culprit, ...]:
    """The trajectories with the most calls, each at its last call."""
    columns = ["trajectory_id", "trace_id", "span_id", "index"]
    calls = results.calls.select(columns).sort_by("index").to_pylist()
    last = {row["trajectory_id"]: row for row in calls}
    longest = sorted(last.values(), key=lambda row: (-row["index"], row["trajectory_id"]))
    return results.culprits(
        {**row, "message": f"{row['index'] + 1} calls"} for row in longest[:_MOST_LONGEST]
    )


def _named(ids: Iterable[str]) -> str:
    ids = list(ids)
    return ", ".join(ids[:_MOST_NAMED]) + (", ..." if len(ids) > _MOST_NAMED else "")
