"""Arguments that are described by a JSON Schema (draft 2020-12)."""

from functools import lru_cache
from typing import ClassVar

import orjson
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from jsonschema.exceptions import SchemaError, best_match  # type: ignore[import-untyped]
from pydantic import field_validator
from referencing import Registry
from referencing.exceptions import Unresolvable

from toolverdict.scoring.cases.comparators.base import Context, Kind, Unlike, undecided
from toolverdict.scoring.model import Json

_MAX_CHARS = 200


class Schema(Kind):
    """Valid by a JSON Schema."""

    kind: ClassVar[str] = "schema"

    @field_validator("value")
    @classmethod
    def _a_schema(cls, value: Json) -> Json:
        if not isinstance(value, dict | bool):
            raise ValueError("expected a JSON Schema")
        try:
            Draft202012Validator.check_schema(value)
        except SchemaError as error:
            raise ValueError(f"is no JSON Schema: {error.message[:_MAX_CHARS]}") from None
        return value

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """Right if it is valid; else names the place and the rule."""
        try:
            problem = best_match(_validator(orjson.dumps(self.value)).iter_errors(actual))
        except (Unresolvable, RecursionError):
            return undecided("is compared with a schema that refers to what is not in it")
        if problem is None:
            return None
        path = problem.json_path.removeprefix("$")
        return Unlike(f"breaks its schema: {problem.message[:_MAX_CHARS]}", path=path)


@lru_cache(maxsize=256)
def _validator(schema: bytes) -> Draft202012Validator:
    # With a registry of its own it never fetches what a schema refers to.
    return Draft202012Validator(orjson.loads(schema), registry=Registry())
