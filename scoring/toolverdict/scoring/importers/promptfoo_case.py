"""The assertions of one promptfoo test, put together into one case.

Several assertions may be met by the same call, while each expected call of a case is a call of its
own: what they say of one tool is therefore said by one expectation where that is possible.
"""

import re
from typing import Any

from toolverdict.scoring.importers.expecting import as_it_is
from toolverdict.scoring.importers.imported import CaseDict, Losses
from toolverdict.scoring.importers.nodes import Node

_GLOB = re.compile(r"[*?]")
_AT_LEAST_ONCE = {"min": 1, "max": None}


class CaseInMaking:
    """Takes assertions one by one; each method returns False where it cannot say that.

    ``inverse``: the assertion began with ``not-``.
    """

    def __init__(self, losses: Losses) -> None:
        self._losses = losses
        self._ordered: list[dict[str, Any]] = []
        self._loose: list[dict[str, Any]] = []
        self._forbidden: list[dict[str, Any]] = []
        self._limits: dict[str, Any] = {}
        self._complete = False

    def tool_used(self, value: Node, inverse: bool) -> bool:
        """``trajectory:tool-used``: each of these tools, or one so many times."""
        if isinstance(value.data, dict):
            return self._counted(value, inverse)
        names = [value] if isinstance(value.data, str) else list(value.items())
        tools = [name.text() for name in names]
        if inverse:
            self._forbidden += [{"tool": tool} for tool in tools]
            return True
        if any(_GLOB.search(tool) for tool in tools):
            return False
        for tool in tools:
            if self._of(tool) is None:
                self._loose.append({"tool": tool, "count": dict(_AT_LEAST_ONCE)})
        return True

    def sequence(self, value: Node, inverse: bool) -> bool:
        """``trajectory:tool-sequence``: these tools in this order, with others or without."""
        mode = value.get("mode") if isinstance(value.data, dict) else None
        steps = value.need("steps") if isinstance(value.data, dict) else value
        tools = [_tool(step) for step in steps.items()]
        named = [tool for tool in tools if tool is not None and not _GLOB.search(tool)]
        if inverse or self._ordered or not named or len(named) < len(tools):
            return False
        if any(one["tool"] in named and _is_counted(one) for one in self._loose):
            return False
        exact = mode is not None and mode.data == "exact"
        if not exact:
            what = "a tool of a sequence that is called too early, too, may be taken for inverted"
            self._losses.add(value.place, what)
        self._complete |= exact
        for tool in named:
            earlier = next((one for one in self._loose if one["tool"] == tool), None)
            if earlier is not None:
                self._loose.remove(earlier)
                earlier.pop("count", None)
            self._ordered.append(earlier or {"tool": tool})
        return True

    def arguments(self, value: Node, inverse: bool) -> bool:
        """``trajectory:tool-args-match``: some call of the tool has these arguments."""
        tool, wanted = _tool(value), value.need("args", "arguments")
        if tool is None or not isinstance(wanted.data, dict):
            return False
        exact = (mode := value.get("mode")) is not None and mode.data == "exact"
        ignored = _ignored(value)
        expected = {k: as_it_is(v) for k, v in wanted.data.items() if k not in ignored}
        if not exact and any(isinstance(inner, dict | list) for inner in expected.values()):
            self._losses.add(wanted.place, "objects inside arguments must be equal as a whole")
        if exact and (ignored or value.has("defaults")):
            self._losses.add(
                value.place, "further arguments are not refused where some are ignored"
            )
            exact = False
        if inverse:
            if exact:
                self._losses.add(value.place, "forbidden with at least these arguments")
            self._forbidden.append({"tool": tool, "args_subset": expected})
            return True
        if _GLOB.search(tool):
            return False
        spelt = {"args" if exact else "args_subset": expected}
        of_tool = [one for one in (*self._ordered, *self._loose) if one["tool"] == tool]
        free = next((one for one in of_tool if not one.keys() & {"args", "args_subset"}), None)
        if free is None:
            self._loose.append({"tool": tool, **spelt})
            return True
        if _is_counted(free):
            return False
        if len(of_tool) > 1:
            what = "arguments that any call of a tool may have are expected of the first one"
            self._losses.add(value.place, what)
        free.pop("count", None)  # one call with these arguments; others are allowed beside it
        free.update(spelt)
        return True

    def step_count(self, value: Node, inverse: bool) -> bool:
        """``trajectory:step-count`` of tools: at most so many calls, of all tools or of some."""
        kind, pattern = value.get("type"), value.get("pattern", "name")
        most, least = _number(value, "max"), _number(value, "min")
        if inverse or kind is None or kind.data != "tool" or most is None or least not in (None, 0):
            return False
        if pattern is None:
            self._limits["calls"] = min(most, self._limits.get("calls", most))
        else:
            self._at_most(pattern.text(), most)
        return True

    def tool_set(self, value: Node, inverse: bool) -> bool:
        """``trajectory:tool-set``: these tools in any order, with others or without."""
        mode = value.get("mode") if isinstance(value.data, dict) else None
        tools = value.need("tools") if isinstance(value.data, dict) else value
        names = [tool.data for tool in tools.items()]
        if inverse or not all(isinstance(n, str) and not _GLOB.search(n) for n in names):
            return False
        self._complete |= mode is not None and mode.data == "exact"
        return self.tool_used(tools, inverse=False)

    def exact_set(self, value: Node, inverse: bool) -> bool:
        """``tool-call-f1`` of 1: each of these tools and no other."""
        listed = value.data.split(",") if isinstance(value.data, str) else value.data
        names = [str(name).strip() for name in listed] if isinstance(listed, list) else []
        if inverse or not names or any(not name or _GLOB.search(name) for name in names):
            return False
        self._complete = True
        return self.tool_used(Node(value.place, names), inverse=False)

    def case(self) -> CaseDict | None:
        """What all of them say together; None where they said nothing."""
        if not (self._ordered or self._loose or self._forbidden or self._limits):
            return None
        case: CaseDict = {}
        if self._ordered or self._loose:
            case["expected_tool_calls"] = self._expected()
        else:
            case["need"] = "either"
        if self._loose and not self._ordered:
            case["order"] = "any"
        if not self._complete:
            case["extra"] = "allow"
        if self._forbidden:
            case["forbidden_tool_calls"] = self._forbidden
        if self._limits:
            case["limits"] = self._limits
        return case

    def _expected(self) -> list[Any]:
        if self._ordered and self._loose:
            # In any order among each other: the sequence, and each of the rest.
            return [[self._ordered, *self._loose]]
        return self._ordered or self._loose

    def _counted(self, value: Node, inverse: bool) -> bool:
        tool = _tool(value)
        least, most = _number(value, "min"), _number(value, "max")
        least = 1 if least is None else least
        if tool is None:
            return False
        if inverse or most == 0:
            if inverse and (least != 1 or most is not None):
                return False
            self._forbidden.append({"tool": tool})
            return True
        if least > 0 and (_GLOB.search(tool) or self._of(tool) is not None):
            return False
        if most is not None:
            # A limit, since calls beyond the count of an expectation may be allowed.
            self._at_most(tool, most)
        if least > 0:
            self._loose.append({"tool": tool, "count": {"min": least, "max": None}})
        return least > 0 or most is not None

    def _at_most(self, tool: str, most: int) -> None:
        limits = self._limits.setdefault("per_tool", {})
        limits[tool] = min(most, limits.get(tool, most))

    def _of(self, tool: str) -> dict[str, Any] | None:
        return next((one for one in (*self._ordered, *self._loose) if one["tool"] == tool), None)


def _is_counted(expected: dict[str, Any]) -> bool:
    """Whether a certain number of calls is expected."""
    return bool(expected.get("count", _AT_LEAST_ONCE) != _AT_LEAST_ONCE)


def _tool(value: Node) -> str | None:
    """The tool that a matcher names; None for one of another kind of step."""
    if isinstance(value.data, str):
        return value.text()
    kind, named = value.get("type"), value.get("pattern", "name")
    if named is None or (kind is not None and kind.data != "tool"):
        return None
    return named.text()


def _ignored(value: Node) -> set[str]:
    named = value.get("ignore")
    if named is None:
        return set()
    return {named.text()} if isinstance(named.data, str) else {n.text() for n in named.items()}


def _number(value: Node, key: str) -> int | None:
    found = value.get(key)
    if found is None:
        return None
    if isinstance(found.data, bool) or not isinstance(found.data, int) or found.data < 0:
        raise found.error("expected a number from 0")
    return int(found.data)
