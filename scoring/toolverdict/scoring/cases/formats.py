"""From a document to a case: both spellings of the format, and the order that nesting says.

Format A::

    {"case_id": ..., "expected_calls": [{"tool": ..., "args_match": {...}}],
     "forbidden_calls": ["name", ...]}

Format B::

    {"id": ..., "input": ..., "expected_tool_calls": [{"tool": ..., "args" | "args_subset": {...}}],
     "forbidden_tool_calls": [{"tool": ..., "reason": ..., "args_subset": {...}}]}

Every further key may stand in both. A list of calls is in order; a list inside it is in any order; a
list in that is in order again. A call that says ``after: [ids]`` waits for those and nothing else.

A key that is nearly a known one is an error, since a misspelt ``forbidden_calls`` would let
everything pass; any other unknown key is somebody's own note and is named in a warning.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from toolverdict.scoring.cases.files import Place, one_line
from toolverdict.scoring.cases.model import Case
from toolverdict.scoring.cases.plans import PlanError

_SPELLINGS = {
    "id": ("id", "case_id"),
    "expected": ("expected_tool_calls", "expected_calls"),
    "forbidden": ("forbidden_tool_calls", "forbidden_calls"),
}
_FURTHER = ("need", "alternatives", "order", "extra", "limits", "trials")
_NOTES = ("input", "meta")
_ARGUMENT_KEYS = ("args", "args_match", "args_subset")
_CALL_KEYS = (
    "tool",
    *_ARGUMENT_KEYS,
    "id",
    "after",
    "optional",
    "count",
    "outcome",
    "on_result",
)
_FORBIDDEN_KEYS = ("tool", "args_match", "args_subset", "reason", "unless_after")
_EXTRA_KEYS = ("default", "penalise", "allow", "forbid", "failed")


class Read(NamedTuple):
    """A case, the keys that nothing here understands, and whether it leaves open what is expected."""

    case: Case
    notes: frozenset[str]
    silent: bool


def read_case(place: Place, document: Any) -> Read:
    """The case of a document.

    Raises:
        InputError: it is no case; the message names file, line or position, key and what was
            expected.
    """
    if not isinstance(document, dict):
        raise place.error(f"expected an object with a case, got {_kind(document)}")
    if (problem := _unwritable(document)) is not None:
        raise place.error(problem)
    notes: set[str] = set()
    spellings = (name for names in _SPELLINGS.values() for name in names)
    case = _known(place, document, (*spellings, *_FURTHER, *_NOTES), notes)
    name, expected, forbidden = (_spelling(place, case, names) for names in _SPELLINGS.values())
    if not case.keys() & {expected, forbidden, "alternatives", "need"}:
        raise place.error(
            f"is no case: it has neither {expected} nor {forbidden}; a case in which nothing "
            f"should be called says {expected}: []"
        )
    raw: dict[str, Any] = {key: case[key] for key in ("input", "need", "trials") if key in case}
    if name in case:
        raw["id"] = case[name]
    places: dict[tuple[str | int, ...], Place] = {("id",): place.at(name)}
    any_order = _any_order(place, case)
    if expected in case:
        calls = _Calls(any_order, ("expected",), places, notes)
        raw |= calls.read(place.at(expected), case[expected])
    if "alternatives" in case:
        raw["alternatives"] = [
            _Way(expected, any_order, places, notes).read(place.at("alternatives", number), way)
            for number, way in enumerate(
                _list_of(place.at("alternatives"), case["alternatives"], "ways")
            )
        ]
    if forbidden in case:
        where = place.at(forbidden)
        raw["forbidden"] = []
        for number, call in enumerate(_list_of(where, case[forbidden], "calls")):
            places["forbidden", number] = where.at(number)
            raw["forbidden"].append(_forbidden(where.at(number), call, notes))
    if "extra" in case:
        raw["extra"] = _extra(place.at("extra"), case["extra"])
    if "limits" in case:
        raw["limits"] = case["limits"]
    silent = not case.keys() & {expected, "alternatives", "need"}
    return Read(_made(place, raw, places), frozenset(notes), silent)


def _spelling(place: Place, case: Mapping[str, Any], names: Sequence[str]) -> str:
    """Which of its names a part of the case has; where it is not there, the one that goes with the rest."""
    used = [name for name in names if name in case]
    if len(used) > 1:
        raise place.at(used[1]).error(f"give one of {' or '.join(used)}, not both")
    other_format = any(second in case for _, second in _SPELLINGS.values())
    return used[0] if used else names[other_format]


def _made(
    place: Place, raw: Mapping[str, Any], places: Mapping[tuple[str | int, ...], Place]
) -> Case:
    try:
        return Case.model_validate(raw)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False)
        first = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
        cause = first.get("ctx", {}).get("error")
        path: tuple[str | int, ...] = first["loc"]
        said = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            said = "unknown key"
        if isinstance(cause, PlanError):
            path, said = (*path, "arguments", *cause.path), cause.problem
        raise _spelt(place, path, places).error(said) from None


def _spelt(
    place: Place, path: tuple[str | int, ...], places: Mapping[tuple[str | int, ...], Place]
) -> Place:
    """Where in the file a part of the model stands: the nearest known place, and on from there."""
    for length in range(len(path), 0, -1):
        known = places.get(path[:length])
        if known is not None:
            rest = path[length:]
            if rest[:1] == ("arguments",) and known.document is not None:
                return known.at(_argument_key(known), *rest[1:])
            return known.at(*rest)
    return place.at(*path)


def _argument_key(place: Place) -> str:
    """Under which of its names the arguments of a call stand in the file."""
    data: Any = place.document.data if place.document is not None else None
    for step in place.path:
        data = data[step]
    return next((key for key in _ARGUMENT_KEYS if key in data), "args")


@dataclass
class _Calls:
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
        self._sequence(place, _list_of(place, listed, "calls"), frozenset())
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

    def _sequence(
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
                ends |= self._sequence(place.at(number), item, first)
            else:
                ends |= {self._call(place.at(number), item, first)}
        return ends

    def _call(self, place: Place, call: Any, first: frozenset[int]) -> int:
        index = len(self.calls)
        fields = _call(place, call, _CALL_KEYS, self.notes)
        if "after" in fields:
            self.waits[index] = place.at("after"), _texts(place.at("after"), fields.pop("after"))
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
class _Way:
    """Reads one alternative: a list of calls, or an object that names it."""

    expected: str
    any_order: bool
    places: dict[tuple[str | int, ...], Place]
    notes: set[str]

    def read(self, place: Place, way: Any) -> dict[str, Any]:
        number = place.path[-1]
        fields = {self.expected: way} if isinstance(way, list) else way
        if not isinstance(fields, dict):
            said = "a list of calls, or an object with a name and calls"
            raise place.error(f"expected {said}, got {_kind(way)}")
        fields = _strict(place, fields, ("name", "order", self.expected))
        if self.expected not in fields:
            raise place.error(f"expected a list of calls under {self.expected}")
        path = ("alternatives", number, "expected")
        any_order = _any_order(place, fields, self.any_order)
        calls = _Calls(any_order, path, self.places, self.notes)
        where = place if isinstance(way, list) else place.at(self.expected)
        listed = calls.read(where, fields[self.expected])
        return {"name": fields.get("name", str(int(number) + 1)), **listed}


def _any_order(place: Place, fields: Mapping[str, Any], otherwise: bool = False) -> bool:
    order = fields.get("order", "any" if otherwise else "listed")
    if order not in ("listed", "any"):
        raise place.at("order").error(f"expected listed or any, got {order!r}")
    return bool(order == "any")


def _call(place: Place, call: Any, known: tuple[str, ...], notes: set[str]) -> dict[str, Any]:
    if not isinstance(call, dict):
        raise place.error(f"expected an object with a tool, got {_kind(call)}")
    fields = _known(place, call, known, notes)
    arguments = [key for key in _ARGUMENT_KEYS if key in fields]
    if len(arguments) > 1:
        raise place.error(f"give one of {' or '.join(arguments)}, not both")
    for key in arguments:
        fields["arguments"] = fields.pop(key)
        if known is _CALL_KEYS:
            fields["match"] = "exact" if key == "args" else "subset"
    if isinstance(fields.get("count"), int) and not isinstance(fields["count"], bool):
        fields["count"] = {"min": fields["count"], "max": fields["count"]}
    if isinstance(fields.get("on_result"), dict):
        fields["on_result"] = {
            result: [wanted] if isinstance(wanted, str) else wanted
            for result, wanted in fields["on_result"].items()
        }
    return fields


def _forbidden(place: Place, call: Any, notes: set[str]) -> dict[str, Any]:
    if isinstance(call, str):
        return {"tool": call}
    fields = _call(place, call, _FORBIDDEN_KEYS, notes)
    if "unless_after" in fields:
        fields["unless_after"] = _texts(place.at("unless_after"), fields["unless_after"])
    return fields


def _extra(place: Place, extra: Any) -> dict[str, Any]:
    if isinstance(extra, str):
        return {"default": extra}
    if not isinstance(extra, dict):
        raise place.error(
            f"expected penalise, allow, forbid, or an object of these, got {_kind(extra)}"
        )
    fields = _strict(place, extra, _EXTRA_KEYS)
    return {
        key: value if key in ("default", "failed") else _texts(place.at(key), value)
        for key, value in fields.items()
    }


def _texts(place: Place, value: Any) -> list[str]:
    """A text, or a list of texts."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
        raise place.error(f"expected a name or a list of names, got {_kind(value)}")
    return texts


def _list_of(place: Place, value: Any, what: str) -> list[Any]:
    # A text is iterable too: it must not fall apart into one-letter tools.
    if not isinstance(value, list):
        raise place.error(f"expected a list of {what}, got {_kind(value)}")
    return value


def _known(
    place: Place, document: dict[str, Any], known: tuple[str, ...], notes: set[str]
) -> dict[str, Any]:
    """The keys that are known; a near miss of one is an error, others are added to ``notes``."""
    for key in sorted(document.keys() - set(known)):
        near = get_close_matches(str(key), known, n=1, cutoff=0.8)
        if near and near[0] not in document:
            raise place.at(key).error(f"unknown key {key!r}; did you mean {near[0]!r}?")
        notes.add(str(key))
    return {key: value for key, value in document.items() if key in known}


def _strict(place: Place, document: dict[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    """The document, all of whose keys must be known."""
    for key in sorted(document.keys() - set(known)):
        near = get_close_matches(str(key), known, n=1, cutoff=0.6)
        hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(known)}"
        raise place.at(key).error(f"unknown key {key!r}; {hint}")
    return dict(document)


def _unwritable(value: Any) -> str | None:
    """Why a document cannot be compared with what a trace holds; None when it can."""
    try:
        orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError) as error:
        return f"holds a value that OTLP cannot carry: {one_line(error)}"
    return None


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
