"""How many spans the scorer reads per CPU second, on recordings of real agents repeated.

    python tests/bench/scoring.py [REPEATS]

CPU time of this process, the best of three; nothing is asserted.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from toolverdict.collector.decode import decode, table_of
from toolverdict.collector.signals import WIRE, Signal
from toolverdict.scoring.reading import read_trace
from toolverdict.scoring.spans import COLUMNS, LOG_COLUMNS, log_records, traces
from toolverdict.scoring.unit import Rules, score_unit

RECORDINGS = Path(__file__).parent.parent / "data" / "recordings"
SIGNALS = {wire.http_path: signal for signal, wire in WIRE.items()}


def tables(repeats: int) -> tuple[pa.Table, pa.Table]:
    """Spans and log records of all recordings, each time under trace ids of their own."""
    rows: dict[Signal, list[list[Any]]] = {Signal.TRACES: [], Signal.LOGS: []}
    for folder in sorted(path for path in RECORDINGS.iterdir() if path.is_dir()):
        for line in (folder / "requests.jsonl").read_text().splitlines():
            entry = json.loads(line)
            signal = SIGNALS.get(entry["path"])
            if signal is not None:
                rows[signal].extend(decode(signal, (folder / entry["file"]).read_bytes(), 1))
    repeated = {
        signal: [
            [row[0] and f"{number:04x}{row[0][4:]}", *row[1:]]
            for number in range(repeats)
            for row in one
        ]
        for signal, one in rows.items()
    }
    spans = table_of(Signal.TRACES, repeated[Signal.TRACES]).select(COLUMNS)
    logs = table_of(Signal.LOGS, repeated[Signal.LOGS]).select(LOG_COLUMNS)
    return spans.sort_by([("trace_id", "ascending")]), logs


def main(repeats: int) -> None:
    """Print the rates of reading and of scoring whole."""
    spans, logs = tables(repeats)
    read, whole = [], []
    for _ in range(3):
        start = time.process_time()
        records: dict[str | None, list[Any]] = {}
        for record in log_records(logs):
            records.setdefault(record.trace_id, []).append(record)
        for trace in traces(spans):
            read_trace(trace, records.get(trace[0].trace_id, ()))
        read.append(time.process_time() - start)
        start = time.process_time()
        score_unit(spans, Rules(), logs)
        whole.append(time.process_time() - start)
    count = spans.num_rows
    print(
        f"{count} spans, {logs.num_rows} log records: read {count / min(read):,.0f} spans per CPU "
        f"second, scored whole {count / min(whole):,.0f}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
