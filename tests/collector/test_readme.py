"""The page of the collector: its commands run, its files are valid, its tables are complete."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from toolverdict.collector.auth import Tokens
from toolverdict.collector.cli import app
from toolverdict.collector.errors import CODES
from toolverdict.collector.metrics import Metrics
from toolverdict.collector.redaction import read_redactor

PAGE = Path(__file__).parents[2] / "collector" / "README.md"
TEXT = PAGE.read_text(encoding="utf-8")


def _block(language: str) -> str:
    (block,) = re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    return str(block)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_commands_run(tmp_path: Path) -> None:
    grpc_port, http_port = _free_port(), _free_port()
    script = _block("sh").replace("4318", str(http_port))
    script = script.replace("collect ", f"collect --grpc-port {grpc_port} --http-port {http_port} ")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-m", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PATH": path},
    )
    assert result.returncode == 0, result.stderr
    assert "ready\n{}" in result.stdout
    assert 'toolverdict_collector_accepted_total{signal="traces"} 1' in result.stdout
    assert (tmp_path / "my-lake" / "lake.json").exists()


def test_the_tokens_are_valid(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(_block("text"))
    tokens = Tokens(tmp_path / "tokens")
    assert tokens.caller("Bearer tv_8c1f0e5b7d9a4f26", "address").tenant == "acme"


def test_the_rules_are_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("redaction.key").write_text("0123456789abcdef")
    Path("redact.yaml").write_text(_block("yaml"))
    read_redactor(Path("redact.yaml"))


def test_every_option_is_there() -> None:
    options = {
        option
        for parameter in typer.main.get_command(app).params
        for option in parameter.opts
        if option.startswith("--")
    }
    assert options
    assert [option for option in sorted(options) if f"`{option}" not in TEXT] == []
    named = set(re.findall(r"`(--[a-z-]+)", TEXT))
    assert named - options - {"--help"} == set()


def test_every_metric_and_every_answer_is_there(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "METRICS")
    text = metrics.text({"version": "1"})
    metrics.close()
    names = re.findall(r"^# TYPE toolverdict_collector_(\w+)", text, re.MULTILINE)
    assert [name for name in names if f"`{name}" not in TEXT] == []
    assert [code for code in CODES if code not in TEXT] == []
