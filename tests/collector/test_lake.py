"""The lake: what readers may rely on."""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from toolverdict.collector.decode import decode, table_of
from toolverdict.collector.errors import LakeError
from toolverdict.collector.lake import Lake, part_file
from toolverdict.collector.parts import remove_unfinished, write_part
from toolverdict.collector.schema import LOGS, SCHEMA_VERSION, SPANS, attributes_of, events_of
from toolverdict.collector.segment import SegmentId
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_request, make_span

HOUR_NS = 3600 * 10**9
CREATED = 1_796_000_000_000_000_000


def _segment(number: int = 0) -> SegmentId:
    created = CREATED + number * HOUR_NS
    return SegmentId(f"{created:016x}-0000000{number}", created)


def _spans(spans: Iterable[Span], received: int = 1) -> pa.Table:
    body = make_request(*spans).SerializeToString()
    return table_of(Signal.TRACES, decode(Signal.TRACES, body, received))


def _store(lake: Lake, spans: Iterable[Span], number: int = 0, received: int = 1) -> Path:
    name = write_part(lake, _segment(number), Signal.TRACES, 0, _spans(spans, received))
    return lake.path / name


def _text(key: str, value: str) -> KeyValue:
    return KeyValue(key=key, value=AnyValue(string_value=value))


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path)


def test_a_new_lake_says_what_it_is(tmp_path: Path) -> None:
    Lake.create(tmp_path, buckets=4)
    content = json.loads((tmp_path / "lake.json").read_text())
    assert content == {"format": "toolverdict-lake", "version": 1, "buckets": 4}
    assert Lake.open(tmp_path).buckets == 4
    assert Lake.create(tmp_path).buckets == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "not a lake"),
        ("{", "cannot be read"),
        ("[" * 200_000, "cannot be read"),
        ("[]", "does not describe a lake"),
        ('{"format": "other"}', "does not describe a lake"),
        ('{"format": "toolverdict-lake", "version": 2, "buckets": 1}', "upgrade toolverdict"),
        ('{"format": "toolverdict-lake", "version": true, "buckets": 1}', "upgrade toolverdict"),
        ('{"format": "toolverdict-lake", "version": 1, "buckets": 3}', "number of buckets"),
        ('{"format": "toolverdict-lake", "version": 1}', "number of buckets"),
    ],
)
def test_what_is_no_lake_is_refused_in_one_line(
    tmp_path: Path, text: str | None, said: str
) -> None:
    if text is not None:
        (tmp_path / "lake.json").write_text(text)
    with pytest.raises(LakeError, match=said) as caught:
        Lake.open(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="there is no folder"):
        Lake.open(tmp_path / "none")


@pytest.mark.parametrize("buckets", [0, 3, 512])
def test_buckets_are_a_power_of_two(tmp_path: Path, buckets: int) -> None:
    with pytest.raises(ValueError, match="power of two"):
        Lake.create(tmp_path, buckets=buckets)


def test_an_empty_lake_reads_as_empty_tables(lake: Lake) -> None:
    assert lake.read_spans(0).schema == SPANS
    assert lake.read_logs(0).schema == LOGS
    assert lake.read_spans(0, ["name"]).num_rows == 0
    with pytest.raises(ValueError, match="bucket 1"):
        lake.read_spans(1)
    with pytest.raises(KeyError, match="nonsense"):
        lake.read_spans(0, ["nonsense"])


def test_rows_are_sorted_and_columns_come_as_asked(lake: Lake) -> None:
    _store(lake, [make_span(2), make_span(0), make_span(1)])
    table = lake.read_spans(0, ["name", "span_id"])
    assert table.column_names == ["name", "span_id"]
    assert table["span_id"].to_pylist() == [f"{n:016x}" for n in (1, 2, 3)]


def test_the_same_span_twice_is_read_once(lake: Lake) -> None:
    """B91: a client that lost our answer sends the batch again, also after a restart."""
    _store(lake, [make_span(1), make_span(2)], 0, 10)
    _store(lake, [make_span(2), make_span(1), make_span(2)], 1, 20)
    assert lake.read_spans(0)["received_time_unix_nano"].to_pylist() == [20, 20]


@pytest.mark.parametrize("complete_first", [True, False])
@pytest.mark.parametrize("files", [1, 2])
def test_the_complete_record_wins_whatever_the_order(
    lake: Lake, complete_first: bool, files: int
) -> None:
    """B94: a span sent at its start and again at its end is one span."""
    begun, done = make_span(1, end_time_unix_nano=0, name="begun"), make_span(1, name="done")
    order = [done, begun] if complete_first else [begun, done]
    if files == 1:
        _store(lake, order)
    else:
        for number, span in enumerate(order):
            _store(lake, [span], number, number)
    assert lake.read_spans(0, ["name"])["name"].to_pylist() == ["done"]


def test_of_two_complete_records_the_latest_wins(lake: Lake) -> None:
    _store(lake, [make_span(1, name="late")], 0, 20)
    _store(lake, [make_span(1, name="early")], 1, 10)
    assert lake.read_spans(0, ["name"])["name"].to_pylist() == ["late"]


def test_an_unfinished_span_alone_is_kept(lake: Lake) -> None:
    _store(lake, [make_span(1, end_time_unix_nano=0)])
    assert lake.read_spans(0)["end_time"].to_pylist() == [None]


def test_a_column_of_nulls_in_one_part_is_no_trouble(lake: Lake) -> None:
    """B95: the schema is ours, whatever a part holds."""
    _store(lake, [make_span(1)], 0)
    _store(lake, [make_span(2, attributes=[_text("approval.id", "A-1")])], 1)
    assert lake.read_spans(0)["approval.id"].to_pylist() == [None, "A-1"]


def test_a_part_without_a_newer_column_reads_as_null(lake: Lake) -> None:
    part = _store(lake, [make_span(1, attributes=[_text("tool.name", "x")])])
    old = pq.read_table(part, partitioning=None).drop_columns(["tool.name", "links"])
    pq.write_table(old, part)
    table = lake.read_spans(0)
    assert table.schema == SPANS
    assert table["tool.name"].to_pylist() == [None]


def test_a_part_of_a_newer_schema_is_refused(lake: Lake) -> None:
    part = _store(lake, [make_span(1)])
    newer = {b"toolverdict.schema_version": str(SCHEMA_VERSION + 1).encode()}
    table = pq.read_table(part, partitioning=None).replace_schema_metadata(newer)
    pq.write_table(table, part)
    with pytest.raises(LakeError, match="upgrade toolverdict"):
        lake.read_spans(0)


@pytest.mark.parametrize("keep", [0, 100])
def test_a_truncated_part_is_an_error_that_names_it(lake: Lake, keep: int) -> None:
    """B103: half a file never reads as fewer rows."""
    part = _store(lake, [make_span(1)])
    part.write_bytes(part.read_bytes()[:keep])
    with pytest.raises(LakeError, match=part.name):
        lake.read_spans(0)


def test_writing_a_segment_again_replaces_the_same_file(lake: Lake) -> None:
    """B103: also one that is there but cut short."""
    part = _store(lake, [make_span(1)])
    part.write_bytes(part.read_bytes()[:50])
    assert _store(lake, [make_span(1)]) == part
    assert lake.read_spans(0).num_rows == 1


def test_two_flushes_in_one_hour_are_two_files(lake: Lake) -> None:
    """B104"""
    segment = SegmentId(f"{CREATED:016x}-ffffffff", CREATED)
    _store(lake, [make_span(1)])
    write_part(lake, segment, Signal.TRACES, 0, _spans([make_span(2)]))
    assert len(lake.parts(Signal.TRACES, 0)) == 2
    assert lake.read_spans(0).num_rows == 2


def test_temporary_files_are_never_read_and_are_removed(lake: Lake) -> None:
    part = _store(lake, [make_span(1)])
    leftover = part.with_name(f".{part.name}.tmp")
    leftover.write_bytes(b"half a file")
    assert lake.read_spans(0).num_rows == 1
    assert remove_unfinished(lake) == 1
    assert not leftover.exists()
    assert part.exists()


def test_absurd_dates_make_no_partitions(lake: Lake) -> None:
    """B107: the folder is the hour of the collector's own clock."""
    years = [1970, 1999, 2024, 2100, 2261]
    times = [int(datetime(year, 6, 1, tzinfo=UTC).timestamp()) * 10**9 for year in years]
    spans = [make_span(n, start_time_unix_nano=time) for n, time in enumerate(times)]
    part = _store(lake, spans)
    hour = datetime.fromtimestamp(CREATED // 10**9, UTC)
    expected = ("spans", f"date={hour:%Y-%m-%d}", f"hour={hour:%H}", "bucket=00", part.name)
    assert part.relative_to(lake.path).parts == expected
    assert len(lake.parts(Signal.TRACES, 0)) == 1
    assert lake.read_spans(0)["start_time_unix_nano"].to_pylist() == times


@pytest.mark.parametrize("name", ["mcp://srv/a b", "../../etc", "", "x" * 300, "a=b", "\0%2F"])
def test_no_value_reaches_a_path(lake: Lake, name: str) -> None:
    """B100"""
    _store(lake, [make_span(1, name=name, attributes=[_text("tool.name", name)])])
    (row,) = lake.read_spans(0).to_pylist()
    assert (row["name"], row["tool.name"], attributes_of(row)) == (name, name, {"tool.name": name})


def test_row_groups_end_where_a_trace_ends(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """No trace is in two row groups, and the footer names the order."""
    monkeypatch.setattr(part_file, "ROW_GROUP_ROWS", 4)
    spans = [
        make_span(number, trace_id=trace.to_bytes(16))
        for trace, count in [(1, 3), (2, 3), (3, 9), (4, 1), (5, 4)]
        for number in range(100 * trace, 100 * trace + count)
    ]
    part = _store(lake, spans)
    with pq.ParquetFile(part) as file:
        groups = [
            set(file.read_row_group(n, columns=["trace_id"])["trace_id"].to_pylist())
            for n in range(file.num_row_groups)
        ]
        assert [len(group) for group in groups] == [2, 1, 2]
        first = file.metadata.row_group(0)
        names = [first.column(c.column_index).path_in_schema for c in first.sorting_columns]
        assert names == ["trace_id", "start_time_unix_nano", "span_id"]
        encodings = {
            first.column(n).path_in_schema: first.column(n).encodings
            for n in range(first.num_columns)
        }
        codecs = {
            first.column(n).path_in_schema: first.column(n).compression
            for n in range(first.num_columns)
        }
        filtered = {
            first.column(n).path_in_schema
            for n in range(first.num_columns)
            if first.column(n).is_stats_set
        }
    assert sum(len(group) for group in groups) == 5
    assert "RLE_DICTIONARY" not in encodings["span_id"]
    assert "RLE_DICTIONARY" in encodings["gen_ai.tool.name"]
    assert codecs["attributes"] == codecs["span_id"] == "ZSTD"
    assert codecs["trace_id"] == "ZSTD"
    assert codecs["name"] == codecs["start_time"] == "UNCOMPRESSED"
    assert {"trace_id", "start_time", "gen_ai.tool.name"} <= filtered
    assert "attributes" not in filtered
    assert lake.read_spans(0).num_rows == 20


def test_an_hour_may_lack_a_bucket(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path, buckets=2)
    for number, bucket in enumerate((0, 1, 1)):
        spans = _spans([make_span(number, trace_id=(16 + bucket).to_bytes(16))])
        write_part(lake, _segment(number), Signal.TRACES, bucket, spans)
    assert [lake.read_spans(bucket).num_rows for bucket in (0, 1)] == [1, 2]


def test_a_trace_is_in_one_bucket(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path, buckets=4)
    assert [lake.bucket_of(f"{0:030x}{byte:02x}") for byte in (0, 5, 6, 255)] == [0, 1, 2, 3]
    assert lake.bucket_of(None) == 0


def _logs(*records: LogRecord) -> pa.Table:
    request = ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(scope_logs=[ScopeLogs(log_records=records)])]
    )
    return table_of(Signal.LOGS, decode(Signal.LOGS, request.SerializeToString(), 1))


def test_logs_are_sorted_and_those_of_no_trace_come_last(lake: Lake) -> None:
    records = [
        LogRecord(time_unix_nano=5),
        LogRecord(time_unix_nano=9, trace_id=b"b" * 16),
        LogRecord(time_unix_nano=8, trace_id=b"b" * 16),
        LogRecord(time_unix_nano=7, trace_id=b"a" * 16),
        LogRecord(time_unix_nano=7, trace_id=b"a" * 16),
    ]
    write_part(lake, _segment(), Signal.LOGS, 0, _logs(*records))
    table = lake.read_logs(0, ["time_unix_nano"])
    assert table["time_unix_nano"].to_pylist() == [7, 7, 8, 9, 5]


@pytest.mark.parametrize("name", ["lake:v1", "s3:bucket", "sp ace%20#?q", "bad\udcff\udcfe"])
def test_a_folder_may_have_any_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Also a relative one that looks like a URI, and one that is not UTF-8."""
    monkeypatch.chdir(tmp_path)
    Path(name).mkdir()
    lake = Lake.create(Path(name))
    _store(lake, [make_span(1)])
    assert Lake.open(Path(name)).read_spans(0).num_rows == 1


def _rewrite(part: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(part, partitioning=None)), part)


def _with(name: str, values: list[Any]) -> Callable[[pa.Table], pa.Table]:
    return lambda table: table.set_column(table.column_names.index(name), name, [pa.array(values)])


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.drop_columns(["trace_id"]),
        lambda table: table.drop_columns(["start_time_unix_nano"]),
        _with("trace_id", [None]),
        _with("start_time_unix_nano", ["noon"]),
        _with("start_time_unix_nano", [[1]]),
        _with("kind", [2**40]),
        _with("attributes", [None]),
        _with("attributes", [b"\xff"]),
        _with("name", [{"a": 1}]),
    ],
)
def test_a_part_someone_changed_is_an_error_that_names_it(
    lake: Lake, change: Callable[[pa.Table], pa.Table]
) -> None:
    part = _store(lake, [make_span(1)])
    _rewrite(part, change)
    with pytest.raises(LakeError, match=part.name) as caught:
        lake.read_spans(0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", "1", "", '{"a":{"$bytes":1}}', '{"$pairs":[1]}', None])
def test_damaged_attributes_are_an_error_that_names_the_span(text: str | None) -> None:
    row = {"trace_id": "0a", "span_id": "0b", "attributes": text}
    with pytest.raises(LakeError, match=r"attributes .*0a.*0b"):
        attributes_of(row)
    with pytest.raises(LakeError, match=r"events .*0a.*0b"):
        events_of({**row, "events": "{}"})


def test_a_flipped_bit_in_a_page_never_changes_a_value(lake: Lake) -> None:
    """Pages have checksums; the footer, which is read first, has none."""
    part = _store(lake, [make_span(number) for number in range(20)])
    expected = lake.read_spans(0)
    sound = part.read_bytes()
    pages = len(sound) - 8 - int.from_bytes(sound[-8:-4], "little")
    refused = 0
    for position in range(0, len(sound), 31):
        damaged = bytearray(sound)
        damaged[position] ^= 0x10
        part.write_bytes(damaged)
        try:
            table = lake.read_spans(0)
        except LakeError as error:
            assert part.name in str(error)  # noqa: PT017
            refused += 1
        else:
            assert position >= pages or table.equals(expected)
    assert refused > 20


def test_a_whole_folder_opens_in_pyarrow(lake: Lake) -> None:
    """Other engines read the lake as Hive partitions, ``hour=09`` included."""
    for number in range(12):
        _store(lake, [make_span(number)], number)
    table: Any = pq.read_table(lake.path / "spans")
    assert table.num_rows == 12
    assert {"date", "hour", "bucket"} <= set(table.column_names)
