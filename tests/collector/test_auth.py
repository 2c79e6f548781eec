"""Bearer tokens: who may send, and whose data it is."""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from toolverdict.collector import auth
from toolverdict.collector.auth import Caller, Tokens
from toolverdict.collector.errors import ConfigError, UnauthorizedError
from toolverdict.collector.lake import Lake
from toolverdict.collector.testing import make_request, make_span, post

Serve = Callable[..., AbstractAsyncContextManager[Any]]
FIRST, SECOND, THIRD = "first-token-0123456789", "second-token-0123456789", "third-token-0123456789"
VALID = make_request(make_span(1)).SerializeToString()
TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


def _file(folder: Path, content: str) -> Path:
    path = folder / "tokens"
    path.write_text(content)
    return path


def test_without_a_file_everybody_is_who_they_are_by_address() -> None:
    assert Tokens(None).caller(None, "10.0.0.1") == Caller("10.0.0.1", None)


def test_a_token_names_its_tenant(tmp_path: Path) -> None:
    tokens = Tokens(_file(tmp_path, f"# staging\n\nacme {FIRST}\n{SECOND}\n"))
    assert tokens.caller(f"Bearer {FIRST}", "10.0.0.1") == Caller("acme", "acme")
    assert tokens.caller(f"bearer  {SECOND}", "10.0.0.1") == Caller("10.0.0.1", None)


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", f"Basic {FIRST}", FIRST, f"Bearer {FIRST[:-1]}", "Bearer \udcff\u00e9"],
)
def test_anything_else_is_refused(tmp_path: Path, header: str | None) -> None:
    with pytest.raises(UnauthorizedError) as caught:
        Tokens(_file(tmp_path, f"acme {FIRST}")).caller(header, "10.0.0.1")
    assert FIRST[:-1] not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "no token"),
        ("# nothing\n", "no token"),
        ("short", "line 1"),
        (f"../up {FIRST}", "lower-case"),
        (f"a/b {FIRST}", "lower-case"),
        (f". {FIRST}", "lower-case"),
        (f"Acme {FIRST}", "lower-case"),
        (f"{'x' * 64} {FIRST}", "lower-case"),
        (f"\nacme {FIRST} more", "line 2"),
        (f"a {FIRST}\nb {FIRST}", "twice"),
        ("acme tøken-0123456789-0123456789", "printable ASCII"),
    ],
)
def test_a_wrong_file_is_told_without_its_tokens(tmp_path: Path, content: str, reason: str) -> None:
    """A tenant's name becomes a folder's, so it can lead nowhere else."""
    with pytest.raises(ConfigError, match=reason) as caught:
        Tokens(_file(tmp_path, content))
    assert FIRST not in str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the tokens"):
        Tokens(tmp_path / "absent")


def test_tokens_are_rotated_by_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Add, move, remove; a file that is wrong for a moment locks nobody out."""
    monkeypatch.setattr(auth, "CHECK_S", 0.0)
    path = _file(tmp_path, FIRST)
    tokens = Tokens(path)
    path.write_text(f"{FIRST}\n{SECOND}\n")
    assert tokens.caller(f"Bearer {SECOND}", "a") == Caller("a", None)
    path.write_text(f"{SECOND}\n{THIRD}\n{THIRD}\n")
    assert tokens.caller(f"Bearer {FIRST}", "a") == Caller("a", None)
    assert "the tokens read before stay valid for 60 s" in caplog.text
    path.unlink()
    assert tokens.caller(f"Bearer {FIRST}", "a") == Caller("a", None)
    path.write_text(f"{SECOND}\n{THIRD} \n")
    with pytest.raises(UnauthorizedError):
        tokens.caller(f"Bearer {FIRST}", "a")
    assert FIRST not in caplog.text


@pytest.mark.parametrize("content", [None, "", "short", f"{FIRST}\n{FIRST}\n"])
def test_a_file_that_stays_unusable_revokes_all_tokens(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    content: str | None,
) -> None:
    """Removing or emptying it is how an operator locks everybody out."""
    monkeypatch.setattr(auth, "CHECK_S", 0.0)
    path = _file(tmp_path, f"{SECOND}\n{FIRST}\n")
    tokens = Tokens(path)
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    assert tokens.caller(f"Bearer {FIRST}", "a") == Caller("a", None)
    monkeypatch.setattr(auth, "GRACE_S", 0.0)
    for _ in range(3):
        with pytest.raises(UnauthorizedError):
            tokens.caller(f"Bearer {FIRST}", "a")
    assert caplog.text.count("every request is refused until the file holds tokens again") == 1
    assert FIRST not in caplog.text
    path.write_text(f"{FIRST}\n")
    assert tokens.caller(f"Bearer {FIRST}", "a") == Caller("a", None)


def _metrics_status(url: str, token: str) -> int:
    request = urllib.request.Request(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


async def test_the_metrics_are_for_operators(serve: Serve, tmp_path: Path) -> None:
    """They add up what all tenants sent."""
    async with serve(tokens_file=_file(tmp_path, f"acme {FIRST}\n{SECOND}\n")) as collector:
        assert await asyncio.to_thread(_metrics_status, collector.http, FIRST) == 403
        assert await asyncio.to_thread(_metrics_status, collector.http, SECOND) == 200


def _send(url: str, token: str | None) -> int:
    headers = {"Content-Type": "application/x-protobuf"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, data=VALID, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


async def test_http_answers_401_and_keeps_tenants_apart(serve: Serve, tmp_path: Path) -> None:
    tokens = _file(tmp_path, f"acme {FIRST}\nglobex {SECOND}\n{THIRD}\n")
    async with serve(tokens_file=tokens) as collector:
        url = f"{collector.http}/v1/traces"
        assert await asyncio.to_thread(_send, url, None) == 401
        assert await asyncio.to_thread(_send, url, "wrong-token-0123456789") == 401
        for token in (FIRST, SECOND, SECOND, THIRD):
            assert await asyncio.to_thread(_send, url, token) == 200
        answer = await asyncio.to_thread(post, url, VALID)
        assert "Authorization: Bearer" in Status.FromString(answer.body).message
        assert answer.headers["www-authenticate"] == "Bearer"
        for open_to_all in ("healthz", "readyz"):
            with await asyncio.to_thread(
                urllib.request.urlopen, f"{collector.http}/{open_to_all}"
            ) as response:
                assert response.status == 200
        with pytest.raises(urllib.error.HTTPError, match="401"):
            await asyncio.to_thread(urllib.request.urlopen, f"{collector.http}/metrics")
    for folder in (tmp_path, tmp_path / "tenants" / "acme", tmp_path / "tenants" / "globex"):
        assert Lake.open(folder).read_spans(0, ["name"]).num_rows == 1


async def test_grpc_answers_unauthenticated(serve: Serve, tmp_path: Path) -> None:
    tokens = _file(tmp_path, f"acme {FIRST}\n")
    async with (
        serve(tokens_file=tokens) as collector,
        grpc.aio.insecure_channel(collector.grpc) as channel,
    ):
        export = channel.unary_unary(TRACES, None, None)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await export(VALID)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        await export(VALID, metadata=(("authorization", f"Bearer {FIRST}"),))
    assert Lake.open(tmp_path / "tenants" / "acme").read_spans(0, ["name"]).num_rows == 1
    assert Lake.open(tmp_path).read_spans(0, ["name"]).num_rows == 0


async def test_the_log_of_a_tenant_is_replayed_though_its_token_is_gone(
    serve: Serve, tmp_path: Path
) -> None:
    """What was acknowledged becomes Parquet, whoever may send today."""
    tokens = _file(tmp_path, f"acme {FIRST}\n")
    async with serve(tokens_file=tokens) as collector:
        await asyncio.to_thread(_send, f"{collector.http}/v1/traces", FIRST)
        (segment,) = (tmp_path / "tenants" / "acme" / "wal").glob("*.log")
        content = segment.read_bytes()
    for part in (tmp_path / "tenants" / "acme" / "spans").rglob("*.parquet"):
        part.unlink()
    segment.write_bytes(content)
    tokens.write_text(f"globex {SECOND}\n")
    async with serve(tokens_file=tokens):
        pass
    assert Lake.open(tmp_path / "tenants" / "acme").read_spans(0, ["name"]).num_rows == 1


async def test_a_tenant_whose_folder_is_taken_gets_503(serve: Serve, tmp_path: Path) -> None:
    """A collector of its own has it, or the disk refuses it: send it again later."""
    (tmp_path / "tenants").mkdir()
    (tmp_path / "tenants" / "acme").write_text("")
    tokens = _file(tmp_path, f"acme {FIRST}\n{SECOND}\n")
    async with serve(tokens_file=tokens) as collector:
        url = f"{collector.http}/v1/traces"
        assert await asyncio.to_thread(_send, url, FIRST) == 503
        assert await asyncio.to_thread(_send, url, SECOND) == 200
        (tmp_path / "tenants" / "acme").unlink()
        assert await asyncio.to_thread(_send, url, FIRST) == 200
