"""What decoding costs, step by step, in spans per second of CPU. Run it:

    python -m tests.bench.collector_decode

The floor is what Parquet alone takes; a collector cannot be faster than its steps together, which
the last line adds up for one process that receives, judges, logs and stores (without the network).
"""

import argparse
import time
from collections.abc import Callable, Sequence

import pyarrow as pa
from tests.bench.agent_load import SPANS_OF_A_REQUEST, requests

from toolverdict.collector.allocator import keep_freed_memory
from toolverdict.collector.decode import PythonDecoder, parse
from toolverdict.collector.decoders import Decoder
from toolverdict.collector.lake.part_file import PartWriter, sort
from toolverdict.collector.limits import Limits
from toolverdict.collector.native import NativeDecoder
from toolverdict.collector.signals import Signal

LIMITS = Limits()


def main() -> None:
    """Measure every step a few times and print the best of each."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=48, help="of 512 spans")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    keep_freed_memory()
    bodies = requests(options.requests)
    spans = len(bodies) * SPANS_OF_A_REQUEST
    print(f"{spans} spans, {sum(map(len, bodies)) / spans:.0f} bytes a span in protobuf")
    python, native = PythonDecoder(), NativeDecoder()
    table = decoded(native, bodies)
    in_order = sort(Signal.TRACES, table)
    assert table == decoded(python, bodies)

    def measure(name: str, rounds: int, work: Callable[[], object]) -> float:
        seconds = min(cpu_seconds(work) for _ in range(rounds))
        print(f"{name:28}{spans / seconds:>12,.0f} spans/cpu-s {1e6 * seconds / spans:>8.2f} us")
        return seconds

    rounds = options.rounds
    measure("parse with upb alone", rounds, lambda: [parse(Signal.TRACES, body) for body in bodies])
    measure("python: judge", 1, lambda: judged(python, bodies))
    measure("python: decode to a table", 1, lambda: decoded(python, bodies))
    steps = [
        measure("native: judge", rounds, lambda: judged(native, bodies)),
        measure("native: decode to a table", rounds, lambda: decoded(native, bodies)),
        measure("sort by trace", rounds, lambda: sort(Signal.TRACES, table)),
        measure("write as Parquet", rounds, lambda: written(in_order)),
    ]
    print(f"{'all native steps together':28}{spans / sum(steps):>12,.0f} spans/cpu-s")
    print(f"Parquet: {written(in_order) / spans:.0f} bytes a span")


def judged(which: Decoder, bodies: Sequence[bytes]) -> None:
    """As intake does."""
    for body in bodies:
        which.judge(Signal.TRACES, body, LIMITS)


def decoded(which: Decoder, bodies: Sequence[bytes]) -> pa.Table:
    """As the flusher does."""
    builder = which.rows(Signal.TRACES)
    for body in bodies:
        builder.feed(body, 1)
    return builder.take()


def written(table: pa.Table) -> int:
    """One part, in memory; returns its size in bytes."""
    sink = pa.BufferOutputStream()
    writer = PartWriter(sink, Signal.TRACES, table.schema)
    writer.write(table)
    writer.close()
    return sink.getvalue().size


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU time of the whole process, all threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


if __name__ == "__main__":
    main()
