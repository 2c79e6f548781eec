"""The JSON Schema of case files, for editors.

``cases.schema.json`` beside this file is what ``json_schema`` makes, published: point an editor at it
with ``# yaml-language-server: $schema=...`` in the first line of a file. The schema says what an
editor can know; reading the file checks more.
"""

import json
from importlib.resources import files
from typing import Any, Final, get_args

from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.cases.comparators.registry import builtin_names
from toolverdict.scoring.cases.model import ANY_FAILURE, Count, Limits, Reaction

SCHEMA_ID: Final = "urn:toolverdict:cases:1"

_NAME: Final = {"type": "string", "minLength": 1}
_NAMES: Final = {"anyOf": [_NAME, {"type": "array", "items": _NAME}]}
_ARGUMENTS: Final = {"type": "object", "additionalProperties": {"$ref": "#/$defs/value"}}
_NEED: Final = {"enum": ["required", "forbidden", "either"]}
_ORDER: Final = {"enum": ["listed", "any"]}
_TREATMENT: Final = {"enum": ["penalise", "allow", "forbid"]}


def json_schema() -> dict[str, Any]:
    """The schema of a file: one case, or a list of cases."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "toolverdict cases, version 1",
        "anyOf": [{"$ref": "#/$defs/case"}, {"type": "array", "items": {"$ref": "#/$defs/case"}}],
        "$defs": {
            "case": _case(),
            "calls": {
                "description": "In order; a list inside is in any order, and so on in turn.",
                "type": "array",
                "items": {"anyOf": [{"$ref": "#/$defs/call"}, {"$ref": "#/$defs/calls"}]},
            },
            "call": _call(),
            "forbidden": _forbidden(),
            "value": _value(),
            "count": _of_model(Count),
            "limits": _of_model(Limits),
            "reaction": {"enum": list(get_args(Reaction))},
        },
    }


def published() -> str:
    """The text of the schema that is shipped."""
    return files(__package__).joinpath("cases.schema.json").read_text(encoding="utf-8")


def as_text() -> str:
    """The schema as it is to be published."""
    return json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"


def _case() -> dict[str, Any]:
    calls = {"$ref": "#/$defs/calls"}
    forbidden = {"type": "array", "items": {"anyOf": [_NAME, {"$ref": "#/$defs/forbidden"}]}}
    way = {
        "type": "object",
        "properties": {
            "name": _NAME,
            "order": _ORDER,
            "expected_calls": calls,
            "expected_tool_calls": calls,
        },
        "additionalProperties": False,
    }
    turn = {
        "type": "object",
        "properties": {
            "input": {"type": "string"},
            "need": _NEED,
            "expected_calls": calls,
            "expected_tool_calls": calls,
        },
        "additionalProperties": False,
    }
    said = ("expected_calls", "expected_tool_calls", "forbidden_calls", "forbidden_tool_calls")
    return {
        "type": "object",
        "properties": {
            "id": _NAME,
            "case_id": _NAME,
            "input": {"type": "string"},
            "meta": {"description": "Notes of your own."},
            "need": _NEED,
            "expected_calls": calls,
            "expected_tool_calls": calls,
            "alternatives": {"type": "array", "items": {"anyOf": [calls, way]}},
            "turns": {
                "description": "Of a conversation: what the user says in each turn, and needs.",
                "type": "array",
                "items": turn,
            },
            "order": _ORDER,
            "forbidden_calls": forbidden,
            "forbidden_tool_calls": forbidden,
            "extra": {
                "anyOf": [
                    _TREATMENT,
                    {
                        "type": "object",
                        "properties": {
                            "default": _TREATMENT,
                            **dict.fromkeys(_TREATMENT["enum"], _NAMES),
                            "failed": {"enum": ["penalise", "allow"]},
                        },
                        "additionalProperties": False,
                    },
                ]
            },
            "limits": {"$ref": "#/$defs/limits"},
            "trials": {"type": "integer", "minimum": 1, "maximum": 10_000},
        },
        "allOf": [
            {"anyOf": [{"required": ["id"]}, {"required": ["case_id"]}]},
            {"anyOf": [{"required": [key]} for key in (*said, "alternatives", "turns", "need")]},
        ],
    }


def _call() -> dict[str, Any]:
    results = [ANY_FAILURE, "empty", *(outcome.value for outcome in Outcome if outcome.failed)]
    reaction = {"$ref": "#/$defs/reaction"}
    wanted = {"anyOf": [reaction, {"type": "array", "items": reaction, "minItems": 1}]}
    return {
        "type": "object",
        "properties": {
            "tool": _NAME,
            "args": {"description": "These arguments and no others.", **_ARGUMENTS},
            "args_subset": {"description": "These arguments at least.", **_ARGUMENTS},
            "args_match": {"description": "These arguments at least.", **_ARGUMENTS},
            "id": _NAME,
            "after": _NAMES,
            "optional": {"type": "boolean"},
            "count": {"anyOf": [{"type": "integer", "minimum": 1}, {"$ref": "#/$defs/count"}]},
            "outcome": {"enum": ["success", "failure", "any"]},
            "on_result": {
                "type": "object",
                "properties": dict.fromkeys(results, wanted),
                "additionalProperties": False,
            },
        },
        "required": ["tool"],
    }


def _forbidden() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "tool": {"description": "A name, or a pattern with * and ?.", **_NAME},
            "args_subset": _ARGUMENTS,
            "args_match": _ARGUMENTS,
            "reason": {"type": "string"},
            "unless_after": _NAMES,
        },
        "required": ["tool"],
    }


def _value() -> dict[str, Any]:
    """Any JSON; an editor offers the comparators."""
    return {
        "description": "A value, or a comparator: {$money: 120, currency: EUR}.",
        "anyOf": [
            {"type": "object", "properties": {f"${name}": {} for name in builtin_names()}},
            {"type": ["null", "boolean", "number", "string", "array"]},
        ],
    }


def _of_model(model: type[Count] | type[Limits]) -> dict[str, Any]:
    """The schema of a part of the model that stands in files as it is, without titles and nulls."""
    return {"type": "object", **_plain(model.model_json_schema())}


def _plain(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        key: _plain(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str)) and (key, value) != ("default", None)
    }
    choices = plain.pop("anyOf", None)
    if choices is not None:
        rest = [choice for choice in choices if choice != {"type": "null"}]
        plain |= rest[0] if len(rest) == 1 else {"anyOf": rest}
    return plain
