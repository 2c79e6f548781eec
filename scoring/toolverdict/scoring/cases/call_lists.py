"""Lists of expected calls as files nest them: one list, and which calls come before which.

A list of calls is in order; a list inside it is in any order; a list in that is in order again. A
call that says ``after: [ids]`` waits for those and nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from toolverdict.scoring.cases.files import Place
from toolverdict.scoring.cases.keys import kind, known_keys, list_of, strict_keys, texts

ARGUMENT_KEYS = ("args", "args_match", "args_subset")
CALL_KEYS = (
    "tool",
    *ARGUMENT_KEYS,
    "id",
    "after",
    "optional",
    "count",
    "outcome",
    "on_result",
)


@dataclass
class Calls:
    """Reads nested lists of calls into one list, and which of them come before which."""

    any_order: bool
    model_path: tuple[str | int, ...]
    places: dict[tuple[str | int, ...], Place]
    notes: set[str]
    calls: list[dict[str, Any]] = field(default_factory=list)
    before: list[set[int]] = field(default_factory=list)
    waits: dict[int, tuple[Place, list[str]]] = field(default_factory=dict)
    nested: bool = False

    def read(self, place: Place, listed: Any) -> dict[str, Any]:
        """The calls as the model has them; ``before`` only where it says more than the list does."""
        self.sequence(place, list_of(place, listed, "calls"), frozenset())
        return self.finish(place)

    def finish(self, place: Place) -> dict[str, Any]:
        """The calls that were read, each waiting for those that it names."""
        ids = self._ids(place)
        for index, (where, names) in self.waits.items():
            unknown = [name for name in names if name not in ids]
            if unknown:
                near = get_close_matches(unknown[0], ids, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise where.error(f"no expected call has the id {unknown[0]!r}{hint}")
            self.before[index] = {ids[name] for name in names}
        self._refuse_circles(place)
        raw: dict[str, Any] = {"expected": self.calls}
        if self.any_order or self.nested or self.waits:
            raw["before"] = [sorted(() if self.any_order else one) for one in self.before]
        return raw

    def sequence(
        self, place: Place, listed: Sequence[Any], first: frozenset[int]
    ) -> frozenset[int]:
        """Reads items in order; ``first`` come before all. Returns those that nothing follows."""
        last = first
        for number, item in enumerate(listed):
            if isinstance(item, list):
                self.nested = True
                last = self._group(place.at(number), item, last) or last
            else:
                last = frozenset({self._call(place.at(number), item, last)})
        return last

    def _group(self, place: Place, listed: Sequence[Any], first: frozenset[int]) -> frozenset[int]:
        """Reads items in any order among each other."""
        ends: frozenset[int] = frozenset()
        for number, item in enumerate(listed):
            if isinstance(item, list):
                ends |= self.sequence(place.at(number), item, first)
            else:
                ends |= {self._call(place.at(number), item, first)}
        return ends

    def _call(self, place: Place, call: Any, first: frozenset[int]) -> int:
        index = len(self.calls)
        fields = read_call(place, call, CALL_KEYS, self.notes)
        if "after" in fields:
            self.waits[index] = place.at("after"), texts(place.at("after"), fields.pop("after"))
        self.places[(*self.model_path, index)] = place
        self.calls.append(fields)
        self.before.append(set(first))
        return index

    def _ids(self, place: Place) -> dict[str, int]:
        ids: dict[str, int] = {}
        for index, call in enumerate(self.calls):
            name = call.get("id")
            if isinstance(name, str) and ids.setdefault(name, index) != index:
                where = self.places[(*self.model_path, index)]
                raise where.at("id").error(f"the id {name!r} stands for another call already")
        return ids

    def _refuse_circles(self, place: Place) -> None:
        left = dict(enumerate(self.before))
        while free := [index for index, first in left.items() if not first & left.keys()]:
            for index in free:
                del left[index]
        if left:
            where = self.waits[min(index for index in left if index in self.waits)][0]
            raise where.error("waits for a call that waits for this one: no order can satisfy that")


@dataclass(frozen=True, slots=True)
class Turns:
    """Reads the turns of a user: what each says, and the calls that answer it."""

    expected: str
    any_order: bool
    places: dict[tuple[str | int, ...], Place]
    notes: set[str]

    def read(self, place: Place, listed: Any) -> dict[str, Any]:
        """The turns, and all their calls in one list, those of a turn after those before it."""
        calls = Calls(self.any_order, ("expected",), self.places, self.notes)
        last: frozenset[int] = frozenset()
        turns = []
        for number, turn in enumerate(list_of(place, listed, "turns")):
            where = place.at(number)
            if not isinstance(turn, dict):
                raise where.error(f"expected an object with {self.expected}, got {kind(turn)}")
            fields = strict_keys(where, turn, ("input", "need", self.expected))
            if not fields.keys() & {"need", self.expected}:
                raise where.error(
                    f"says neither {self.expected} nor need; a turn in which nothing should be "
                    f"called says {self.expected}: []"
                )
            first = len(calls.calls)
            inner = where.at(self.expected)
            last = calls.sequence(
                inner, list_of(inner, fields.pop(self.expected, []), "calls"), last
            )
            self.places["turns", number] = where
            turns.append({**fields, "calls": len(calls.calls) - first})
        return {"turns": turns, **calls.finish(place)}


@dataclass(frozen=True, slots=True)
class WayReader:
    """Reads one alternative: a list of calls, or an object that names it."""

    expected: str
    any_order: bool
    places: dict[tuple[str | int, ...], Place]
    notes: set[str]

    def read(self, place: Place, way: Any) -> dict[str, Any]:
        """The way as the model has it; one without a name is named by its number."""
        number = place.path[-1]
        fields = {self.expected: way} if isinstance(way, list) else way
        if not isinstance(fields, dict):
            said = "a list of calls, or an object with a name and calls"
            raise place.error(f"expected {said}, got {kind(way)}")
        fields = strict_keys(place, fields, ("name", "order", self.expected))
        if self.expected not in fields:
            raise place.error(f"expected a list of calls under {self.expected}")
        path = ("alternatives", number, "expected")
        any_order = is_any_order(place, fields, self.any_order)
        calls = Calls(any_order, path, self.places, self.notes)
        where = place if isinstance(way, list) else place.at(self.expected)
        listed = calls.read(where, fields[self.expected])
        return {"name": fields.get("name", str(int(number) + 1)), **listed}


def is_any_order(place: Place, fields: Mapping[str, Any], otherwise: bool = False) -> bool:
    """Whether ``order`` switches the order off; where it is not said, as ``otherwise``."""
    order = fields.get("order", "any" if otherwise else "listed")
    if order not in ("listed", "any"):
        raise place.at("order").error(f"expected listed or any, got {order!r}")
    return bool(order == "any")


def read_call(place: Place, call: Any, known: tuple[str, ...], notes: set[str]) -> dict[str, Any]:
    """A call as the model has it; keys that nothing here understands are added to ``notes``."""
    if not isinstance(call, dict):
        raise place.error(f"expected an object with a tool, got {kind(call)}")
    fields = known_keys(place, call, known, notes)
    arguments = [key for key in ARGUMENT_KEYS if key in fields]
    if len(arguments) > 1:
        raise place.error(f"give one of {' or '.join(arguments)}, not both")
    for key in arguments:
        fields["arguments"] = fields.pop(key)
        if known is CALL_KEYS:
            fields["match"] = "exact" if key == "args" else "subset"
    if isinstance(fields.get("count"), int) and not isinstance(fields["count"], bool):
        fields["count"] = {"min": fields["count"], "max": fields["count"]}
    if isinstance(fields.get("on_result"), dict):
        fields["on_result"] = {
            result: [wanted] if isinstance(wanted, str) else wanted
            for result, wanted in fields["on_result"].items()
        }
    return fields
