"""The sampling policy: which traces a lake keeps, each rule with the probability of its traces.

A trace is kept with the largest probability among the rules that it matches, and with that of
``otherwise`` where none does. A rule looks at what happened, never at the randomness by which the
trace is then kept or not: that is what makes weighted rates unbiased.
"""

import os
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, ValidationError, model_validator

from toolverdict.collector.errors import ConfigError
from toolverdict.instrument.outcomes import Outcome
from toolverdict.instrument.policy.document import Name, Names, Part, Version
from toolverdict.instrument.policy.problems import first_problem
from toolverdict.instrument.yaml_files import YamlProblem, read_yaml

RARE: Final = 0.01
"""Keeping less than this share of something leaves its silent failures unseen."""

OTHERWISE: Final = "otherwise"
"""What stands in the place of a rule's id for a trace that no rule matches."""

_MAX_FILE_BYTES: Final = 1_000_000
# The scorer believes no weight above 2^20.
_Probability = Annotated[float, Field(strict=True, ge=1e-6, le=1)]
_Seconds = Annotated[float, Field(strict=True, ge=0, le=30 * 86_400, allow_inf_nan=False)]


class Cap(Part):
    """A hard limit in each decision window; those with the largest randomness stay.

    Traces that share their randomness, as those of one conversation may, count as one.
    """

    traces: Annotated[int, Field(strict=True, ge=1)]
    """At most this many."""
    by: Literal["all", "agent", "service", "tool"] = "all"
    """For all traces of the rule together, or for each agent, service or tool of theirs."""


class Share(Part):
    """How much is kept."""

    keep: _Probability
    """The probability that a trace is kept."""
    allow_rare: Annotated[bool, Field(strict=True)] = False
    """Lets `keep` be below 0.01, where silent failures are hardly ever seen."""
    cap: Cap | None = None
    """Keeps fewer when there are many; their probability is then what it was, and is recorded."""

    @model_validator(mode="after")
    def _is_seen(self) -> Self:
        if self.keep < RARE and not self.allow_rare:
            raise ValueError(
                f"keep below {RARE} leaves silent failures unseen; "
                "allow_rare: true says that it is meant"
            )
        return self


class Rule(Share):
    """One rule: a trace matches when every matcher given holds.

    `failed`, `decisions`, `outcomes`, `labels` and `tools` look at single spans, and one span must
    satisfy all of them that are given.
    """

    id: Name
    """Names the rule in the record of decisions."""
    failed: Literal[True] | None = None
    """A span failed: status error, an error type, or an outcome that is a failure."""
    decisions: Names | None = None
    """A call on which the tool policy decided one of these, such as deny."""
    outcomes: Annotated[tuple[Outcome, ...] | None, Field(min_length=1)] = None
    """A call that ended like one of these."""
    labels: Names | None = None
    """A call of a tool with one of these labels."""
    tools: Names | None = None
    """Globs; a call of a tool that one of them names."""
    agents: Names | None = None
    """Globs; the trace names an agent that one of them matches."""
    slower_than_s: _Seconds | None = None
    """Between the first start and the last end are more than so many seconds."""
    new_tool: Literal[True] | None = None
    """It is from the first decision window in which the lake ever saw one of its tools."""

    @model_validator(mode="after")
    def _matches_something(self) -> Self:
        if all(getattr(self, name) is None for name in MATCHERS):
            raise ValueError(f"a rule needs a matcher: {', '.join(MATCHERS)}")
        if self.id == OTHERWISE:
            raise ValueError(f"{OTHERWISE!r} is what matches no rule; give this one another id")
        return self


MATCHERS: Final = tuple(name for name in Rule.model_fields if name not in Share.model_fields)[1:]


class SamplingPolicy(Part):
    """A whole sampling policy."""

    version: Version
    """The version of the file format."""
    otherwise: Share
    """For traces that no rule matches."""
    rules: tuple[Rule, ...] = ()
    """In any order; of those that match, the largest probability counts."""
    randomness: Literal["trace", "conversation"] = "trace"
    """With conversation, the traces of one conversation share their randomness: of those to which
    the same probability applies, all are kept or none."""
    quiet_s: _Seconds = 600.0
    """A trace is decided when nothing of it was received for so many seconds."""
    root_grace_s: _Seconds = 60.0
    """The same for a trace whose root span has ended."""
    window_s: Annotated[_Seconds, Field(ge=1)] = 60.0
    """Length of a decision window: what becomes quiet in one is decided together."""
    remember_days: Annotated[int, Field(strict=True, ge=1, le=366)] = 7
    """How long late spans find the decision on their trace."""

    @model_validator(mode="after")
    def _ids_are_unique(self) -> Self:
        twice = [id for id, count in Counter(rule.id for rule in self.rules).items() if count > 1]
        if twice:
            raise ValueError(f"rule ids must be unique; used twice: {', '.join(twice)}")
        return self

    @property
    def patience(self) -> timedelta:
        """After so long without a span every trace is decided."""
        return timedelta(seconds=max(self.quiet_s, self.root_grace_s) + self.window_s)

    @property
    def shares(self) -> tuple[Share, ...]:
        """The rules in their order, and ``otherwise`` as the last."""
        return (*self.rules, self.otherwise)

    @property
    def names(self) -> tuple[str, ...]:
        """What the decisions of each of :attr:`shares` are recorded under."""
        return (*(rule.id for rule in self.rules), OTHERWISE)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a policy file.

        Raises:
            ConfigError: the file cannot be read or is no policy; one line says where and why.
        """
        try:
            with Path(path).open("rb") as file:
                content = file.read(_MAX_FILE_BYTES + 1)
        except OSError as error:
            problem = error.strerror or type(error).__name__
            raise ConfigError(f"{os.fspath(path)}: cannot be read: {problem}") from error
        return cls.parse(content, source=os.fspath(path))

    @classmethod
    def parse(cls, content: str | bytes, *, source: str = "sampling policy") -> Self:
        """Read a policy from YAML text.

        Raises:
            ConfigError: the text is no policy; ``source`` names it in the message.
        """
        if len(content) > _MAX_FILE_BYTES:
            raise ConfigError(f"{source}: is larger than {_MAX_FILE_BYTES} bytes")
        try:
            document = read_yaml(content)
        except YamlProblem as error:
            raise ConfigError(f"{source}: {error}") from error
        if not isinstance(document.data, dict):
            raise ConfigError(f"{source}: expected a mapping with version, otherwise and rules")
        try:
            return cls.model_validate(document.data)
        except ValidationError as error:
            place, problem = first_problem(error, cls)
            where = document.place(place)
            raise ConfigError(
                ": ".join(part for part in (source, where, problem) if part)
            ) from None
