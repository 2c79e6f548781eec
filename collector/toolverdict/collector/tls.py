"""TLS and mutual TLS for both transports, from files that may be renewed while we run."""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import grpc

from toolverdict.collector.errors import ConfigError
from toolverdict.collector.settings import CollectorSettings

_LOG = logging.getLogger(__name__)

CHECK_S: Final = 10.0
"""Seconds between two looks at the files of the HTTP listener."""


class TlsFiles(NamedTuple):
    """PEM files of a listener."""

    certificate: Path
    """The certificate with its chain."""
    key: Path
    client_ca: Path | None
    """Who signs the certificates of clients; None asks clients for none."""

    def identity(self) -> tuple[tuple[int, int], ...]:
        """What changes when one of the files does.

        Raises:
            OSError: when one is missing.
        """
        found = [os.stat(path) for path in self if path is not None]
        return tuple((item.st_ino, item.st_mtime_ns) for item in found)


def tls_files(settings: CollectorSettings) -> TlsFiles | None:
    """The files the settings name, None when they name none."""
    if settings.tls_certificate is None or settings.tls_key is None:
        return None
    return TlsFiles(settings.tls_certificate, settings.tls_key, settings.tls_client_ca)


def http_context(files: TlsFiles) -> ssl.SSLContext:
    """What the HTTP listener needs.

    Raises:
        ConfigError: when a file cannot be read, or key and certificate do not belong together.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A key with a passphrase would make OpenSSL ask for it on the terminal.
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
        if files.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(files.client_ca)
    except (OSError, ValueError) as error:
        raise _unusable(files, error) from error
    return context


async def renew(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Load certificate and key into a context again whenever their files change, for ever.

    New connections get the new certificate. Files that do not belong together, as in the moment
    between two writes, leave the old one in use. A new client CA needs a restart.
    """
    seen: tuple[tuple[int, int], ...] | None = None
    with suppress(OSError):  # gone since they were loaded: whatever comes is new
        seen = files.identity()
    while True:
        await asyncio.sleep(CHECK_S)
        try:
            identity = files.identity()
            if identity == seen:
                continue
            http_context(files)  # a context that took half of a pair would be of no use
            context.load_cert_chain(files.certificate, files.key, password=_no_password)
        except (OSError, ConfigError) as error:
            _LOG.warning("the TLS files cannot be renewed (%s)", error)
        except Exception:  # noqa: BLE001 - the old certificate serves on, and we look again
            _LOG.exception("the TLS files cannot be renewed for a fault of the collector")
        else:
            seen = identity
            _LOG.info("the TLS certificate was renewed")


def grpc_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """What the gRPC listener needs; it looks at the files at every handshake.

    Raises:
        ConfigError: as :func:`http_context` does.
    """
    http_context(files)  # gRPC tells nobody what is wrong with a file
    fetch = _fetcher(files)
    first = fetch()
    assert first is not None
    return grpc.dynamic_ssl_server_credentials(
        first,
        fetch,  # type: ignore[arg-type] # None, says gRPC, is "unchanged"
        require_client_authentication=files.client_ca is not None,
    )


def _fetcher(
    files: TlsFiles,
) -> Callable[[], grpc.ServerCertificateConfiguration | None]:
    """A function that gives the configuration when it has changed, and None when it has not."""
    seen: tuple[tuple[int, int], ...] | None = None

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal seen
        try:
            identity = files.identity()
            if identity == seen:
                return None
            http_context(files)
            configuration = grpc.ssl_server_certificate_configuration(
                [(files.key.read_bytes(), files.certificate.read_bytes())],
                files.client_ca.read_bytes() if files.client_ca is not None else None,
            )
        except (OSError, ConfigError):
            return None
        seen = identity
        return configuration

    return fetch


def _no_password() -> str:
    raise ValueError("the key has a passphrase")


def _unusable(files: TlsFiles, error: Exception) -> ConfigError:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
    names = ", ".join(str(path) for path in files if path is not None)
    return ConfigError(f"cannot use the TLS files {names} ({reason}); give PEM files that match")
