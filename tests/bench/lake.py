"""What the lake costs: CPU seconds per million spans, bytes a span, memory. Run it:

    .venv/bin/python tests/bench/lake.py [FOLDER]

FOLDER holds bodies of export requests as ``*.pb``; without it, spans of tool calls of about 1.3 kB
are made up. Segments of 100,000 spans are written as parts and compacted, each in a process of its
own; the folder of parts is on the file system of the temporary files.
"""

import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from toolverdict.collector.decoders import decoder
from toolverdict.collector.lake import Lake
from toolverdict.collector.lake.compaction import CompactionSettings, compact
from toolverdict.collector.lake.part_file import sort
from toolverdict.collector.parts import write_part
from toolverdict.collector.segment import SegmentId
from toolverdict.collector.signals import Signal
from toolverdict.collector.testing import make_request, make_span

SEGMENT_ROWS = 100_000
SEGMENTS = 10
REQUESTS = 200
CREATED_NS = 1_796_000_000_000_000_000
WORDS = [
    *("order", "refund", "customer", "invoice", "error", "timeout", "deploy", "cache", "table"),
    *("index", "schema", "report", "file", "path", "module", "config", "secret", "request"),
    *("response", "latency", "search", "weather", "vector", "ticket", "priority", "of", "the"),
]


def bodies(folder: Path | None) -> Iterator[bytes]:
    """Requests of 512 spans."""
    if folder is not None:
        for path in sorted(folder.glob("*.pb")):
            yield path.read_bytes()
        return
    draw = random.Random(1)
    for _ in range(REQUESTS):
        trace, conversation = b"", ""
        spans = []
        for _ in range(512):
            if not trace or draw.random() < 0.07:
                trace, conversation = draw.randbytes(16), f"conv_{draw.randbytes(12).hex()}"
            tool = f"tool_{draw.randrange(20)}"
            values: dict[str, str | int] = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": tool,
                "gen_ai.agent.name": f"agent-{draw.randrange(8)}",
                "gen_ai.conversation.id": conversation,
                "gen_ai.tool.call.id": f"call_{draw.randbytes(12).hex()}",
                "gen_ai.tool.call.arguments": text(draw),
                "gen_ai.tool.call.result": text(draw),
                "user.id": f"user-{draw.randrange(20_000):05d}",
                "thread.id": draw.randrange(10**6),
            }
            start = CREATED_NS + draw.randrange(10**9)
            spans.append(
                make_span(
                    0,
                    trace_id=trace,
                    span_id=draw.randbytes(8),
                    parent_span_id=draw.randbytes(8),
                    name=f"execute_tool {tool}",
                    start_time_unix_nano=start,
                    end_time_unix_nano=start + draw.randrange(10**9),
                    attributes=[KeyValue(key=key, value=any_value(v)) for key, v in values.items()],
                )
            )
        yield make_request(*spans).SerializeToString()


def any_value(value: str | int) -> AnyValue:
    return AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)


def text(draw: random.Random) -> str:
    words = draw.choices(WORDS, k=int(min(200, max(8, draw.lognormvariate(4, 0.7)))))
    return f'{{"query":"{" ".join(words)}","limit":{draw.randrange(1000)}}}'


def segment(folder: Path | None) -> pa.Table:
    builder = decoder().rows(Signal.TRACES)
    for number, body in enumerate(bodies(folder)):
        builder.feed(body, CREATED_NS + number)
    table = builder.take()
    return pa.concat_tables([table] * (SEGMENT_ROWS // table.num_rows + 1)).slice(0, SEGMENT_ROWS)


def with_other_ids(table: pa.Table, number: int) -> pa.Table:
    """The same spans under other ids, so that nothing is a copy of anything."""
    for column in ("trace_id", "span_id"):
        place = table.schema.get_field_index(column)
        ids = [f"{number:02x}{str(found)[2:]}" for found in table[column].to_pylist()]
        table = table.set_column(place, table.schema.field(place), pa.array(ids))
    return table


def cpu_s() -> float:
    return time.process_time()


def show(what: str, seconds: float, rows: int, more: str = "") -> None:
    print(f"{what:<44}{seconds / rows * 1e6:6.2f} cpu-s/Mspan  {more}")


def write(lake: Lake, folder: Path | None) -> None:
    table = segment(folder).unify_dictionaries().combine_chunks()
    spent = sorting = 0.0
    for number in range(SEGMENTS):
        other = with_other_ids(table, number)
        created = CREATED_NS + number
        begun = cpu_s()
        sort(Signal.TRACES, other)
        sorting += cpu_s() - begun
        begun = cpu_s()
        write_part(lake, SegmentId(f"{created:016x}-00000000", created), Signal.TRACES, 0, other)
        spent += cpu_s() - begun
    size = sum(entry.size for entry in lake.store.list("spans"))
    rows = SEGMENTS * SEGMENT_ROWS
    show("parts of 100,000 spans, sorted and synced", spent, rows, f"{size / rows:.0f} B/span")
    show("of which sorting", sorting, rows)


def compact_all(lake: Lake) -> None:
    begun = cpu_s()
    with lake.store.upkeep():
        done = compact(lake, CompactionSettings(), datetime.now(UTC).replace(year=2100))
    show(
        f"compaction of {done.parts_before} parts to {done.parts_after}",
        cpu_s() - begun,
        done.rows_after,
        f"{done.bytes_after / done.rows_after:.0f} B/span, "
        f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB",
    )


def read(lake: Lake) -> None:
    columns = ["trace_id", "name", "gen_ai.tool.name", "gen_ai.tool.call.arguments"]
    begun = cpu_s()
    rows = lake.read_spans(0, columns).num_rows
    show("reading 4 columns, arguments among them", cpu_s() - begun, rows)
    trace_id = lake.read_spans(0, ["trace_id"])["trace_id"][rows // 2].as_py()
    begun = cpu_s()
    found = lake.read_trace(str(trace_id)).num_rows
    print(f"one trace of {found} spans: {1000 * (cpu_s() - begun):.0f} cpu-ms")


def main() -> None:
    if len(sys.argv) > 2 and sys.argv[1] == "step":
        _, _, step, place, *rest = sys.argv
        pa.set_cpu_count(1)
        lake = Lake.open(place)
        if step == "write":
            write(lake, Path(rest[0]) if rest else None)
        elif step == "compact":
            compact_all(lake)
        else:
            read(lake)
        return
    with tempfile.TemporaryDirectory() as place:
        Lake.create(place)
        for step in ("write", "read", "compact", "read"):
            words = [sys.executable, __file__, "step", step, place, *sys.argv[1:]]
            subprocess.run(words, check=True)


if __name__ == "__main__":
    main()
