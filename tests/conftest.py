"""A real S3 server for tests of lakes in an object store."""

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec

import pytest


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of an S3 server, in a process of its own, with an empty bucket ``agents``."""
    if find_spec("moto") is None:
        pytest.skip("needs moto[s3] and flask-cors")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline_s = time.monotonic() + 60
        while True:
            request = urllib.request.Request(f"{endpoint}/agents", method="PUT")
            try:
                urllib.request.urlopen(request).close()
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
        yield endpoint
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def s3_url(s3_server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Where the lake of one test goes; the processes that it starts find the server, too."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    return f"s3://agents/{request.node.name}"
