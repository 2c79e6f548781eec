"""What a change of a tool's input schema does to calls that were right before it.

Compatible is what every old call survives. Widening is compatible, and told apart, because a tool
that takes more can do more. Everything else is breaking, and so is whatever this module cannot
judge: a keyword that it does not know, a reference that leads nowhere, nesting without an end.

``jsoncompat`` judges whole schemas, and takes an added ``pattern`` for compatible, so it is not
used; SAFETY.md 7.1 has the measurements.
"""

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from toolverdict.instrument.catalogue.definitions import without_annotations


class Kind(StrEnum):
    """What a change does."""

    COMPATIBLE = "compatible"
    WIDENING = "widening"
    BEHAVIOUR = "behaviour"
    BREAKING = "breaking"


class Change(NamedTuple):
    """One difference between two states of a tool."""

    kind: Kind
    path: str
    """Where in the schema, or which part of the definition."""
    message: str


_MAX_DEPTH: Final = 32
_MAX_COMPARED: Final = 20_000
_UPPER: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_CONSTRAINTS: Final = ("pattern", "format", "multipleOf", "uniqueItems", "not")
_JUDGED: Final = frozenset(
    {
        *("type", "enum", "const", "properties", "required", "additionalProperties", "items"),
        *("anyOf", "oneOf", "default", "$ref", "$defs", "definitions", "$schema", "$id"),
        *_UPPER,
        *_LOWER,
        *_CONSTRAINTS,
    }
)
_TYPES: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})


def schema_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """Every difference between two input schemas, in the order of their parts."""
    changes = list(_Walk(old, new).compare(old, new, "", 0))
    changes += _described(old, new, "", 0)
    return changes


def is_breaking(changes: list[Change]) -> bool:
    """Whether a call that was right before may not be any more."""
    return any(change.kind is Kind.BREAKING for change in changes)


class _Walk:
    def __init__(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        self._old_root = old
        self._new_root = new
        self._left = _MAX_COMPARED
        self._open: set[tuple[str, str]] = set()

    def compare(self, old: Any, new: Any, path: str, depth: int) -> Iterator[Change]:
        self._left -= 1
        if depth > _MAX_DEPTH or self._left < 0:
            yield Change(Kind.BREAKING, path, "is nested too deep to be judged")
            return
        pair = (_reference(old), _reference(new))
        if pair in self._open:
            return  # a definition that holds itself: it is being compared already
        if all(pair):
            self._open.add(pair)
        yield from self._compare(old, new, path, depth)
        self._open.discard(pair)

    def _compare(self, old: Any, new: Any, path: str, depth: int) -> Iterator[Change]:
        old, old_lost = _resolved(old, self._old_root)
        new, new_lost = _resolved(new, self._new_root)
        if old_lost or new_lost:
            yield Change(Kind.BREAKING, path, "holds a reference that cannot be followed")
            return
        if _same(without_annotations(old), without_annotations(new)) and not _refers(old, new):
            return
        if old is False:
            yield Change(Kind.WIDENING, path, "was forbidden and is allowed")
            return
        if new is False:
            yield Change(Kind.BREAKING, path, "is forbidden now")
            return
        old = {} if old is True else old
        new = {} if new is True else new
        if not isinstance(old, Mapping) or not isinstance(new, Mapping):
            yield Change(Kind.BREAKING, path, "is no schema")
            return
        yield from self._choices(old, new, path, depth)
        yield from _types(old, new, path)
        yield from _values(old, new, path)
        yield from _bounds(old, new, path)
        yield from self._object(old, new, path, depth)
        yield from self._items(old, new, path, depth)
        for key in sorted({*old, *new} - _JUDGED - _SILENT):
            if without_annotations(old.get(key)) != without_annotations(new.get(key)):
                yield from _unjudged(key, old, new, path)
        if not _same(old.get("default"), new.get("default")):
            yield Change(Kind.BEHAVIOUR, path, "the default value changed")

    def _choices(
        self, old: Mapping[str, Any], new: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[Change]:
        """``anyOf``: each old choice must fit into a new one. A ``oneOf`` is not opened."""
        if without_annotations(old.get("oneOf")) != without_annotations(new.get("oneOf")):
            gone = "oneOf" not in new
            kind = Kind.WIDENING if gone else Kind.BREAKING
            yield Change(kind, path, "oneOf was removed" if gone else "oneOf was added or changed")
        if "anyOf" not in old and "anyOf" not in new:
            return
        branches, taken = _branches(old), _branches(new)
        for branch in branches:
            tries = [list(self.compare(branch, other, path, depth + 1)) for other in taken]
            fitting = [changes for changes in tries if not is_breaking(changes)]
            if not fitting:
                yield Change(Kind.BREAKING, path, "a choice of anyOf is gone or narrower")
                return
            yield from min(fitting, key=len)
        if len(taken) > len(branches):
            yield Change(Kind.WIDENING, path, "anyOf has another choice")

    def _object(
        self, old: Mapping[str, Any], new: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[Change]:
        before, after = _mapping(old.get("properties")), _mapping(new.get("properties"))
        must_before, must_after = _names(old.get("required")), _names(new.get("required"))
        open_before = old.get("additionalProperties", True)
        open_after = new.get("additionalProperties", True)
        for name in sorted(must_after - must_before):
            how = "with a default, which nobody fills in, " if _has_default(after, name) else ""
            what = "is required now" if name in before else f"{how}is new and required"
            yield Change(Kind.BREAKING, _at(path, name), what)
        for name in sorted(must_before - must_after):
            if name in after:
                yield Change(Kind.WIDENING, _at(path, name), "is optional now")
        for name in sorted(before.keys() - after.keys()):
            if open_after is False:
                yield Change(Kind.BREAKING, _at(path, name), "was removed and is refused now")
            elif open_after is True:
                yield Change(Kind.BEHAVIOUR, _at(path, name), "was removed and is ignored now")
            else:
                yield from self.compare(before[name], open_after, _at(path, name), depth + 1)
        for name in sorted(after.keys() - before.keys()):
            if open_before is False:
                if name not in must_after - must_before:
                    yield Change(Kind.WIDENING, _at(path, name), "is new and optional")
            elif without_annotations(after[name]) not in ({}, True):
                # Anything could stand there before, and some of it no longer can.
                kind = Kind.WIDENING if open_before is True else Kind.BREAKING
                yield Change(kind, _at(path, name), "is new, and was open to anything before")
        for name in sorted(before.keys() & after.keys()):
            yield from self.compare(before[name], after[name], _at(path, name), depth + 1)
        yield from self._additional(open_before, open_after, path, depth)

    def _additional(self, before: Any, after: Any, path: str, depth: int) -> Iterator[Change]:
        if before == after:
            return
        if after is False:
            yield Change(Kind.BREAKING, path, "takes no further properties any more")
        elif before is False:
            yield Change(Kind.WIDENING, path, "takes further properties now")
        else:
            yield from self.compare(before, after, _at(path, "*"), depth + 1)

    def _items(
        self, old: Mapping[str, Any], new: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[Change]:
        if "items" in old or "items" in new:
            before, after = old.get("items", True), new.get("items", True)
            yield from self.compare(before, after, f"{path}[]", depth + 1)


_SILENT: Final = frozenset(
    {"title", "description", "examples", "$comment", "deprecated", "readOnly", "writeOnly"}
)
_SHARED: Final = frozenset({"default", "$defs", "definitions", *_SILENT})


def _branches(schema: Mapping[str, Any]) -> list[Any]:
    choices = schema.get("anyOf", [_without(schema, _SHARED)])
    return choices if isinstance(choices, list) else []


def _types(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Change]:
    if ("anyOf" in old) != ("anyOf" in new):
        return  # judged as a choice
    declared = (old.get("type"), new.get("type"))
    if not all(one is None or isinstance(one, str | list) for one in declared):
        yield Change(Kind.BREAKING, path, "type is none that can be judged")
        return
    before, after = _type_set(declared[0]), _type_set(declared[1])
    lost = before - after - ({"integer"} if "number" in after else set())
    if lost:
        names = ", ".join(sorted(lost))
        yield Change(Kind.BREAKING, path, f"no longer takes {names}")
    elif after - before - ({"integer"} if "number" in before else set()):
        names = ", ".join(sorted(after - before))
        yield Change(Kind.WIDENING, path, f"takes {names} as well")


def _type_set(declared: Any) -> frozenset[str]:
    if declared is None:
        return _TYPES
    names = [declared] if isinstance(declared, str) else declared
    return frozenset(name for name in names if isinstance(name, str))


def _values(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Change]:
    before, after = _listed(old), _listed(new)
    if before is None and after is None:
        return
    if after is None:
        yield Change(Kind.WIDENING, path, "any value is taken, not only the listed ones")
    elif before is None:
        yield Change(Kind.BREAKING, path, "only listed values are taken now")
    elif any(value not in after for value in before):
        yield Change(Kind.BREAKING, path, "a listed value is gone")
    elif any(value not in before for value in after):
        yield Change(Kind.WIDENING, path, "has another listed value")


def _listed(schema: Mapping[str, Any]) -> list[Any] | None:
    """The listed values, each with its type: in JSON, true is not 1."""
    if "const" in schema:
        return [(type(schema["const"]) is bool, schema["const"])]
    listed = schema.get("enum")
    return [(type(value) is bool, value) for value in listed] if isinstance(listed, list) else None


def _bounds(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[Change]:
    for keys, sign in ((_UPPER, 1), (_LOWER, -1)):
        for key in keys:
            before, after = old.get(key), new.get(key)
            if before == after:
                continue
            if after is None:
                yield Change(Kind.WIDENING, path, f"{key} was removed")
            elif before is None or not _numbers(before, after):
                yield Change(Kind.BREAKING, path, f"{key} was added")
            elif (after - before) * sign < 0:
                yield Change(Kind.BREAKING, path, f"{key} is narrower")
            else:
                yield Change(Kind.WIDENING, path, f"{key} is wider")
    for key in _CONSTRAINTS:
        before, after = old.get(key), new.get(key)
        if before == after or (before, after) in ((None, False), (False, None)):
            continue
        if after is None or after is False:
            yield Change(Kind.WIDENING, path, f"{key} was removed")
        else:
            what = "was added" if before is None or before is False else "changed"
            yield Change(Kind.BREAKING, path, f"{key} {what}")


def _numbers(*values: Any) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _unjudged(
    key: str, old: Mapping[str, Any], new: Mapping[str, Any], path: str
) -> Iterator[Change]:
    if key.startswith("x-"):
        yield Change(Kind.BEHAVIOUR, path, f"{key} changed")
    elif key not in new and key not in ("prefixItems", "else"):
        yield Change(Kind.WIDENING, path, f"{key} was removed")
    else:
        what = "changed" if key in old else "was added"
        yield Change(Kind.BREAKING, path, f"{key} {what}, and its effect cannot be judged")


def _described(old: Any, new: Any, path: str, depth: int) -> Iterator[Change]:
    """Descriptions inside of a schema: a model reads them, no validator does."""
    if depth > _MAX_DEPTH or not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return
    if old.get("description") != new.get("description") and depth:
        yield Change(Kind.BEHAVIOUR, path, "its description changed")
    for key in ("properties", "$defs", "definitions"):
        before, after = _mapping(old.get(key)), _mapping(new.get(key))
        for name in sorted(before.keys() & after.keys()):
            yield from _described(before[name], after[name], _at(path, name), depth + 1)
    yield from _described(old.get("items"), new.get("items"), f"{path}[]", depth + 1)


def _resolved(schema: Any, root: Mapping[str, Any]) -> tuple[Any, bool]:
    """A schema without references at its top, and whether one of them leads nowhere."""
    for _ in range(_MAX_DEPTH):
        if not isinstance(schema, Mapping) or "$ref" not in schema:
            return schema, False
        target: Any = root
        pointer = schema["$ref"]
        if not isinstance(pointer, str) or not pointer.startswith("#"):
            return schema, True
        for part in pointer[1:].split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, Mapping) or name not in target:
                return schema, True
            target = target[name]
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        if not isinstance(target, Mapping):
            return target, bool(set(beside) - _SHARED)
        if set(beside) - _SHARED and set(beside) & set(target) - _SHARED:
            return schema, True
        schema = {**target, **beside}
    return schema, True


def _same(one: Any, other: Any) -> bool:
    """Whether two are the same JSON text; Python takes True for 1."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _reference(schema: Any) -> str:
    pointer = schema.get("$ref") if isinstance(schema, Mapping) else None
    return pointer if isinstance(pointer, str) else ""


def _refers(*schemas: Any) -> bool:
    return any(_holds_a_reference(schema, 0) for schema in schemas)


def _holds_a_reference(schema: Any, depth: int) -> bool:
    if depth > _MAX_DEPTH:
        return True
    if isinstance(schema, Mapping):
        inner = [value for key, value in schema.items() if key not in ("$defs", "definitions")]
        return "$ref" in schema or any(_holds_a_reference(part, depth + 1) for part in inner)
    return isinstance(schema, list) and any(_holds_a_reference(p, depth + 1) for p in schema)


def _without(schema: Mapping[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key not in keys}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _names(value: Any) -> frozenset[str]:
    return (
        frozenset(v for v in value if isinstance(v, str))
        if isinstance(value, list)
        else frozenset()
    )


def _has_default(properties: Mapping[str, Any], name: str) -> bool:
    return "default" in _mapping(properties.get(name))


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
