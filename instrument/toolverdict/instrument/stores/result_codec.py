"""Results as JSON text and back, with every type as it was, or not at all.

A replayed result is used as the first one was, so a tuple must not come back as a list, nor a
``Decimal`` as a text. What JSON cannot say is tagged as in ``canonical``; a class of the
application (enum, dataclass, pydantic model) comes back only if it was named beforehand: a
database must not choose what is made. Whatever else has no such text: ``Unencodable``.
"""

import base64
import dataclasses
import datetime
import decimal
import enum
import fractions
import json
import math
import pathlib
import sys
import uuid
import zoneinfo
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

MAX_RESULT_BYTES: Final = 1024 * 1024
MAX_DEPTH: Final = 64


class Unencodable(ValueError):
    """The value has no text that it could be restored from."""


class ResultCodec:
    """Encodes and decodes results.

    Args:
        types: Enums, dataclasses and pydantic models that may come back.
        max_bytes: What takes more has no text.
    """

    def __init__(self, types: Collection[type] = (), max_bytes: int = MAX_RESULT_BYTES) -> None:
        self._types = {_name(kind): kind for kind in types}
        self._max_bytes = max_bytes

    def encode(self, value: object) -> str:
        """The text.

        Raises:
            Unencodable: There is none.
        """
        try:
            text = json.dumps(_Encoding(self._types, self._max_bytes).tree(value, 0))
        except Unencodable:
            raise
        except Exception as error:  # noqa: BLE001 - a result may raise anything when it is read
            raise Unencodable(type(error).__name__) from None
        if len(text) > self._max_bytes:
            raise Unencodable("too large")
        return text

    def decode(self, text: str) -> Any:
        """The value; a new one each time.

        Raises:
            ValueError: The text is none of ours.
        """
        try:
            return self._value(json.loads(text))
        except Exception as error:  # noqa: BLE001 - somebody else's text may hold anything
            raise ValueError(f"not an encoded result ({type(error).__name__})") from None

    def _value(self, tree: Any) -> Any:
        if isinstance(tree, list):
            return [self._value(item) for item in tree]
        if not isinstance(tree, dict):
            return tree
        if "$t" not in tree:
            return {_unescaped(key): self._value(item) for key, item in tree.items()}
        tag, inner = tree["$t"], tree["v"]
        if tag in ("enum", "dataclass", "model"):
            return self._made(tag, self._types[inner[0]], inner[1])
        if tag == "map":
            return {self._value(key): self._value(item) for key, item in inner}
        if tag in _COLLECTIONS:
            return _COLLECTIONS[tag](self._value(item) for item in inner)
        return _FROM_TEXT[tag](inner)

    def _made(self, tag: str, kind: Any, inner: Any) -> Any:
        if tag == "enum":
            return kind[inner]
        fields = {name: self._value(item) for name, item in inner.items()}
        return kind.model_construct(**fields) if tag == "model" else kind(**fields)


class _Encoding:
    """One walk over one value, with a budget."""

    def __init__(self, types: Mapping[str, type], budget: int) -> None:
        self._types = types
        self._left = budget

    def tree(self, value: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise Unencodable("too deep")
        kind = type(value)
        self._left -= 1 + (len(value) if kind in (str, bytes, bytearray) else 0)
        if self._left < 0:
            raise Unencodable("too large")
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"$t": "float", "v": repr(value)}
        if kind is list:
            return [self.tree(item, depth + 1) for item in value]
        if kind is dict:
            return self._mapping(value, depth)
        for tag, collection in _COLLECTIONS.items():
            if kind is collection:
                return {"$t": tag, "v": [self.tree(item, depth + 1) for item in value]}
        if kind in _TO_TEXT:
            tag, text = _TO_TEXT[kind]
            return {"$t": tag, "v": text(value)}
        return self._object(value, depth)

    def _mapping(self, value: dict[Any, Any], depth: int) -> Any:
        if all(type(key) is str for key in value):
            return {
                "$" + key if key.startswith("$") else key: self._under(key, item, depth)
                for key, item in value.items()
            }
        items = [
            [self.tree(key, depth + 1), self.tree(item, depth + 1)] for key, item in value.items()
        ]
        return {"$t": "map", "v": items}

    def _under(self, key: str, item: Any, depth: int) -> Any:
        self._left -= len(key)
        return self.tree(item, depth + 1)

    def _object(self, value: Any, depth: int) -> Any:
        kind = type(value)
        name = _name(kind)
        if self._types.get(name) is not kind:
            raise Unencodable(name)
        if isinstance(value, enum.Enum):
            if value.name is None or kind[value.name] is not value:  # a made-up flag
                raise Unencodable(name)
            return {"$t": "enum", "v": [name, value.name]}
        if dataclasses.is_dataclass(value):
            tag, fields = "dataclass", {f.name: getattr(value, f.name) for f in _init_fields(value)}
            if set(getattr(value, "__dict__", fields)) - set(fields):
                raise Unencodable(name)
            again: Any = kind(**fields)
        elif _is_model(value):
            if value.__pydantic_extra__ or value.__pydantic_private__:
                raise Unencodable(name)
            tag, fields = "model", dict(value.__dict__)
            again = kind.model_construct(**fields)
        else:
            raise Unencodable(name)
        if again != value:
            raise Unencodable(name)
        return {"$t": tag, "v": [name, {key: self.tree(v, depth + 1) for key, v in fields.items()}]}


def _init_fields(value: Any) -> list[dataclasses.Field[Any]]:
    fields = dataclasses.fields(value)
    if not all(field.init for field in fields):
        raise Unencodable(_name(type(value)))
    return list(fields)


def _is_model(value: object) -> bool:
    model = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    return isinstance(model, type) and isinstance(value, model)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _unescaped(key: str) -> str:
    return key[1:] if key.startswith("$") else key


def _zone(zone: datetime.tzinfo | None) -> Any:
    if zone is None:
        return None
    if type(zone) is zoneinfo.ZoneInfo and zone.key is not None:
        return zone.key
    if type(zone) is datetime.timezone:
        return [zone.utcoffset(None) // datetime.timedelta(microseconds=1), zone.tzname(None)]
    raise Unencodable(_name(type(zone)))


def _zone_of(tree: Any) -> datetime.tzinfo | None:
    if tree is None:
        return None
    if isinstance(tree, str):
        return zoneinfo.ZoneInfo(tree)
    offset = datetime.timedelta(microseconds=tree[0])
    plain = datetime.timezone(offset)
    return plain if plain.tzname(None) == tree[1] else datetime.timezone(offset, tree[1])


def _moment(value: datetime.datetime | datetime.time) -> Any:
    naive = value.replace(tzinfo=None, fold=0)
    return [naive.isoformat(), _zone(value.tzinfo), value.fold]


def _datetime(tree: Any) -> datetime.datetime:
    naive = datetime.datetime.fromisoformat(tree[0])
    return naive.replace(tzinfo=_zone_of(tree[1]), fold=tree[2])


def _time(tree: Any) -> datetime.time:
    return datetime.time.fromisoformat(tree[0]).replace(tzinfo=_zone_of(tree[1]), fold=tree[2])


def _base64(value: bytes | bytearray) -> str:
    return base64.b64encode(value).decode("ascii")


_COLLECTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}

_PLAIN: Final[tuple[tuple[type, str, Callable[[Any], Any], Callable[[Any], Any]], ...]] = (
    (bytes, "bytes", _base64, base64.b64decode),
    (bytearray, "bytearray", _base64, lambda text: bytearray(base64.b64decode(text))),
    (decimal.Decimal, "decimal", str, decimal.Decimal),
    (datetime.datetime, "datetime", _moment, _datetime),
    (datetime.date, "date", datetime.date.isoformat, datetime.date.fromisoformat),
    (datetime.time, "time", _moment, _time),
    (
        datetime.timedelta,
        "timedelta",
        lambda value: value // datetime.timedelta(microseconds=1),
        lambda microseconds: datetime.timedelta(microseconds=microseconds),
    ),
    (uuid.UUID, "uuid", str, uuid.UUID),
    (fractions.Fraction, "fraction", str, fractions.Fraction),
    (type(pathlib.Path()), "path", str, pathlib.Path),
    (pathlib.PurePosixPath, "posix-path", str, pathlib.PurePosixPath),
    (pathlib.PureWindowsPath, "windows-path", str, pathlib.PureWindowsPath),
)

_TO_TEXT: Final = {kind: (tag, encode) for kind, tag, encode, _ in _PLAIN}
_FROM_TEXT: Final[Mapping[str, Callable[[Any], Any]]] = {
    **{tag: decode for _, tag, _, decode in _PLAIN},
    "float": float,
}
