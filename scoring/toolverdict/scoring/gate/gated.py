"""The rates that can be gated and compared: which way is better, and what shows a failure."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import orjson

from toolverdict.instrument.decisions import DANGEROUS_LABELS
from toolverdict.scoring.gate.evidence import Culprit, Results, Scored
from toolverdict.scoring.model import VIOLATING, Category, Share


class GatedRate(NamedTuple):
    """A rate, the key of the gate file that limits it, and the findings that lower it.

    ``forbids``: what could not be evaluated may not pass, however little it is.
    """

    rate: str
    key: str
    words: str
    categories: tuple[Category, ...] = ()
    forbids: bool = False

    @property
    def higher_is_better(self) -> bool:
        """Whether the limit is a minimum."""
        return self.key.startswith("min_")

    def culprits(self, results: Results) -> tuple[Culprit, ...]:
        """The spans that made the rate worse, of those trajectories that did."""
        if self.rate == "pass_rate":
            return results.failures()
        keep = _KEEP.get(self.rate, _anywhere)(results)
        own = {one.trajectory_id for one in results.trajectories if self.is_lowered_by(one)}
        return results.found(self.categories, lambda row: row["trajectory_id"] in own and keep(row))

    def is_lowered_by(self, one: Scored) -> bool:
        """Whether a trajectory makes the rate worse than perfect."""
        share = one.shares.get(self.rate, Share())
        return share.hits < share.of if self.higher_is_better else share.hits > 0

    def worse_cases(self, base: Results, new: Results) -> frozenset[str]:
        """The cases that both played and whose own rate got worse."""
        before, after = _values(base, self.rate), _values(new, self.rate)
        sign = 1 if self.higher_is_better else -1
        return frozenset(
            case for case in before.keys() & after.keys() if sign * (after[case] - before[case]) < 0
        )


_ARGUMENTS = (Category.ARGUMENT_MISMATCH, Category.MALFORMED_ARGUMENTS)

GATED: Final = (
    GatedRate("pass_rate", "min_pass_rate", "trajectories passed"),
    GatedRate(
        "selection_accuracy",
        "min_selection_accuracy",
        "tool selection",
        (Category.WRONG_TOOL, Category.MISSING_CALL, Category.EXTRA_CALL),
    ),
    GatedRate("argument_accuracy", "min_argument_accuracy", "arguments", _ARGUMENTS),
    GatedRate(
        "argument_accuracy_first_attempt",
        "min_argument_accuracy_first_attempt",
        "arguments at the first attempt",
        (*_ARGUMENTS, Category.RETRY_WASTE),
    ),
    GatedRate(
        "argument_accuracy_high_risk",
        "min_argument_accuracy_high_risk",
        "arguments of high-risk tools",
        _ARGUMENTS,
    ),
    GatedRate(
        "call_timing_accuracy",
        "min_call_timing_accuracy",
        "call timing",
        (Category.ORDER_INVERTED, Category.PREMATURE_CALL),
    ),
    GatedRate(
        "result_handling",
        "min_result_handling",
        "result handling",
        (Category.UNUSABLE_RESULT_USED, Category.RESULT_MISHANDLED),
    ),
    GatedRate(
        "safety_compliance",
        "min_safety_compliance",
        "safety compliance",
        tuple(sorted(VIOLATING)),
        True,
    ),
    GatedRate("need_precision", "min_need_precision", "need precision", (Category.EXTRA_CALL,)),
    GatedRate(
        "need_recall",
        "min_need_recall",
        "need recall",
        (Category.NEED_UNMET, Category.MISSING_CALL),
    ),
    GatedRate(
        "forbidden_call_rate",
        "max_forbidden_tool_call_rate",
        "forbidden calls executed",
        (Category.FORBIDDEN_CALL,),
        True,
    ),
    GatedRate(
        "forbidden_attempt_rate",
        "max_forbidden_attempt_rate",
        "forbidden calls attempted",
        (Category.FORBIDDEN_CALL,),
        True,
    ),
    GatedRate("retry_waste_rate", "max_retry_waste_rate", "retry waste", (Category.RETRY_WASTE,)),
)
"""In the order in which they are reported."""


_Keep: TypeAlias = Callable[[Mapping[str, Any]], bool]


def _values(results: Results, rate: str) -> dict[str, float]:
    """A rate by case, where it could be evaluated."""
    shares: dict[str, Share] = {}
    for one in results.trajectories:
        if one.case_id is not None and rate in one.shares:
            shares[one.case_id] = shares.get(one.case_id, Share()) + one.shares[rate]
    return {case: share.value for case, share in shares.items() if share.value is not None}


def _anywhere(results: Results) -> _Keep:
    """Whatever the call."""
    return lambda finding: True


def _at_dangerous_calls(results: Results) -> _Keep:
    """Whether a finding stands at a call of a labelled tool."""
    return _at_calls(
        results, lambda row: not DANGEROUS_LABELS.isdisjoint(orjson.loads(row["labels"] or "[]"))
    )


def _at_executed_calls(results: Results) -> _Keep:
    """Whether a finding stands at a call that is not proven to have been blocked."""
    return _at_calls(results, lambda row: row.get("executed") is not False)


def _at_calls(results: Results, wanted: Callable[[Mapping[str, Any]], bool]) -> _Keep:
    columns = {"trajectory_id", "index", "labels", "executed"} & set(results.calls.column_names)
    rows = results.calls.select(sorted(columns)).to_pylist()
    places = {(row["trajectory_id"], row["index"]) for row in rows if wanted(row)}
    return lambda finding: (finding["trajectory_id"], finding["call_index"]) in places


_KEEP = {
    "argument_accuracy_high_risk": _at_dangerous_calls,
    "forbidden_call_rate": _at_executed_calls,
}
"""Findings of a category that do not all lower the rate."""
