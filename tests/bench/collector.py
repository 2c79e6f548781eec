"""What a span costs the whole collector: OTLP in, Parquet with fsync out.

    python tests/bench/collector.py [--requests 4000] [--connections 4] [--workers 1] [--grpc]
    python tests/bench/collector.py --overload 60

A real ``collect`` process, and a load generator in another, on the same machine: requests of 512
tool-call spans of about 1.3 KB, each with ids of its own, in a closed loop. The figure is CPU time of
the collector with all its threads and children, from its ready line to its end, so with everything
turned into Parquet; wall-clock would measure the generator, too. It is given whole, and without the
first 800 requests, in which memory, caches and dictionaries become warm: the cost of a collector that
runs for long is the second. Then the latency of answers at half
of the rate, and beside it the floors: the decoder and the Parquet writer alone on the same spans.

With ``--overload`` many clients send as fast as they can for so many seconds, and the peak of the
memory stands beside the bound that ``collector/README.md`` states.
"""

import argparse
import contextlib
import http.client
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from toolverdict.collector.allocator import keep_freed_memory
from toolverdict.collector.decoders import decoder, decoder_in_use
from toolverdict.collector.lake import Lake
from toolverdict.collector.limits import Limits
from toolverdict.collector.parts import write_part
from toolverdict.collector.segment import new_segment_id
from toolverdict.collector.signals import WIRE, Signal

SPANS = 512
TEMPLATES = 32
WARM_UP = 800
"""Requests before those that count for a warm collector."""
WORDS = ["order", "refund", "invoice", "shipment", "customer", "index", "schema", "deploy", "retry"]
WORDS += [
    "cache",
    "token",
    "session",
    "policy",
    "ticket",
    "report",
    "status",
    "please",
    "the",
    "of",
]
TOOLS = ["refund_order", "sql_query", "read_file", "search_web", "send_email", "run_tests"]


class Template(NamedTuple):
    """A request, and where in its bytes the ids of its spans begin."""

    body: bytes
    ids: list[int]


def _pair(key: str, value: str | int | float | bool) -> KeyValue:
    match value:
        case bool():
            return KeyValue(key=key, value=AnyValue(bool_value=value))
        case int():
            return KeyValue(key=key, value=AnyValue(int_value=value))
        case float():
            return KeyValue(key=key, value=AnyValue(double_value=value))
        case _:
            return KeyValue(key=key, value=AnyValue(string_value=value))


def _arguments(chance: random.Random) -> str:
    """JSON of about 100 to 2,000 characters, most often some 400."""
    length = int(min(2000.0, max(100.0, chance.lognormvariate(5.9, 0.75))))
    text = " ".join(chance.choice(WORDS) for _ in range(length // 7))
    return json.dumps({"id": chance.randrange(10**6), "note": text})


def _span(chance: random.Random) -> Span:
    tool = chance.choice(TOOLS)
    agent = chance.choice(["planner", "coder", "support", "billing"])
    values: dict[str, str | int | float | bool] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": f"call_{chance.getrandbits(96):024x}",
        "gen_ai.tool.call.arguments": _arguments(chance),
        "gen_ai.conversation.id": f"conv_{chance.getrandbits(96):024x}",
        "gen_ai.agent.id": f"agent-{agent}",
        "gen_ai.agent.name": f"{agent}-agent",
        "gen_ai.provider.name": "example",
        "session.id": f"sess-{chance.getrandbits(64):016x}",
        "user.id": f"user-{chance.randrange(20000):05d}",
        "tool.attempt": chance.randrange(1, 4),
        "tool.cached": chance.random() < 0.1,
        "tool.latency_ms": chance.lognormvariate(3, 1.5),
    }
    if chance.random() < 0.45:
        values["gen_ai.tool.call.result"] = _arguments(chance)
    if chance.random() < 0.4:
        values |= {"server.address": f"mcp-{tool}.internal", "server.port": 8443}
    if chance.random() < 0.05:
        values["error.type"] = "TimeoutError"
    start = 1_796_000_000_000_000_000 + chance.randrange(10**12)
    return Span(
        trace_id=chance.randbytes(16),
        span_id=chance.randbytes(8),
        parent_span_id=chance.randbytes(8),
        name=f"execute_tool {tool}",
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=start,
        end_time_unix_nano=start + int(chance.lognormvariate(18, 1.5)),
        attributes=[_pair(key, value) for key, value in values.items()],
    )


def make_templates() -> list[Template]:
    chance = random.Random(7)
    templates = []
    for number in range(TEMPLATES):
        resource_spans = ResourceSpans(
            scope_spans=[ScopeSpans(spans=[_span(chance) for _ in range(SPANS)])]
        )
        for key, value in (
            ("service.name", f"agent-{number % 4}"),
            ("service.version", f"2.{number % 5}.1"),
            ("host.name", f"ip-10-0-{number % 4}"),
            ("process.pid", 1000 + number),
        ):
            resource_spans.resource.attributes.append(_pair(key, value))
        request = ExportTraceServiceRequest(resource_spans=[resource_spans])
        body = request.SerializeToString()
        ids = []
        for span in resource_spans.scope_spans[0].spans:
            ids += [body.index(span.trace_id), body.index(span.span_id)]
        templates.append(Template(body, ids))
    return templates


# ------------------------------------------------------------------------------- load generator


class Sent(NamedTuple):
    """What one run of the generator saw."""

    spans: int
    latencies_s: list[float]
    others: int
    wall_s: float


def _bodies(templates: list[Template], first: int, step: int) -> Iterator[bytes]:
    """Requests without end, the ids of each begin with its number."""
    buffers = [bytearray(template.body) for template in templates]
    number = first
    while True:
        index = number % len(templates)
        mark = number.to_bytes(4)
        for at in templates[index].ids:
            buffers[index][at : at + 4] = mark
        yield bytes(buffers[index])
        number += step


class _HttpClient:
    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port)

    def send(self, body: bytes) -> bool:
        headers = {"Content-Type": "application/x-protobuf"}
        self._connection.request("POST", "/v1/traces", body, headers)
        response = self._connection.getresponse()
        response.read()
        return response.status == 200


class _GrpcClient:
    def __init__(self, address: str) -> None:
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_send_message_length", -1)]
        channel = grpc.insecure_channel(address, options)
        method = f"/{WIRE[Signal.TRACES].grpc_service}/Export"
        self._export = channel.unary_unary(method, None, None)

    def send(self, body: bytes) -> bool:
        try:
            self._export(body)
        except grpc.RpcError:
            return False
        return True


def generate(arguments: argparse.Namespace) -> None:
    """The process of the generator: sends, and prints what it saw as JSON."""
    templates = make_templates()
    make = _GrpcClient if arguments.grpc else _HttpClient
    left = iter(range(arguments.requests))
    lock = threading.Lock()
    latencies: list[float] = []
    others = 0
    # Every connection begins at another moment of the pause, or all would send at once.
    pause_s = arguments.connections / arguments.rate if arguments.rate else 0.0
    ends_s = time.perf_counter() + (arguments.seconds or 1e9)

    def run(number: int) -> None:
        nonlocal others
        client = make(arguments.send)
        bodies = _bodies(templates, arguments.first + number, arguments.connections)
        next_s = time.perf_counter() + pause_s * number / arguments.connections
        while time.perf_counter() < ends_s:
            with lock:
                if next(left, None) is None:
                    return
            body = next(bodies)
            if pause_s:
                time.sleep(max(0.0, next_s - time.perf_counter()))
                next_s += pause_s
            started_s = time.perf_counter()
            stored = client.send(body)
            took_s = time.perf_counter() - started_s
            with lock:
                if stored:
                    latencies.append(took_s)
                else:
                    others += 1
            if not stored:
                time.sleep(0.1)

    started_s = time.perf_counter()
    threads = [threading.Thread(target=run, args=[n]) for n in range(arguments.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wall_s = time.perf_counter() - started_s
    print(json.dumps(Sent(len(latencies) * SPANS, latencies, others, wall_s)._asdict()))


# ------------------------------------------------------------------------------------ collector


class Run(NamedTuple):
    """What one run of the collector cost."""

    sent: list[Sent]
    cpu_s: list[float]
    """For each load until the next begins; the last one until all of it is Parquet."""
    peak_rss_mib: float
    lake: Path


def run_collector(arguments: argparse.Namespace, folder: Path, loads: list[list[str]]) -> Run:
    """Start a collector, send loads one after the other, stop it."""
    data_dir = folder / "lake"
    shutil.rmtree(data_dir, ignore_errors=True)
    command = [sys.executable, "-m", "toolverdict.collector", "--data", str(data_dir), "--json"]
    command += ["--grpc-port", "0", "--http-port", "0", "--workers", str(arguments.workers)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    addresses = json.loads(process.stdout.readline())
    address = addresses["grpc" if arguments.grpc else "http"]
    cpu_s = [sum(map(_cpu_s, _tree(process.pid)))]
    sent = []
    peak_kib = 0
    for number, load in enumerate(loads):
        generator = [sys.executable, __file__, "--send", address, "--first", str(number << 24)]
        generator += ["--connections", str(arguments.connections), *load]
        if arguments.grpc:
            generator.append("--grpc")
        output = subprocess.run(generator, check=True, capture_output=True, text=True).stdout
        sent.append(Sent(**json.loads(output)))
        peak_kib = max(peak_kib, sum(map(_peak_kib, _tree(process.pid))))
        if number + 1 < len(loads):
            # The next load begins with nothing of this one left to do.
            _wait_for_an_empty_log(data_dir)
            cpu_s.append(sum(map(_cpu_s, _tree(process.pid))))
    process.terminate()
    _, _, usage = os.wait4(process.pid, 0)
    process.stdout.close()
    cpu_s.append(usage.ru_utime + usage.ru_stime)
    costs = [after - before for before, after in pairwise(cpu_s)]
    return Run(sent, costs, max(peak_kib, usage.ru_maxrss) / 1024, data_dir)


def _wait_for_an_empty_log(data_dir: Path) -> None:
    while any((data_dir / "wal").rglob("*.log")):
        time.sleep(0.2)


def _tree(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_kib(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1])
    return 0


# --------------------------------------------------------------------------------------- floors


def decode_floor(templates: list[Template]) -> float:
    """CPU seconds a million spans for decoding alone, of what was judged."""
    builder = decoder().rows(Signal.TRACES, judged=True)
    for template in templates[:4]:  # the dictionaries of a warm builder
        builder.feed(template.body, 1)
    builder.take()
    started_s = time.process_time()
    for round_number in range(4):
        for template in templates:
            builder.feed(template.body, round_number)
        builder.take()
    return (time.process_time() - started_s) / (4 * len(templates) * SPANS) * 1e6


def judge_floor(templates: list[Template]) -> float:
    """CPU seconds a million spans for judging alone."""
    started_s = time.process_time()
    for _ in range(4):
        for template in templates:
            decoder().judge(Signal.TRACES, template.body, Limits())
    return (time.process_time() - started_s) / (4 * len(templates) * SPANS) * 1e6


def parquet_floor(templates: list[Template], folder: Path) -> float:
    """CPU seconds a million spans for writing parts alone, sorted and synced."""
    builder = decoder().rows(Signal.TRACES)
    for template in templates:
        builder.feed(template.body, 1)
    table = builder.take()
    lake_folder = folder / "floor"
    lake_folder.mkdir()
    lake = Lake.create(lake_folder)
    segment = new_segment_id(0)
    before = resource.getrusage(resource.RUSAGE_SELF)
    for number in range(3):
        write_part(lake, segment, Signal.TRACES, 0, table, number)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu_s / (3 * table.num_rows) * 1e6


# --------------------------------------------------------------------------------------- figures


def measure(arguments: argparse.Namespace, folder: Path) -> None:
    """Print the cost, the latency at half of the rate, and the floors."""
    keep_freed_memory()  # the floors have it as the collector does
    templates = make_templates()
    size = sum(len(template.body) for template in templates) / TEMPLATES
    print(f"load: {SPANS} spans a request, {size / 1000:.0f} KB, {size / SPANS:.0f} bytes a span")
    print(f"decoder: {decoder_in_use()}, workers: {arguments.workers}")
    for name, cost in (
        ("floor, judge only", judge_floor(templates)),
        ("floor, decode only", decode_floor(templates)),
        ("floor, Parquet write only", parquet_floor(templates, folder)),
    ):
        print(f"{name:28}{cost:8.2f} CPU s a million spans{1e6 / cost:12,.0f} spans a CPU s")
    loads = [["--requests", str(count)] for count in (WARM_UP, arguments.requests)]
    run = run_collector(arguments, folder, loads)
    warm_up, sent = run.sent
    rows = _stored(run.lake)
    spans = warm_up.spans + sent.spans
    for name, cost in (
        ("whole collector, all of it", sum(run.cpu_s) / spans * 1e6),
        ("whole collector, warm", run.cpu_s[1] / sent.spans * 1e6),
    ):
        print(f"{name:28}{cost:8.2f} CPU s a million spans{1e6 / cost:12,.0f} spans a CPU s")
    others = warm_up.others + sent.others
    print(f"acknowledged {spans:,} spans, stored {rows:,}, other answers {others}")
    on_disk = sum(path.stat().st_size for path in run.lake.rglob("*.parquet"))
    print(f"peak RSS {run.peak_rss_mib:.0f} MiB, {on_disk / rows:.0f} bytes a span on disk")
    rate = sent.spans / SPANS / sent.wall_s
    half = ["--requests", str(arguments.requests), "--rate", f"{rate / 2:.1f}"]
    (steady,) = run_collector(arguments, folder, [half]).sent
    latencies = sorted(steady.latencies_s)
    print(
        f"wall-clock, generator on the same CPUs: {rate * SPANS:,.0f} spans/s at most; at half of "
        f"it answers took {_at(latencies, 0.5):.1f} ms (p50), {_at(latencies, 0.99):.1f} ms (p99)"
    )


def overload(arguments: argparse.Namespace, folder: Path) -> None:
    """Print the peak of the memory when far more comes than can be stored."""
    load = ["--requests", str(10**9), "--seconds", str(arguments.overload)]
    run = run_collector(arguments, folder, [load])
    (sent,) = run.sent
    print(
        f"{arguments.overload} s, {arguments.connections} connections: peak RSS "
        f"{run.peak_rss_mib:.0f} MiB; acknowledged {sent.spans:,} spans, stored "
        f"{_stored(run.lake):,}, refused for a while {sent.others} requests"
    )


def _stored(lake: Path) -> int:
    return Lake.open(lake).read_spans(0, ["kind"]).num_rows


def _at(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the whole collector.")
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--grpc", action="store_true")
    parser.add_argument("--overload", type=float, metavar="SECONDS")
    for name, kind in (("--send", str), ("--first", int), ("--rate", float), ("--seconds", float)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.send:
        generate(arguments)
        return
    with tempfile.TemporaryDirectory() as folder:
        act: Any = overload if arguments.overload else measure
        act(arguments, Path(folder))


if __name__ == "__main__":
    main()
