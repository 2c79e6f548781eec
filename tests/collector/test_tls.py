"""TLS and mutual TLS on both transports, with certificates that change while we serve."""

import asyncio
import datetime
import ipaddress
import itertools
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import grpc
import grpc.aio
import pytest

from toolverdict.collector import tls
from toolverdict.collector.errors import ConfigError
from toolverdict.collector.settings import CollectorSettings
from toolverdict.collector.testing import make_request, make_span
from toolverdict.collector.tls import TlsFiles

x509 = pytest.importorskip("cryptography.x509", reason="cryptography makes the certificates")
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402

Serve = Callable[..., AbstractAsyncContextManager[Any]]
VALID = make_request(make_span(1)).SerializeToString()
TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class Pair(NamedTuple):
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


def _issue(folder: Path, name: str, ca: Pair | None = None) -> Pair:
    """A certificate for 127.0.0.1, signed by a CA or by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    issuer, signing_key = subject, key
    if ca is not None:
        issuer = x509.load_pem_x509_certificate(ca.certificate.read_bytes()).subject
        loaded = serialization.load_pem_private_key(ca.key.read_bytes(), None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signing_key = loaded
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=ca is None, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(signing_key, hashes.SHA256())
    )
    pair = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pair.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return pair


class Pki(NamedTuple):
    """Who signs, a server and a client."""

    ca: Pair
    server: Pair
    client: Pair


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    folder = tmp_path_factory.mktemp("pki")
    ca = _issue(folder, "ca")
    return Pki(ca, _issue(folder, "server", ca), _issue(folder, "client", ca))


def _post(url: str, ca: Pair, client: Pair | None = None) -> int:
    context = ssl.create_default_context(cafile=str(ca.certificate))
    if client is not None:
        context.load_cert_chain(client.certificate, client.key)
    headers = {"Content-Type": "application/x-protobuf"}
    request = urllib.request.Request(f"{url}/v1/traces", VALID, headers)
    with urllib.request.urlopen(request, timeout=20, context=context) as response:
        return int(response.status)


async def _export(address: str, ca: Pair, client: Pair | None = None) -> None:
    credentials = grpc.ssl_channel_credentials(
        ca.certificate.read_bytes(),
        client.key.read_bytes() if client else None,
        client.certificate.read_bytes() if client else None,
    )
    options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0))
    async with grpc.aio.secure_channel(address, credentials, options) as channel:
        await channel.unary_unary(TRACES, None, None)(VALID, timeout=20)


async def test_both_transports_speak_tls(serve: Serve, pki: Pki, stored: Callable[[], int]) -> None:
    files = {"tls_certificate": pki.server.certificate, "tls_key": pki.server.key}
    async with serve(**files) as collector:
        assert collector.http.startswith("https://")
        assert await asyncio.to_thread(_post, collector.http, pki.ca) == 200
        await _export(collector.grpc, pki.ca)
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            await asyncio.to_thread(_post, collector.http, pki.client)
        plain = collector.http.replace("https", "http")
        with pytest.raises(OSError, match=r".+"):
            await asyncio.to_thread(_post, plain, pki.ca)
    assert stored() == 1


async def test_mutual_tls_lets_only_known_clients_in(
    serve: Serve, pki: Pki, tmp_path: Path, stored: Callable[[], int]
) -> None:
    stranger = _issue(tmp_path, "stranger")
    files = {
        "tls_certificate": pki.server.certificate,
        "tls_key": pki.server.key,
        "tls_client_ca": pki.ca.certificate,
    }
    async with serve(**files) as collector:
        assert await asyncio.to_thread(_post, collector.http, pki.ca, pki.client) == 200
        await _export(collector.grpc, pki.ca, pki.client)
        for client in (None, stranger):
            with pytest.raises(OSError, match=r".+"):
                await asyncio.to_thread(_post, collector.http, pki.ca, client)
            with pytest.raises(grpc.aio.AioRpcError):
                await _export(collector.grpc, pki.ca, client)
    assert stored() == 1


async def test_a_renewed_certificate_is_served_without_a_restart(
    serve: Serve, pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when one of the two files is there before the other."""
    monkeypatch.setattr(tls, "CHECK_S", 0.02)
    other = _issue(tmp_path, "other-ca")
    renewed = _issue(tmp_path, "renewed", other)
    live = Pair(tmp_path / "live.pem", tmp_path / "live.key")
    for source, target in zip(pki.server, live, strict=True):
        shutil.copy(source, target)
    async with serve(tls_certificate=live.certificate, tls_key=live.key) as collector:
        assert await asyncio.to_thread(_post, collector.http, pki.ca) == 200
        await _export(collector.grpc, pki.ca)
        shutil.copy(renewed.certificate, live.certificate)
        await asyncio.sleep(0.1)
        assert await asyncio.to_thread(_post, collector.http, pki.ca) == 200
        await _export(collector.grpc, pki.ca)
        shutil.copy(renewed.key, live.key)
        await asyncio.sleep(0.2)
        assert await asyncio.to_thread(_post, collector.http, other) == 200
        await _export(collector.grpc, other)


async def test_certificates_change_while_many_send(
    serve: Serve,
    pki: Pki,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stored: Callable[[], int],
) -> None:
    """Connections that are open go on, new ones see one pair or the other, nobody is refused."""
    monkeypatch.setattr(tls, "CHECK_S", 0.005)
    pairs = [pki.server, _issue(tmp_path, "renewed", pki.ca)]
    live = Pair(tmp_path / "live.pem", tmp_path / "live.key")
    for source, target in zip(pairs[0], live, strict=True):
        shutil.copy(source, target)
    sent = 0
    async with serve(tls_certificate=live.certificate, tls_key=live.key) as collector:

        async def send(number: int) -> None:
            nonlocal sent
            for _ in range(10):
                if number % 2:
                    assert await asyncio.to_thread(_post, collector.http, pki.ca) == 200
                else:
                    await _export(collector.grpc, pki.ca)
                sent += 1

        senders = asyncio.gather(*map(send, range(6)))
        served: set[bytes] = set()
        for turn in itertools.count(1):
            for source, target in zip(pairs[turn % 2], live, strict=True):
                shutil.copy(source, target)
                await asyncio.sleep(0.02)
            served.add(await asyncio.to_thread(_served, collector.http))
            if senders.done() and len(served) == 2:
                break
        await senders
    assert sent == 60
    assert stored() == 1  # the same span each time


def _served(url: str) -> bytes:
    """The certificate that a new connection is shown."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return ssl.get_server_certificate((parts.hostname, parts.port)).encode()


def test_files_that_cannot_serve_are_told(pki: Pki, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("garbage")
    for certificate, key, ca in (
        (tmp_path / "absent.pem", pki.server.key, None),
        (pki.server.certificate, pki.client.key, None),
        (garbage, pki.server.key, None),
        (pki.server.certificate, pki.server.key, garbage),
    ):
        files = tls.TlsFiles(certificate, key, ca)
        for make in (tls.http_context, tls.grpc_credentials):
            with pytest.raises(ConfigError, match="cannot use the TLS files") as caught:
                make(files)
            assert "\n" not in str(caught.value)


def test_a_key_with_a_passphrase_asks_nobody(tmp_path: Path, pki: Pki) -> None:
    key = serialization.load_pem_private_key(pki.server.key.read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(ConfigError, match="passphrase"):
        tls.http_context(tls.TlsFiles(pki.server.certificate, locked, None))


@pytest.mark.parametrize(
    "files",
    [{"tls_certificate": "a"}, {"tls_key": "a"}, {"tls_client_ca": "a"}],
)
def test_half_of_a_pair_is_refused(tmp_path: Path, files: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="certificate"):
        CollectorSettings.model_validate({"data_dir": tmp_path, **files})


async def test_renewal_goes_on_after_any_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Files that are gone when it begins, and a fault of ours, end it no more in silence."""
    monkeypatch.setattr(tls, "CHECK_S", 0.001)
    again = asyncio.Event()

    def fail(_: TlsFiles) -> ssl.SSLContext:
        if "fault of the collector" in caplog.text:
            again.set()
        raise RuntimeError

    monkeypatch.setattr(tls, "http_context", fail)
    files = TlsFiles(tmp_path / "a.pem", tmp_path / "a.key", None)
    task = asyncio.create_task(tls.renew(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files))
    await asyncio.sleep(0)
    _issue(tmp_path, "a")
    await asyncio.wait_for(again.wait(), 60)
    assert not task.done()
    task.cancel()
