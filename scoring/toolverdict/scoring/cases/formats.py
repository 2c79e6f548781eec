"""From a document to a case: both spellings of the format.

Format A::

    {"case_id": ..., "expected_calls": [{"tool": ..., "args_match": {...}}],
     "forbidden_calls": ["name", ...]}

Format B::

    {"id": ..., "input": ..., "expected_tool_calls": [{"tool": ..., "args" | "args_subset": {...}}],
     "forbidden_tool_calls": [{"tool": ..., "reason": ..., "args_subset": {...}}]}

Every further key may stand in both. Of several turns of a user, ``turns`` lists what each says
(``input``), needs (``need``) and expects (the key that the format has for calls). How lists of calls
nest is said in :mod:`toolverdict.scoring.cases.call_lists`.

A key that is nearly a known one is an error, since a misspelt ``forbidden_calls`` would let
everything pass; any other unknown key is somebody's own note and is named in a warning.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from toolverdict.scoring.cases.call_lists import (
    ARGUMENT_KEYS,
    Calls,
    Turns,
    WayReader,
    is_any_order,
    read_call,
)
from toolverdict.scoring.cases.files import Place, one_line
from toolverdict.scoring.cases.keys import kind, known_keys, list_of, strict_keys, texts
from toolverdict.scoring.cases.model import Case
from toolverdict.scoring.cases.plans import PlanError

_SPELLINGS = {
    "id": ("id", "case_id"),
    "expected": ("expected_tool_calls", "expected_calls"),
    "forbidden": ("forbidden_tool_calls", "forbidden_calls"),
}
_FURTHER = ("need", "alternatives", "turns", "order", "extra", "limits", "trials")
_NOTES = ("input", "meta")
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
        raise place.error(f"expected an object with a case, got {kind(document)}")
    if (problem := _unwritable(document)) is not None:
        raise place.error(problem)
    notes: set[str] = set()
    spellings = (name for names in _SPELLINGS.values() for name in names)
    case = known_keys(place, document, (*spellings, *_FURTHER, *_NOTES), notes)
    name, expected, forbidden = (_spelling(place, case, names) for names in _SPELLINGS.values())
    if not case.keys() & {expected, forbidden, "alternatives", "turns", "need"}:
        raise place.error(
            f"is no case: it has neither {expected} nor {forbidden}; a case in which nothing "
            f"should be called says {expected}: []"
        )
    raw: dict[str, Any] = {key: case[key] for key in ("input", "need", "trials") if key in case}
    if name in case:
        raw["id"] = case[name]
    places: dict[tuple[str | int, ...], Place] = {("id",): place.at(name)}
    any_order = is_any_order(place, case)
    if expected in case:
        calls = Calls(any_order, ("expected",), places, notes)
        raw |= calls.read(place.at(expected), case[expected])
    if "turns" in case:
        if expected in case or "alternatives" in case:
            other = expected if expected in case else "alternatives"
            raise place.at("turns").error(f"give one of turns or {other}, not both")
        turns = Turns(expected, any_order, places, notes)
        raw |= turns.read(place.at("turns"), case["turns"])
    if "alternatives" in case:
        raw["alternatives"] = [
            WayReader(expected, any_order, places, notes).read(
                place.at("alternatives", number), way
            )
            for number, way in enumerate(
                list_of(place.at("alternatives"), case["alternatives"], "ways")
            )
        ]
    if forbidden in case:
        where = place.at(forbidden)
        raw["forbidden"] = []
        for number, call in enumerate(list_of(where, case[forbidden], "calls")):
            places["forbidden", number] = where.at(number)
            raw["forbidden"].append(_forbidden(where.at(number), call, notes))
    if "extra" in case:
        raw["extra"] = _extra(place.at("extra"), case["extra"])
    if "limits" in case:
        raw["limits"] = case["limits"]
    silent = not case.keys() & {expected, "alternatives", "turns", "need"}
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
    return next((key for key in ARGUMENT_KEYS if key in data), "args")


def _forbidden(place: Place, call: Any, notes: set[str]) -> dict[str, Any]:
    if isinstance(call, str):
        return {"tool": call}
    fields = read_call(place, call, _FORBIDDEN_KEYS, notes)
    if "unless_after" in fields:
        fields["unless_after"] = texts(place.at("unless_after"), fields["unless_after"])
    return fields


def _extra(place: Place, extra: Any) -> dict[str, Any]:
    if isinstance(extra, str):
        return {"default": extra}
    if not isinstance(extra, dict):
        raise place.error(
            f"expected penalise, allow, forbid, or an object of these, got {kind(extra)}"
        )
    fields = strict_keys(place, extra, _EXTRA_KEYS)
    return {
        key: value if key in ("default", "failed") else texts(place.at(key), value)
        for key, value in fields.items()
    }


def _unwritable(value: Any) -> str | None:
    """Why a document cannot be compared with what a trace holds; None when it can."""
    try:
        orjson.dumps(value)
    except (TypeError, orjson.JSONEncodeError) as error:
        return f"holds a value that OTLP cannot carry: {one_line(error)}"
    return None
