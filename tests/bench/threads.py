"""Do decorated tools in many threads lose a span that the exporter accepted?

    .venv/bin/python tests/bench/threads.py [seconds] [threads]

Threads call a decorated tool 50 times a second each; the spans go through the SDK's batch processor
and the OTLP exporter to a real collector, which is then stopped, and its lake is counted. What a full
queue drops is said in a warning with its count, never silent. So "missing from the lake" must equal
the count of that warning, or be 0 without one: the exporter lost nothing that it took. Nothing is
asserted.
"""

import logging
import sys
import tempfile
import threading
import time
from pathlib import Path

from toolverdict.collector import Lake
from toolverdict.collector.testing import running_collector
from toolverdict.instrument import configure, tool, trajectory


@tool(labels=["read"])
def get_order(order_id: str) -> str:
    """The work itself: none."""
    return order_id


def main(seconds: float, threads: int) -> None:
    """Runs the load and prints one line per figure."""
    made = [0] * threads
    stop = threading.Event()

    def work(number: int) -> None:
        with trajectory(f"agent-{number}"):
            while not stop.is_set():
                get_order(f"o-{made[number]}")
                made[number] += 1
                time.sleep(0.02)  # 64 threads at 50 calls a second: busy, and not a closed loop

    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder) / "lake"
        with running_collector(lake) as collector:
            telemetry = configure(endpoint=f"http://{collector.grpc}", hash_key="5a" * 32)
            workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
            for worker in workers:
                worker.start()
            time.sleep(seconds)
            stop.set()
            for worker in workers:
                worker.join()
            flushed = telemetry.flush(30)
            telemetry.shutdown()
        spans = Lake.open(lake).read_spans(0, ["name"])["name"].to_pylist()
    made_spans = 2 * sum(made) + threads  # call and body, and a trajectory for each thread
    print(f"calls made            {sum(made)}")
    print(f"spans made            {made_spans}")
    print(f"spans in the lake     {len(spans)}")
    print(f"missing from the lake {made_spans - len(spans)}")
    print(f"flushed in time       {flushed}")


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    arguments = [float(argument) for argument in sys.argv[1:]]
    main(arguments[0] if arguments else 30.0, int(arguments[1]) if len(arguments) > 1 else 64)
