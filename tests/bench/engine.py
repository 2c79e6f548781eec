"""What scoring costs at any size: CPU seconds per million spans, memory, and the floor beside it.

    python -m tests.bench.engine [--spans 1 2 5 10] [--workers 2] [--lakes DIR]

Each size is a lake of :mod:`load`, scored by ``load_policy.yaml`` in a process of its own: CPU of
that process and its workers, the largest sum of their proportional memory (PSS), wall time over CPU
time by cores. The *floor* reads and groups the same columns by trace, and maps a function of nothing
over the groups: what is left when nothing is judged and nothing written. Nothing is asserted.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tests.bench.load import POLICY, write

from toolverdict.collector.lake import Lake
from toolverdict.collector.lake.part_file import read_groups, trace_starts
from toolverdict.collector.signals import Signal
from toolverdict.instrument.policy import Policy
from toolverdict.scoring.engine.source import SPAN_ROWS
from toolverdict.scoring.run import Engines, Inputs, score

MILLION = 1_000_000
_EVERY_S = 0.2
_TICKS = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    """What a process and its children took."""

    cpu_s: float
    wall_s: float
    peak_mib: float


def floor(lake: Path) -> None:
    """Reads, groups and maps, and nothing else."""
    opened, groups = Lake.open(lake), 0
    for bucket in range(opened.buckets):
        for part in opened.current(Signal.TRACES, bucket):
            for table in read_groups(opened.store, part.name, SPAN_ROWS):
                starts = np.array([0, *trace_starts(table.column("trace_id"))])
                durations = table["end_time_unix_nano"].to_numpy()
                groups += len(np.maximum.reduceat(durations, starts))
    print(f"{groups} groups", file=sys.stderr)


def scored(lake: Path, workers: int) -> None:
    """The whole road, with every rate."""
    with tempfile.TemporaryDirectory(dir=lake.parent) as out:
        score(
            Inputs(lake, Policy.load(POLICY)), Path(out) / "out", engines=Engines("local", workers)
        )


def measured(what: str, lake: Path, workers: int) -> Cost:
    """Runs one of both in a process of its own, and watches it."""
    words = [sys.executable, "-m", "tests.bench.engine", "--run", what, str(lake), str(workers)]
    began = time.monotonic()
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, start_new_session=True)
    peak, spent = 0, dict[int, float]()
    while process.poll() is None:
        spent.update(session := _session(process.pid))
        peak = max(peak, sum(map(_pss, session)))
        time.sleep(_EVERY_S)
    if process.returncode:
        raise SystemExit(f"{what} of {lake} failed")
    return Cost(sum(spent.values()), time.monotonic() - began, peak / 1024)


def _session(leader: int) -> dict[int, float]:
    """The CPU seconds so far of a process and all that it has begun, workers of workers, too."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader:
                found[int(path.name)] = (int(fields[11]) + int(fields[12])) / _TICKS
    return found


def _pss(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def main() -> None:
    """Prints a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--spans", type=float, nargs="+", default=[1, 2, 5, 10], help="millions")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--lakes", type=Path, help="where lakes are kept for the next time")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        what, lake, workers = given.run
        floor(Path(lake)) if what == "floor" else scored(Path(lake), int(workers))
        return
    with tempfile.TemporaryDirectory() as scratch:
        for millions in given.spans:
            lake = (given.lakes or Path(scratch)) / f"{millions:g}"
            if not (lake / "lake.json").exists():
                write(lake, round(millions * MILLION))
            least, whole = (measured(what, lake, given.workers) for what in ("floor", "scored"))
            ideal = whole.cpu_s / given.workers
            print(
                f"{millions:g} M spans, {given.workers} workers: "
                f"{whole.cpu_s / millions:.2f} CPU s per million (floor {least.cpu_s / millions:.2f}), "
                f"peak {whole.peak_mib:.0f} MiB (PSS), wall {whole.wall_s:.0f} s, "
                f"{whole.wall_s / ideal:.2f} x CPU/workers",
                flush=True,
            )


if __name__ == "__main__":
    main()
