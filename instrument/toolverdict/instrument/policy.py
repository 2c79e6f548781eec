"""The policy file: which tool calls are allowed, denied, or need an approval.

Importing this module imports pydantic and YAML; the package does so when a policy is loaded.

How a call is decided. A rule *restricts* when it denies, asks for approval, or has ``requires``;
it *permits* when its effect is allow. Every doubt goes against the call: a restriction matches a
tool's name with or without its server (``names.same_tool``) and an agent that is unknown, a
permission matches the full name and a known agent only. Then, over all rules that match:

1. an unmet ``requires``, or a deny, denies;
2. else a require_approval asks for approval;
3. else a permission allows;
4. else the call is denied if the tool has a dangerous label, and allowed if not.

A call "succeeded" for ``requires`` when its outcome was ``ok``; an empty answer satisfies nothing.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Annotated, Final, Literal, Self

import rfc8785
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from toolverdict.instrument.decisions import Call, Decision, Effect, ReasonCode
from toolverdict.instrument.errors import PolicyError
from toolverdict.instrument.names import exactly_tool, same_tool
from toolverdict.instrument.yaml_files import YamlProblem, read_yaml

POLICY_VERSION: Final = 1
"""The version of the file format that this module reads."""

_MAX_FILE_BYTES: Final = 1_000_000


def _version(value: object) -> object:
    # True and 1.0 equal 1 and would pass as Literal[1].
    if type(value) is not int or value != POLICY_VERSION:
        raise ValueError(f"this toolverdict reads policy version {POLICY_VERSION}")
    return value


_Name = Annotated[str, Field(min_length=1)]
_Names = Annotated[tuple[_Name, ...], Field(min_length=1)]


class Rule(BaseModel):
    """One rule: it matches a call when every matcher that it has does."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: _Name
    """Names the rule in spans and reports."""
    effect: Literal["allow", "deny", "require_approval"]
    """What happens to a call that matches."""
    tools: _Names | None = None
    """Globs; one of them must match the tool's name."""
    labels: _Names | None = None
    """One of them must be a label of the tool."""
    agents: _Names | None = None
    """Globs; one of them must match the agent's name."""
    requires: _Names | None = None
    """Tools that must have succeeded earlier in the trajectory, all of them."""
    reason: str = ""
    """Told to whoever is denied or asked."""

    @model_validator(mode="after")
    def _has_a_matcher(self) -> Self:
        if self.tools is None and self.labels is None and self.agents is None:
            raise ValueError("a rule needs tools, labels or agents to match; tools: ['*'] is all")
        return self

    def restricts(self, call: Call) -> bool:
        """Whether the rule might mean this call; doubts count as yes."""
        return self._matches(call, same_tool, unknown_agent=True)

    def permits(self, call: Call) -> bool:
        """Whether the rule allows, and certainly means this call; doubts count as no."""
        return self.effect == "allow" and self._matches(call, exactly_tool, unknown_agent=False)

    def unmet(self, call: Call) -> tuple[str, ...]:
        """The required tools that have not succeeded yet."""
        return tuple(
            wanted
            for wanted in self.requires or ()
            if not any(exactly_tool(wanted, done) for done in call.succeeded)
        )

    def _matches(
        self, call: Call, tool_matches: Callable[[str, str], bool], *, unknown_agent: bool
    ) -> bool:
        if self.tools is not None and not any(tool_matches(glob, call.tool) for glob in self.tools):
            return False
        if self.labels is not None and call.labels.isdisjoint(self.labels):
            return False
        if self.agents is None:
            return True
        if call.agent is None:
            return unknown_agent
        agent = call.agent
        return any(exactly_tool(glob, agent) for glob in self.agents)


class Policy(BaseModel):
    """A whole policy. Frozen, and pure: the scorer asks it again about recorded calls."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Annotated[Literal[1], BeforeValidator(_version)]
    """The version of the file format."""
    id: _Name
    """Names the policy in spans and reports."""
    rules: tuple[Rule, ...]
    """In any order: the strictest that matches decides."""

    @model_validator(mode="after")
    def _rule_ids_are_unique(self) -> Self:
        twice = [id for id, count in Counter(rule.id for rule in self.rules).items() if count > 1]
        if twice:
            raise ValueError(f"rule ids must be unique; used twice: {', '.join(twice)}")
        return self

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a policy file.

        Raises:
            PolicyError: The file cannot be read or is not a policy; one line says where and why.
        """
        source = os.fspath(path)
        try:
            with open(source, "rb") as file:
                content = file.read(_MAX_FILE_BYTES + 1)
        except OSError as error:
            raise PolicyError(
                source, "", f"cannot be read: {error.strerror or type(error).__name__}"
            ) from error
        return cls.parse(content, source=source)

    @classmethod
    def parse(cls, content: str | bytes, *, source: str = "policy") -> Self:
        """Read a policy from YAML text.

        Raises:
            PolicyError: The text is not a policy; ``source`` names it in the message.
        """
        if len(content) > _MAX_FILE_BYTES:
            raise PolicyError(source, "", f"is larger than {_MAX_FILE_BYTES} bytes")
        try:
            document = read_yaml(content)
        except YamlProblem as error:
            where = f"line {error.line}" if error.line else ""
            raise PolicyError(source, where, error.problem) from error
        if not isinstance(document.data, dict):
            raise PolicyError(source, "", "expected a mapping with version, id and rules")
        try:
            policy = cls.model_validate(document.data)
            _ = policy.digest  # now, and not at the first call
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            problem = first["msg"].removeprefix("Value error, ")
            raise PolicyError(source, document.place(first["loc"]), problem) from None
        except rfc8785.CanonicalizationError as error:
            raise PolicyError(source, "", f"has no digest: {type(error).__name__}") from error
        return policy

    @cached_property
    def digest(self) -> str:
        """``sha256:`` and the digest of the canonical content: same meaning, same digest."""
        content = rfc8785.dumps(self.model_dump(mode="json", exclude_none=True))
        return "sha256:" + hashlib.sha256(content).hexdigest()

    def decide(self, call: Call, /) -> Decision:
        """Say what happens to a call. Whatever goes wrong while deciding denies it."""
        try:
            return self._decide(call)
        except Exception as error:  # noqa: BLE001 - a policy that cannot be asked allows nothing
            reason = f"the policy could not be asked ({type(error).__name__})"
            return Decision(Effect.DENY, (), ReasonCode.POLICY_ERROR, reason)

    def _decide(self, call: Call) -> Decision:
        restricting = [rule for rule in self.rules if rule.restricts(call)]
        denying = [rule for rule in restricting if rule.effect == "deny"]
        if denying:
            return _decision(Effect.DENY, ReasonCode.RULE, denying)
        blocking = [rule for rule in restricting if rule.unmet(call)]
        if blocking:
            missing = sorted({name for rule in blocking for name in rule.unmet(call)})
            reason = f"call {', '.join(missing)} first, with success"
            return _decision(Effect.DENY, ReasonCode.REQUIRES_UNMET, blocking, reason)
        asking = [rule for rule in restricting if rule.effect == "require_approval"]
        if asking:
            return _decision(Effect.REQUIRE_APPROVAL, ReasonCode.RULE, asking)
        permitting = [rule for rule in restricting if rule.permits(call)]
        if permitting:
            return _decision(Effect.ALLOW, ReasonCode.RULE, permitting)
        if call.dangerous:
            reason = "no rule allows this tool, and its labels say that it can do harm"
            return _decision(Effect.DENY, ReasonCode.NO_RULE, (), reason)
        return _decision(Effect.ALLOW, ReasonCode.NO_RULE, ())


def _decision(
    effect: Effect, reason_code: ReasonCode, rules: Sequence[Rule], reason: str = ""
) -> Decision:
    said = "; ".join(rule.reason for rule in rules if rule.reason)
    ids = tuple(rule.id for rule in rules)
    return Decision(effect, ids, reason_code, "; ".join(part for part in (reason, said) if part))
