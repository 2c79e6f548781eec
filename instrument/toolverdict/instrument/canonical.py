"""One canonical form for the arguments of a call: RFC 8785 JSON over tagged values.

Two sets of arguments have the same form exactly when they are the same arguments, in every process
and on every machine. What JSON cannot say is tagged, so that it never looks like something else:

- an integer outside ±(2^53-1) is ``{"$int": "..."}``;
- tuples, sets, bytes, decimals, dates, times, UUIDs, paths, enums, dataclasses, pydantic models and
  mappings with a key that is not a string are ``{"$t": kind, "v": ...}``;
- a user's key that starts with ``$`` is escaped by one more ``$``.

Where Python and this form see equality differently, on purpose: ``True`` is not ``1``; a list is
not a tuple; ``Decimal("1.10")`` is not ``Decimal("1.1")`` and a moment in two time zones is two
(what is approved is what was shown). ``1`` and ``1.0`` are the same number, as in JSON, and so are
``0.0`` and ``-0.0``. Unicode is taken as it is, without normalisation.

What has a form is what the tool will see. A subclass of a JSON type counts as the value that it
holds as long as that is all there is to it: one that answers another content than it holds, or
carries attributes beside it, has no form. The attributes of a dataclass or model count whether
they are fields or not, except what a ``cached_property`` made of the others.

There is no form for NaN, infinities, lone surrogates, cycles, unknown types, more than 64 levels or
more than 256 KiB: ``Unhashable``. The work is bounded by those limits, not by the value.
"""

import base64
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import gc
import inspect
import math
import pathlib
import sys
import uuid
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring
from types import MappingProxyType
from typing import Any, Final, cast

import rfc8785

from toolverdict.instrument.errors import Unhashable

CANON: Final = "jcs-tagged/1"
"""Names this form in spans; a change of the form changes the name."""

MAX_DEPTH: Final = 64
MAX_BYTES: Final = 256 * 1024

_SAFE_INT: Final = 2**53 - 1
_MAX_INT_BITS: Final = 12_000  # Python refuses to print integers much longer than this.


def canonicalise(value: object) -> bytes:
    """The canonical form of a value.

    Raises:
        Unhashable: The value has none.
    """
    try:
        text = _Encoder().encode(value, 0)
        form = text.encode("utf-8")
    except Unhashable:
        raise
    except UnicodeEncodeError:
        raise Unhashable("lone_surrogate") from None
    except Exception as error:  # noqa: BLE001 - reading the caller's objects may raise anything
        raise Unhashable("failed", type(error).__name__) from None
    if len(form) > MAX_BYTES:
        raise Unhashable("too_large")
    return form


class _Encoder:
    """One walk over one value: what is left of the budget, and the containers it is inside of."""

    def __init__(self) -> None:
        self._left = MAX_BYTES
        self._path: set[int] = set()

    def encode(self, value: Any, depth: int) -> str:
        kind = type(value)
        if kind is str:
            return self._string(value)
        if value is None:
            return self._spend("null")
        if kind is bool:
            return self._spend("true" if value else "false")
        if kind is int:
            return self._integer(value)
        if kind is float:
            return self._float(value)
        if kind is dict:
            return self._inside(value, depth, self._mapping)
        if kind is list:
            return self._inside(value, depth, self._array)
        return self._rare(value, depth)

    def _rare(self, value: Any, depth: int) -> str:
        """Everything that is not exactly a JSON type; the order is by what is a subclass of what."""
        if isinstance(value, enum.Enum):
            member = value.name if value.name is not None else value.value
            return self._tagged("enum", [type(value).__qualname__, member], depth)
        if not _is_what_it_holds(value):
            raise Unhashable("unsupported_type", _type_name(value))
        if isinstance(value, str):
            return self._string(str.__str__(value))
        if isinstance(value, int):
            return self._integer(int.__int__(value))
        if isinstance(value, float):
            return self._float(float.__float__(value))
        if isinstance(value, MappingProxyType):
            value = gc.get_referents(value)[0]  # what it stands for; there is no other way to it
            if not isinstance(value, dict) or not _is_what_it_holds(value):
                raise Unhashable("unsupported_type", _type_name(value))
        if isinstance(value, dict):
            return self._inside(value, depth, self._mapping)
        if isinstance(value, list):
            return self._inside(value, depth, self._array)
        if isinstance(value, tuple):
            return self._inside(value, depth, self._tuple)
        if isinstance(value, set | frozenset):
            return self._inside(value, depth, self._set)
        for types, tag, text in _SCALARS:
            if isinstance(value, types):
                return self._tagged(tag, text(value), depth)
        if (
            dataclasses.is_dataclass(value)
            and not isinstance(value, type)
            and _looks_up_like(value, object)
        ):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return self._object("dataclass", value, {**_attributes(value), **fields}, depth)
        model = _loaded("pydantic", "BaseModel")
        if model is not None and isinstance(value, model) and _looks_up_like(value, model):
            extra = getattr(value, "__pydantic_extra__", None) or {}
            private = getattr(value, "__pydantic_private__", None) or {}
            return self._object("model", value, {**_attributes(value), **extra, **private}, depth)
        if _is_loaded("numpy", "generic", value):
            number = value.item()
            if type(number) in (bool, int, float):
                return self.encode(number, depth)
        raise Unhashable("unsupported_type", _type_name(value))

    def _inside(self, value: Any, depth: int, encode: Callable[[Any, int], str]) -> str:
        """Go into a container: one level deeper, and never into one that we are in already."""
        if id(value) in self._path:
            raise Unhashable("cycle")
        if depth >= MAX_DEPTH:
            raise Unhashable("too_deep")
        self._path.add(id(value))
        try:
            return encode(value, depth + 1)
        finally:
            self._path.discard(id(value))

    def _mapping(self, value: Any, depth: int) -> str:
        items = list(dict.items(value))
        if not all(type(key) is str for key, _ in items):
            items = [(_plain_key(key), item) for key, item in items]
            if not all(type(key) is str for key, _ in items):
                return self._map_of_any_keys(items, depth)
        if all(key.isascii() for key, _ in items):
            items.sort(key=_key)
        else:
            # RFC 8785 sorts by UTF-16 code units; a lone surrogate is found when text is encoded.
            items.sort(key=lambda item: item[0].encode("utf-16-be", "surrogatepass"))
        return self._wrap("{", (self._member(key, item, depth) for key, item in items), "}")

    def _member(self, key: str, value: object, depth: int) -> str:
        name = self._string("$" + key if key.startswith("$") else key)
        return f"{name}:{self.encode(value, depth)}"

    def _map_of_any_keys(self, items: list[tuple[object, object]], depth: int) -> str:
        pairs = (f"[{self.encode(key, depth)},{self.encode(item, depth)}]" for key, item in items)
        return self._wrap('{"$t":"map","v":[', sorted(pairs), "]}")

    def _array(self, value: Any, depth: int) -> str:
        return self._wrap("[", (self.encode(item, depth) for item in list.__iter__(value)), "]")

    def _tuple(self, value: Any, depth: int) -> str:
        items = (self.encode(item, depth) for item in tuple.__iter__(value))
        return self._wrap('{"$t":"tuple","v":[', items, "]}")

    def _set(self, value: Any, depth: int) -> str:
        items = sorted(self.encode(item, depth) for item in value)
        return self._wrap('{"$t":"set","v":[', items, "]}")

    def _object(self, tag: str, value: object, fields: dict[str, object], depth: int) -> str:
        def encode(_: object, depth: int) -> str:
            return self._tagged(tag, [type(value).__qualname__, fields], depth)

        return self._inside(value, depth, encode)

    def _tagged(self, tag: str, value: object, depth: int) -> str:
        # The list that some tags hold is ours and is no level of the caller's.
        inner = (
            self._wrap("[", [self.encode(item, depth) for item in value], "]")
            if type(value) is list
            else self.encode(value, depth)
        )
        return self._wrap(f'{{"$t":"{tag}","v":', [inner], "}")

    def _wrap(self, opening: str, items: Iterable[str], closing: str) -> str:
        self._spend(opening)
        text = ",".join(items)
        return f"{opening}{text}{closing}"

    def _string(self, value: str) -> str:
        if len(value) > self._left:
            raise Unhashable("too_large")
        return self._spend(encode_basestring(value))

    def _integer(self, value: int) -> str:
        if -_SAFE_INT <= value <= _SAFE_INT:
            return self._spend(str(value))
        if value.bit_length() > _MAX_INT_BITS:
            raise Unhashable("too_large")
        return self._spend(f'{{"$int":"{value}"}}')

    def _float(self, value: float) -> str:
        if not math.isfinite(value):
            raise Unhashable("not_finite")
        return self._spend(rfc8785.dumps(value).decode("ascii"))

    def _spend(self, text: str) -> str:
        self._left -= len(text) + 1
        if self._left < 0:
            raise Unhashable("too_large")
        return text


def _key(item: tuple[str, object]) -> str:
    return item[0]


def _plain_key(key: object) -> object:
    """The text that a key of a subclass of str holds; an enum member is more than its text."""
    return str.__str__(key) if isinstance(key, str) and not isinstance(key, enum.Enum) else key


def _decimal(value: decimal.Decimal) -> str:
    if not value.is_finite():
        raise Unhashable("not_finite")
    return str(value)


def _bytes(value: bytes | bytearray | memoryview) -> str:
    if memoryview(value).nbytes > MAX_BYTES:
        raise Unhashable("too_large")
    return base64.b64encode(bytes(value)).decode("ascii")


def _timedelta(value: datetime.timedelta) -> str:
    return str(value // datetime.timedelta(microseconds=1))


def _isoformat(value: datetime.datetime | datetime.date | datetime.time) -> str:
    return value.isoformat()


_SCALARS: Final = cast(
    "tuple[tuple[tuple[type, ...], str, Callable[[Any], str]], ...]",
    (
        ((bytes, bytearray, memoryview), "bytes", _bytes),
        ((decimal.Decimal,), "decimal", _decimal),
        ((datetime.datetime,), "datetime", _isoformat),
        ((datetime.date,), "date", _isoformat),
        ((datetime.time,), "time", _isoformat),
        ((datetime.timedelta,), "timedelta", _timedelta),
        ((uuid.UUID,), "uuid", str),
        ((fractions.Fraction,), "fraction", str),
        ((pathlib.PurePath,), "path", str),
    ),
)
"""Types whose value is one text; a datetime is a date, so it comes first."""


_HOLDERS: Final = (str, int, float, dict, list, tuple, set, frozenset, bytes, bytearray)
_ANSWERING_TRULY: Final = (*_HOLDERS, collections.OrderedDict, collections.defaultdict)

_NOT_READING: Final = frozenset(
    (
        *("__new__", "__init__", "__init_subclass__", "__class_getitem__", "__class__"),
        *("__dict__", "__doc__", "__repr__", "__setattr__", "__delattr__"),
        *("__reduce__", "__reduce_ex__", "__getnewargs__", "__getstate__", "__setstate__"),
        *("__setitem__", "__delitem__", "append", "extend", "insert", "add", "update"),
        *("setdefault", "pop", "popitem", "remove", "discard", "clear", "copy", "fromkeys"),
    )
)
"""What a subclass may have of its own without answering another content than it holds."""


def _is_what_it_holds(value: object) -> bool:
    """Whether a tool finds in a value what the builtin type that it is, or is made of, holds."""
    holder = next((kind for kind in _HOLDERS if isinstance(value, kind)), None)
    if holder is None or _is_loaded("numpy", "generic", value):
        return True
    if getattr(value, "__dict__", None):
        return False
    reading = {*dir(holder), "__getattr__", "__missing__"} - _NOT_READING
    for kind in type(value).__mro__:
        if kind in _ANSWERING_TRULY:
            break
        own = set(vars(kind)) - set(getattr(kind, "_fields", ()))  # those of a named tuple
        if not own.isdisjoint(reading):
            return False
    return True


def _looks_up_like(value: object, base: type) -> bool:
    """Whether the attributes of a value are what it carries, and not made up by its class."""
    return all(
        getattr(type(value), name, None) is getattr(base, name, None)
        for name in ("__getattribute__", "__getattr__")
    )


def _attributes(value: object) -> dict[str, object]:
    """Every attribute that an object carries itself, besides what it has worked out of them."""
    kind = type(value)
    return {
        name: attribute
        for name, attribute in getattr(value, "__dict__", {}).items()
        if not isinstance(inspect.getattr_static(kind, name, None), functools.cached_property)
    }


def _loaded(module: str, name: str) -> type | None:
    """A class of a package that we do not import, if somebody else has."""
    loaded = getattr(sys.modules.get(module), name, None)
    return loaded if isinstance(loaded, type) else None


def _is_loaded(module: str, name: str, value: object) -> bool:
    loaded = _loaded(module, name)
    return loaded is not None and isinstance(value, loaded)


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
