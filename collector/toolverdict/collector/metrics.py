"""What the collector counts, as Prometheus reads it.

Every series is declared here, so there are as many as there are lines below, whatever clients send.
The numbers are in one file, mapped into memory, with a row for each worker process: a worker writes
its own row and whoever is asked adds up all of them. A worker that starts again goes on counting.
Not kept beyond the start of the collector, never synced.
"""

import mmap
import os
import threading
from bisect import bisect_left
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

from toolverdict.collector.errors import CODES
from toolverdict.collector.signals import Signal
from toolverdict.collector.validate import REASONS

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX: Final = "toolverdict_collector_"
_SIGNALS: Final = tuple(signal.name.lower() for signal in Signal)
_TRANSPORTS: Final = ("grpc", "http")
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
_INFINITE: Final = "+Inf"


class _Family(NamedTuple):
    kind: str
    help: str
    labels: dict[str, tuple[str, ...]]
    """Names of labels with every value they can have."""


_BY_SIGNAL: Final = {"signal": _SIGNALS}
_FAMILIES: Final[dict[str, _Family]] = {
    "requests_total": _Family(
        "counter",
        "Requests answered, by the name of the HTTP or gRPC status.",
        {"signal": _SIGNALS, "transport": _TRANSPORTS, "code": CODES},
    ),
    "received_bytes_total": _Family(
        "counter",
        "Bytes of request bodies, inflated.",
        {"signal": _SIGNALS, "transport": _TRANSPORTS},
    ),
    "accepted_total": _Family(
        "counter", "Spans and log records acknowledged, so on the disk.", _BY_SIGNAL
    ),
    "rejected_total": _Family(
        "counter",
        "Spans and log records refused for good by partial success, by the field at fault.",
        {"signal": _SIGNALS, "reason": REASONS},
    ),
    "stored_total": _Family("counter", "Spans and log records written to Parquet.", _BY_SIGNAL),
    "empty_json_requests_total": _Family(
        "counter", "JSON requests without a record: data for another path?", {}
    ),
    "segments_quarantined_total": _Family("counter", "Segments of the log set aside.", {}),
    "segments_lost_total": _Family("counter", "Segments of the log someone else took away.", {}),
    "inflight_bytes": _Family("gauge", "Bytes of requests in memory.", {}),
    "wal_backlog_bytes": _Family("gauge", "Bytes of sealed segments that are not Parquet yet.", {}),
    "ready": _Family("gauge", "Processes whose log can be written.", {}),
    "fsync_seconds": _Family("histogram", "Time to bring one group of requests to the disk.", {}),
    "flush_seconds": _Family("histogram", "Time to turn one segment into Parquet.", {}),
}


def _series() -> Iterator[tuple[str, tuple[str, ...]]]:
    for name, family in _FAMILIES.items():
        if family.kind == "histogram":
            yield from ((name, (str(bound),)) for bound in (*_SECONDS, _INFINITE))
            yield name, ("sum",)
        else:
            yield from ((name, values) for values in product(*family.labels.values()))


_SLOTS: Final = {series: slot for slot, series in enumerate(_series())}
_ROW_BYTES: Final = 8 * len(_SLOTS)


class Metrics:
    """The numbers of one process, and the sums over all of them."""

    def __init__(self, file: Path, row: int | None = None, rows: int = 1) -> None:
        """Map the file.

        Args:
            file: where the numbers are.
            row: which row of an existing file is ours; None begins a new file and takes the first.
            rows: how many a new file has.

        Raises:
            OSError: when the file cannot be made or mapped.
        """
        flags = os.O_RDWR | (os.O_CREAT | os.O_TRUNC if row is None else 0)
        descriptor = os.open(file, flags, 0o640)
        try:
            if row is None:
                os.ftruncate(descriptor, rows * _ROW_BYTES)
            self._map = mmap.mmap(descriptor, 0)
        finally:
            os.close(descriptor)
        self._cells = memoryview(self._map).cast("d")
        self._first = (row or 0) * len(_SLOTS)
        self._lock = threading.Lock()
        for name, family in _FAMILIES.items():
            if family.kind == "gauge":
                self.set(name, 0)

    def add(self, name: str, *labels: str, amount: float = 1) -> None:
        """Count up; a label that is not declared is a mistake of ours and raises KeyError."""
        slot = self._first + _SLOTS[name, labels]
        with self._lock:
            self._cells[slot] += amount

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge, or a counter that is kept elsewhere."""
        self._cells[self._first + _SLOTS[name, labels]] = value

    def observe(self, name: str, seconds: float) -> None:
        """Note one duration in a histogram."""
        index = bisect_left(_SECONDS, seconds)
        self.add(name, str(_SECONDS[index]) if index < len(_SECONDS) else _INFINITE)
        self.add(name, "sum", amount=seconds)

    def close(self) -> None:
        """Unmap the file."""
        self._cells.release()
        self._map.close()

    def text(self, info: dict[str, str]) -> str:
        """All series, summed over the rows, in the text format of Prometheus.

        Args:
            info: labels of ``toolverdict_collector_info``: versions, which decoder is in use.
        """
        totals = self._totals()
        labels = ",".join(f'{name}="{_escaped(value)}"' for name, value in info.items())
        lines = [
            f"# HELP {_PREFIX}info What runs here.",
            f"# TYPE {_PREFIX}info gauge",
            f"{_PREFIX}info{{{labels}}} 1",
        ]
        for name, family in _FAMILIES.items():
            lines += [
                f"# HELP {_PREFIX}{name} {family.help}",
                f"# TYPE {_PREFIX}{name} {family.kind}",
            ]
            if family.kind == "histogram":
                lines += _histogram(name, totals)
                continue
            for values in product(*family.labels.values()):
                value = totals[_SLOTS[name, values]]
                # A combination that never was, as an HTTP code over gRPC, is left out.
                if value or "code" not in family.labels:
                    pairs = zip(family.labels, values, strict=True)
                    inner = ",".join(f'{label}="{text}"' for label, text in pairs)
                    braces = f"{{{inner}}}" if inner else ""
                    lines.append(f"{_PREFIX}{name}{braces} {_number(value)}")
        return "\n".join(lines) + "\n"

    def _totals(self) -> list[float]:
        cells = self._cells.tolist()
        width = len(_SLOTS)
        return [sum(cells[slot::width]) for slot in range(width)]


def _histogram(name: str, totals: list[float]) -> Iterator[str]:
    count = 0.0
    for bound in (*map(str, _SECONDS), _INFINITE):
        count += totals[_SLOTS[name, (bound,)]]
        yield f'{_PREFIX}{name}_bucket{{le="{bound}"}} {_number(count)}'
    yield f"{_PREFIX}{name}_sum {_number(totals[_SLOTS[name, ('sum',)]])}"
    yield f"{_PREFIX}{name}_count {_number(count)}"


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
