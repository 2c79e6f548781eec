"""Keyed hashes of arguments and idempotency keys.

Keyed, because amounts, e-mail addresses and order numbers are guessed from a plain digest in
minutes. Whoever compares two hashes needs no key; only that both were made with the same one, which
the key id says.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Any, Final, Self, cast

from toolverdict.instrument.errors import ConfigurationError

MIN_KEY_BYTES: Final = 16
_BLOCK: Final = hashlib.sha256().block_size

_HOW_TO: Final = "make one with: python -c 'import secrets; print(secrets.token_hex(32))'"


@dataclass(frozen=True, slots=True)
class HashKey:
    """A key and the id that stands for it in spans.

    Args:
        secret: The key itself; it is in no representation of this object.
        id: Names the key without disclosing it.
    """

    secret: bytes = field(repr=False)
    id: str
    _inner: Any = field(init=False, repr=False, compare=False)
    _outer: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Begin both digests of HMAC (RFC 2104), once: their first blocks depend on the key alone.

        A call makes several; ``hmac.digest`` takes twice the time, most of it to begin.
        """
        secret = self.secret
        if len(secret) > _BLOCK:
            secret = hashlib.sha256(secret).digest()
        padded = secret.ljust(_BLOCK, b"\0")
        inner, outer = (bytes(byte ^ pad for byte in padded) for pad in (0x36, 0x5C))
        object.__setattr__(self, "_inner", hashlib.sha256(inner))
        object.__setattr__(self, "_outer", hashlib.sha256(outer))

    def digest(self, message: bytes) -> str:
        """HMAC-SHA-256 of a message, in hexadecimal."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return cast("str", outer.hexdigest())

    def __reduce__(self) -> tuple[type[Self], tuple[bytes, str]]:
        """Travel without the digests, which cannot."""
        return type(self), (self.secret, self.id)

    @classmethod
    def of(cls, key: "bytes | str | HashKey", *, source: str = "hash_key") -> Self:
        """A key from bytes, or from hexadecimal text; one that is a key already stays it.

        Raises:
            ConfigurationError: It is too short, not hexadecimal or of another type; ``source``
                names it there.
        """
        if isinstance(key, cls):
            return key
        if isinstance(key, str):
            try:
                key = bytes.fromhex(key.strip())
            except ValueError:
                raise ConfigurationError(f"{source} is not hexadecimal; {_HOW_TO}") from None
        if not isinstance(key, bytes | bytearray | memoryview):
            raise ConfigurationError(
                f"{source} is of type {type(key).__name__}; give bytes or hexadecimal text; {_HOW_TO}"
            )
        if len(key) < MIN_KEY_BYTES:
            raise ConfigurationError(
                f"{source} has {len(key)} bytes and needs at least {MIN_KEY_BYTES}; {_HOW_TO}"
            )
        return cls(bytes(key), _key_id(key))

    @classmethod
    def ephemeral(cls) -> Self:
        """A random key of this process: its hashes match no other process's."""
        key = secrets.token_bytes(32)
        return cls(key, "ephemeral-" + _key_id(key))


def args_hash(key: HashKey, tool: str, canon: bytes) -> str:
    """The hash of a tool's arguments in canonical form, as ``tool.args_hash`` holds it."""
    return _keyed(key, b"toolargs/1", tool, canon)


def idempotency_key_hash(key: HashKey, tool: str, canon: bytes) -> str:
    """The hash of an idempotency key in canonical form; its domain is apart from arguments."""
    return _keyed(key, b"idempotency/1", tool, canon)


def _keyed(key: HashKey, domain: bytes, tool: str, canon: bytes) -> str:
    # Unambiguous without lengths: neither the domain nor a tool's name holds a NUL.
    message = domain + b"\0" + tool.encode("utf-8") + b"\0" + canon
    return "hmac-sha256:" + key.digest(message)


def _key_id(key: bytes) -> str:
    return hmac.new(key, b"toolverdict/key-id/1", hashlib.sha256).hexdigest()[:12]
