"""How strictly imported cases are judged, where the source leaves that to its evaluator.

Most sources keep it out of their files (a match mode is an argument of an evaluator), so whoever
imports may say it; each importer begins with what its source's evaluator does by default.
"""

from dataclasses import dataclass
from typing import Any, Literal

from toolverdict.scoring.importers.imported import CaseDict

_ARGUMENT_KEYS = ("args", "args_subset", "args_match")


@dataclass(frozen=True, slots=True)
class Strictness:
    """What to set in every case; None leaves it as the importer made it."""

    order: Literal["listed", "any"] | None = None
    extra: Literal["penalise", "allow", "forbid"] | None = None
    args: Literal["exact", "subset", "ignore"] | None = None

    def applied(self, case: CaseDict) -> CaseDict:
        """The case, judged so."""
        case = dict(case)
        if self.order is not None:
            case["order"] = self.order
        if self.extra is not None:
            case["extra"] = self.extra
        if self.args is not None:
            if "expected_tool_calls" in case:
                case["expected_tool_calls"] = self._calls(case["expected_tool_calls"])
            if "alternatives" in case:
                case["alternatives"] = [
                    {**way, "expected_tool_calls": self._calls(way["expected_tool_calls"])}
                    for way in case["alternatives"]
                ]
        return case

    def _calls(self, calls: Any) -> Any:
        return [self._calls(one) if isinstance(one, list) else self._call(one) for one in calls]

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        spelt = {"exact": "args", "subset": "args_subset"}.get(self.args or "")
        return {
            (spelt if key in _ARGUMENT_KEYS and spelt else key): value
            for key, value in call.items()
            if spelt or key not in _ARGUMENT_KEYS
        }
