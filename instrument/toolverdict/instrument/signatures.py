"""What the signature of a tool says, read once when the tool is decorated.

``auto:<12 hex>`` versions a tool whose author does not: it changes when a parameter is added,
removed, renamed, retyped, or gets or loses a default. It is made of names and source text only, so
that two processes agree; never of ``repr`` of an object, which may hold an address.
"""

import enum
import hashlib
import inspect
import json
import typing
from collections.abc import Iterable
from types import FunctionType
from typing import Any


def is_in_class(qualname: str) -> bool:
    """Whether a function of this qualified name was written in the body of a class."""
    outer, _, _ = qualname.rpartition(".")
    return bool(outer) and not outer.endswith("<locals>")


def auto_version(parameters: Iterable[inspect.Parameter]) -> str:
    """The version that stands for a signature."""
    described = [
        [
            parameter.name,
            parameter.kind.name,
            _annotation_text(parameter.annotation),
            parameter.default is not inspect.Parameter.empty,
        ]
        for parameter in parameters
    ]
    text = json.dumps(described, separators=(",", ":"))
    return "auto:" + hashlib.sha256(text.encode()).hexdigest()[:12]


def without_body(function: FunctionType) -> FunctionType:
    """A function that takes the same parameters and does nothing.

    Calling it with arguments that do not fit raises the interpreter's own TypeError.
    """
    code = function.__code__
    stars = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    count = code.co_argcount + code.co_kwonlyargcount + stars.bit_count()
    nothing = (lambda: None).__code__
    parameters_only = nothing.replace(
        co_argcount=code.co_argcount,
        co_posonlyargcount=code.co_posonlyargcount,
        co_kwonlyargcount=code.co_kwonlyargcount,
        co_nlocals=count,
        co_varnames=code.co_varnames[:count],
        co_flags=nothing.co_flags | stars,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
    )
    empty = FunctionType(parameters_only, {}, function.__name__, function.__defaults__)
    empty.__kwdefaults__ = function.__kwdefaults__
    empty.__qualname__ = function.__qualname__
    return empty


def returns_none(signature: inspect.Signature) -> bool:
    """Whether a tool is declared to return nothing."""
    return signature.return_annotation in (None, type(None), "None")


def _annotation_text(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, str):
        return annotation
    if annotation is None or annotation is type(None):
        return "None"
    if annotation is ...:
        return "..."
    if isinstance(annotation, typing.ForwardRef):
        return annotation.__forward_arg__
    if isinstance(annotation, list):  # the parameters of a Callable
        return f"[{', '.join(map(_annotation_text, annotation))}]"
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated:
        # What is annotated beside the type may be any object, and has no text of its own.
        return _annotation_text(arguments[0])
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(_literal_text, arguments))}]"
    if origin is not None:
        inner = ", ".join(map(_annotation_text, arguments))
        return f"{_name(origin)}[{inner}]" if arguments else _name(origin)
    return _name(annotation)


def _literal_text(value: object) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__qualname__}.{value.name}"
    return value.hex() if isinstance(value, bytes) else json.dumps(value)


def _name(thing: Any) -> str:
    name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None)
    module = getattr(thing, "__module__", "builtins")
    name = name if isinstance(name, str) else type(thing).__qualname__
    if name == "UnionType":  # the origin of int | str; that of Union[int, str] is Union
        return "Union"
    return name if module in ("builtins", "typing") else f"{module}.{name}"
