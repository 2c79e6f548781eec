"""Who sends: bearer tokens from a file, each with the tenant whose data it brings.

The file has one token a line, ``TOKEN`` or ``TENANT TOKEN``; ``#`` begins a comment line. It is read
again when it changes, so that tokens are rotated without a restart: add the new one, move the
clients, remove the old one. A file that is missing, empty or wrong for longer than a grace period
revokes every token. Tokens are compared as digests in constant time. A tenant is known by
its token alone; nothing a client sends can name another.
"""

import hashlib
import hmac
import logging
import os
import re
import time
from pathlib import Path
from typing import Final, NamedTuple

from toolverdict.collector.errors import ConfigError, UnauthorizedError

_LOG = logging.getLogger(__name__)

CHECK_S: Final = 1.0
"""Seconds for which the file is not looked at again."""

GRACE_S: Final = 60.0
"""Seconds for which the tokens read before stay valid when the file is missing, empty or wrong."""

MIN_TOKEN_CHARS: Final = 16
_TOKEN: Final = re.compile(rf"[!-~]{{{MIN_TOKEN_CHARS},512}}")
TENANT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
"""Names of tenants are names of folders: no dot, no slash, no case."""


class Caller(NamedTuple):
    """Whoever sent a request, as far as we can be sure."""

    client: str
    """Shares memory fairly with other clients: its token's tenant, or its address."""
    tenant: str | None
    """None for the lake of those without a tenant."""


class _Token(NamedTuple):
    digest: bytes
    tenant: str | None


class Tokens:
    """The tokens of a file as they are now, or the rule that everybody may send."""

    def __init__(self, file: Path | None) -> None:
        """Read the file; None lets everybody in.

        Raises:
            ConfigError: when it cannot be read, holds no token or one that is not well formed.
        """
        self._file = file
        self._tokens: list[_Token] = []
        self._seen: tuple[int, int, int] | None = None
        self._unusable_since_s: float | None = None
        self._next_check_s = time.monotonic() + CHECK_S
        if file is not None:
            self._seen = _identity(file)
            self._tokens = _read(file)

    def caller(self, authorization: str | None, address: str) -> Caller:
        """Who sends a request.

        Args:
            authorization: the header of this name; "Bearer" in any case.
            address: of the peer, without its port.

        Raises:
            UnauthorizedError: when a token is asked for and this is none of them.
        """
        if self._file is None:
            return Caller(address, None)
        self._read_again_if_changed(self._file)
        scheme, _, token = (authorization or "").partition(" ")
        if scheme.lower() != "bearer":
            raise UnauthorizedError("send a token: Authorization: Bearer TOKEN")
        digest = _digest(token.strip())
        # All are compared, so that the time tells nothing about which one it was.
        known = [item for item in self._tokens if hmac.compare_digest(item.digest, digest)]
        if not known:
            raise UnauthorizedError("the bearer token is not known; ask the operator for one")
        return Caller(known[0].tenant or address, known[0].tenant)

    def _read_again_if_changed(self, file: Path) -> None:
        now = time.monotonic()
        if now < self._next_check_s:
            return
        self._next_check_s = now + CHECK_S
        try:
            identity = _identity(file)
        except ConfigError:
            identity = None  # reading it says why
        is_new = identity != self._seen
        if not is_new and self._unusable_since_s is None:
            return
        self._seen = identity
        try:
            self._tokens = _read(file)
        except ConfigError as error:
            self._keep_for_a_while(error, now, is_new)
        else:
            self._unusable_since_s = None
            _LOG.info("read %d tokens from %s", len(self._tokens), file)

    def _keep_for_a_while(self, error: ConfigError, now: float, is_new: bool) -> None:
        """A file between two writes locks nobody out; one that stays so revokes all tokens."""
        if self._unusable_since_s is None:
            self._unusable_since_s = now
        left_s = self._unusable_since_s + GRACE_S - now
        if left_s > 0:
            if is_new:
                _LOG.error("%s; the tokens read before stay valid for %.0f s", error, left_s)
        elif self._tokens:
            self._tokens = []
            _LOG.error("%s; every request is refused until the file holds tokens again", error)


def _read(file: Path) -> list[_Token]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(file, error) from error
    tokens: list[_Token] = []
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        tenant = words[0] if len(words) == 2 else None
        if len(words) > 2 or (tenant is not None and not TENANT.fullmatch(tenant)):
            raise ConfigError(
                f"{file} line {number} must be TOKEN or TENANT TOKEN, the tenant in lower-case "
                "letters, digits, - and _"
            )
        if not _TOKEN.fullmatch(words[-1]):
            raise ConfigError(
                f"{file} line {number}: a token must be {MIN_TOKEN_CHARS} to 512 printable ASCII "
                "characters"
            )
        tokens.append(_Token(_digest(words[-1]), tenant))
    if not tokens:
        raise ConfigError(f"{file} holds no token; nobody could send anything")
    if len({token.digest for token in tokens}) != len(tokens):
        raise ConfigError(f"{file} holds a token twice; give each tenant its own")
    return tokens


def _identity(file: Path) -> tuple[int, int, int]:
    try:
        found = os.stat(file)
    except OSError as error:
        raise _unreadable(file, error) from error
    return found.st_ino, found.st_mtime_ns, found.st_size


def _unreadable(file: Path, error: Exception) -> ConfigError:
    reason = (error.strerror or "") if isinstance(error, OSError) else "not UTF-8"
    return ConfigError(f"cannot read the tokens in {file} ({reason})")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
