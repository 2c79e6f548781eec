"""What a comparator is: a value that says whether an argument is as expected, and if not, why.

Three answers: right (None), wrong, and undecided, where the argument or what it is compared with
does not say enough (``03:00`` of an unknown zone, a result that was not captured). Undecided is
never a guess: such a pair is not evaluable.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict

from toolverdict.scoring.model import Json


class Missing:
    """Stands for an argument that is not there, which is not ``null``."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()


@dataclass(frozen=True, slots=True)
class Unlike:
    """Why an argument is not as expected; ``why`` reads on from the key path: ``is missing``.

    ``code`` names a mistake that has a name of its own (``display_id_used``). ``path`` leads on to
    the place inside the argument. ``secret`` keeps the argument out of what is reported.
    """

    why: str
    undecided: bool = False
    code: str | None = None
    path: str = ""
    secret: bool = False


def undecided(why: str) -> Unlike:
    """The answer of a comparator that cannot tell."""
    return Unlike(why, undecided=True)


@dataclass(frozen=True, slots=True)
class Context:
    """What a comparator may look at beside the argument itself.

    Args:
        siblings: the object that the argument stands in (a currency has a key of its own).
        earlier: gives the results of earlier calls, where captured.
        resolve: what ``name.result.path`` stands for in this trajectory.
    """

    siblings: Mapping[str, Json] = field(default_factory=dict)
    earlier: Callable[[], Iterable[Json]] = tuple
    resolve: Callable[[str], Json | Unlike] | None = None


@runtime_checkable
class Comparator(Protocol):
    """What a comparator has to have; whoever brings their own derives from nothing.

    ``kind`` is its name in findings, ``expected`` what a finding shows as expected;
    ``accepts_missing`` says whether it is asked about an argument that is not there.
    """

    @property
    def kind(self) -> str:
        """The name in findings."""

    @property
    def expected(self) -> Json:
        """What a finding shows as expected."""

    @property
    def accepts_missing(self) -> bool:
        """Whether :meth:`compare` is asked about :data:`MISSING`, too."""

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """None when ``actual`` is as expected, else why it is not."""


class Kind(BaseModel):
    """Base of our own comparators: ``value`` is what stands after ``$kind``, the rest are options."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    kind: ClassVar[str]
    accepts_missing: ClassVar[bool] = False
    value: Any = None

    @property
    def expected(self) -> Json:
        """What a finding shows as expected."""
        return self.value

    def compare(self, actual: Json, context: Context) -> Unlike | None:
        """None when ``actual`` is as expected, else why it is not."""
        raise NotImplementedError

    def measure(self, actual: Json) -> tuple[float, str] | None:
        """How near ``actual`` is, from 0 to 1, and by which method; None where nothing is measured."""
        return None
