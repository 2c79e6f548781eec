"""``@tool(coerce=True)``: arguments become what the annotations say before anything looks at them.

Models send ``"12.5"`` for a number and a text for a date. What is hashed, decided about, approved
and given to the tool is one and the same: the value after pydantic made it what it should be. A
default is taken as it stands. Importing this module imports nothing; the first call brings pydantic.

A refusal names parameters and what is wrong with them, never a value: it goes to logs and models.
"""

import inspect
import threading
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

from toolverdict.instrument.errors import InvalidArguments

_SAYS_NO_VALUE: Final = frozenset(
    (
        *("missing", "extra_forbidden", "none_required", "literal_error", "enum"),
        *("int_type", "int_parsing", "int_from_float", "float_type", "float_parsing"),
        *("bool_type", "bool_parsing", "string_type", "string_too_short", "string_too_long"),
        *("string_pattern_mismatch", "greater_than", "greater_than_equal", "less_than"),
        *("less_than_equal", "multiple_of", "finite_number", "decimal_type", "decimal_parsing"),
        *(
            "list_type",
            "dict_type",
            "tuple_type",
            "set_type",
            "model_type",
            "too_long",
            "too_short",
        ),
    )
)
"""Kinds of errors whose message is made of the annotation alone."""


class Coercion:
    """Coerces the arguments of one tool.

    Args:
        target: What is called with the arguments: the tool, or a partial of it.
        function: The function with the annotations.
        skipped: Parameters that are left alone, such as the instance of a method.
    """

    def __init__(
        self,
        target: Callable[..., Any],
        function: Callable[..., Any],
        skipped: frozenset[str] = frozenset(),
    ) -> None:
        self._signature = inspect.signature(target)
        self._function = function
        self._skipped = skipped
        self._lock = threading.Lock()
        self._validators: dict[str, Callable[[Any], Any]] | None = None

    def __call__(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """The arguments as the annotations want them; unchanged if they do not fit at all.

        Raises:
            InvalidArguments: A value cannot become what its parameter wants.
            TypeError: An annotation is nothing that pydantic can validate.
        """
        from pydantic import ValidationError

        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:
            return args, kwargs  # whoever binds them next says so
        validators = self._read()
        problems: list[str] = []
        for name, value in bound.arguments.items():
            validate = validators.get(name)
            if validate is None:
                continue
            kind = self._signature.parameters[name].kind
            try:
                if kind is inspect.Parameter.VAR_POSITIONAL:
                    bound.arguments[name] = tuple(map(validate, value))
                elif kind is inspect.Parameter.VAR_KEYWORD:
                    bound.arguments[name] = {key: validate(item) for key, item in value.items()}
                else:
                    bound.arguments[name] = validate(value)
            except ValidationError as error:
                problems += [f"{name}: {problem}" for problem in _said(error)]
        if problems:
            raise InvalidArguments("; ".join(problems))
        return bound.args, bound.kwargs

    def _read(self) -> dict[str, Callable[[Any], Any]]:
        # At the first call, since annotations may name what is defined after the tool.
        with self._lock:
            if self._validators is None:
                self._validators = self._made()
            return self._validators

    def _made(self) -> dict[str, Callable[[Any], Any]]:
        try:
            hints = typing.get_type_hints(self._function, include_extras=True)
            return {
                name: _validator(hints[name])
                for name in self._signature.parameters
                if name in hints and name not in self._skipped
            }
        except Exception as error:
            name = getattr(self._function, "__qualname__", "tool")
            raise TypeError(
                f"coerce: the annotations of {name} cannot be read ({type(error).__name__})"
            ) from error


def _validator(annotation: Any) -> Callable[[Any], Any]:
    from pydantic import ConfigDict, PydanticSchemaGenerationError, TypeAdapter

    try:
        return TypeAdapter[Any](annotation).validate_python
    except PydanticSchemaGenerationError:
        # A class of the application's own: an instance of it is wanted.
        config = ConfigDict(arbitrary_types_allowed=True)
        return TypeAdapter[Any](annotation, config=config).validate_python


def _said(error: Any) -> list[str]:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    said = [item["msg"] if item["type"] in _SAYS_NO_VALUE else item["type"] for item in found]
    return list(dict.fromkeys(said))[:5]
