"""The command ``toolverdict lake``: what it prints, and its exit codes."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from typer.testing import CliRunner, Result

from toolverdict.collector.lake_cli import _bytes, app, duration_of, size_of, time_of
from toolverdict.collector.testing import make_span

Fill = Any


def lake(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_info_counts_what_is_there(fill: Fill) -> None:
    fill.spans(make_span(1), make_span(2))
    fill.spans(make_span(3), hours=1)
    done = lake("info", fill.lake.path)
    assert done.exit_code == 0
    assert "1 bucket\n" in done.stdout
    assert "spans: 3 rows in 2 parts (0 compacted)" in done.stdout
    assert "2 hours, schema 1" in done.stdout
    assert "from 2023-11-14T22:13:20+00:00 to" in done.stdout
    assert "logs: 0 rows in 0 parts" in done.stdout
    document = json.loads(lake("info", fill.lake.path, "--json").stdout)
    assert document["buckets"] == 1
    assert document["spans"]["rows"] == 3
    assert document["spans"]["schema_versions"] == {"1": 2}
    assert document["logs"]["first"] is None


def test_verify_exits_with_one_line_for_each_fault(fill: Fill) -> None:
    part = fill.spans(make_span(1))
    assert lake("verify", fill.lake.path).exit_code == 0
    part.write_bytes(b"PAR1")
    done = lake("verify", fill.lake.path)
    assert done.exit_code == 1
    assert len(done.stdout.splitlines()) == 2
    assert "1 fault in 0 parts" in done.stdout
    assert len(json.loads(lake("verify", fill.lake.path, "--json").stdout)["faults"]) == 1


def test_compact_says_what_it_did(fill: Fill) -> None:
    for _ in range(3):
        fill.spans(make_span(1))
    done = lake("compact", fill.lake.path, "--grace", "0s")
    expected = datetime.now(UTC) > fill.hour + timedelta(hours=1)
    assert done.exit_code == 0
    assert ("3 parts to 1" in done.stdout) is expected
    part = fill.spans(make_span(2), hours=-48)
    part.write_bytes(b"")
    done = lake("compact", fill.lake.path, "--json")
    assert done.exit_code == 1
    assert part.name in json.loads(done.stdout)["faults"][0]


def test_compact_samples_by_a_policy(fill: Fill, tmp_path: Path) -> None:
    """Only what is quiet; once decided, another policy changes nothing."""
    ids = [bytes.fromhex(digit * 32) for digit in ("c", "1", "2")]
    closed = int((datetime.now(UTC) - fill.hour) / timedelta(hours=1)) - 24
    fill.spans(*(make_span(n, trace_id=ids[n]) for n in range(3)), hours=closed)
    fill.logs(LogRecord(time_unix_nano=1, trace_id=ids[1]), hours=closed)
    policy = tmp_path / "sampling.yaml"
    policy.write_text("{version: 1, otherwise: {keep: 0.5}}")
    done = lake("compact", fill.lake.path, "--sample", policy, "--grace", "10w")
    assert (done.exit_code, "0 traces kept, 0 dropped, 3 not quiet yet" in done.stdout) == (0, True)
    done = lake("compact", fill.lake.path, "--sample", policy)
    assert done.exit_code == 0
    assert "sampling: 1 trace kept, 2 dropped, 0 not quiet yet; 2 spans dropped (0 came late)" in (
        done.stdout
    )
    assert "and 1 log record\n" in done.stdout
    assert fill.lake.read_spans(0, ["trace_state"]).to_pylist() == [{"trace_state": "ot=th:8"}]
    policy.write_text("{version: 1, otherwise: {keep: 1}}")
    document = json.loads(lake("compact", fill.lake.path, "--sample", policy, "--json").stdout)
    assert (document["folders"], document["sampling"]["spans_dropped"]) == (0, 0)
    assert "sampling" not in json.loads(lake("compact", fill.lake.path, "--json").stdout)


def test_retain_says_what_goes(fill: Fill) -> None:
    fill.spans(make_span(1), hours=-24 * 900)
    done = lake("retain", fill.lake.path, "--max-age", "52w", "--dry-run")
    assert (done.exit_code, "would delete 2024-06-13T14Z" in done.stdout) == (0, True)
    document = json.loads(lake("retain", fill.lake.path, "--max-bytes", "0", "--json").stdout)
    assert document["hours"] == ["2024-06-13T14Z"]
    assert fill.lake.read_spans(0).num_rows == 0
    assert lake("retain", fill.lake.path).exit_code == 2


def test_export_writes_a_file(fill: Fill, tmp_path: Path) -> None:
    fill.spans(make_span(1))
    fill.logs(LogRecord(time_unix_nano=1))
    file = tmp_path / "out.jsonl"
    done = lake("export", fill.lake.path, "--file", file)
    assert (done.exit_code, done.stdout) == (0, f"{file}: 1 spans and 1 logs\n")
    assert len(file.read_text().splitlines()) == 2
    done = lake("export", fill.lake.path, "--file", file, "--since", "1h", "--json")
    assert json.loads(done.stdout) == {"version": 1, "spans": 0, "logs": 0, "rejected": 0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["info", "{tmp}/none"], "there is no folder"),
        (["info", "{tmp}"], "is not a lake"),
        (["export", "{lake}", "--file", "{tmp}/a.pb"], "give --signal"),
        (["export", "{lake}"], "--file or --endpoint"),
        (["export", "{lake}", "--file", "a.jsonl", "--signal", "metrics"], "spans, logs"),
        (["export", "{lake}", "--endpoint", "host"], "is no endpoint"),
        (["export", "{lake}", "--file", "{tmp}/a.jsonl", "--trace", "1A"], "is no trace id"),
        (["export", "{lake}", "--file", "{tmp}/a.jsonl", "--since", "noon"], "give a time"),
        (["compact", "{lake}", "--sample", "{tmp}/none.yaml"], "none.yaml: cannot be read"),
        (["compact", "{lake}", "--sample", "{lake}/lake.json"], "lake.json: "),
        (["retain", "{lake}", "--max-age", "30"], "such as 30d"),
        (["retain", "{lake}", "--max-bytes", "lots"], "give bytes"),
        (["retain", "{lake}", "--max-bytes", "9" * 400], "more than any disk holds"),
        (["compact", "{lake}", "--grace", "99999999d"], "longer than any lake"),
        (["export", "{lake}", "--file", "{tmp}/a.jsonl", "--since", "9999-12-31"], "give a year"),
        (
            ["export", "{lake}", "--file", "{tmp}/a.jsonl", "--until", "0001-01-01T00:00+14:00"],
            "give a year",
        ),
    ],
)
def test_a_mistake_is_told_and_exits_2(
    fill: Fill, tmp_path: Path, words: list[str], said: str
) -> None:
    """B62: a malformed trace id is one of them, not a trace that is not there."""
    done = lake(*(word.format(tmp=tmp_path, lake=fill.lake.path) for word in words))
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('"version": 1, "buckets": true', "no valid number of buckets"),
        ('"version": 1, "buckets": 1.0', "no valid number of buckets"),
        ('"version": 1.0, "buckets": 1', "upgrade toolverdict"),
        ('"version": true, "buckets": 1', "upgrade toolverdict"),
        ('"version": 2, "buckets": 1', "upgrade toolverdict"),
    ],
)
def test_a_lake_file_with_values_of_another_type_is_refused(
    tmp_path: Path, entry: str, said: str
) -> None:
    (tmp_path / "lake.json").write_text('{"format": "toolverdict-lake", ' + entry + "}")
    done = lake("info", tmp_path)
    assert (done.exit_code, said in done.stderr) == (2, True)


def test_names_do_not_steer_the_terminal(fill: Fill) -> None:
    part = fill.spans(make_span(1))
    part.with_name("evil\x1b[31m\nname\udcff").write_text("x")
    done = lake("verify", fill.lake.path)
    assert done.exit_code == 1
    assert "evil\\x1b[31m\\nname\\udcff is not a part" in done.stdout
    assert "\x1b" not in done.stdout
    done = lake("info", "none\x1b[31m")
    assert (done.exit_code, "\x1b" in done.stderr) == (2, False)


def test_an_hour_that_has_to_stay_exits_1(fill: Fill) -> None:
    notes = fill.spans(make_span(1), hours=-48).with_name("notes.txt")
    notes.write_text("precious")
    for words in ([], ["--dry-run"]):
        done = lake("retain", fill.lake.path, "--max-age", "1h", *words)
        assert (done.exit_code, "notes.txt is not a part" in done.stderr) == (1, True)
    assert notes.exists()


def test_somebody_else_at_work_is_told_and_exits_2(fill: Fill) -> None:
    with fill.lake.store.upkeep():
        for words in (["compact"], ["retain", "--max-age", "1d"]):
            done = lake(words[0], fill.lake.path, *words[1:])
            assert (done.exit_code, "at work" in done.stderr) == (2, True)
        assert lake("retain", fill.lake.path, "--max-age", "1d", "--dry-run").exit_code == 0


def test_units() -> None:
    assert duration_of("1.5h") == timedelta(minutes=90)
    assert [size_of(text) for text in ("10", "1kB", "2MiB", "1.5GB", "1T")] == [
        10,
        1000,
        2 * 1024**2,
        1_500_000_000,
        10**12,
    ]
    assert [_bytes(number) for number in (0, 999, 1500, 25 * 10**9, 10**13)] == [
        "0 B",
        "999 B",
        "1.5 kB",
        "25 GB",
        "10 TB",
    ]
    assert (
        time_of("2026-11-30T14:00Z")
        == time_of("2026-11-30T15:00+01:00")
        == time_of("2026-11-30 14:00")
    )
    assert abs(time_of("2h") - datetime.now(UTC) + timedelta(hours=2)) < timedelta(minutes=1)
    with pytest.raises(typer.BadParameter, match="longer"):
        duration_of("9999999999w")
