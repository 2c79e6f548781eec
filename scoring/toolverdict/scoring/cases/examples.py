"""Calls that a case would take for right, as far as they can be told from what it says."""

from collections.abc import Mapping

from toolverdict.scoring.cases.comparators.base import MISSING, Comparator, Context
from toolverdict.scoring.cases.comparators.money import Money
from toolverdict.scoring.cases.comparators.numbers import Range
from toolverdict.scoring.cases.comparators.presence import Enum
from toolverdict.scoring.cases.model import Expectation
from toolverdict.scoring.cases.plans import Constant, Items, Leaf, Object, Optional, Plan
from toolverdict.scoring.model import Json


def arguments_for(expectation: Expectation) -> dict[str, Json]:
    """Arguments that the expectation takes for right, but for comparators that tell no example."""
    plans: Mapping[str, Plan] = expectation.plan.plans if expectation.plan is not None else {}
    found = {key: example_of(plan) for key, plan in plans.items()}
    return {key: value for key, value in found.items() if value is not MISSING}


def example_of(plan: Plan) -> Json:
    """A value that a plan takes for right, or the nearest to one that it tells of."""
    if isinstance(plan, Constant):
        return plan.value
    if isinstance(plan, Optional):
        return example_of(plan.inner)
    if isinstance(plan, Object):
        found = {key: example_of(inner) for key, inner in plan.keys.items()}
        return {key: value for key, value in found.items() if value is not MISSING}
    if isinstance(plan, Items):
        return [example_of(inner) for inner in plan.items]
    return _of_comparator(plan)


def _of_comparator(leaf: Leaf) -> Json:
    comparator: Comparator = leaf.comparator
    if comparator.accepts_missing:
        return MISSING
    if isinstance(comparator, Enum):
        return comparator.value[0]
    if isinstance(comparator, Range):
        return next(iter(comparator.value.values()))
    if isinstance(comparator, Money) and comparator.currency is not None:
        return {"amount": comparator.value, "currency": comparator.currency}
    expected = comparator.expected
    takes = comparator.compare(expected, Context()) is None
    return expected if takes and expected is not None else "x"
