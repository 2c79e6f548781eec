"""The command: its one line when it is ready, and its one line when it cannot be."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
import typer.main

from toolverdict.collector.cli import app
from toolverdict.collector.lake import Lake
from toolverdict.collector.testing import make_request, make_span, post, running_collector

COMMAND = [sys.executable, "-m", "toolverdict.collector", "--grpc-port", "0", "--http-port", "0"]


def _collect(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def _assert_one_line(result: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert result.returncode == 2
    assert result.stdout == ""
    errors = [line for line in result.stderr.splitlines() if " INFO " not in line]
    assert len(errors) == 1, result.stderr
    assert errors[0].startswith("error: ")
    for part in parts:
        assert part in errors[0]


def test_the_app_is_one_command() -> None:
    """The umbrella command takes it over under its name."""
    assert typer.main.get_command(app).name == "collect"


def test_the_line_for_people(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--data", str(tmp_path / "lake")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(2)
        assert process.wait(60) == 0
    assert line.startswith("OTLP/gRPC 127.0.0.1:")
    assert str(tmp_path / "lake") in line


@pytest.mark.parametrize("port", ["--http-port", "--grpc-port"])
def test_a_port_in_use(tmp_path: Path, port: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = str(server.getsockname()[1])
        result = _collect("--data", tmp_path / "lake", port, number)
    _assert_one_line(result, "127.0.0.1", number, port)


def test_an_address_that_is_not_ours(tmp_path: Path) -> None:
    _assert_one_line(_collect("--data", tmp_path / "lake", "--host", "192.0.2.1"), "192.0.2.1")


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    _assert_one_line(_collect("--data", file / "lake"), str(file), "--data")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        _assert_one_line(_collect("--data", tmp_path / "lake"), "Permission denied")
    finally:
        tmp_path.chmod(0o700)


def test_a_folder_of_another_collector(tmp_path: Path) -> None:
    """The lock is the kernel's: it goes with the process, however that ends."""
    with running_collector(tmp_path / "lake") as collector:
        body = make_request(make_span(0)).SerializeToString()
        assert post(f"{collector.http}/v1/traces", body).status == 200
        _assert_one_line(_collect("--data", tmp_path / "lake"), "another collector", "lake")
        # It took nothing from the first, not even what that one counts.
        with urllib.request.urlopen(f"{collector.http}/metrics", timeout=20) as metrics:
            assert b'accepted_total{signal="traces"} 1\n' in metrics.read()
        collector.kill()
        with running_collector(tmp_path / "lake") as second:
            body = make_request(make_span(1)).SerializeToString()
            assert post(f"{second.http}/v1/traces", body).status == 200


def test_a_lake_of_a_newer_version(tmp_path: Path) -> None:
    content = {"format": "toolverdict-lake", "version": 2, "buckets": 1}
    (tmp_path / "lake.json").write_text(json.dumps(content))
    _assert_one_line(_collect("--data", tmp_path), "version 2", "upgrade toolverdict")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--data", ""],
        ["--data", "x", "--flush-interval", "0"],
        ["--data", "x", "--flush-interval", "nan"],
        ["--data", "x", "--http-port", "-1"],
    ],
)
def test_usage_errors(tmp_path: Path, arguments: list[str]) -> None:
    result = _collect(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def test_the_testing_helper_says_why_a_collector_did_not_start(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("")
    with pytest.raises(RuntimeError, match="cannot write"), running_collector(tmp_path / "lake"):
        pass


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_ready_line_that_nobody_can_read_goes_to_the_log(
    tmp_path: Path, options: list[str]
) -> None:
    """A full disk behind stdout is no reason not to collect, and no traceback."""
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(
            [*COMMAND, "--data", str(tmp_path / "lake"), *options],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    with process:
        assert process.stderr is not None
        while " INFO " in (line := process.stderr.readline()):
            pass
        process.terminate()
        rest = process.stderr.read()
        assert process.wait(60) == 0
    assert "cannot print to stdout" in line
    assert "127.0.0.1:" in line
    assert "Traceback" not in rest


def test_stdout_may_be_closed(tmp_path: Path) -> None:
    command = [*COMMAND, "--data", str(tmp_path / "lake")]
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    process = subprocess.Popen(closed, stderr=subprocess.PIPE, text=True)
    with process:
        for _ in range(500):
            if (tmp_path / "lake" / "lake.json").exists():
                break
            time.sleep(0.02)
        time.sleep(0.3)
        process.terminate()
        assert process.stderr is not None
        errors = process.stderr.read()
        assert process.wait(60) == 0
    assert "Traceback" not in errors


def test_signals_again_and_again_do_not_undo_a_good_end(tmp_path: Path) -> None:
    with running_collector(tmp_path / "lake") as collector:
        while collector.process.poll() is None:
            collector.process.terminate()
            time.sleep(0.001)
        assert collector.process.returncode == 0


def test_a_folder_whose_name_is_not_utf8(tmp_path: Path) -> None:
    folder = tmp_path / "lake:\udcff"
    with subprocess.Popen([*COMMAND, "--data", str(folder)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        address = line.split("OTLP/HTTP ")[1].split(",")[0]
        body = make_request(make_span(1)).SerializeToString()
        assert post(f"{address}/v1/traces", body).status == 200
        process.terminate()
        assert process.wait(60) == 0
    assert Lake.open(folder).read_spans(0).num_rows == 1


def test_versions_and_the_decoder_in_use() -> None:
    result = _collect("--version")
    assert (result.returncode, result.stderr) == (0, "")
    lines = dict(line.split(" ", 1) for line in result.stdout.splitlines())
    assert lines["decoder"].split(" ")[0] in ("native", "python")
    assert {"version", "python", "pyarrow", "grpcio", "h11", "log_format"} <= set(lines)


@pytest.mark.parametrize(
    ("flags", "warning"),
    [
        ({"host": "127.0.0.1"}, None),
        ({"host": "0.0.0.0"}, "on 0.0.0.0 without --tls-cert and --tokens"),
        ({"host": "0.0.0.0", "tokens": True}, "on 0.0.0.0 without --tls-cert:"),
    ],
)
def test_strangers_are_warned_of(
    tmp_path: Path, flags: dict[str, object], warning: str | None
) -> None:
    """In one line, and only when they could reach us."""
    given = {"host": str(flags["host"])}
    if "tokens" in flags:
        (tmp_path / "tokens").write_text("a-token-of-the-operator")
        given["tokens"] = str(tmp_path / "tokens")
    with running_collector(tmp_path / "lake", **given) as collector:
        collector.terminate()
        log = collector.log_file.read_text()
    warnings = [line for line in log.splitlines() if " WARNING " in line]
    assert len(warnings) == (warning is not None)
    assert warning is None or warning in warnings[0]
    assert "a-token-of-the-operator" not in log


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--tls-cert", "a.pem"], "a TLS certificate and its key are given together"),
        (["--retain-age", "30d"], "--compact-every"),
        (["--max-body-mib", "64", "--max-inflight-mib", "63"], "--max-inflight-mib 63 is below"),
        (["--tokens", "a\x1b[31m\nb"], r"cannot read the tokens in a\x1b[31m\nb"),
        (["--tokens", "absent"], "cannot read the tokens in absent"),
        (["--redact", "absent"], "cannot read absent"),
        (["--tls-cert", "a.pem", "--tls-key", "b.pem"], "cannot use the TLS files a.pem, b.pem"),
    ],
)
def test_settings_that_do_not_fit_are_one_line(
    tmp_path: Path, arguments: list[str], reason: str
) -> None:
    _assert_one_line(_collect("--data", tmp_path / "lake", *arguments), reason)
