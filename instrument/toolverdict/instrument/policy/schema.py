"""The JSON Schema of the policy file, for editors.

``policy.schema.json`` beside this file is what ``json_schema`` makes, published: point an editor at
it with ``# yaml-language-server: $schema=...`` in the first line of a policy. The schema says what
an editor can know; reading the file checks more.
"""

import json
from importlib.resources import files
from typing import Any, Final

from toolverdict.instrument.policy.policy import Policy

SCHEMA_ID: Final = "urn:toolverdict:policy:1"

_RULE_NEEDS_A_MATCHER: Final = {
    "anyOf": [{"required": [name]} for name in ("tools", "labels", "agents")]
}


def json_schema() -> dict[str, Any]:
    """The schema, made of the models."""
    made = _plain(Policy.model_json_schema(by_alias=True, mode="validation"))
    made["$defs"]["Rule"] |= _RULE_NEEDS_A_MATCHER
    for part in ("Range", "Condition", "Stages", "Limits", "ApprovalRules", "ToolEntry"):
        made["$defs"][part] |= {"minProperties": 1}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **made,
        "title": "toolverdict policy, version 1",
    }


def published() -> str:
    """The text of the schema that is shipped."""
    return files(__package__).joinpath("policy.schema.json").read_text(encoding="utf-8")


def as_text() -> str:
    """The schema as it is to be published."""
    return json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"


def _plain(schema: Any) -> Any:
    """Without what editors would offer and the file does not need: null, and titles made of names."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {
        key: _plain(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
        and not (key == "default" and value in (None, ""))
    }
    choices = plain.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices:
        rest = [choice for choice in choices if choice != {"type": "null"}]
        del plain["anyOf"]
        plain = {**plain, **(rest[0] if len(rest) == 1 else {"anyOf": rest})}
    return plain
