"""One case, whatever format it was written in: what should be called, what must not, and how.

Every file format becomes this model (see :mod:`toolverdict.scoring.cases.load`).
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from toolverdict.instrument.outcomes import Outcome
from toolverdict.scoring.cases.arguments import Arguments

Name = Annotated[str, Field(min_length=1)]
Most = Annotated[int, Field(ge=0)]

MAX_COUNT = 1_000
"""How often one expectation may stand for a call; a longer list is written as one."""

Reaction = Literal["retry", "retry_same", "retry_changed", "other_tool", "tell_user", "stop"]
"""What an agent may do after a result: call the tool again (the same, or changed), call another,
answer the user, or stop."""

ANY_FAILURE = "failure"
_RESULTS = frozenset(
    {ANY_FAILURE, "empty", *(outcome.value for outcome in Outcome if outcome.failed)}
)


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Count(_Frozen):
    """How often an expected call is made; ``max`` None is as often as the agent likes."""

    min: int = Field(default=1, ge=0, le=MAX_COUNT)
    max: int | None = Field(default=None, ge=1, le=MAX_COUNT)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.max is not None and self.max < self.min:
            raise ValueError("max is smaller than min")
        return self


class _WithArguments(_Frozen):
    tool: Name
    arguments: dict[str, Any] | None = None

    @cached_property
    def plan(self) -> Arguments | None:
        """The arguments, ready to be compared; None where the case names none."""
        return self._planned(None)

    def _planned(self, schema: Mapping[str, Any] | None) -> Arguments | None:
        if self.arguments is None:
            return None
        return Arguments(self.arguments, exact=self._exact, schema=schema)

    @property
    def _exact(self) -> bool:
        return False

    @model_validator(mode="after")
    def _comparable(self) -> Self:
        _ = self.plan  # so that what cannot be compared is an error of the file
        return self


class Expectation(_WithArguments):
    """A call that the task needs.

    With ``match`` ``exact`` the arguments must be these and no others; with ``subset`` at least
    these (further keys are reported and do not count); None compares no arguments. ``outcome`` is
    how it must have ended; ``on_result`` is what the agent should do after a result of a kind
    (an outcome, or ``failure`` for any), and such a result then is no failure of the agent's.
    """

    match: Literal["exact", "subset"] = "exact"
    id: Name | None = None
    optional: bool = False
    count: Count = Count(min=1, max=1)
    outcome: Literal["success", "failure", "any"] = "success"
    on_result: dict[str, tuple[Reaction, ...]] = Field(default_factory=dict)

    @property
    def _exact(self) -> bool:
        return self.match == "exact"

    def with_schema(self, schema: Mapping[str, Any]) -> "Expectation":
        """The same, compared as the tool's catalogue entry says where the case does not."""
        copy = self.model_copy()
        copy.__dict__["plan"] = self._planned(schema)
        return copy

    @model_validator(mode="after")
    def _known_results(self) -> Self:
        for result, reactions in self.on_result.items():
            if result not in _RESULTS:
                raise ValueError(
                    f"on_result: unknown result {result!r}; known: {_listed(_RESULTS)}"
                )
            if not reactions:
                raise ValueError(f"on_result: {result} needs a reaction")
        return self

    @property
    def least(self) -> int:
        """How many calls are required."""
        return 0 if self.optional else self.count.min

    def reactions_to(self, outcome: Outcome) -> tuple[Reaction, ...] | None:
        """What the agent should do after a call that ended so; None where the case does not say."""
        if not self.on_result:
            return None
        stated = self.on_result.get(outcome.value)
        return stated if stated or not outcome.failed else self.on_result.get(ANY_FAILURE)


class Forbidden(_WithArguments):
    """A call that must not be made; with ``arguments``, only when it has at least these.

    ``unless_after`` are tools that must have succeeded before it, or it is forbidden.
    """

    reason: str | None = None
    unless_after: tuple[Name, ...] = ()


class Way(_Frozen):
    """One way to do the task: calls, and for each the calls (by index) that come before it.

    ``before`` None is the order in which they are listed.
    """

    name: Name | None = None
    expected: tuple[Expectation, ...] = ()
    before: tuple[tuple[int, ...], ...] | None = None


class Extra(_Frozen):
    """What becomes of calls that are not expected, by patterns of tool names.

    Of several patterns that match, ``forbid`` comes first, then ``penalise``, then ``allow``. With
    ``failed`` ``allow``, one that failed counts as little as if it had been allowed: an error is not
    a failure of the task. What is forbidden stays so, since the attempt itself is.
    """

    default: Literal["penalise", "allow", "forbid"] = "penalise"
    penalise: tuple[Name, ...] = ()
    allow: tuple[Name, ...] = ()
    forbid: tuple[Name, ...] = ()
    failed: Literal["penalise", "allow"] = "penalise"


class Limits(_Frozen):
    """The most that a trajectory may use; ``per_tool`` counts calls by pattern."""

    calls: Most | None = None
    retries: Most | None = None
    seconds: Annotated[float, Field(ge=0)] | None = None
    per_tool: dict[Name, Most] = Field(default_factory=dict)


Need = Literal["required", "forbidden", "either"]


class Turn(_Frozen):
    """What the user says in one turn, and how many of the expected calls, in order, answer it.

    ``need`` None: it follows from these calls.
    """

    input: str | None = None
    need: Need | None = None
    calls: int = Field(ge=0)


class Case(_Frozen):
    """A labelled task. ``need`` None: it follows from what is expected.

    ``expected`` and ``before`` are the one way to do it, ``alternatives`` are several; ``turns`` cut
    the one way into what each user turn needs; ``trials`` is how often it should be played.
    """

    id: Name
    input: str | None = None
    need: Need | None = None
    expected: tuple[Expectation, ...] = ()
    before: tuple[tuple[int, ...], ...] | None = None
    alternatives: tuple[Way, ...] = ()
    turns: tuple[Turn, ...] = ()
    forbidden: tuple[Forbidden, ...] = ()
    extra: Extra = Extra()
    limits: Limits = Limits()
    trials: int = Field(default=1, ge=1, le=10_000)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.expected and self.alternatives:
            raise ValueError("expects calls and alternatives; write the calls as one alternative")
        if self.turns and sum(turn.calls for turn in self.turns) != len(self.expected):
            raise ValueError("the turns must have all expected calls, each once")
        return self

    @property
    def ways(self) -> tuple[Way, ...]:
        """The ways to do the task; a case with one way has one."""
        return self.alternatives or (Way(expected=self.expected, before=self.before),)

    @property
    def needs_tools(self) -> bool | None:
        """Whether a tool has to be called; None: it may be, or not."""
        if self.need is not None:
            return _SAID[self.need]
        least = [sum(e.least for e in way.expected) for way in self.ways]
        if all(least):
            return True
        return None if any(least) or any(way.expected for way in self.ways) else False

    @property
    def needs_by_turn(self) -> tuple[bool | None, ...]:
        """The same for each user turn; empty where the case does not tell them apart."""
        needs: list[bool | None] = []
        first = 0
        for turn in self.turns:
            calls = self.expected[first : first + turn.calls]
            first += turn.calls
            if turn.need is not None:
                needs.append(_SAID[turn.need])
            elif any(expectation.least for expectation in calls):
                needs.append(True)
            else:
                needs.append(None if calls else False)
        return tuple(needs)


_SAID: Mapping[Need, bool | None] = {"required": True, "forbidden": False, "either": None}


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))
