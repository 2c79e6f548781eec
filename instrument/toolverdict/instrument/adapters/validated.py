"""Validated arguments as plain values: what a body gets, by the names that its code knows them by.

A framework validates the model's JSON before a body runs. That may rename a key (an alias), prefer
one of two, drop one and make a number of a text, so the JSON does not say what the body will get:
``{"amount": 5, "amt": 1000000}`` is an amount of a million where ``amt`` is the alias of ``amount``.
What is decided about, hashed and shown is therefore made of what came out of the validation.

Fields that the model did not give are left out: their values are the author's, not the model's.
Private attributes of models are no arguments. What is no container is left as it is.
"""

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import AliasChoices, AnyUrl, BaseModel, RootModel
from pydantic.fields import FieldInfo
from pydantic_core import MultiHostUrl, Url

from toolverdict.instrument.canonical import MAX_DEPTH

_URLS = (Url, MultiHostUrl, AnyUrl)


def plain_arguments(arguments: Mapping[str, object]) -> dict[str, object]:
    """The arguments, with models and dataclasses made dicts of their fields."""
    return {name: _plain(value, {}, 1) for name, value in arguments.items()}


def plain_fields(model: BaseModel) -> dict[str, object]:
    """The same of the fields of a model that is made of the arguments."""
    return _fields(model, {}, 1)


def names_by_alias(fields: Mapping[str, FieldInfo]) -> dict[str, str]:
    """What the code calls the fields that a model may give by another name."""
    return {alias: name for name, field in fields.items() for alias in _aliases(field)}


def _aliases(field: FieldInfo) -> Iterator[str]:
    validation = field.validation_alias
    choices = validation.choices if isinstance(validation, AliasChoices) else [validation]
    for alias in (field.alias, *choices):
        if isinstance(alias, str):
            yield alias


def _plain(value: Any, done: dict[int, Any], depth: int) -> Any:
    if isinstance(value, _URLS):
        return str(value)
    if depth > MAX_DEPTH or not _is_container(value):
        return value  # what is too deep is refused by whoever hashes it
    if id(value) in done:
        return done[id(value)]
    done[id(value)] = value  # for one that holds itself, which nobody can hash
    done[id(value)] = made = _plain_container(value, done, depth)
    return made


def _plain_container(value: Any, done: dict[int, Any], depth: int) -> Any:
    if isinstance(value, RootModel):
        return _plain(value.root, done, depth)
    if isinstance(value, BaseModel):
        return _fields(value, done, depth)
    if isinstance(value, dict):
        return {key: _plain(item, done, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item, done, depth + 1) for item in value]
    if type(value) is tuple:
        return tuple(_plain(item, done, depth + 1) for item in value)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
    else:  # a model of pydantic 1
        names = sorted(value.__fields_set__)
    return {name: _plain(getattr(value, name), done, depth + 1) for name in names}


def _is_container(value: Any) -> bool:
    if isinstance(value, BaseModel | dict | list) or type(value) is tuple:
        return True
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return True
    old = getattr(sys.modules.get("pydantic.v1"), "BaseModel", None)
    return old is not None and isinstance(value, old)


def _fields(model: BaseModel, done: dict[int, Any], depth: int) -> dict[str, object]:
    given = model.model_fields_set
    values = {name: getattr(model, name) for name in type(model).model_fields if name in given}
    values.update(model.__pydantic_extra__ or {})
    return {name: _plain(value, done, depth + 1) for name, value in values.items()}
