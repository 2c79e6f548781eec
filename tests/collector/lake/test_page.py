"""The page LAKE.md: its queries give what they say in each engine, its commands run."""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from toolverdict.collector.lake import Lake
from toolverdict.collector.lake.compaction import CompactionSettings, compact
from toolverdict.collector.testing import make_span, running_collector

PAGE = Path(__file__).parents[3] / "collector" / "LAKE.md"
DOCUMENT = PAGE.read_text(encoding="utf-8")
QUERIES = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)
HOUR_NS = 3600 * 10**9
START = 1_700_000_000 // 3600 * HOUR_NS

Fill = Any


def call(number: int, trace: int, tool: str, outcome: str, hour: int, **fields: Any) -> Any:
    texts = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "tool.outcome": outcome,
        "gen_ai.tool.call.arguments": f'{{"n":{number}}}',
    }
    return make_span(
        number,
        trace_id=trace.to_bytes(16),
        start_time_unix_nano=START + hour * HOUR_NS + number * 10**9,
        attributes=[KeyValue(key=k, value=AnyValue(string_value=v)) for k, v in texts.items()],
        status={"code": 2 if outcome == "error" else 1},
        **fields,
    )


@pytest.fixture
def data(tmp_path: Path, filler: Callable[[Lake], Fill], monkeypatch: pytest.MonkeyPatch) -> Fill:
    """A lake in the folder ``data`` with two hours of calls, some of them sent twice."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    fill = filler(Lake.create("data", buckets=2))
    first = [
        call(1, 10, "refund", "ok", 0),
        call(2, 10, "search", "error", 0),
        call(3, 11, "refund", "ok", 0, end_time_unix_nano=0),
    ]
    fill.spans(*first)
    fill.spans(*first, call(4, 11, "search", "ok", 1), make_span(9))
    fill.spans(call(3, 11, "refund", "error", 0), hours=1)
    return fill


def check(found: dict[str, Any]) -> None:
    def plain(rows: Sequence[Any]) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in rows]

    assert plain(found["by_tool"]) == [
        ("refund", "error", 1),
        ("refund", "ok", 1),
        ("search", "error", 1),
        ("search", "ok", 1),
    ]
    hours = [(time.timestamp(), *row) for time, *row in plain(found["errors_by_hour"])]
    seconds = START // 10**9
    assert hours == [(seconds, 3, pytest.approx(2 / 3)), (seconds + 3600, 1, 0)]
    assert [row[1:] for row in plain(found["one_trace"])] == [
        ("refund", '{"n":1}'),
        ("search", '{"n":2}'),
    ]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.split()[1])
@pytest.mark.parametrize("compacted", [False, True])
def test_the_three_questions_have_the_same_answers_everywhere(
    data: Fill, query: str, compacted: bool
) -> None:
    pytest.importorskip(query.split()[1])
    if compacted:
        with data.lake.store.upkeep():
            compact(data.lake, CompactionSettings(), data.closed)
    found: dict[str, Any] = {}
    exec(query, found)
    check(found)


def test_the_page_answers_in_three_engines() -> None:
    assert [query.split()[1] for query in QUERIES] == ["duckdb", "polars", "pandas"]


def test_the_commands_of_the_page_run(data: Fill, tmp_path: Path) -> None:
    (block,) = re.findall(r"^```sh\n(.*?)^```", DOCUMENT, re.DOTALL | re.MULTILINE)
    with running_collector(tmp_path / "other") as collector:
        for line in block.replace("http://127.0.0.1:4318", collector.http).strip().split("\n"):
            assert line.startswith("toolverdict lake ")
            done = subprocess.run(
                [sys.executable, "-m", *line.split()], capture_output=True, text=True
            )
            assert done.returncode == 0, (line, done.stderr, done.stdout)
    spans = Lake.open(tmp_path / "other").read_spans(0)
    assert spans.num_rows == 3
