"""What reading whole traces as columns costs, beside reading them span by span.

    python -m tests.bench.columns [--spans 1000000] [--by-span 50000]

Spans of our own dialect, as ``tests/bench/load.py`` writes them, out of a lake. CPU seconds, of one
process; the table is read from Parquet before, apart.
"""

import argparse
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from tests.bench import load

from toolverdict.collector import Lake
from toolverdict.scoring.columns.calls import call_columns
from toolverdict.scoring.columns.read import PlainTraces
from toolverdict.scoring.conversations import trajectories_of
from toolverdict.scoring.spans import COLUMNS, traces


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--by-span", type=int, default=50_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        load.write(Path(folder), chosen.spans)
        begin = time.process_time()
        table = Lake.open(folder).read_spans(0, COLUMNS)
        _print("lake to table, sorted", table.num_rows, time.process_time() - begin)
    for times in ("first time", "kinds known"):
        begin = time.process_time()
        plain = PlainTraces(table)
        calls = call_columns(plain)
        _print(f"as columns, {times}", table.num_rows, time.process_time() - begin)
    share = plain.plain.mean()
    print(f"  {share:.2%} of the spans are read so; {len(calls['tool']):,} calls")
    part = plain.table.filter(pa.array(plain.plain)).slice(0, chosen.by_span)
    begin = time.process_time()
    found = sum(len(one.calls) for one in trajectories_of(traces(part)))
    _print("span by span", part.num_rows, time.process_time() - begin)
    print(f"  {found:,} calls")


def _print(what: str, spans: int, cpu_s: float) -> None:
    print(
        f"{what:28} {spans:>10,} spans {cpu_s:7.2f} CPU s "
        f"{cpu_s / spans * 1e6:7.2f} CPU s a million {spans / cpu_s:>12,.0f} spans a CPU s"
    )


if __name__ == "__main__":
    main()
