"""The key that rows are authenticated with, and whether a row is what it was authenticated as."""

import hmac
import json
from collections.abc import Iterable

from toolverdict.instrument import settings
from toolverdict.instrument.errors import ConfigurationError
from toolverdict.instrument.hashing import HashKey

Key = HashKey | bytes | str
"""What a store takes as its key: one that is made already, its bytes, or hexadecimal text."""


def made(key: Key | None, source: str = "key") -> HashKey | None:
    """The key that a store was given; None stays none.

    Raises:
        ConfigurationError: It is no key; ``source`` names it there.
    """
    return None if key is None else HashKey.of(key, source=source)


def lasting(key: HashKey | None, what: str) -> HashKey:
    """The key that was given, else the hash key of ``configure`` or of the environment.

    Args:
        key: The key that was given.
        what: Says in the message what needs it.

    Raises:
        ConfigurationError: It is one of this process alone, and another would not know its rows.
    """
    found = settings.hash_key(settings.current()) if key is None else key
    if found.id.startswith("ephemeral-"):
        raise ConfigurationError(
            f"{what} a hash key that outlives the process; set {settings.HASH_KEY_ENV}"
        )
    return found


def mac(key: HashKey, domain: str, values: Iterable[object]) -> str:
    """The hash of a row: of all its values, in the order of its columns.

    Raises:
        ValueError: A value is none that we write.
    """
    text = json.dumps([domain, *values], separators=(",", ":"), allow_nan=False)
    return key.digest(b"toolverdict/row/1\0" + text.encode("ascii"))


def same(expected: str, found: object) -> bool:
    """Whether a hash that stands in a row is the expected one; whatever stands there."""
    if not isinstance(found, str):
        return False
    return hmac.compare_digest(expected.encode(), found.encode("utf-8", "surrogatepass"))
