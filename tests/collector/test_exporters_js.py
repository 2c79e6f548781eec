"""The official JavaScript exporters, as an agent in Node uses them, against a real collector."""

import fcntl
import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import pytest

from toolverdict.collector.lake import Lake
from toolverdict.collector.schema import attributes_of
from toolverdict.collector.testing import running_collector

SOURCES = Path(__file__).parent / "js"
COUNT = 30


def _skip(reason: str) -> NoReturn:
    """Where TOOLVERDICT_NO_SKIP is set, a missing program is a failure."""
    if os.environ.get("TOOLVERDICT_NO_SKIP"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def sender() -> Path:
    """The script beside its packages, installed once a version into the user's cache."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        _skip("node and npm are not installed")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "toolverdict-tests"
    package = (SOURCES / "package.json").read_bytes()
    folder = cache / f"js-{sha256(package).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "LOCK").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        (folder / "package.json").write_bytes(package)
        shutil.copy(SOURCES / "send.mjs", folder)
        if not (folder / "installed").exists():
            options = ["--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts"]
            result = subprocess.run(
                ["npm", "install", *options],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=300,
            )
            if result.returncode:
                _skip(f"npm cannot install the exporters: {result.stderr[-500:]}")
            (folder / "installed").touch()
    return folder / "send.mjs"


@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("kind", ["json", "proto", "grpc"])
def test_spans_of_the_javascript_exporter_arrive(
    tmp_path: Path, sender: Path, kind: str, compression: str
) -> None:
    """B58, B68, B70: whole, with their types, and without a complaint of the exporter."""
    data_dir = tmp_path / "lake"
    with running_collector(data_dir) as collector:
        url = f"http://{collector.grpc}" if kind == "grpc" else f"{collector.http}/v1/traces"
        result = subprocess.run(
            ["node", str(sender), kind, url, compression, str(COUNT)],
            cwd=sender.parent,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (result.returncode, result.stderr) == (0, "")
        assert collector.terminate() == 0
    rows = Lake.open(data_dir).read_spans(0).to_pylist()
    attributes = sorted((attributes_of(row) for row in rows), key=lambda a: a["tool.items"])
    assert [item["tool.items"] for item in attributes] == list(range(COUNT))
    for item in attributes:
        assert (item["tool.price"], item["tool.tags"]) == (1.5, ["a", "b"])
        assert item["tool.cached"] is False
    assert {(row["service_name"], row["gen_ai.tool.name"]) for row in rows} == {
        ("agent-js", "refund")
    }
    statuses = sorted((row["status_code"], row["status_message"] or "") for row in rows)
    assert statuses[-1] == (2, "refused")
    assert {status for status, _ in statuses[:-1]} == {0}
    assert all("süß 😀" in str(row) for row in rows)
