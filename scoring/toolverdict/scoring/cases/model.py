"""One case, whatever format it was written in.

Both file formats become this model (see :mod:`toolverdict.scoring.cases.load`).
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1)]


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Expectation(_Frozen):
    """A call that the task needs.

    With ``match`` ``exact`` the arguments must be these and no others; with ``subset`` at least
    these (further keys are reported and do not count); None compares no arguments.
    """

    tool: Name
    arguments: dict[str, Any] | None = None
    match: Literal["exact", "subset"] = "exact"


class Forbidden(_Frozen):
    """A call that must not be made; with ``arguments``, only when it has at least these."""

    tool: Name
    arguments: dict[str, Any] | None = None
    reason: str | None = None


class Case(_Frozen):
    """A labelled task: expected calls in their order, forbidden ones in none."""

    id: Name
    input: str | None = None
    expected: tuple[Expectation, ...] = ()
    forbidden: tuple[Forbidden, ...] = ()
