"""Telling somebody that an approval is waiting, by a signed HTTP request that takes bounded time.

A webhook asks; it never answers. Whatever the other side says, the request stays pending.
"""

import hmac
import json
import threading
import time
import urllib.request
from collections.abc import Mapping
from typing import IO, Any, Final
from urllib.parse import urlsplit

from toolverdict.instrument import guard
from toolverdict.instrument.errors import ConfigurationError

SIGNATURE_HEADER: Final = "X-Toolverdict-Signature"
TIMEOUT_S: Final = 5.0
MIN_SECRET_BYTES: Final = 16


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> None:
        """What is asked, and its signature, go to the address that was configured or nowhere."""


class Webhook:
    """Posts JSON to an address, signed: ``X-Toolverdict-Signature: t=SECONDS,v1=HEX``.

    ``HEX`` is HMAC-SHA-256 over the seconds, a dot and the body (see ``signature``).

    Args:
        url: Where to; http or https.
        secret: What the receiver checks the signature with; at least 16 bytes.
        timeout_s: After how many seconds it has failed.

    Raises:
        ConfigurationError: The address or secret cannot be used.
    """

    def __init__(self, url: str, secret: bytes | str, timeout_s: float = TIMEOUT_S) -> None:
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError as error:
            raise ConfigurationError(f"the webhook's url is none: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigurationError("the webhook's url must begin with http:// or https://")
        if parts.username is not None:
            raise ConfigurationError("the webhook's url must not hold a user name or password")
        self._secret = secret.encode() if isinstance(secret, str) else bytes(secret)
        if len(self._secret) < MIN_SECRET_BYTES:
            raise ConfigurationError(f"the webhook's secret needs {MIN_SECRET_BYTES} bytes")
        if not 0 < timeout_s <= 60:
            raise ConfigurationError("the webhook's timeout_s must be more than 0 and at most 60")
        self._url = url
        self._timeout_s = timeout_s
        self._opener = urllib.request.build_opener(_NoRedirects)

    def post(self, document: Mapping[str, object]) -> bool:
        """Send it; whether the other side took it (2xx). Never raises, never takes longer."""
        taken: list[bool] = []
        # A thread, since the timeout of a socket begins anew with every byte that comes.
        thread = threading.Thread(
            target=lambda: taken.append(self._post(document)),
            name="toolverdict-webhook",
            daemon=True,
        )
        try:
            thread.start()
        except RuntimeError:  # the interpreter is about to end
            return False
        thread.join(self._timeout_s)
        if taken == [True]:
            return True
        guard.note("webhook", "the webhook could not be reached; the request stays pending")
        return False

    def _post(self, document: Mapping[str, object]) -> bool:
        try:
            body = json.dumps(document, sort_keys=True).encode()
            seconds = int(time.time())
            request = urllib.request.Request(
                self._url,
                data=body,
                method="POST",
                headers={
                    "Content-Type": "application/json",
                    "User-Agent": "toolverdict",
                    SIGNATURE_HEADER: f"t={seconds},v1={signature(self._secret, seconds, body)}",
                },
            )
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return 200 <= int(answer.status) < 300
        except Exception:  # noqa: BLE001 - whatever happened, nobody was asked
            return False


def signature(secret: bytes, seconds: int, body: bytes) -> str:
    """The signature of a body that was sent at a time."""
    return hmac.digest(secret, b"%d." % seconds + body, "sha256").hex()
