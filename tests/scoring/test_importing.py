"""Files of traces into a lake: each shape there is, what is damaged, what is there already."""

import base64
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from toolverdict.collector import CollectorError
from toolverdict.collector.otlp_json_encode import otlp_json_of
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_request, make_span, running_collector
from toolverdict.scoring import Inputs, score
from toolverdict.scoring.errors import InputError
from toolverdict.scoring.importing import import_files


def document(*numbers: int) -> dict[str, Any]:
    """An export request with a tool call per number."""
    spans = [
        make_span(
            number,
            attributes=[
                {"key": "gen_ai.operation.name", "value": {"string_value": "execute_tool"}},
                {"key": "gen_ai.tool.name", "value": {"string_value": f"tool_{number}"}},
            ],
        )
        for number in numbers
    ]
    read: dict[str, Any] = json.loads(otlp_json_of(make_request(*spans)))
    return read


LOG = {
    "resourceLogs": [
        {"scopeLogs": [{"logRecords": [{"timeUnixNano": "1", "body": {"stringValue": "x"}}]}]}
    ]
}
METRICS: dict[str, Any] = {"resourceMetrics": [{"scopeMetrics": []}]}


def lines(*documents: object) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in documents)


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


def framed(*messages: bytes) -> bytes:
    packed = [zstd(message) for message in messages]
    return b"".join(len(one).to_bytes(4, "big") + one for one in packed)


def tempo(of: dict[str, Any]) -> dict[str, Any]:
    """What Tempo made of a trace before OTLP had its names of today."""
    (resource,) = of["resourceSpans"]
    (scope,) = resource["scopeSpans"]
    spans = [
        {
            key: base64.b64encode(bytes.fromhex(value)).decode() if key.endswith("Id") else value
            for key, value in span.items()
        }
        for span in scope["spans"]
    ]
    library = {"instrumentationLibrary": scope.get("scope", {}), "spans": spans}
    return {
        "batches": [
            {
                "resource": resource.get("resource", {}),
                "instrumentationLibrarySpans": [library],
            }
        ]
    }


def calls_of(lake: Path, out: Path) -> list[str]:
    score(Inputs(lake), out)
    return sorted(str(row["tool"]) for row in pq.read_table(out / "calls").to_pylist())


@pytest.mark.parametrize(
    "content",
    [
        lines(document(1), document(2)),
        json.dumps(document(1, 2), indent=2).encode(),
        json.dumps([document(1), document(2)]).encode(),
        b"\n\n" + lines(document(1), METRICS, document(2)),
        gzip.compress(lines(document(1))) + gzip.compress(lines(document(2))),
        zstd(lines(document(1), document(2))),
        framed(lines(document(1)), lines(document(2))),
        lines(tempo(document(1)), {"trace": document(2)}),
    ],
    ids=["lines", "indented", "list", "metrics", "gzip", "zstd", "framed", "tempo"],
)
def test_every_shape_of_a_file_becomes_the_same_calls(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    imported = import_files([tmp_path / "file"], tmp_path / "lake")
    assert imported.is_whole
    assert imported.accepted == {Signal.TRACES: 2}
    assert calls_of(tmp_path / "lake", tmp_path / "out") == ["tool_1", "tool_2"]


def test_logs_come_in_beside_traces_and_a_second_import_counts_nothing_twice(
    tmp_path: Path,
) -> None:
    file = tmp_path / "otlp.jsonl"
    file.write_bytes(lines({**document(1), **LOG}))
    for _ in range(2):
        imported = import_files([file], tmp_path / "lake")
        assert imported.accepted == {Signal.TRACES: 1, Signal.LOGS: 1}
    assert calls_of(tmp_path / "lake", tmp_path / "out") == ["tool_1"]


def test_what_is_damaged_is_told_and_the_rest_is_in(tmp_path: Path) -> None:
    bad = document(3)
    bad["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["traceId"] = "nonsense"
    file = tmp_path / "otlp.jsonl"
    cut = lines(document(4))[:-20]
    file.write_bytes(lines(document(1), bad, {"x": 1}, {"batches": 1}, [3], document(2)) + cut)
    imported = import_files([file], tmp_path / "lake")
    assert imported.accepted == {Signal.TRACES: 2}
    assert imported.refused == {Signal.TRACES: 1}
    assert [fault.partition(":")[0] for fault in imported.faults] == [
        f"{file}, document {number}" for number in (3, 4, 5, 7)
    ]
    assert calls_of(tmp_path / "lake", tmp_path / "out") == ["tool_1", "tool_2"]


def test_a_message_that_was_cut_off_in_a_framed_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(framed(lines(document(1)), lines(document(2)))[:-5])
    imported = import_files([tmp_path / "file"], tmp_path / "lake")
    assert imported.accepted == {Signal.TRACES: 1}
    assert len(imported.faults) == 1


@pytest.mark.parametrize(
    "content", [b"", b"not json", b"\x1f\x8b\x00", b"\x28\xb5\x2f\xfdxxxx", b"[" * 100_000]
)
def test_what_is_no_file_of_traces_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InputError, match="file: "):
        import_files([tmp_path / "file"], tmp_path / "lake")


def test_a_lake_that_a_collector_is_at_work_on_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(lines(document(1)))
    with (
        running_collector(tmp_path / "lake"),
        pytest.raises(CollectorError, match="another collector"),
    ):
        import_files([tmp_path / "file"], tmp_path / "lake")


def test_the_command_says_what_is_in_and_what_is_not(tmp_path: Path) -> None:
    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "toolverdict", "import", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    (tmp_path / "good").write_bytes(lines(document(1)))
    (tmp_path / "bad").write_bytes(lines(document(2), {}))
    ran = run(tmp_path / "good", "--lake", tmp_path / "lake")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"1 spans in {tmp_path / 'lake'}\n", "")
    ran = run(tmp_path / "bad", "--lake", tmp_path / "lake")
    assert (ran.returncode, ran.stdout) == (1, f"1 spans in {tmp_path / 'lake'}\n")
    (said,) = ran.stderr.splitlines()
    assert said.startswith(f"toolverdict import: {tmp_path / 'bad'}, document 2: ")
    ran = run(tmp_path / "none", "--lake", tmp_path / "lake")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert len(ran.stderr.splitlines()) == 1
