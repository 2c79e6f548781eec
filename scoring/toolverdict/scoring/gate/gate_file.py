"""``gate.yaml``: what a release must reach, with the line of each key for messages.

::

    tool_call_gate:
      min_selection_accuracy: 0.97
      min_argument_accuracy_high_risk: 0.99
      max_forbidden_tool_call_rate: 0
      require_trace_fields: ["tool.name", "tool.args_hash", "policy.decision"]
"""

import json
import re
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from toolverdict.instrument.yaml_files import YamlDocument, YamlProblem, read_yaml
from toolverdict.scoring.cases.files import read_text
from toolverdict.scoring.compare.waste_path import MAX_CALL_GROWTH, MIN_SUCCESS_GAIN
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.gate.evidence import TRACE_FIELDS

SCHEMA_ID: Final = "urn:toolverdict:gate:1"
ROOT: Final = "tool_call_gate"

_Portion = Annotated[float, Field(ge=0, le=1)]
_Limit = _Portion | SkipJsonSchema[None]


class _Frozen(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True
    )


class Repeated(_Frozen):
    """pass^k: all of ``k`` trials of a case pass, averaged over cases."""

    k: Annotated[int, Field(ge=1, le=1000)]
    min: _Portion


class WastePathLimits(_Frozen):
    """More calls a trajectory than the baseline, and no more success."""

    max_call_growth: Annotated[float, Field(gt=0, le=100)] = MAX_CALL_GROWTH
    """Growth of calls a trajectory that is still no waste; 0.1 is 10 %."""
    min_success_gain: Annotated[float, Field(ge=0, le=1)] = MIN_SUCCESS_GAIN
    """Gain of the pass rate that pays for more calls; 0.02 is 2 percentage points."""


class Gate(_Frozen):
    """The limits. A rate with a ``min_`` must reach it, one with a ``max_`` must not exceed it."""

    min_pass_rate: _Limit = None
    min_selection_accuracy: _Limit = None
    min_argument_accuracy: _Limit = None
    min_argument_accuracy_first_attempt: _Limit = None
    min_argument_accuracy_high_risk: _Limit = None
    min_call_timing_accuracy: _Limit = None
    min_result_handling: _Limit = None
    min_safety_compliance: _Limit = None
    min_need_precision: _Limit = None
    min_need_recall: _Limit = None
    max_forbidden_tool_call_rate: _Limit = None
    max_forbidden_attempt_rate: _Limit = None
    max_retry_waste_rate: _Limit = None
    min_pass_hat: Repeated | SkipJsonSchema[None] = None
    require_trace_fields: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Attributes that every tool call must carry."""
    require_confirmed_rules: bool = False
    """Every rule of the policy for high-risk calls is confirmed by a person; needs --policy."""
    min_coverage: _Portion = 0.9
    """Of what could be evaluated, the part that was, for every rate with a limit."""
    max_drop_from_baseline: _Portion = 0.05
    """With --baseline: how much worse a rate with a limit may be."""
    waste_path: WastePathLimits | SkipJsonSchema[None] = None
    """With --baseline."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """Of the intervals that decide."""

    @model_validator(mode="after")
    def _something_to_check(self) -> Self:
        settings = {"min_coverage", "max_drop_from_baseline", "confidence"}
        if not self.model_fields_set - settings:
            raise ValueError(
                "has no limit, so everything would pass; give at least one min_ or max_"
            )
        return self

    @field_validator("require_trace_fields")
    @classmethod
    def _known_fields(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in TRACE_FIELDS:
                near = get_close_matches(name, TRACE_FIELDS, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(TRACE_FIELDS)}"
                raise ValueError(f"unknown field {name[:80]!r}; {hint}")
        return names


class _Document(_Frozen):
    version: Literal[1] = 1
    tool_call_gate: Gate


@dataclass(frozen=True, slots=True)
class GateFile:
    """The limits, and where in which file each stands."""

    path: Path
    gate: Gate
    document: YamlDocument

    def line(self, key: str) -> int:
        """The line of a key of the gate; that of the gate itself where the key is not written."""
        return _line(self.document, (ROOT, key)) or _line(self.document, (ROOT,)) or 1


def load_gate(path: Path) -> GateFile:
    """Reads a gate file.

    Raises:
        InputError: it is missing, no YAML, or has an unknown key or a wrong value; the message names
            file, line and key and says what was expected.
    """
    text = read_text(path)
    try:
        document = read_yaml(text)
    except YamlProblem as problem:
        where = f"{path}: line {problem.line}" if problem.line else str(path)
        raise InputError(f"{where}: {problem.problem}") from problem
    if not isinstance(document.data, dict) or not isinstance(document.data.get(ROOT), dict):
        raise InputError(f"{path}: expected an object with the key {ROOT}, an object of limits")
    try:
        gate = _Document.model_validate(document.data).tool_call_gate
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        # pydantic names the model between the keys where one may be left out.
        models = {model.__name__ for model in _PARTS.values()}
        place = document.place([part for part in first["loc"] if part not in models])
        raise InputError(f"{path}: {place}: {_said(first)}") from None
    return GateFile(path, gate, document)


def _said(error: Any) -> str:
    """What is wrong and what was expected, in one line."""
    if error["type"] == "extra_forbidden":
        model: type[BaseModel] = _Document
        for part in error["loc"][:-1]:
            model = _PARTS.get(str(part), model)
        known = sorted(model.model_fields)
        near = get_close_matches(str(error["loc"][-1]), known, n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        return f"unknown key; {meant}known are {', '.join(known)}"
    said = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "value_error":
        return said
    return f"{said[:1].lower()}{said[1:]}, got {json.dumps(error['input'], default=str)[:80]}"


_PARTS: dict[str, type[BaseModel]] = {
    ROOT: Gate,
    "min_pass_hat": Repeated,
    "waste_path": WastePathLimits,
}


def _line(document: YamlDocument, path: tuple[str, ...]) -> int | None:
    node = document.data
    for part in path:
        if not isinstance(node, dict) or part not in node:
            return None
        node = node[part]
    found = re.match(r"line (\d+)", document.place(path))
    return int(found.group(1)) if found else None


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the file, made of the models."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **_plain(_Document.model_json_schema()),
        "title": "toolverdict gate, version 1",
    }


def schema_text() -> str:
    """The schema as it is to be published, in ``gate.schema.json`` beside this file."""
    return json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"


def published_schema() -> str:
    """The text of the schema that is shipped, for editors."""
    return files(__package__).joinpath("gate.schema.json").read_text(encoding="utf-8")


def _plain(schema: Any) -> Any:
    """Without titles made of names, and defaults that only say that a key may be left out."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _plain(value)
        for key, value in schema.items()
        if not (key == "title" and isinstance(value, str))
        and not (key == "default" and value in (None, []))
    }
