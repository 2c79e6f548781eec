"""What is wrong with a policy file, in the words of the file and not of the library that reads it."""

import difflib
import typing
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_LISTS: Final = ("tuple_type", "frozen_set_type", "list_type", "set_type")
"""What pydantic calls a list of the file, by what becomes of it."""


def first_problem(
    error: ValidationError, whole: type[BaseModel]
) -> tuple[tuple[int | str, ...], str]:
    """Where the first thing wrong is, as a key path, and what it is."""
    problems = error.errors(include_url=False, include_input=False)
    # A key that is missing may be one that is misspelt, and then that is the thing to say.
    problem = next((p for p in problems if p["type"] == "extra_forbidden"), problems[0])
    # A marker of pydantic's, not a key of the file.
    place = tuple(part for part in problem["loc"] if part != "[key]")
    return place, _said(problem, whole)


def _said(problem: ErrorDetails, whole: type[BaseModel]) -> str:
    if problem["type"] in _LISTS:
        return "a list is expected, such as [a, b]"
    if problem["type"] != "extra_forbidden":
        return problem["msg"].removeprefix("Value error, ").replace("Tuple should", "List should")
    *path, key = problem["loc"]
    known = sorted(_keys_at(whole, path))
    near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.6)
    if near:
        return f"unknown key {key!r}; did you mean {near[0]!r}?"
    return f"unknown key {key!r}; known here: {', '.join(known)}"


def _keys_at(model: type[BaseModel], path: Sequence[int | str]) -> set[str]:
    """The keys that the part of the file at a path may have."""
    steps = iter(path)
    for step in steps:
        field = next((f for n, f in model.model_fields.items() if step in (n, f.alias)), None)
        if field is None:
            continue  # an index of a list, or a key of the user's own
        inner = next(_models_in(field.annotation), None)
        if inner is not None:
            model = inner
    return {field.alias or name for name, field in model.model_fields.items()}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in typing.get_args(annotation):
        yield from _models_in(part)
