"""The policy as a whole: read from a file, frozen, and asked about calls."""

import os
from collections import Counter
from functools import cached_property
from typing import Any, Final, Self

import rfc8785
from pydantic import Field, ValidationError, model_validator

from toolverdict.instrument import provenance
from toolverdict.instrument.decisions import Call, Decision, Effect, Mode, ReasonCode
from toolverdict.instrument.errors import PolicyError
from toolverdict.instrument.names import same_tool
from toolverdict.instrument.policy.deciding import CompiledPolicy
from toolverdict.instrument.policy.document import (
    Name,
    Names,
    Part,
    Rule,
    ToolEntry,
    Version,
    digest_of,
    tool_names,
)
from toolverdict.instrument.policy.problems import first_problem
from toolverdict.instrument.yaml_files import YamlDocument, YamlProblem, read_yaml

_MAX_FILE_BYTES: Final = 1_000_000


class Policy(Part):
    """A whole policy. Frozen, and pure: the scorer asks it again about recorded calls."""

    version: Version
    """The version of the file format."""
    id: Name
    """Names the policy in spans and reports."""
    rules: tuple[Rule, ...]
    """In any order: the strictest that matches decides."""
    mode: Mode = "enforce"
    """With shadow, decisions are recorded and nothing is blocked or asked."""
    tools: dict[Name, ToolEntry] | None = Field(default=None, min_length=1)
    """What is known about single tools, by name."""
    untrusted_sources: Names | None = None
    """Globs of tools whose results outsiders write, besides those labelled untrusted."""

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
        return cls.load_with_places(path)[0]

    @classmethod
    def load_with_places(cls, path: str | os.PathLike[str]) -> tuple[Self, YamlDocument]:
        """Read a policy file, and keep the document, which knows where everything stands.

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
        document = _read(content, source)
        return cls._of(document, source), document

    @classmethod
    def parse(cls, content: str | bytes, *, source: str = "policy") -> Self:
        """Read a policy from YAML text.

        Raises:
            PolicyError: The text is not a policy; ``source`` names it in the message.
        """
        return cls._of(_read(content, source), source)

    @classmethod
    def _of(cls, document: YamlDocument, source: str) -> Self:
        try:
            policy = cls.model_validate(document.data)
            _ = policy.digest, policy._compiled  # now, and not at the first call
        except ValidationError as error:
            place, problem = first_problem(error, cls)
            raise PolicyError(source, document.place(place), problem) from None
        except rfc8785.CanonicalizationError as error:
            raise PolicyError(source, "", f"has no digest: {type(error).__name__}") from error
        return policy

    @cached_property
    def digest(self) -> str:
        """``sha256:`` and the digest of what the policy says: same meaning, same digest.

        Who confirmed a rule changes nothing that it says.
        """
        content = self.model_dump(
            mode="json",
            by_alias=True,
            exclude_none=True,
            exclude={"rules": {"__all__": {"confirmed"}}},
        )
        if self.mode == "enforce":
            del content["mode"]
        return digest_of(content)

    @cached_property
    def prerequisites(self) -> frozenset[str]:
        """Globs of the tools whose earlier success some rule asks about."""
        return tool_names(self.rules)

    @cached_property
    def _compiled(self) -> CompiledPolicy:
        return CompiledPolicy(self.rules, self.tools, self.mode)

    def labels_of(self, tool: str, labels: frozenset[str]) -> frozenset[str]:
        """The labels of a tool, with those that the policy adds."""
        return self._compiled.labels_of(tool, labels)

    @cached_property
    def asks_for_trust(self) -> bool:
        """Whether some rule asks where a value stems from (``Call.is_trusted``)."""
        conditions = (c for rule in self.rules for c in (rule.args or {}).values())
        return any(condition.trusted for condition in conditions)

    def is_untrusted_source(self, tool: str, labels: frozenset[str]) -> bool:
        """Whether outsiders write what a tool with these labels returns."""
        if provenance.UNTRUSTED in self.labels_of(tool, labels):
            return True
        return any(same_tool(glob, tool) for glob in self.untrusted_sources or ())

    def watches(self, tool: str, labels: frozenset[str]) -> bool:
        """Whether ``Call.earlier`` must hold calls of a tool with these labels."""
        return self._compiled.watches(tool, labels)

    def allows_by_name(self, tool: str, labels: frozenset[str], agent: str | None) -> bool:
        """Whether every call of a tool is allowed, whatever else is known of it."""
        return self._compiled.allows_by_name(Call(tool, labels, agent))

    def decide(self, call: Call, /) -> Decision:
        """Say what happens to a call. Whatever goes wrong while deciding denies it."""
        try:
            return self._compiled.decide(call)
        except Exception as error:  # noqa: BLE001 - a policy that cannot be asked allows nothing
            reason = f"the policy could not be asked ({type(error).__name__})"
            return Decision(Effect.DENY, (), ReasonCode.POLICY_ERROR, reason, self.mode)

    def __copy__(self) -> Self:
        # What was made of the old content must not decide for a copy with another.
        copied = super().__copy__()
        for name in _CACHED:
            copied.__dict__.pop(name, None)
        return copied

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        return self.__copy__()  # frozen all the way down

    def __getstate__(self) -> dict[Any, Any]:
        state = super().__getstate__()
        kept = {key: value for key, value in state["__dict__"].items() if key not in _CACHED}
        return {**state, "__dict__": kept}


_CACHED: Final = frozenset(
    name for name, value in vars(Policy).items() if isinstance(value, cached_property)
)


def _read(content: str | bytes, source: str) -> YamlDocument:
    if len(content) > _MAX_FILE_BYTES:
        raise PolicyError(source, "", f"is larger than {_MAX_FILE_BYTES} bytes")
    try:
        document = read_yaml(content)
    except YamlProblem as error:
        where = f"line {error.line}" if error.line else ""
        raise PolicyError(source, where, error.problem) from error
    if not isinstance(document.data, dict):
        raise PolicyError(source, "", "expected a mapping with version, id and rules")
    return document
