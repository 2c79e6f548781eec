"""A value in somebody else's file, with its place: what is not as it must be is one clear line."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from toolverdict.scoring.cases.files import Place
from toolverdict.scoring.errors import InputError


@dataclass(frozen=True, slots=True)
class Node:
    """A value of JSON or YAML and where it stands."""

    place: Place
    data: Any

    def error(self, problem: str) -> InputError:
        """The one line to tell the person who has this file."""
        return self.place.error(problem)

    def get(self, *names: str) -> "Node | None":
        """The first of these keys that holds anything; each is also known in camel case.

        Raises:
            InputError: this is no object.
        """
        fields = self.object()
        for name in names:
            for key in (name, _camel(name)):
                if fields.get(key) is not None:
                    return Node(self.place.at(key), fields[key])
        return None

    def need(self, *names: str) -> "Node":
        """The same, which must be there."""
        found = self.get(*names)
        if found is None:
            raise self.error(f"expected the key {' or '.join(repr(name) for name in names)}")
        return found

    def has(self, *names: str) -> bool:
        """Whether one of these keys holds anything that says something: no empty list or text."""
        found = self.get(*names)
        return found is not None and found.data not in ("", [], {})

    def object(self) -> dict[str, Any]:
        """The value as an object with texts as keys.

        Raises:
            InputError: it is none.
        """
        if not isinstance(self.data, dict):
            raise self.error(f"expected an object, got {_kind(self.data)}")
        if not all(isinstance(key, str) for key in self.data):
            raise self.error("expected an object whose keys are texts")
        return self.data

    def items(self) -> "Iterator[Node]":
        """The items of a list.

        Raises:
            InputError: it is none.
        """
        if not isinstance(self.data, list):
            raise self.error(f"expected a list, got {_kind(self.data)}")
        return (Node(self.place.at(number), item) for number, item in enumerate(self.data))

    def each(self) -> "Iterator[Node]":
        """The items of a list; an object is the only item.

        Raises:
            InputError: it is neither.
        """
        return iter([self]) if isinstance(self.data, dict) else self.items()

    def text(self) -> str:
        """The value as a text that says something.

        Raises:
            InputError: it is none.
        """
        if not isinstance(self.data, str) or not self.data:
            raise self.error(f"expected a text, got {_kind(self.data)}")
        return self.data


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    return "an empty text" if value == "" else f"a {type(value).__name__}"
