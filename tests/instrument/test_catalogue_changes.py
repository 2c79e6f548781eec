"""Schema changes: the table of SAFETY.md 7.2, each as old calls meet the new tool."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolverdict.instrument.catalogue.schema_changes import Kind, is_breaking, schema_changes

TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "number"}


def closed(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
        **more,
    }


def opened(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def x(old: Any, new: Any) -> tuple[Any, Any]:
    return closed({"x": old}, "x"), closed({"x": new}, "x")


A = closed({"a": TEXT}, "a")
OK, WIDE, ACTS, BREAKS = Kind.COMPATIBLE, Kind.WIDENING, Kind.BEHAVIOUR, Kind.BREAKING
NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}, "v": NUMBER}}
NARROW_NODE = {**NODE, "properties": {**NODE["properties"], "v": {"type": "integer"}}}  # type: ignore[dict-item]

TABLE: dict[str, tuple[Any, Any, Kind]] = {
    "nothing": (A, A, OK),
    "title only": (A, {**A, "title": "T"}, OK),
    "a property called title": (A, closed({"a": TEXT, "title": TEXT}, "a"), WIDE),
    "new optional": (A, closed({"a": TEXT, "b": TEXT}, "a"), WIDE),
    "new required": (A, closed({"a": TEXT, "b": TEXT}, "a", "b"), BREAKS),
    "new required with a default": (
        A,
        closed({"a": TEXT, "b": {**TEXT, "default": "x"}}, "a", "b"),
        BREAKS,
    ),
    "required to optional": (A, closed({"a": TEXT}), WIDE),
    "optional to required": (closed({"a": TEXT}), A, BREAKS),
    "removed from closed": (closed({"a": TEXT, "b": TEXT}), closed({"a": TEXT}), BREAKS),
    "removed from open": (opened({"a": TEXT, "b": TEXT}), opened({"a": TEXT}), ACTS),
    "renamed in closed": (closed({"a": TEXT}), closed({"b": TEXT}), BREAKS),
    "closed to open": (A, opened({"a": TEXT}, "a"), WIDE),
    "open to closed": (opened({"a": TEXT}, "a"), A, BREAKS),
    "type change": (*x(TEXT, NUMBER), BREAKS),
    "integer to number": (*x({"type": "integer"}, NUMBER), WIDE),
    "number to integer": (*x(NUMBER, {"type": "integer"}), BREAKS),
    "null taken as well": (*x(TEXT, {"type": ["string", "null"]}), WIDE),
    "null no longer taken": (*x({"type": ["string", "null"]}, TEXT), BREAKS),
    "null by anyOf": (*x(TEXT, {"anyOf": [TEXT, {"type": "null"}]}), WIDE),
    "null by anyOf gone": (*x({"anyOf": [TEXT, {"type": "null"}]}, TEXT), BREAKS),
    "anyOf reordered": (*x({"anyOf": [TEXT, NUMBER]}, {"anyOf": [NUMBER, TEXT]}), OK),
    "anyOf to type list": (
        *x({"anyOf": [TEXT, NUMBER]}, {"type": ["string", "number"]}),
        WIDE,
    ),
    "oneOf added to": (*x({"oneOf": [TEXT]}, {"oneOf": [TEXT, NUMBER]}), BREAKS),
    "enum wider": (*x({"enum": ["a"]}, {"enum": ["a", "b"]}), WIDE),
    "enum narrower": (*x({"enum": ["a", "b"]}, {"enum": ["a"]}), BREAKS),
    "enum added": (*x(TEXT, {**TEXT, "enum": ["a"]}), BREAKS),
    "enum removed": (*x({**TEXT, "enum": ["a"]}, TEXT), WIDE),
    "enum reordered": (*x({"enum": ["a", "b"]}, {"enum": ["b", "a"]}), OK),
    "true is not 1": (*x({"enum": [1]}, {"enum": [True]}), BREAKS),
    "const to enum": (*x({"const": "a"}, {"enum": ["a", "b"]}), WIDE),
    "maximum raised": (*x({**NUMBER, "maximum": 1}, {**NUMBER, "maximum": 2}), WIDE),
    "maximum lowered": (*x({**NUMBER, "maximum": 2}, {**NUMBER, "maximum": 1}), BREAKS),
    "maximum added": (*x(NUMBER, {**NUMBER, "maximum": 1}), BREAKS),
    "minimum raised": (*x({**NUMBER, "minimum": 0}, {**NUMBER, "minimum": 1}), BREAKS),
    "minimum to exclusive": (
        *x({**NUMBER, "minimum": 0}, {**NUMBER, "exclusiveMinimum": 0}),
        BREAKS,
    ),
    "maxLength lowered": (*x({**TEXT, "maxLength": 9}, {**TEXT, "maxLength": 8}), BREAKS),
    "minLength added": (*x(TEXT, {**TEXT, "minLength": 1}), BREAKS),
    "minItems added": (*x({"type": "array"}, {"type": "array", "minItems": 1}), BREAKS),
    "items narrower": (
        *x({"type": "array", "items": NUMBER}, {"type": "array", "items": {"type": "integer"}}),
        BREAKS,
    ),
    "items added": (*x({"type": "array"}, {"type": "array", "items": TEXT}), BREAKS),
    "pattern added": (*x(TEXT, {**TEXT, "pattern": "^a"}), BREAKS),
    "pattern changed": (*x({**TEXT, "pattern": "^a"}, {**TEXT, "pattern": "^b"}), BREAKS),
    "pattern removed": (*x({**TEXT, "pattern": "^a"}, TEXT), WIDE),
    "format added": (*x(TEXT, {**TEXT, "format": "email"}), BREAKS),
    "multipleOf added": (*x(NUMBER, {**NUMBER, "multipleOf": 5}), BREAKS),
    "not added": (*x(TEXT, {**TEXT, "not": {"const": "a"}}), BREAKS),
    "if and then added": (A, {**A, "if": {}, "then": {"required": ["b"]}}, BREAKS),
    "dependentRequired added": (A, {**A, "dependentRequired": {"a": ["b"]}}, BREAKS),
    "allOf added": (A, {**A, "allOf": [{"required": ["b"]}]}, BREAKS),
    "additional typed": (
        {"type": "object", "additionalProperties": NUMBER},
        {"type": "object", "additionalProperties": TEXT},
        BREAKS,
    ),
    "nested narrower": (
        *x(closed({"y": TEXT}), closed({"y": {**TEXT, "maxLength": 3}})),
        BREAKS,
    ),
    "default changed": (*x({**TEXT, "default": "a"}, {**TEXT, "default": "b"}), ACTS),
    "description of a property": (*x(TEXT, {**TEXT, "description": "never ask"}), ACTS),
    "ref refactored": (
        closed({"x": TEXT}, "x"),
        closed({"x": {"$ref": "#/$defs/T"}}, "x", **{"$defs": {"T": TEXT}}),
        OK,
    ),
    "narrower behind a ref": (
        closed({"x": {"$ref": "#/$defs/T"}}, "x", **{"$defs": {"T": NUMBER}}),
        closed({"x": {"$ref": "#/$defs/T"}}, "x", **{"$defs": {"T": {"type": "integer"}}}),
        BREAKS,
    ),
    "a ref that leads nowhere": (A, closed({"a": {"$ref": "#/$defs/none"}}, "a"), BREAKS),
    "a ref to elsewhere": (A, closed({"a": {"$ref": "https://x.example/s"}}, "a"), BREAKS),
    "recursive and the same": (
        closed({"x": {"$ref": "#/$defs/N"}}, **{"$defs": {"N": NODE}}),
        closed({"x": {"$ref": "#/$defs/N"}}, **{"$defs": {"N": NODE}}),
        OK,
    ),
    "recursive and narrower": (
        closed({"x": {"$ref": "#/$defs/N"}}, **{"$defs": {"N": NODE}}),
        closed({"x": {"$ref": "#/$defs/N"}}, **{"$defs": {"N": NARROW_NODE}}),
        BREAKS,
    ),
    "forbidden": (*x(TEXT, False), BREAKS),
    "a type that is none": (*x(TEXT, {"type": 5}), BREAKS),
    "a type that was none": (*x({"type": {"a": 1}}, TEXT), BREAKS),
    "an unknown keyword": (A, {**A, "contentSchema": {}}, BREAKS),
    "an extension": (A, {**A, "x-unit": "cents"}, ACTS),
}

_GRAVITY = [Kind.COMPATIBLE, Kind.WIDENING, Kind.BEHAVIOUR, Kind.BREAKING]


@pytest.mark.parametrize("name", TABLE)
def test_a_change_is_what_it_does_to_old_calls(name: str) -> None:
    old, new, expected = TABLE[name]
    changes = schema_changes(old, new)
    gravest = max((change.kind for change in changes), key=_GRAVITY.index, default=OK)
    assert gravest is expected, changes


@pytest.mark.parametrize("name", TABLE)
def test_no_change_is_none(name: str) -> None:
    for schema in TABLE[name][:2]:
        lost = name.startswith("a ref") and schema is TABLE[name][1]
        assert lost or schema_changes(schema, schema) == []


_LEAF = st.sampled_from(
    [
        TEXT,
        NUMBER,
        {"type": "integer", "minimum": 0},
        {"enum": ["a", 1]},
        {**TEXT, "pattern": "a"},
        {"type": "array", "items": TEXT},
        {"anyOf": [TEXT, {"type": "null"}]},
        True,
    ]
)
_SCHEMA = st.builds(
    closed, st.dictionaries(st.sampled_from("abc"), _LEAF, max_size=3), st.sampled_from("abc")
)


@given(_SCHEMA, _SCHEMA)
def test_there_and_back_is_never_free(old: Any, new: Any) -> None:
    """What is no change in neither direction is no change at all."""
    there, back = schema_changes(old, new), schema_changes(new, old)
    assert bool(there) == bool(back)
    if any(change.kind is Kind.WIDENING for change in there) and not is_breaking(there):
        assert is_breaking(back)


def test_a_hostile_schema_is_not_judged_for_ever() -> None:
    """Choices in choices, and references that go round in circles."""
    choice: Any = TEXT
    for _ in range(9):
        choice = {"anyOf": [choice, {**choice}]}
    assert is_breaking(schema_changes(choice, {"anyOf": [choice, NUMBER]}))
    loop = {"$ref": "#/$defs/L", "$defs": {"L": {"$ref": "#/$defs/L"}}}
    assert is_breaking(schema_changes(loop, {**loop, "type": "object"}))
