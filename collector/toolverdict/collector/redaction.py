r"""What an operator never wants on the disk, taken out of a request before it is logged.

The rules are a YAML file::

    version: 1
    hash_key_file: /etc/toolverdict/redaction.key   # needed when a rule hashes
    rules:
      - {attribute: "user.email", action: drop}
      - {attribute: "session.*", action: hash}
      - {text: "\\b[0-9]{13,16}\\b", action: mask}

An attribute rule names a key, with ``*`` and ``?``, wherever keys stand: resources, scopes, spans,
events, links, log records, and maps inside of values. A text rule is a regular expression for every
string that is stored (values, names, messages, bodies) and for numbers, as their digits; for no key
and no bytes value. A value that is the text of a JSON object or array is read, both kinds of rules
apply inside of it, and it is written again when one did. The first rule that names a key decides; text rules all apply, in order. A hash is HMAC-SHA256, cut to 128
bits, so equal values stay equal and none can be guessed without the key.
"""

import hashlib
import hmac
import re
from collections.abc import Callable, MutableSequence
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, Self

import yaml
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from toolverdict.collector import redaction_json
from toolverdict.collector.decode import parse
from toolverdict.collector.errors import ConfigError
from toolverdict.collector.redaction_json import Number, Pairs
from toolverdict.collector.signals import Signal

MASK: Final = "[redacted]"
MIN_HASH_KEY_BYTES: Final = 16
_HASH_CHARS: Final = 32
_CACHED_KEYS: Final = 4096
_MAX_NESTED: Final = 4
"""Texts inside of texts that are read as JSON."""
_MAX_DIGITS: Final = 40
"""Of numbers that are also looked at without their exponent."""

Action = Literal["drop", "hash", "mask"]


class Rule(BaseModel):
    """What happens to an attribute, or to the part of a text that matches."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attribute: str | None = Field(default=None, min_length=1)
    """Attribute keys, ``*`` for any characters."""
    text: re.Pattern[str] | None = None
    """A regular expression of the ``re`` module; the operator answers for its cost."""
    action: Action

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.attribute is None) == (self.text is None):
            raise ValueError("a rule names either an attribute or a text")
        return self


class RedactionRules(BaseModel):
    """The content of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1]
    hash_key_file: Path | None = None
    """Its bytes, without white space around them, are the key."""
    rules: tuple[Rule, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.hash_key_file is None and any(rule.action == "hash" for rule in self.rules):
            raise ValueError("a rule hashes, so hash_key_file is needed")
        return self


def read_redactor(file: Path) -> "Redactor":
    """The rules in a file, ready to be applied.

    Raises:
        ConfigError: when the file, or the file of the key, cannot be read or is wrong.
    """
    try:
        rules = RedactionRules.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
        key = rules.hash_key_file.read_bytes().strip() if rules.hash_key_file else b""
    except OSError as error:
        raise ConfigError(f"cannot read {error.filename} ({error.strerror})") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigError(f"{file}: {place}: {first['msg']}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = str(error).replace("\n", " ")
        raise ConfigError(f"{file} is not YAML: {reason}") from error
    if rules.hash_key_file is not None and len(key) < MIN_HASH_KEY_BYTES:
        raise ConfigError(
            f"the key in {rules.hash_key_file} must have {MIN_HASH_KEY_BYTES} bytes or more"
        )
    return Redactor(rules.rules, key)


class Redactor:
    """Applies rules to requests; pure and safe to use from several threads."""

    def __init__(self, rules: tuple[Rule, ...], hash_key: bytes) -> None:
        """Bind the rules."""
        self._hash_key = hash_key
        self._keys = [(rule.attribute, rule.action) for rule in rules if rule.attribute is not None]
        self._texts = [(rule.text, self._replacement(rule.action)) for rule in rules if rule.text]
        self._action_of = lru_cache(_CACHED_KEYS)(self._first_action)

    def redact(self, signal: Signal, body: bytes) -> bytes:
        """An export request in protobuf without what the rules name.

        Fields that this version does not know are left out, for nobody can tell what they hold.
        """
        request = parse(signal, body)
        request.DiscardUnknownFields()  # type: ignore[no-untyped-call,unused-ignore]
        self._walk(request)
        return request.SerializeToString()

    def _walk(self, message: Message) -> None:
        # By descriptors, so that no field can be forgotten, not even one of the next version.
        for field, value in message.ListFields():
            if field.message_type is KeyValue.DESCRIPTOR and field.is_repeated:
                self._pairs(value)
            elif field.message_type is not None:
                for item in value if field.is_repeated else (value,):
                    self._walk(item)
            elif message.DESCRIPTOR is AnyValue.DESCRIPTOR:
                self._scalar(message, field.name, value)
            elif field.type == FieldDescriptor.TYPE_STRING and self._texts:
                if field.is_repeated:
                    value[:] = [self._text(item) for item in value]
                else:
                    setattr(message, field.name, self._text(value))

    def _pairs(self, pairs: MutableSequence[Any]) -> None:
        for index in reversed(range(len(pairs))):
            value = pairs[index].value
            match self._action_of(pairs[index].key):
                case "drop":
                    del pairs[index]
                case "mask":
                    value.CopyFrom(AnyValue(string_value=MASK))
                case "hash":
                    value.CopyFrom(AnyValue(string_value=self._hash(_bytes_of(value))))
                case None:
                    self._walk(value)

    def _scalar(self, message: Any, name: str, value: Any) -> None:
        if isinstance(value, str):
            setattr(message, name, self._value_text(value, _MAX_NESTED))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            digits = self._digits(str(value))
            if digits is not None:
                message.string_value = digits

    def _value_text(self, text: str, nested: int) -> str:
        """A value of text; JSON in it may hold JSON again, so many levels deep."""
        tree = redaction_json.read(text) if nested else None
        if tree is not None:
            redacted = self._json(tree, nested - 1)
            if redacted != tree:
                text = redaction_json.write(redacted)
        return self._text(text)

    def _json(self, tree: Any, nested: int) -> Any:
        match tree:
            case Pairs():
                return self._json_pairs(tree, nested)
            case list():
                return [self._json(item, nested) for item in tree]
            case Number():
                digits = self._digits(tree)
                return tree if digits is None else digits
            case str():
                return self._value_text(tree, nested)
            case _:
                return tree

    def _json_pairs(self, pairs: Pairs, nested: int) -> Pairs:
        kept = Pairs()
        for key, value in pairs:
            match self._action_of(key):
                case "drop":
                    continue
                case "mask":
                    value = MASK
                case "hash":
                    is_text = isinstance(value, str) and not isinstance(value, Number)
                    value = self._hash((value if is_text else redaction_json.write(value)).encode())
                case None:
                    value = self._json(value, nested)
            kept.append((key, value))
        return kept

    def _digits(self, digits: str) -> str | None:
        """What the rules leave of a number, as it was written or in full; None for all of it."""
        for form in (_in_full(digits), digits):
            redacted = self._text(form)
            if redacted != form:
                return redacted
        return None

    def _first_action(self, key: str) -> Action | None:
        return next((action for name, action in self._keys if fnmatchcase(key, name)), None)

    def _text(self, text: str) -> str:
        for pattern, replacement in self._texts:
            text = pattern.sub(replacement, text)
        return text

    def _replacement(self, action: Action) -> Callable[[re.Match[str]], str]:
        match action:
            case "drop":
                return lambda _: ""
            case "mask":
                return lambda _: MASK
            case "hash":
                return lambda match: self._hash(match[0].encode())

    def _hash(self, value: bytes) -> str:
        return hmac.digest(self._hash_key, value, hashlib.sha256).hex()[:_HASH_CHARS]


def _in_full(digits: str) -> str:
    """A number without an exponent, and without a fraction of zero."""
    try:
        value = Decimal(digits)
    except InvalidOperation:
        return digits
    is_whole = value.is_finite() and value.adjusted() < _MAX_DIGITS and value == int(value)
    return str(int(value)) if is_whole else digits


def _bytes_of(value: AnyValue) -> bytes:
    """What is hashed of a value: a text as it is, anything else as protobuf."""
    if value.WhichOneof("value") == "string_value":
        return value.string_value.encode()
    return value.SerializeToString(deterministic=True)
