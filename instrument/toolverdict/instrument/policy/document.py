"""What a policy file says: the models of its parts, each field with its meaning.

The JSON Schema for editors is made of these (``policy.schema``), so the docstrings of the fields
are what an editor shows.
"""

import hashlib
import math
from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, Self

import rfc8785
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from toolverdict.instrument.labels import checked
from toolverdict.instrument.policy.patterns import compile_pattern

POLICY_VERSION: Final = 1
"""The version of the file format that this module reads."""

MAX_PATH_PARTS: Final = 16


def _version(value: object) -> object:
    # True and 1.0 equal 1 and would pass as Literal[1].
    if type(value) is not int or value != POLICY_VERSION:
        raise ValueError(f"this toolverdict reads policy version {POLICY_VERSION}")
    return value


def _scalar(value: object) -> object:
    if type(value) not in (str, int, float, bool):
        raise ValueError("expected a text, a number, true or false")
    return value


def _number(value: object) -> object:
    # A number in quotes would pass otherwise, and True is 1.
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        raise ValueError("expected a number")
    return value


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _pattern(value: str) -> str:
    compile_pattern(value)
    return value


def _path(value: str) -> str:
    parts = value.split(".")
    if not all(parts) or len(parts) > MAX_PATH_PARTS:
        raise ValueError("a path is names with dots between them, such as to.address or items.*.id")
    if parts[0] == "*":
        raise ValueError("a path begins with the name of a parameter")
    return value


Version = Annotated[Literal[1], BeforeValidator(_version)]
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], Field(min_length=1)]
Labels = Annotated[tuple[Annotated[Name, AfterValidator(checked)], ...], Field(min_length=1)]
_Texts = Annotated[Names, BeforeValidator(_several, json_schema_input_type=str | Names)]
_Patterns = Annotated[
    tuple[Annotated[Name, BeforeValidator(_pattern)], ...],
    Field(min_length=1),
    BeforeValidator(_several, json_schema_input_type=str | Names),
]
_Scalar = Annotated[
    Any,
    BeforeValidator(_scalar),
    WithJsonSchema({"type": ["string", "number", "boolean"]}),
]
_Number = Annotated[Any, BeforeValidator(_number), WithJsonSchema({"type": "number"})]
_Positive = Annotated[
    Any,
    BeforeValidator(_number),
    Field(gt=0),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0}),
]
_Count = Annotated[int, Field(strict=True, ge=0)]
_Path = Annotated[Name, BeforeValidator(_path)]
_Yes = Annotated[bool, Field(strict=True), WithJsonSchema({"const": True})]


class Part(BaseModel):
    """A part of a policy file: unknown keys are errors, and nothing changes after loading.

    A key that is there says something: one without a value, and a part without a key, would mean
    nothing in silence, where whoever wrote it meant to restrict.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_by_name=False, use_attribute_docstrings=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _has_a_value(cls, value: object) -> object:
        if value is None:
            raise ValueError("has no value; say what it shall be, or leave the key out")
        return value

    @model_validator(mode="after")
    def _has_a_key(self) -> Self:
        if not self.model_fields_set:
            keys = sorted(field.alias or name for name, field in type(self).model_fields.items())
            raise ValueError(f"is empty; it needs a key, such as {', '.join(keys[:3])}")
        return self


class Range(Part):
    """A finite number, both ends included."""

    min: _Number | None = None
    """The smallest."""
    max: _Number | None = None
    """The largest."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("the range is empty: min is larger than max")
        return self


class Condition(Part):
    """What one argument must be like. Every key that is given must hold."""

    in_: Annotated[tuple[_Scalar, ...] | None, Field(alias="in", min_length=1)] = None
    """It is one of these; 1 is not true, and text is compared letter by letter."""
    equals: _Scalar | None = None
    """It is this."""
    equals_session: Name | None = None
    """It is what the session holds under this key, such as the user's own id."""
    range: Range | None = None
    """It is a finite number in this range."""
    prefix: _Texts | None = None
    """It is a text that begins with one of these."""
    suffix: _Texts | None = None
    """It is a text that ends with one of these."""
    pattern: _Patterns | None = None
    """It is a text that one of these patterns matches as a whole."""
    max_length: _Count | None = None
    """It is a text or list that is no longer than this."""
    trusted: _Yes | None = None
    """It stems from the user, the operator or a trusted tool, not from an untrusted source."""

    @model_validator(mode="after")
    def _asks_for_trust(self) -> Self:
        if self.trusted is False:
            raise ValueError("trusted can only be true")
        return self


class Stages(Part):
    """Where in the trajectory the call may stand."""

    after: Names | None = None
    """Globs; a tool that one of them names must have succeeded earlier."""
    before: Names | None = None
    """Globs; no tool that one of them names may have been called yet."""


class Window(Part):
    """So many calls in so many seconds."""

    calls: _Count
    """At most this many."""
    seconds: _Positive
    """In any stretch of this length within the trajectory."""


class Limits(Part):
    """How often; what was let through counts, what was denied does not."""

    per_trajectory: _Count | None = None
    """At most this many calls in one trajectory."""
    per_window: Window | None = None
    """At most this many calls of one trajectory in a stretch of time."""


class ApprovalRules(Part):
    """What an approval must be like."""

    ttl_s: _Positive | None = None
    """How many seconds the request and the approval that it becomes hold, from the request on."""
    approvers: Names | None = None
    """Who may give it."""


class Confirmation(Part):
    """Who answers for a rule, and for which wording of it."""

    by: Name
    """The person."""
    at: Name
    """When, as a date."""
    digest: Annotated[Name, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    """The digest of the rule that was confirmed; `toolverdict policy check` says it."""


class ToolEntry(Part):
    """What the policy knows about one tool."""

    labels: Labels | None = None
    """Labels that the tool has besides its own."""
    schema_version: Name | None = None
    """The version of its parameters that this policy was written for; others are denied."""
    owner: Name | None = None
    """Who answers for it."""


class Rule(Part):
    """One rule: it matches a call when every matcher that it has does."""

    id: Name
    """Names the rule in spans and reports."""
    effect: Literal["allow", "deny", "require_approval"]
    """What happens to a call that matches."""
    tools: Names | None = None
    """Globs; one of them must match the tool's name."""
    labels: Labels | None = None
    """One of them must be a label of the tool."""
    agents: Names | None = None
    """Globs; one of them must match the agent's name."""
    args: Annotated[dict[_Path, Condition] | None, Field(min_length=1)] = None
    """What the arguments must be like, by path: `amount`, `to.address`, `items.*.price`."""
    requires: Names | None = None
    """Tools that must have succeeded earlier in the trajectory, all of them."""
    unless_after: Names | None = None
    """The rule no longer applies once these tools have succeeded in the trajectory."""
    stages: Stages | None = None
    """Where in the trajectory a call that matches may stand."""
    limits: Limits | None = None
    """How often a call that matches may be made."""
    approval: ApprovalRules | None = None
    """What the approval must be like, for require_approval."""
    idempotency: Literal["required"] | None = None
    """A call that matches must have an idempotency key."""
    confirmed: Confirmation | None = None
    """Who answers for this rule."""
    reason: str = ""
    """Told to whoever is denied or asked."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.tools is None and self.labels is None and self.agents is None:
            raise ValueError("a rule needs tools, labels or agents to match; tools: ['*'] is all")
        if self.approval is not None and self.effect != "require_approval":
            raise ValueError("approval belongs to effect require_approval")
        return self

    @property
    def digest(self) -> str:
        """``sha256:`` and the digest of what the rule says, whoever has confirmed it."""
        return digest_of(
            self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude={"confirmed"})
        )

    @property
    def is_confirmed(self) -> bool:
        """Whether somebody answers for the rule as it is now worded."""
        return self.confirmed is not None and self.confirmed.digest == self.digest


def tool_names(rules: Iterable[Rule]) -> frozenset[str]:
    """The globs of tools whose earlier success, or absence, the rules ask about."""
    asked: set[str] = set()
    for rule in rules:
        asked.update(rule.requires or (), rule.unless_after or ())
        if rule.stages is not None:
            asked.update(rule.stages.after or ())
    return frozenset(asked)


def digest_of(content: object) -> str:
    """The digest of JSON data: same meaning, same digest."""
    return "sha256:" + hashlib.sha256(rfc8785.dumps(content)).hexdigest()  # type: ignore[arg-type]
